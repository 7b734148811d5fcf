"""`check_kind` accepts correct kinds, and catches faulty ones."""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

from actorflow import testing
from actorflow.behaviours import Queue, Unique
from actorflow.engine import bodies
from actorflow.engine.kind import (
    Failure,
    Message,
    NewTask,
    NewWatch,
    Options,
    Outcome,
    Outgoing,
    SetTimer,
    Status,
)
from actorflow.engine.kinds.cron import CronKind
from actorflow.engine.kinds.worker import DurableJob, WorkerKind
from actorflow.flows.execution import codec
from actorflow.flows.service.flows import _launch_body
from actorflow.flows.service.kind import FlowKind
from actorflow.flows.service.taskers import Directory
from actorflow.testing.kinds import RULES, check_kind
from tests.engine.kinds import Script, collect
from tests.engine.test_errand import errand  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.kind import Context


def worker(**options: Any) -> WorkerKind:
    kind = WorkerKind()
    given = {"state": [], "behaviour": Queue, "throttle": None, "on_failure": "isolate", **options}
    kind.add("checked", DurableJob(given.pop("job", collect), **given))
    return kind


async def collect_later(batch: list[Any], state: list[Any]) -> list[Any]:
    return [*state, *batch]


def test_it_is_found_under_its_public_name() -> None:
    assert testing.check_kind is check_kind


def test_the_durable_worker() -> None:
    check_kind(worker)
    check_kind(lambda: worker(job=collect_later), max_examples=20)
    check_kind(lambda: worker(behaviour=lambda: Unique(key=str)), max_examples=20)
    check_kind(lambda: worker(throttle=1.0), max_examples=20)


def test_the_schedule() -> None:
    plan = {"cron": "*/5 * * * *", "zone": "UTC", "to": "w", "kind": "worker", "body": [1]}
    check_kind(CronKind, messages=st.just({"set": plan}))


def test_the_kind_of_the_page(errand: Any) -> None:  # noqa: F811 - the fixture
    names = st.lists(st.sampled_from("abc"), max_size=3, unique=True)
    messages = st.fixed_dictionaries({"do": names}, optional={"helpers": names})
    talk = st.sampled_from([{"talk": "of what is checked"}, {"heard": "a storm"}, "nonsense"])
    check_kind(errand, messages=messages | talk, max_examples=300)


def test_a_script() -> None:
    check_kind(lambda: Script(lambda state, message: [*state, str(message)]))


class Right:
    """A kind that keeps all rules: it keeps what it got, sets a timer, hands out a task."""

    name = "right"

    def options(self, _execution: str) -> Options:
        return Options(behaviour=Queue)

    def decode(self, data: bytes | None) -> Any:
        return {"got": [], "runs": 0} if data is None else bodies.decode(data)

    def encode(self, state: Any) -> bytes:
        return bodies.encode(state)

    def run(self, context: Context, state: Any, batch: Any) -> Any:
        state["runs"] += 1
        state["got"] += [each.body for each in batch if type(each) is Message]
        outcome = Outcome(state=state)
        if state["runs"] > 4:
            outcome.status, outcome.result = Status.DONE, state["runs"]
            return outcome
        outcome.timers = [SetTimer("t", context.now + context.random.random())]
        outcome.tasks = [NewTask(f"{context.id}-{state['runs']}", "t", state["runs"])]
        outcome.messages = [Outgoing("other", state["runs"], "right")]
        return outcome


def test_one_that_keeps_all_rules() -> None:
    check_kind(Right)


