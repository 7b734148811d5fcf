"""An event that interrupts: what the branches wait for is stopped, and their code sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.behaviours import Base, Queue, Unique
from actorflow.testing.behaviours import check_behaviour
from actorflow.workflows.decider import Decider
from actorflow.workflows.errors import Interrupted, StepFailed
from actorflow.workflows.inbox import Interrupt
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.invariants import violations
from actorflow.workflows.instance.state import StepType
from actorflow.workflows.task import task
from actorflow.workflows.wait import Event
from actorflow.workflows.workflow import Workflow
from tests.workflows.driving import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator


@task
def think(text: str) -> str:
    raise NotImplementedError


class Agent(Workflow[list[str]]):
    """Thinks about each message; a newer one stops it."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def handle(self) -> list[str]:
        self.wait("end")
        return self.said

    def on_event(self, event: Event) -> str | None:
        if event.name == "end":
            return None
        try:
            answer = self.execute(think(event.data))
        except Interrupted as error:
            self.said = [*self.said, f"never mind {event.data}: {error.step}"]
            return "interrupted"
        self.said = [*self.said, answer]
        return answer


@pytest.fixture
def decider() -> Iterator[Decider]:
    made = Decider()
    yield made
    made.close()


def interrupt(driver: Driver, name: str, data: Any = None) -> Driver:
    driver.receive(m.EventSent(driver.tick(), name, data, interrupts=True))
    return driver.settle()


@pytest.mark.parametrize("forget", [False, True])
def test_the_running_step_is_stopped_and_its_code_sees_it(decider: Decider, forget: bool) -> None:  # noqa: FBT001
    driver = Driver(Agent(), decider, forget=forget).settle()
    interrupt(driver, "message", "one")
    (step,) = driver.open
    driver.sent.clear()
    interrupt(driver, "message", "two")
    assert m.CancelStep(step, StepType.TASK) in driver.sent
    assert driver.properties["said"] == [f"never mind one: {step}"]
    (second,) = driver.open
    driver.succeed(step, "too late")
    driver.succeed(second, "two answered")
    assert driver.event("end").output == [f"never mind one: {step}", "two answered"]


def test_an_event_that_does_not_interrupt_leaves_all_alone(decider: Decider) -> None:
    driver = Driver(Agent(), decider).settle()
    interrupt(driver, "message", "one")
    driver.event("message", "two")
    assert len(driver.open) == 2


def test_a_branch_that_does_not_catch_it_just_ends(decider: Decider) -> None:
    class Plain(Workflow[None]):
        def __init__(self) -> None:
            self.begun = 0

        def handle(self) -> None:
            self.wait("end")

        def on_event(self, event: Event) -> None:
            self.begun += 1
            self.execute(think(str(event.data)))

    driver = Driver(Plain(), decider).settle()
    interrupt(driver, "message", 1)
    interrupt(driver, "message", 2)
    assert (driver.mode, driver.properties) == ("run", {"begun": 2})
    assert len(driver.open) == 1


def test_an_async_branch_that_does_not_catch_it_just_ends(decider: Decider) -> None:
    class Later(Workflow[None]):
        def handle(self) -> None:
            self.wait("end")

        async def on_event(self, event: Event) -> None:
            await think(str(event.data))

    driver = Driver(Later(), decider).settle()
    interrupt(driver, "message", 1)
    interrupt(driver, "message", 2)
    assert driver.mode == "run"
    assert len(driver.open) == 1


class Loop(Workflow[str]):
    """Takes one message after the other in `handle`."""

    def handle(self) -> str:
        event = self.wait("message")
        while True:
            assert event is not None
            try:
                return self.execute(think(event.data))
            except StepFailed:
                event = self.wait("message")


@pytest.mark.parametrize("forget", [False, True])
def test_the_event_itself_is_there_for_the_wait_that_follows(
    decider: Decider,
    forget: bool,  # noqa: FBT001
) -> None:
    driver = Driver(Loop(), decider, forget=forget).settle()
    interrupt(driver, "message", "one")
    interrupt(driver, "message", "two")
    assert [status.input for status in driver.state.statuses if status.type is StepType.TASK] == [
        {"text": "one"},
        {"text": "two"},
    ]
    assert driver.succeed(driver.open[0], "done").output == "done"


