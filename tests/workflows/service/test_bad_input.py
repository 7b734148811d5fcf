"""Errors appear where the user looks, and nothing is lost."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import actorflow as af
from actorflow.behaviours import BadBehaviour, Queue
from actorflow.cli import application
from actorflow.engine.errors import (
    ExecutionFailed,
    NotStorable,
    StateUnreadable,
    UnknownExecution,
    WaitTimeout,
)
from actorflow.runtime.errors import BadOption
from actorflow.workflows.errors import InvalidWorkflow, MessageRefused, StepFailed
from actorflow.workflows.task import Task
from tests.engine.kinds import rows, until
from tests.workflows.service.orders import PATIENCE, Order, charge, refund, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actorflow.testing import VirtualClock
    from actorflow.workflows.workflow import StepError, StepInfo


def test_a_property_that_cannot_be_stored(engine: af.Engine) -> None:
    order = Order("o-1")
    order.paid = object()  # type: ignore[assignment]
    with pytest.raises(NotStorable, match=r"the property 'paid' of Order"):
        engine.start(order, id="o-1")
    with pytest.raises(UnknownExecution):
        engine.execution("o-1")


def test_an_argument_that_cannot_be_stored(engine: af.Engine) -> None:
    class Gives(af.Workflow[int]):
        def handle(self) -> int:
            return self.execute(charge(object()))  # type: ignore[arg-type]

    with pytest.raises(ExecutionFailed, match="the argument 'order' of the task charge") as caught:
        engine.start(Gives()).result(PATIENCE)
    assert "in handle" in caught.value.failure.traceback


def test_data_of_an_event_that_cannot_be_stored(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"))
    with pytest.raises(NotStorable, match="the data of the event 'paid'"):
        order.send("paid", amount={1})


def test_a_result_that_cannot_be_stored(engine: af.Engine) -> None:
    class Returns(af.Workflow[Any]):
        def handle(self) -> Any:
            return object()

    with pytest.raises(ExecutionFailed, match="the result of Returns"):
        engine.start(Returns()).result(PATIENCE)


@pytest.mark.parametrize("value", [2**70, "\ud800"], ids=["huge", "surrogate"])
@pytest.mark.parametrize("place", ["property", "argument", "published", "result", "tag", "patch"])
def test_a_number_or_text_that_cannot_be_stored(engine: af.Engine, value: Any, place: str) -> None:
    class Odd(af.Workflow[Any]):
        def handle(self) -> Any:
            self.wait("go")
            match place:
                case "property":
                    self.odd = value
                case "argument":
                    self.execute(charge(value))
                case "published":
                    self.publish(value)
                case "result":
                    return value
                case "tag":
                    self.tag(odd=value)
                case "patch":
                    self.patched(value)
            return None

    odd = engine.start(Odd())
    wait_for_event(odd)
    odd.send("go")
    until(engine, lambda: odd.status == "stuck")
    assert odd.query().error["name"] == "NotStorable", "its code has failed, and can be resumed"
    assert rows(engine, "dead") == []


@pytest.mark.parametrize("value", [2**70, "\ud800"], ids=["huge", "surrogate"])
def test_f03_an_answer_that_cannot_be_stored_refuses_the_event(
    engine: af.Engine, value: Any
) -> None:
    class Odd(af.Workflow[str]):
        def handle(self) -> str:
            self.wait("go")
            return "gone"

        def on_event(self, event: af.Event) -> Any:
            return value if event.name == "odd" else None

    odd = engine.start(Odd())
    with pytest.raises(af.Refused, match="NotStorable: the result of on_event"):
        odd.ask("odd", timeout=PATIENCE)
    odd.send("go")
    assert odd.result(PATIENCE) == "gone"


def test_an_exception_in_handle_fails_the_instance_until_the_code_is_fixed(
    reopen: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(af.Workflow[str]):
        def __init__(self) -> None:
            self.seen = 0

        def handle(self) -> str:
            self.execute(charge("o-1"))
            event = self.wait("go")
            assert event is not None
            raise RuntimeError(f"no {event.data}")

        def on_event(self, event: af.Event) -> None:
            self.seen += 1

    class Fixed(af.Workflow[str]):
        seen: int

        def handle(self) -> str:
            self.execute(charge("o-1"))
            event = self.wait("go")
            assert event is not None
            return self.execute(refund(f"{event.data['n']} seen {self.seen}"))

        def on_event(self, event: af.Event) -> None:
            self.seen += 1

    Broken.__qualname__ = Fixed.__qualname__ = "Repaired"
    engine = reopen()
    broken = engine.start(Broken(), id="b")
    wait_for_event(broken)
    broken.send("go", n=1)
    with pytest.raises(ExecutionFailed, match=r"RuntimeError: no \{'n': 1\}") as caught:
        broken.result(PATIENCE)
    assert "raise RuntimeError" in caught.value.failure.traceback
    assert "execution='b'" in caplog.text
    assert "RuntimeError: no {'n': 1}" in caplog.text
    assert broken.query().mode == "failed"
    assert broken.query().error["name"] == "RuntimeError"
    with pytest.raises(ExecutionFailed):
        broken.ask("more", timeout=PATIENCE)
    broken.send("more")  # it is kept
    with pytest.raises(ExecutionFailed):
        broken.result(PATIENCE)
    broken.resume()
    with pytest.raises(ExecutionFailed):
        broken.result(PATIENCE)
    engine = reopen()
    fixed = engine.workflows
    fixed.register(Fixed)
    handle = fixed.get(Fixed, "b")
    with pytest.raises(ExecutionFailed):
        handle.result(PATIENCE)
    handle.resume()
    assert handle.result(PATIENCE) == "1 seen 1 refunded"
    assert handle.query().properties["seen"] == 3
    assert rows(engine, "dead") == []


def test_modified_code_fails_the_instance_until_it_does_what_is_recorded(
    reopen: Callable[..., Any],
) -> None:
    class Before(af.Workflow[str]):
        def handle(self) -> str:
            self.execute(charge("o-1"))
            self.wait("go")
            return self.execute(refund("o-1"))

    class After(af.Workflow[str]):
        def handle(self) -> str:
            self.execute(refund("o-1"))
            self.wait("go")
            return ""

    Before.__qualname__ = After.__qualname__ = "Changing"
    wait_for_event(reopen().start(Before(), id="c"))
    engine = reopen()
    engine.workflows.register(After)
    handle = engine.workflows.get(After, "c")
    handle.send("go")
    with pytest.raises(ExecutionFailed) as caught:
        handle.result(PATIENCE)
    for part in ("WorkflowModified", "Changing", "branch 0 (handle)", "position 0.0", "charge"):
        assert part in str(caught.value)
    assert handle.query().mode == "modified"
    engine = reopen()
    engine.workflows.register(Before)
    handle = engine.workflows.get(Before, "c")
    handle.resume()
    assert handle.result(PATIENCE) == "o-1 refunded"


def test_steps_wait_for_a_task_that_is_missing(
    engine: af.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    hidden: list[Task[..., Any]] = []

    def late(order: str) -> str:
        return f"{order} late"

    hidden.append(Task(late, "late"))

    class Needs(af.Workflow[str]):
        def handle(self) -> str:
            result: str = self.execute(hidden[0]("o-1"))
            return result

    needs = engine.start(Needs(), id="n")
    until(engine, lambda: "no such tasker" in caplog.text)
    with pytest.raises(WaitTimeout):
        needs.result(0.01)
    assert needs.missing() == ["late"]
    engine.workflows.register(*hidden)
    assert needs.result(PATIENCE) == "o-1 late"
    assert needs.missing() == []


def test_a_failed_task_is_shown_and_can_be_retried(engine: af.Engine) -> None:
    working: list[bool] = []

    @af.task
    def fragile() -> str:
        if not working:
            raise OSError("no network")
        return "done"

    class Tries(af.Workflow[str]):
        def __init__(self) -> None:
            self.failures: list[str] = []

        def handle(self) -> str:
            return self.execute(fragile())

        def on_failure(self, step: StepInfo, error: StepError) -> None:
            self.failures = [*self.failures, f"{step.name} {error.name} {error.message}"]

    tries = engine.start(Tries())
    with pytest.raises(ExecutionFailed, match=r"the task fragile \(0/0.0\) failed: no network"):
        tries.result(PATIENCE)
    assert tries.query().properties["failures"] == ["fragile OSError no network"]
    assert [each.step for each in tries.query().failed] == ["0/0.0"]
    working.append(True)
    tries.retry()
    assert tries.result(PATIENCE) == "done"


def test_a_failed_task_can_be_handled_by_the_code(engine: af.Engine) -> None:
    @af.task
    def fails() -> str:
        raise OSError("no network")

    class Handles(af.Workflow[str]):
        def handle(self) -> str:
            try:
                return self.execute(fails(), raises=True)
            except StepFailed as error:
                return f"handled {error.error['message']}"

    assert engine.start(Handles()).result(PATIENCE) == "handled no network"


def test_a_step_can_be_cancelled(engine: af.Engine) -> None:
    class Waits(af.Workflow[str]):
        def handle(self) -> str:
            try:
                return self.execute(Order("o-1"), raises=True)
            except StepFailed as error:
                return str(error.error["name"])

    waits = engine.start(Waits(), id="w")
    until(engine, lambda: [one for one in engine.executions() if one.id == "w/0/0.0"])
    assert waits.cancel("0/0.0")
    assert waits.result(PATIENCE) == "Cancelled"
    until(engine, lambda: engine.execution("w/0/0.0").status == "cancelled")


def test_a_wait_can_be_cancelled(engine: af.Engine) -> None:
    class Waits(af.Workflow[str]):
        def handle(self) -> str:
            try:
                self.execute(af.Wait("paid", days=3), raises=True)
            except StepFailed as error:
                return str(error.error["name"])
            return "paid"

    waits = engine.start(Waits(), id="w")
    wait_for_event(waits)
    assert waits.cancel("0/0.0")
    assert waits.result(PATIENCE) == "Cancelled"


def test_a_cancelled_wait_can_be_retried(engine: af.Engine, clock: VirtualClock) -> None:
    class Waits(af.Workflow[list[str]]):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def handle(self) -> list[str]:
            event = self.wait("paid", seconds=100)
            return [*self.seen, "late" if event is None else "paid"]

        def on_start(self, step: StepInfo) -> None:
            self.seen = [*self.seen, f"start {step.name}"]

        def on_failure(self, step: StepInfo, error: StepError) -> None:
            self.seen = [*self.seen, f"{error.name} {step.name}"]

    for id_ in ("on time", "late"):
        waits = engine.start(Waits(), id=id_)
        wait_for_event(waits)
        clock.advance(60)
        waits.cancel("0/0.0")
        waits.send("other")  # kept; no wait takes it
        with pytest.raises(ExecutionFailed, match=r"the wait Wait \(0/0.0\) failed.*retry it"):
            waits.result(PATIENCE)
        waits.retry()
        wait_for_event(waits)
        assert [each.timestamp for each in waits.query().state.waits] == [
            waits.query().state.statuses[0].deadline
        ]
        if id_ == "late":
            clock.advance(40)
        else:
            waits.send("paid")
        seen = ["start Wait", "Cancelled Wait", "start Wait", "late" if id_ == "late" else "paid"]
        assert waits.result(PATIENCE) == seen


def test_what_is_no_message_to_a_workflow_is_a_dead_letter(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"), id="o-1")
    wait_for_event(order)
    nonsense: list[Any] = [7, "paid", {"do": "nothing"}, {"event": 7}, [1], {"do": []}]
    for body in nonsense:
        with pytest.raises(MessageRefused, match="refused: a message to a workflow"):
            engine.send("o-1", body)
    assert rows(engine, "dead") == [], "the sender gets the error"
    for body in nonsense[:5]:
        engine.parts.sender.append("o-1", None, (body,))  # as an older sender may have stored it
    order.send("paid", amount=1)
    assert order.result(PATIENCE) == "o-1 shipped for 1"
    assert len(rows(engine, "dead")) == 5


def test_a_state_that_cannot_be_read_is_named(tmp_path: Path, clock: VirtualClock) -> None:
    store = tmp_path / "store.db"
    with af.Engine(store, clock=clock, durability="off") as engine:
        wait_for_event(engine.start(Order("o-1"), id="o-1"))
        worker = engine.worker("w", lambda batch, state: state + len(batch), state=0)
        worker.push_block(1)
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE executions SET state = x'c1c1c1c1c1'")
    with af.Engine(store, clock=clock, durability="off") as engine:
        order = engine.workflows.get(Order, "o-1")
        worker = engine.worker("w", lambda batch, state: state + len(batch), state=0)
        for look in (
            order.query,
            order.export,
            lambda: engine.workflows.check("o-1", Order),
            lambda: engine.execution("o-1").view,
            lambda: engine.execution("w").view,
            worker.state,
        ):
            with pytest.raises(
                StateUnreadable, match=r"'(o-1|w)' cannot be read.*upgrade"
            ) as raised:
                look()
            assert raised.value.data == b"\xc1" * 5
    shown = CliRunner().invoke(application(), ["show", str(store), "o-1"])
    assert shown.exit_code == 0
    assert "base64" in shown.output


def test_two_of_one_name_are_refused(engine: af.Engine) -> None:
    def one() -> None: ...

    def two() -> None: ...

    engine.workflows.register(Task(one, "same"))
    with pytest.raises(af.BadOption, match=r"there is a task 'same' already.*@task\(name="):
        engine.workflows.register(Task(two, "same"))

    class Other(af.Workflow[None]):
        def handle(self) -> None: ...

    Other.__qualname__ = "Order"
    engine.workflows.register(Order, Order)
    with pytest.raises(af.BadOption, match="there is a workflow 'Order' already"):
        engine.start(Other())


def test_one_that_never_began_can_be_looked_at(engine: af.Engine) -> None:
    engine.workflows.register(Order)
    with pytest.raises(ExecutionFailed, match=r"use engine.start\(Order\(...\)\)"):
        engine.result(engine.start("workflow:Order", {"event": "paid"}, id="o-1").id, timeout=20)
    order = engine.workflows.get(Order, "o-1")
    with pytest.raises(LookupError, match="has never run"):
        order.query()
    assert list(order.history()) == []


@pytest.mark.parametrize("timeout", ["5", float("nan"), True, b""])
def test_a_timeout_that_is_no_number_is_refused_before_anything_is_sent(
    engine: af.Engine, timeout: Any
) -> None:
    order = engine.start(Order("o-1"), id="o-1")
    wait_for_event(order)
    for call in (
        lambda: order.result(timeout),
        lambda: order.ask("paid", amount=1, timeout=timeout),
        lambda: next(order.follow(timeout=timeout)),
        lambda: engine.wait("o-1", timeout),
    ):
        with pytest.raises(af.BadOption, match="must be a number of seconds, or None"):
            call()
    assert order.query().properties["paid"] == 0


@pytest.mark.parametrize("offset", [-1, "1", 1.0, True])
def test_an_offset_that_is_none_is_refused(engine: af.Engine, offset: Any) -> None:
    order = engine.start(Order("o-1"))
    with pytest.raises(af.BadOption, match="must be how many values to leave out"):
        next(order.follow(offset))


def test_a_step_that_does_not_exist_is_named(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"), id="o-1")
    wait_for_event(order)
    for verb in (order.retry, order.cancel, order.rewind, order.fork):
        with pytest.raises(LookupError, match=r"has no step '0/9.9'"):
            verb("0/9.9")
    assert order.status == "active"


@pytest.mark.parametrize("event", [5, None, {"event": "paid"}, Order, b"paid", ["paid"]])
def test_an_event_is_a_name_or_an_object_of_a_class(engine: af.Engine, event: Any) -> None:
    order = engine.start(Order("o-1"))
    with pytest.raises(TypeError, match="is not an event: send its name"):
        order.send(event)


def test_an_event_without_a_name_is_refused(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"))
    with pytest.raises(MessageRefused, match="'' is not an event: give it a name"):
        order.send("")


@pytest.mark.parametrize("cls", [5, int, Order("o-1"), af.Workflow, af.RemoteWorkflow])
def test_what_is_no_class_of_workflows_is_refused(engine: af.Engine, cls: Any) -> None:
    order = engine.start(Order("o-1"), id="o-1")
    words = r"is not a workflow class.*, as in"
    with pytest.raises(InvalidWorkflow, match=words):
        engine.workflows.get(cls, "o-1")
    with pytest.raises(InvalidWorkflow, match=words):
        next(engine.workflows.instances(cls))
    with pytest.raises(InvalidWorkflow, match=words):
        engine.workflows.check(order.export(), cls)
    with pytest.raises(InvalidWorkflow):
        engine.workflows.register(cls)


def test_a_fork_has_an_id_of_its_own(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"), id="o-1")
    wait_for_event(order)
    with pytest.raises(BadOption, match="id='o-1' is the id of the instance itself"):
        order.fork("0/0.0", id="o-1")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lang": 5}, "lang=5: lang must be"),
        ({"lang": "go", "env": ""}, "env='': env must be"),
        ({"lang": "go", "tasks": "charge"}, r"tasks='charge': .* as in tasks=\['charge'\]"),
        ({"lang": "go", "tasks": 5}, r"tasks=5: .* as in tasks=\['charge'\]"),
        ({"lang": "go", "tasks": ["pack", 5]}, "must be text, not 5"),
    ],
)
def test_a_remote_workflow_that_makes_no_sense_is_refused_whole(
    engine: af.Engine, given: dict[str, Any], words: str
) -> None:
    with pytest.raises((BadOption, TypeError), match=words):
        engine.workflows.remote("Elsewhere", **given)
    engine.workflows.remote("Elsewhere", lang="go", tasks=["pack"])


@pytest.mark.parametrize("given", [{"lang": 5}, {"lang": "go", "env": "a/b"}])
def test_remote_tasks_of_nowhere_are_refused(engine: af.Engine, given: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match="must be a printable text of 1 to 200 characters"):
        engine.workflows.remote_tasks("pack", **given)
    engine.workflows.remote_tasks("pack", lang="go")


@pytest.mark.parametrize("wrapper", [af.Turns, af.Interrupt])
def test_what_chooses_events_is_a_function(wrapper: Any) -> None:
    with pytest.raises(BadBehaviour, match="when=5: when must be a function, as in"):
        wrapper(Queue(), when=5)


def test_an_empty_id_is_refused(engine: af.Engine) -> None:
    with pytest.raises(ValueError, match="1 to 1000 characters"):
        engine.start(Order("o-1"), id="")


def test_the_longest_id_leaves_room_for_tasks(engine: af.Engine) -> None:
    class Charges(af.Workflow[int]):
        def handle(self) -> int:
            return self.execute(charge("o-1"))

    assert engine.start(Charges(), id="o" * 1_000).result(PATIENCE) == 3
    with pytest.raises(ValueError, match="1 to 1000 characters, not 1001"):
        engine.start(Charges(), id="o" * 1_001)