class AsksTheClock(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return Outcome(state={**state, "at": time.time()})


class RollsDice(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return Outcome(state={**state, "dice": random.random()})


class RollsItsOwnDice(Right):
    dice = random.Random(1)

    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return Outcome(state={**state, "dice": self.dice.random()})


class HasAMemory(Right):
    def __init__(self) -> None:
        self.runs = 0

    def run(self, context: Context, state: Any, batch: Any) -> Any:
        self.runs += 1
        return Outcome(state={**state, "runs": self.runs})


class SharesAMemory(Right):
    count = itertools.count()

    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return Outcome(state={**state, "count": next(self.count)})


class Forgets(Right):
    """The state in memory knows more than the one in the store."""

    def encode(self, state: Any) -> bytes:
        return bodies.encode({**state, "runs": 0})


class KeepsTuples(Right):
    """A tuple comes back as a list, and is treated differently."""

    def run(self, context: Context, state: Any, batch: Any) -> Any:
        runs = state["runs"] + (2 if isinstance(state["got"], tuple) else 1)
        return Outcome(state={"got": tuple(state["got"]), "runs": runs})


class ChangesItsBatch(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        for each in batch:
            if type(each) is Message and type(each.body) is list:
                each.body.append(1)
        return super().run(context, state, batch)


class NumbersItsTimers(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return Outcome(state=state, timers=[SetTimer(7, context.now)])  # type: ignore[arg-type]


class SendsObjects(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return Outcome(state=state, messages=[Outgoing("other", {1, 2})])


class NeverFires(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return Outcome(state=state, timers=[SetTimer("t", float("inf"))])


class SetsWhenItEnds(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return Outcome(state=state, status=Status.DONE, watches=[NewWatch("w", 1)])


class IsDoneWithAnError(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return Outcome(state=state, status=Status.DONE, error=Failure("E", "no"))


class HasAResultTooEarly(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return Outcome(state=state, result=7)


class HandsOutTheSameTask(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return Outcome(state=state, tasks=[NewTask(f"{context.id}-task", "t")])


class NamesTasksAlike(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        state["runs"] += 1
        return Outcome(state=state, tasks=[NewTask(f"task-{state['runs']}", "t")])


class ReturnsItsState(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        return state


class Raises(Right):
    def run(self, context: Context, state: Any, batch: Any) -> Any:
        if any(type(each) is not Message for each in batch):
            raise TypeError("what is this?")
        return super().run(context, state, batch)


class SharesItsBehaviour(Right):
    queue = Queue()

    def options(self, _execution: str) -> Options:
        return Options(behaviour=self.queue)


class ForgotToUpgrade(Right):
    version = 2


class HasNoName(Right):
    name = 7  # type: ignore[assignment]


class StoresText(Right):
    def encode(self, state: Any) -> Any:
        return str(state)


MUTANTS: list[tuple[type[Any], str]] = [
    (AsksTheClock, "outside"),
    (RollsDice, "outside"),
    (RollsItsOwnDice, "pure"),
    (HasAMemory, "pure"),
    (SharesAMemory, "pure"),
    (Forgets, "state"),
    (KeepsTuples, "state"),
    (ChangesItsBatch, "hands off"),
    (NumbersItsTimers, "outcome"),
    (SendsObjects, "outcome"),
    (NeverFires, "outcome"),
    (SetsWhenItEnds, "ended"),
    (HasAResultTooEarly, "ended"),
    (IsDoneWithAnError, "ended"),
    (HandsOutTheSameTask, "tasks"),
    (NamesTasksAlike, "tasks"),
    (ReturnsItsState, "outcome"),
    (Raises, "errors"),
    (SharesItsBehaviour, "options"),
    (ForgotToUpgrade, "upgrade"),
    (HasNoName, "name"),
    (StoresText, "outcome"),
]


@pytest.mark.parametrize(("mutant", "rule"), MUTANTS, ids=[each.__name__ for each, _ in MUTANTS])
def test_a_mutant_is_caught(mutant: Callable[[], Any], rule: str) -> None:
    with pytest.raises(AssertionError) as told:
        check_kind(mutant)
    text = str(told.value)
    assert f"breaks the rule {rule!r}: {RULES[rule]}" in text, text


def test_every_rule_has_a_mutant() -> None:
    assert {rule for _, rule in MUTANTS} | {"round trip"} == set(RULES)


class Newer(Right):
    """A kind whose states were lists once."""

    version = 2

    def upgrade(self, data: bytes, version: int) -> bytes:
        assert version == 1
        return bodies.encode({"got": bodies.decode(data), "runs": 0})


def test_old_states_are_upgraded() -> None:
    check_kind(Newer, old={1: bodies.encode([1, 2])}, max_examples=10)

    class Careless(Newer):
        def upgrade(self, data: bytes, version: int) -> bytes:
            return data + b"?"

    with pytest.raises(AssertionError, match="round trip"):
        check_kind(Careless, old={1: bodies.encode([1, 2])}, max_examples=10)


def test_a_kind_may_refuse_what_it_says_it_refuses() -> None:
    check_kind(Raises, refuses=(TypeError,))


FLOWS = {
    "tasks": "sequence\n  task 'alice' 'a'\n  sleep '5s'\n  task 'bob' 'b'",
    "dice": "sequence\n  set f.x (random 1 7)\n  task 'alice' 'a' timeout: '10s'",
    "concurrence": "concurrence\n  task 'alice' 'a'\n  task 'bob' 'b'",
    "trap": "sequence\n  trap tag: 'x'\n    def msg\n      trace 'y'\n  task 'alice' 'a' tag: 'x'",
    "cron": "cron '* * * * *'\n  def msg\n    task 'alice' 'c'",
    "nothing": "stall _",
}


@pytest.mark.parametrize("name", FLOWS)
def test_flows(name: str) -> None:
    directory = Directory().with_tasker("alice").with_tasker("bob")
    launch = {**_launch_body(FLOWS[name], None, "domain", "unit"), "payload": {"n": 1}}
    signal = {"point": "signal", "name": "s", "payload": {}}
    later = st.sampled_from([{"point": "cancel", "nid": "0"}, signal, "nonsense"])
    check_kind(
        lambda: FlowKind(directory=lambda: directory),
        messages=st.just(launch) | later,
        results=st.just({"n": 2}),
        compared=codec.decode,
        max_examples=30,
    )