def test_handle_that_does_not_catch_it_fails_and_says_why(decider: Decider) -> None:
    class Careless(Workflow[str]):
        def handle(self) -> str:
            return self.execute(think("one"))

    driver = Driver(Careless(), decider).settle()
    interrupt(driver, "message")
    assert driver.mode == "failed"
    assert driver.state.error["name"] == "Interrupted"
    assert "catch Interrupted" in driver.state.error["message"]


def test_waits_and_dispatched_steps_go_on(decider: Decider) -> None:
    class Busy(Workflow[None]):
        def handle(self) -> None:
            self.dispatch(think("aside"))
            self.wait("end", seconds=60)

    driver = Driver(Busy(), decider).settle()
    driver.sent.clear()
    interrupt(driver, "message")
    assert driver.open == ["0/0.0"]
    assert len(driver.state.waits) == 1
    assert not any(isinstance(each, m.CancelStep) for each in driver.sent)


@given(st.lists(st.sampled_from(["message", "plain", "answer", "restart", "end"]), max_size=25))
def test_at_most_one_thought_at_a_time_whatever_happens(steps: list[str]) -> None:
    decider = Decider()
    driver = Driver(Agent(), decider).settle()
    sent = 0
    for number, step in enumerate(steps):
        if driver.state.ended:
            break
        if step == "message":
            interrupt(driver, "message", str(number))
            sent += 1
            assert len(driver.open) == 1
        elif step == "answer" and driver.open:
            driver.succeed(driver.open[0], f"answer {number}")
        elif step == "restart":
            driver.restart().receive(m.Restore(driver.tick()))
            driver.settle()
        elif step == "end" and not driver.open:
            driver.event("end")
        assert violations(driver.state) == []
    assert len(driver.properties["said"]) == sent - len(driver.open)
    decider.close()


# The behaviour.


def test_it_marks_the_events_that_it_hands_over() -> None:
    inbox = Interrupt(Queue(), when=lambda event: event.name == "message")
    for name in ("message", "end"):
        inbox.add(Event(name))
    assert [getattr(each, "interrupts", False) for each in inbox.take()] == [True, False]
    assert repr(inbox) == "Interrupt(Queue())"


def test_it_marks_a_single_event_that_is_no_list() -> None:
    class Newest(Base):
        def transform(self, messages: Any) -> Any:
            return messages[0]

    inbox = Interrupt(Newest)
    inbox.add(Event("message"))
    assert inbox.take().interrupts


class Own(Base):
    """A behaviour of the seed."""


@pytest.mark.parametrize("inner", [Queue, lambda: Unique(key=lambda each: each), Own])
def test_it_is_a_behaviour(inner: Any) -> None:
    check_behaviour(lambda: Interrupt(inner), messages=st.integers(0, 3), max_examples=50)


def test_events_that_arrive_together_interrupt_each_other(decider: Decider) -> None:
    driver = Driver(Agent(), decider).settle()
    driver.receive(m.Pause(driver.tick()))
    for text in ("one", "two", "three"):
        driver.receive(m.EventSent(driver.tick(), "message", text, interrupts=True))
    driver.receive(m.Resume(driver.tick()))
    driver.settle()
    assert len(driver.open) == 1
    assert [said[:15] for said in driver.properties["said"]] == [
        "never mind one:",
        "never mind two:",
    ]


def test_a_step_that_ends_after_the_event_is_stopped(decider: Decider) -> None:
    driver = Driver(Agent(), decider).settle()
    interrupt(driver, "message", "one")
    (step,) = driver.open
    driver.receive(m.Pause(driver.tick()))
    driver.receive(m.EventSent(driver.tick(), "message", "two", interrupts=True))
    driver.receive(m.Succeeded(driver.tick(), step, "too late"))
    driver.receive(m.Resume(driver.tick()))
    driver.settle()
    assert driver.properties["said"] == [f"never mind one: {step}"]
    assert len(driver.open) == 1


