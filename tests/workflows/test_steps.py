"""Tasks, waits and events: what they are to the code, and to type checkers."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, assert_type

import msgspec
import pytest

from actorflow.behaviours import BadBehaviour, Linger, Queue
from actorflow.engine.errors import NotStorable
from actorflow.workflows.errors import InvalidStep, StepFailed, WorkflowModified
from actorflow.workflows.suspended.step import Step
from actorflow.workflows.task import Task, task
from actorflow.workflows.wait import Event, Wait
from actorflow.workflows.workflow import First, Workflow

if TYPE_CHECKING:
    from collections.abc import Sequence


class Hold(msgspec.Struct):
    id: str


@task
def charge(order: str, amount: int = 1) -> Hold:
    return Hold(f"{order} {amount}")


@task(retries=3, timeout=30, concurrency=2, executor="thread", name="stock.reserve")
async def reserve(*items: str, **amounts: int) -> list[str]:
    return [*items, *amounts]


@task(batch=Linger(Queue(), 0.02, size=64))
def embed(texts: list[str]) -> list[Hold]:
    return [Hold(text) for text in texts]


def test_a_call_of_a_task_is_a_step() -> None:
    step = charge("o-1", amount=40)
    assert (step.type, step.name) == ("task", "charge")
    assert step.input == {"order": "o-1", "amount": 40}
    assert repr(step) == "<task charge({'order': 'o-1', 'amount': 40})>"
    args, kwargs = charge.arguments(step.input)
    assert charge.function(*args, **kwargs) == Hold("o-1 40")
    assert charge.read(charge.write(Hold("x"))) == Hold("x")


def test_defaults_are_not_part_of_a_step() -> None:
    assert charge("o-1").input == {"order": "o-1"}, "R22: a new default modifies nothing"


def test_variable_arguments_come_back() -> None:
    step = reserve("a", "b", c=1)
    assert step.name == "stock.reserve"
    args, kwargs = reserve.arguments(step.input)
    assert (args, kwargs) == (("a", "b"), {"c": 1})
    assert asyncio.run(reserve.function(*args, **kwargs)) == ["a", "b", "c"]


def test_a_batched_task_is_called_with_one_item() -> None:
    step = embed("hello")
    assert step.input == {"texts": "hello"}
    assert embed.read({"id": "hello"}) == Hold("hello")


def test_wrong_arguments_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"charge\(order: .*missing a required argument: 'order'"):
        charge()  # type: ignore[call-arg]
    with pytest.raises(NotStorable, match=r"the argument 'order' of the task charge .*use plain"):
        charge(object())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retries": -1}, "retries=-1: retries must be a whole number, 0 or more"),
        ({"retries": "3"}, r"retries='3': .* as in task\(retries=3\)"),
        ({"retries": True}, "retries=True: retries must be a whole number"),
        ({"backoff": -1}, "backoff=-1: backoff must be a finite number of seconds, zero or more"),
        ({"backoff": float("inf")}, "backoff=inf: backoff must be a finite number"),
        ({"timeout": 0}, "timeout=0: timeout must be a finite number of seconds, positive"),
        ({"timeout": "30"}, r"timeout='30': .* as in task\(timeout=30\)"),
        ({"concurrency": 0}, "concurrency=0: concurrency must be a whole number, 1 or more"),
        ({"rertries": 3}, "task has no option 'rertries'; did you mean 'retries'"),
        ({"executor": "moon"}, "executor='moon': use one of thread, process, loop"),
        ({"env": "test"}, r"env='test': only tasks of other languages .* task\(lang='javascript'"),
        ({"name": 5}, r"name=5: name must be a printable text of 1 to 1,000 characters, as in"),
        ({"name": ""}, "name='': name must be a printable text"),
        ({"name": "a\nb"}, "name must be a printable text"),
        ({"lang": 5}, "lang=5: lang must be a printable text of 1 to 200 characters without '/'"),
        ({"lang": ""}, "lang='': lang must be .*, as in lang='javascript'"),
        ({"lang": "a/b"}, "lang='a/b': lang must be"),
        ({"lang": "go", "env": ""}, "env='': env must be .*, as in env='test'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidStep, match=words):
        task(**options)


def test_a_batch_that_is_no_behaviour_is_refused_where_it_stands() -> None:
    with pytest.raises(BadBehaviour, match="5 is not a behaviour"):
        task(batch=5)


def test_a_task_is_a_function_with_a_name() -> None:
    given: Any
    for given in (5, "charge", charge):
        with pytest.raises(InvalidStep, match="@task goes before a function, not"):
            task(given)
    with pytest.raises(InvalidStep, match=r"has no name; write task\(name=...\)"):
        task(partial(len))
    assert task(name="length")(partial(len, "abc")).name == "length"


def test_a_batched_task_takes_one_list() -> None:
    def two(texts: list[str], more: list[str]) -> list[str]:
        return texts + more

    with pytest.raises(InvalidStep, match="the task two takes 2 arguments"):
        task(batch=Queue())(two)  # type: ignore[arg-type]


def test_a_wait_has_a_limit_of_time_an_event_or_both() -> None:
    wait: Wait[Any] = Wait("paid", days=1, hours=2, minutes=3, seconds=4)
    assert (wait.event, wait.duration) == ("paid", 93784)
    assert wait.input == {"event": "paid", "duration": 93784}
    until: Wait[Any] = Wait(until=datetime(2026, 1, 1, tzinfo=UTC))
    assert until.input == {"timestamp": 1767225600}
    assert Wait[Any](until=5).timestamp == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "this wait would never end"),
        ({"seconds": 1, "until": 5}, "either a duration or `until`"),
        ({"seconds": float("nan")}, "seconds=nan is not a duration"),
        ({"minutes": 1, "days": 10**9}, "minutes=1, days=1000000000 is not a duration"),
        ({"event": "paid", "hours": float("inf")}, "hours=inf is not a duration"),
        ({"seconds": "5"}, "seconds='5' is not a number, as in seconds=3"),
        ({"days": True}, "days=True is not a number"),
        ({"event": 5}, r"event=5 is neither the name .* Wait\('paid', seconds=5\)"),
        ({"until": "tomorrow"}, "until='tomorrow' is not a point in time: give an aware datetime"),
        ({"until": float("inf")}, "until=inf is not a point in time"),
        ({"event": "", "seconds": 1}, "event='' is not a name"),
        ({"event": "\ud800"}, r"event='\\ud800' is not a name"),
        ({"event": int}, "event=<class 'int'> is a class of Python: nobody can send one"),
        ({"until": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - refused
    ],
)
def test_a_wait_that_makes_no_sense_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidStep, match=words):
        Wait(**arguments)


def test_errors_survive_pickling() -> None:
    failed = StepFailed("0/1.0", "charge", {"name": "IOError", "message": "boom"})
    again = pickle.loads(pickle.dumps(failed))  # noqa: S301 - our own
    assert str(again) == str(failed) == "charge (0/1.0) failed with IOError: boom"
    modified = WorkflowModified("Order", "branch 0", "0.0", "a", "b")
    assert str(pickle.loads(pickle.dumps(modified))) == str(modified)  # noqa: S301


class Child(Workflow[int]):
    def handle(self) -> int:
        return 1


class Typed(Workflow[str]):
    """Never runs: what mypy makes of it is the test."""

    def handle(self) -> str:
        assert_type(charge("o-1"), Step[Hold])
        assert_type(self.execute(charge("o-1")), Hold)
        assert_type(self.execute(charge("o-1"), Child()), tuple[Hold, int])
        assert_type(self.execute_all([embed("a")]), list[Hold])
        assert_type(self.wait("paid", days=3), Event | None)
        assert_type(self.wait(Hold, days=3), Hold | None)
        assert_type(self.wait("paid"), Event)
        assert_type(self.receive(Hold), Hold)
        assert_type(self.receive("paid", seconds=1), Event | None)
        assert_type(self.first(charge("o-1"), Child()), First[Hold | int])
        charge(7)  # type: ignore[arg-type]
        charge("o-1", "40")  # type: ignore[arg-type]
        embed(["a"])  # type: ignore[arg-type]
        self.execute("charge")  # type: ignore[call-overload]
        return "ok"

    def steps(self) -> Sequence[Task[..., Any]]:
        return [charge, reserve, embed]


class TypedAsync(Workflow[int]):
    async def handle(self) -> int:
        assert_type(await charge("o-1"), Hold)
        assert_type(await self.aexecute(reserve("a")), list[str])
        assert_type(await self.aexecute(charge("o-1"), Child()), tuple[Hold, int])
        both = await asyncio.gather(charge("o-1"), reserve("b"))
        assert_type(both, tuple[Hold, list[str]])
        return 1


class Wrong(Workflow[int]):
    def handle(self) -> str:  # type: ignore[override]
        return "no number"
