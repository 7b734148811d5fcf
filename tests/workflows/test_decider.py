"""Sync workflows: what their code can do, and that replays do the same."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.errors import NotStorable
from actorflow.workflows.errors import (
    InvalidStep,
    InvalidWorkflow,
    NotInWorkflow,
    StepFailed,
)
from actorflow.workflows.instance import messages as m
from actorflow.workflows.wait import Event, Wait
from actorflow.workflows.workflow import StepError, StepInfo, Workflow
from tests.workflows.driving import Driver, drive
from tests.workflows.orders import Point, double, ship

if TYPE_CHECKING:
    from actorflow.workflows.decider import Decider


class Order(Workflow[str]):
    def __init__(self, id: str) -> None:  # noqa: A002
        self.id = id
        self.paid = 0
        self.log: list[str] = []

    def handle(self) -> str:
        one, other = self.execute(double(1), double(2))
        self.log.append(f"{one} {other}")
        paid = self.wait("paid", days=3)
        if paid is None:
            return "too late"
        self.dispatch(double(9))
        return f"{self.execute(ship(self.id))} for {self.paid}"

    def on_event(self, event: Event) -> None:
        self.paid += event.data["amount"]

    def on_success(self, step: StepInfo, output: Any) -> None:
        self.log.append(step.name)


def test_z62_z63_z64_an_order_runs_to_its_end(decider: Decider, way: str) -> None:
    driver = drive(Order("o-1"), decider, way)
    driver.succeed("0/0.0", 2).succeed("0/0.1", 4)
    driver.event("paid", {"amount": 40})
    assert driver.open == ["0/2.0", "0/3.0"]
    driver.succeed("0/3.0", "shipped o-1")
    assert driver.output == "shipped o-1 for 40"
    assert driver.properties["log"] == ["double", "double", "2 4", "Wait", "ship"]


def test_a_wait_ends_by_time(decider: Decider, way: str) -> None:
    driver = drive(Order("o-1"), decider, way)
    driver.succeed("0/0.0", 2).succeed("0/0.1", 4)
    (wait,) = driver.state.waits
    assert wait.timestamp == pytest.approx(3 * 24 * 3600 + 2)
    driver.now = wait.timestamp or 0
    driver.receive(m.Tick(driver.now))
    driver.settle()
    assert driver.output == "too late"


def test_z2_a_workflow_without_handle_is_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="Broken has no `handle` method"):

        class Broken(Workflow[None]):
            pass


def test_a_base_may_have_no_handle() -> None:
    class Base(Workflow[str], abstract=True):
        def on_event(self, event: Event) -> None: ...

    class Real(Base):
        def handle(self) -> str:
            return "ok"

    assert Real().handle() == "ok"


class AllHooks(Workflow[list[str]]):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def handle(self) -> list[str]:
        self.execute(ship("a"))
        return self.seen

    def on_event(self, event: Event) -> None:
        self.seen.append(f"event {event.name} {event.data}")

    def on_start(self, step: StepInfo) -> None:
        self.seen.append(f"start {step.name} {step.input}")

    def on_success(self, step: StepInfo, output: Any) -> None:
        self.seen.append(f"success {step.name} {output}")

    def on_failure(self, step: StepInfo, error: StepError) -> None:
        self.seen.append(f"failure {step.name} {error.name} {error.message}")

    def on_timeout(self, step: StepInfo) -> None:
        self.seen.append(f"timeout {step.name}")


def test_z3_to_z8_each_method_is_called_for_what_it_is_for(decider: Decider, way: str) -> None:
    driver = drive(AllHooks(), decider, way)
    driver.start("0/0.0").event("E", 1)
    driver.receive(m.TimedOut(driver.tick(30), "0/0.0"))
    driver.settle()
    driver.receive(m.RetryStep(driver.tick(), "0/0.0"))
    driver.succeed("0/0.0", "done")
    assert driver.output == [
        "start ship {'order': 'a'}",
        "event E 1",
        "timeout ship",
        "failure ship TaskTimeout ship (0/0.0) took longer than its 30.0 s",
        "success ship done",
    ]


class Parallel(Workflow[list[int]]):
    def __init__(self, count: int) -> None:
        self.count = count

    def handle(self) -> list[int]:
        return self.execute_all(double(number) for number in range(self.count))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_execute_all_returns_a_list(count: int, decider: Decider, way: str) -> None:
    driver = Driver(Parallel(count), decider, forget=way == "replayed")
    assert driver.run(lambda _, given: 2 * given["number"]) == [2 * each for each in range(count)]


def test_z13_a_branch_goes_on_only_when_all_steps_of_a_call_are_complete(
    decider: Decider, way: str
) -> None:
    driver = drive(Parallel(3), decider, way)
    driver.succeed("0/0.2", 3).succeed("0/0.0", 1)
    assert driver.mode == "run"
    assert driver.succeed("0/0.1", 2).output == [1, 2, 3]


class Racing(Workflow[Any]):
    def __init__(self, *, cancel: bool) -> None:
        self.cancel = cancel

    def handle(self) -> Any:
        found = self.first(double(1), Wait("stop", seconds=60), double(2), cancel=self.cancel)
        value = found.value.name if isinstance(found.value, Event) else found.value
        return [found.index, value, self.execute(ship("x"))]


@pytest.mark.parametrize("cancel", [False, True])
def test_first_goes_on_with_one_and_without_the_others(
    cancel: bool,  # noqa: FBT001 - a parameter of the test
    decider: Decider,
    way: str,
) -> None:
    driver = drive(Racing(cancel=cancel), decider, way)
    driver.event("stop")
    cancelled = [each.step for each in driver.sent if isinstance(each, m.CancelStep)]
    assert cancelled == (["0/0.0", "0/0.2"] if cancel else [])
    driver.succeed("0/0.2", 4)
    assert driver.restart().succeed("0/1.0", "end").output == [1, "stop", "end"]


def test_the_first_of_none_is_refused(decider: Decider) -> None:
    class Nothing(Workflow[None]):
        def handle(self) -> None:
            self.first()

    driver = drive(Nothing(), decider)
    assert driver.mode == "failed"
    assert driver.state.error["name"] == InvalidStep.__name__


class Child(Workflow[Point]):
    def __init__(self, x: int) -> None:
        self.x = x

    def handle(self) -> Point:
        return Point(self.x, 0)


class Parent(Workflow[int]):
    def handle(self) -> int:
        return self.execute(Child(7)).x


def test_r20_a_workflow_is_a_step_of_another(decider: Decider, way: str) -> None:
    driver = drive(Parent(), decider, way)
    jobs = [each for each in driver.sent if isinstance(each, m.StepJob)]
    assert [(job.type, job.name, job.input) for job in jobs] == [("flow", "Child", {"x": 7})]
    child = Driver(Child(7), decider, id="child").settle()
    assert driver.succeed("0/0.0", child.output).output == 7


class Careful(Workflow[str]):
    def handle(self) -> str:
        try:
            self.execute(ship("a"), double(1), raises=True)
        except StepFailed as failed:
            return f"{failed.name}: {failed.error['message']}"
        return "fine"


def test_r16_raises_brings_a_failure_to_the_code(decider: Decider, way: str) -> None:
    driver = drive(Careful(), decider, way)
    driver.fail("0/0.0")  # at once: the other step is not complete
    assert driver.output == "ship: boom"


class Drawing(Workflow[Any]):
    def __init__(self) -> None:
        self.drawn: list[Any] = []

    def handle(self) -> Any:
        for _ in range(2):
            self.drawn.append([self.now().timestamp(), self.random(), str(self.uuid())])
            self.execute(double(1))
        return self.drawn


def test_values_that_are_drawn_are_the_same_in_replays(decider: Decider) -> None:
    outputs = []
    for forget in (False, True):
        driver = Driver(Drawing(), decider, forget=forget, at=1000)
        outputs.append(driver.run(lambda *_: 0))
        (_, one, two), (_, three, four) = driver.output
        assert len({one, two, three, four}) == 4
        assert [row[0] for row in driver.output] == [1000, 1001]
    assert outputs[0] == outputs[1]


class Publishing(Workflow[None]):
    def handle(self) -> None:
        for number in range(3):
            self.publish({"number": number})
            self.tag(step=number)
            self.execute(double(number))


def test_what_is_published_is_published_once(decider: Decider, way: str) -> None:
    driver = Driver(Publishing(), decider, forget=way == "replayed")
    driver.run(lambda *_: 0)
    published = [each.value for each in driver.sent if isinstance(each, m.Published)]
    assert published == [{"number": 0}, {"number": 1}, {"number": 2}]
    tags = [each.values for each in driver.sent if isinstance(each, m.Tagged)]
    assert tags == [{"step": 0}, {"step": 1}, {"step": 2}]


def test_r13_what_a_discarded_decision_published_is_not_published(decider: Decider) -> None:
    broken = threading.Event()
    broken.set()

    class Fragile(Workflow[str]):
        def handle(self) -> str:
            self.publish(1)
            self.execute(double(1))
            self.publish(2)
            if broken.is_set():
                raise ValueError("no")
            return "ok"

    driver = drive(Fragile(), decider)
    driver.succeed("0/0.0", 2)
    assert driver.mode == "failed"
    error = driver.state.error
    assert (error["name"], error["message"], error["branch_key"]) == ("ValueError", "no", 0)
    assert 'raise ValueError("no")' in error["stacktrace"]
    driver.event("meanwhile")
    broken.clear()
    driver.receive(m.Resume(driver.tick()))
    driver.settle()
    assert driver.output == "ok"
    assert [each.value for each in driver.sent if isinstance(each, m.Published)] == [1, 2]


class Unstorable(Workflow[None]):
    def __init__(self) -> None:
        self.lock: Any = None

    def handle(self) -> None:
        self.lock = threading.Lock()
        self.execute(double(1))


def test_a_property_that_cannot_be_stored_fails_the_decision(decider: Decider) -> None:
    driver = drive(Unstorable(), decider)
    assert driver.mode == "failed"
    error = driver.state.error
    assert error["name"] == NotStorable.__name__
    assert "the property 'lock' of Unstorable" in error["message"]


def test_m22_an_error_whose_text_raises_is_still_that_error(decider: Decider) -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise SystemExit

    class Raises(Workflow[None]):
        def handle(self) -> None:
            raise Rude

    driver = drive(Raises(), decider)
    assert driver.mode == "failed"
    assert driver.state.error["name"] == "Rude"
    assert "Rude" in driver.state.error["message"]


def test_a_property_cannot_hide_a_method(decider: Decider) -> None:
    class Hiding(Workflow[None]):
        def handle(self) -> None:
            self.now = 3  # type: ignore[assignment, method-assign]

    driver = drive(Hiding(), decider)
    assert "Hiding.now is a method of workflows" in driver.state.error["message"]


def test_slots_are_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="has __slots__"):

        class Slotted(Workflow[None]):
            __slots__ = ("x",)

            def handle(self) -> None: ...


def test_steps_are_executed_by_running_workflows_only(decider: Decider) -> None:
    with pytest.raises(NotInWorkflow, match="methods of a running workflow"):
        Order("o-1").execute(double(1))

    class Wrong(Workflow[None]):
        def handle(self) -> None:
            Order("o-2").execute(double(1))

    assert "use its own `self`" in drive(Wrong(), decider).state.error["message"]


def test_something_else_than_a_step_is_refused(decider: Decider) -> None:
    class Wrong(Workflow[None]):
        def handle(self) -> None:
            self.execute(7)  # type: ignore[call-overload]

    assert "7 is not a step" in drive(Wrong(), decider).state.error["message"]


class FifteenSteps(Workflow[None]):
    def handle(self) -> None:
        self.execute(double(1), double(2), double(3))
        self.execute(double(4))


def test_z15_the_example_of_the_seed(decider: Decider, way: str) -> None:
    driver = Driver(FifteenSteps(), decider, forget=way == "replayed")
    driver.decide()
    driver.receive(m.Started(2, "0/0.1"))
    driver.receive(m.Started(3, "0/0.0"))
    driver.receive(m.Started(4, "0/0.2"))
    assert driver.state.executions == [0, 1]
    driver.decide()
    assert driver.state.executions[2:] == [2, 3], "step 6"
    driver.decide()
    assert not driver.state.decision_ongoing
    driver.receive(m.Succeeded(7, "0/0.2", 6))
    driver.receive(m.Succeeded(8, "0/0.0", 2))
    driver.receive(m.Succeeded(9, "0/0.1", 4))
    driver.decide()
    assert driver.state.executions[4:] == [4, 0, 5, 0, 6, 0], "step 11"
    driver.decide()
    assert driver.open == ["0/1.0"]
    driver.start("0/1.0").succeed("0/1.0", 8)
    assert driver.state.executions[10:] == [7, 8, 0], "step 15"
    assert driver.output is None