def test_a_step_that_begins_in_the_same_decision_is_stopped(decider: Decider) -> None:
    class Twice(Workflow[None]):
        def handle(self) -> None:
            self.wait("end")

        def on_event(self, event: Event) -> None:
            if event.name == "message":
                self.execute(think(f"{event.data} first"))
                self.execute(think(f"{event.data} second"))

    driver = Driver(Twice(), decider).settle()
    interrupt(driver, "message", "one")
    (step,) = driver.open
    at = driver.tick()
    driver.receive(
        m.Succeeded(at, step, "done"), m.EventSent(driver.tick(), "message", "two", interrupts=True)
    )
    driver.settle()
    running = {each.step: each for each in driver.state.statuses}
    assert [running[step].input["text"] for step in driver.open] == ["two first"]


class Remembers(Workflow[list[str]]):
    """Writes down what it thinks about before it thinks."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def handle(self) -> list[str]:
        self.wait("end")
        return self.said

    def on_event(self, event: Event) -> str | None:
        if event.name == "end":
            return None
        self.said.append(f"user: {event.data}")
        if event.name == "note":
            return None
        self.said.append(f"tool: {self.execute(think('tool'))}")
        self.said.append(self.execute(think(str(event.data))))
        return "answered"


def undo(driver: Driver, name: str, data: Any = None) -> Driver:
    driver.receive(m.EventSent(driver.tick(), name, data, interrupts=True, undoes=True))
    return driver.settle()


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("tool_is_done", [False, True])
def test_an_event_that_is_undone_leaves_no_trace(
    decider: Decider,
    forget: bool,  # noqa: FBT001
    tool_is_done: bool,  # noqa: FBT001
) -> None:
    driver = Driver(Remembers(), decider, forget=forget, keeps_events=True).settle()
    undo(driver, "message", "one")
    if tool_is_done:
        driver.succeed(driver.open[0], "result")
    driver.event("note", "aside")  # it does not interrupt, and is handled again
    driver.sent.clear()
    (step,) = driver.open
    undo(driver, "message", "two")
    assert driver.properties["said"] == ["user: aside", "user: two"]
    assert any(isinstance(each, m.CancelStep) and each.step == step for each in driver.sent)
    assert [each.input for each in driver.sent if isinstance(each, m.RefusedByCode)] == ["one"]
    assert len(driver.open) == 1
    driver.succeed(driver.open[0], "r")
    driver.succeed(driver.open[0], "two answered")
    said = ["user: aside", "user: two", "tool: r", "two answered"]
    assert driver.event("end").output == said
    assert violations(driver.state) == []


def test_an_event_whose_turn_is_over_is_not_undone(decider: Decider) -> None:
    driver = Driver(Remembers(), decider, keeps_events=True).settle()
    undo(driver, "message", "one")
    driver.succeed(driver.open[0], "r")
    driver.succeed(driver.open[0], "one answered")
    undo(driver, "message", "two")
    said = ["user: one", "tool: r", "one answered", "user: two"]
    assert driver.properties["said"] == said


def test_handle_sees_the_interruption_when_events_undo(decider: Decider) -> None:
    driver = Driver(Loop(), decider, keeps_events=True).settle()
    undo(driver, "message", "one")
    undo(driver, "message", "two")
    texts = [each.input["text"] for each in driver.state.statuses if each.type is StepType.TASK]
    assert texts == ["one", "two"]


STEPS = st.sampled_from(["message", "note", "answer", "restart"])


@given(st.lists(STEPS, max_size=20), st.booleans())
def test_undone_events_leave_no_trace_whatever_happens(steps: list[str], forget: bool) -> None:  # noqa: FBT001
    decider = Decider()
    driver = Driver(Remembers(), decider, forget=forget, keeps_events=True).settle()
    for number, step in enumerate(steps):
        if step == "message":
            undo(driver, "message", str(number))
        elif step == "note":
            driver.event("note", str(number))
        elif step == "answer" and driver.open:
            driver.succeed(driver.open[0], str(number))
        elif step == "restart":
            driver.restart().receive(m.Restore(driver.tick()))
            driver.settle()
        assert len(driver.open) <= 1
        assert violations(driver.state) == []
    turns = [each for each in driver.properties["said"] if each.startswith("tool")]
    asked = [each for each in driver.properties["said"] if each.startswith("user")]
    assert len(turns) <= len(asked)
    assert len(set(asked)) == len(asked), "an event was handled twice"
    decider.close()
