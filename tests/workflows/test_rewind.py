"""Going back: a rewound instance equals one that never went further."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.workflows.decider import Decider
from actorflow.workflows.errors import Interrupted
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance import state as stored
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.invariants import violations
from actorflow.workflows.instance.rewind import forked, rewound
from actorflow.workflows.instance.state import StepState, StepType
from actorflow.workflows.task import task
from actorflow.workflows.wait import Event, Wait
from actorflow.workflows.workflow import Workflow
from tests.workflows.driving import Driver
from tests.workflows.test_batching import (
    CHOSEN,
    WITH_WAITS,
    WITHOUT_WAITS,
    Run,
    one_by_one,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.workflows.instance.state import StepStatus
    from tests.workflows.test_batching import Sent

Json = Any


def working(workflow: Json) -> Json:
    """Return a workflow that has a step at least."""
    first = {"op": "execute", "works": [{"task": "A", "input": 0}]}
    methods = workflow["methods"]
    return workflow | {"methods": methods | {"handle": [first, *methods["handle"]]}}


WITHOUT = WITHOUT_WAITS.map(working)
WITH = WITH_WAITS.map(working)
PICKS = st.integers(0, 20)


def picked(run: Run, pick: int) -> StepStatus:
    """Return a step that is the first of its execution."""
    statuses = run.instance.state.statuses
    chosen = statuses[pick % len(statuses)]
    return next(status for status in statuses if status.index == chosen.index)


def up_to(workflow: Json, messages: list[Sent], index: int) -> tuple[Run, int]:
    """Return a run that has received what led to an index, and no more; and how much that was."""
    run = Run(workflow, "scripted")
    run.decide()
    for count, message in enumerate(messages):
        if len(run.instance.state.executions) > index:
            return run, count
        deliver(run, message)
    return run, len(messages)


def deliver(run: Run, message: Sent) -> None:
    found = translated(message, run)
    assert found is not None
    run.deliver([found], message.at)
    run.decide()


def fork_and_reference(
    workflow: Json, choices: list[int], pick: int, decider: str
) -> tuple[Run, Run]:
    """Return a fork of a run from before some step, and a run that never went further."""
    run, messages = one_by_one(workflow, choices)
    step = picked(run, pick)
    before, _ = up_to(workflow, messages, step.index)
    state = forked(run.instance.state, step.step, "Generated")
    assert violations(state) == []
    state.decision_triggered_at = before.now
    fork = Run(workflow, decider)
    fork.instance = Instance(state)
    fork.deliver([m.Restore(before.now)], before.now)
    fork.decide()
    assert violations(fork.instance.state) == []
    return fork, before


@pytest.mark.parametrize("decider", ["scripted", "live"])
@given(workflow=WITHOUT, choices=CHOSEN, pick=PICKS)
def test_a_fork_equals_one_that_never_went_further(
    decider: str, workflow: Json, choices: list[int], pick: int
) -> None:
    fork, before = fork_and_reference(workflow, choices, pick, decider)
    assert fork.exact == before.exact
    fork.close()


@pytest.mark.parametrize("decider", ["scripted", "live"])
@given(workflow=WITH, choices=CHOSEN, pick=PICKS)
def test_a_fork_does_the_same_steps_with_waits(
    decider: str, workflow: Json, choices: list[int], pick: int
) -> None:
    fork, before = fork_and_reference(workflow, choices, pick, decider)
    assert fork.steps == before.steps
    waits = {(each.step, each.event) for each in fork.instance.state.waits}
    assert waits == {(each.step, each.event) for each in before.instance.state.waits}
    fork.close()


def rewind_and_reference(
    workflow: Json, choices: list[int], steps: int, pick: int, decider: str
) -> tuple[Run, Run]:
    """Return a run that went back, and one that never went further but received the same."""
    _, messages = one_by_one(workflow, choices)
    del messages[steps % max(len(messages), 1) :]  # so it has not ended
    run = Run(workflow, decider)
    run.decide()
    for message in messages:
        deliver(run, message)
    step = picked(run, pick)
    kept = {run.named(each.step) for each in run.instance.state.statuses if each.index < step.index}
    before, count = up_to(workflow, messages, step.index)
    for message in messages[count:]:
        if isinstance(message, m.EventSent) or message.step in kept:
            deliver(before, message)
    run.deliver([m.Rewind(run.now, step.step)], run.now)
    assert violations(run.instance.state) == []
    run.decide()
    assert violations(run.instance.state) == []
    return run, before


@pytest.mark.parametrize("decider", ["scripted", "live"])
@given(workflow=WITHOUT, choices=CHOSEN, steps=PICKS, pick=PICKS)
def test_a_rewound_instance_equals_one_that_never_went_further(
    decider: str, workflow: Json, choices: list[int], steps: int, pick: int
) -> None:
    run, before = rewind_and_reference(workflow, choices, steps, pick, decider)
    assert run.exact == before.exact
    run.close()


@pytest.mark.parametrize("decider", ["scripted", "live"])
@given(workflow=WITH, choices=CHOSEN, steps=PICKS, pick=PICKS)
def test_a_rewound_instance_does_the_same_steps_with_waits(
    decider: str, workflow: Json, choices: list[int], steps: int, pick: int
) -> None:
    run, before = rewind_and_reference(workflow, choices, steps, pick, decider)
    assert run.steps == before.steps
    run.close()


@given(workflow=WITH | WITHOUT, choices=CHOSEN, pick=PICKS)
def test_going_back_leaves_the_given_state_alone(
    workflow: Json, choices: list[int], pick: int
) -> None:
    run, _ = one_by_one(workflow, choices)
    step = picked(run, pick).step
    state = run.instance.state
    before = stored.encode(state)
    rewound(state, step)
    forked(state, step, "other")
    assert stored.encode(state) == before


# Directed cases.


@task
def charge(order: str) -> str:
    raise NotImplementedError


@task
def email(text: str) -> None:
    raise NotImplementedError


@task(timeout=10)
def ship(order: str) -> str:
    raise NotImplementedError


class Order(Workflow[str]):
    """Charges; then emails and ships in one execution."""

    def __init__(self) -> None:
        self.paid = 0

    def handle(self) -> str:
        self.execute(charge("o-1"))
        number = str(self.uuid())
        self.dispatch(email(number))
        self.patched("always there")
        return self.execute(ship(number))

    def on_event(self, event: Event) -> int:
        self.paid += event.data
        return self.paid


@pytest.fixture
def decider() -> Iterator[Decider]:
    made = Decider()
    yield made
    made.close()


def test_what_the_same_execution_asked_for_before_is_not_done_again(decider: Decider) -> None:
    driver = Driver(Order(), decider).settle().succeed("0/0.0", "charged")
    number = driver.state.records[0].value
    driver.event("paid", 5)
    driver.sent.clear()
    driver.receive(m.Rewind(driver.tick(), "0/2.0"))
    assert driver.sent == [
        m.CancelStep("0/2.0", StepType.TASK, 1, apart=False),
        m.DecisionJob(driver.state.decision_uuid, 2, [0]),
    ]
    driver.settle()
    jobs = [each for each in driver.sent if isinstance(each, m.StepJob)]
    assert [(job.step, job.attempt, job.input) for job in jobs] == [("0/2.0", 2, {"order": number})]
    assert driver.properties == {"paid": 5}, "the event has happened again, once"
    assert driver.succeed("0/2.0", "shipped").output == "shipped"


def test_an_answer_to_what_was_undone_comes_too_late(decider: Decider) -> None:
    driver = Driver(Order(), decider).settle().succeed("0/0.0", "charged")
    driver.receive(m.Rewind(driver.tick(), "0/2.0"))
    driver.settle()
    dropped = driver.state.dropped
    driver.receive(m.Succeeded(driver.tick(), "0/2.0", "old", attempt=1))
    assert driver.settle().open == ["0/1.0", "0/2.0"]
    assert driver.state.dropped == dropped + 1
    driver.receive(m.Succeeded(driver.tick(), "0/2.0", "new", attempt=2))
    assert driver.settle().output == "new"


def test_the_result_of_a_step_that_had_begun_before_is_kept(decider: Decider) -> None:
    driver = Driver(Order(), decider).settle().succeed("0/0.0", "charged").succeed("0/1.0")
    driver.receive(m.Rewind(driver.tick(), "0/2.0"))
    driver.settle()
    status = driver.instance.status("0/1.0")
    assert status is not None
    assert status.status is StepState.SUCCESSFUL
    assert driver.open == ["0/2.0"]


def test_the_timers_of_what_is_undone_are_cleared(decider: Decider) -> None:
    driver = Driver(Order(), decider).settle().succeed("0/0.0", "charged").start("0/2.0")
    assert [each.step for each in driver.state.timeouts] == ["0/2.0"]
    driver.receive(m.Rewind(driver.tick(), "0/2.0"))
    assert m.ClearTimer("0/2.0", timeout=True) in driver.sent
    assert driver.settle().state.timeouts == []


def test_an_unknown_step_is_dropped(decider: Decider) -> None:
    driver = Driver(Order(), decider).settle()
    driver.receive(m.Rewind(1, "0/9.0"))
    assert driver.state.dropped == 1
    assert not driver.state.decision_ongoing
    with pytest.raises(KeyError):
        rewound(driver.state, "0/9.0")


class Races(Workflow[Any]):
    """Takes the first of a task and a time, and stops the other."""

    def handle(self) -> Any:
        won = self.first(charge("o-1"), Wait(seconds=60), cancel=True)
        return self.execute(ship(str(won.index)))


def test_a_step_that_was_stopped_since_is_begun_again(decider: Decider) -> None:
    driver = Driver(Races(), decider).settle()
    driver.receive(m.Tick(driver.tick(60)))
    driver.settle()
    assert m.CancelStep("0/0.0", StepType.TASK) in driver.sent
    # The same execution has stopped one step and begun another.
    state = rewound(driver.state, "0/1.0")
    assert [(each.step, each.status, each.sync) for each in state.statuses] == [
        ("0/0.0", "scheduled", True),
        ("0/0.1", "successful", True),
    ]
    driver.sent.clear()
    driver.receive(m.Rewind(driver.tick(), "0/1.0"))
    again = [each for each in driver.sent if isinstance(each, m.StepJob)]
    assert [(job.step, job.attempt) for job in again] == [("0/0.0", 2)]
    driver.settle()
    assert m.CancelStep("0/0.0", StepType.TASK, 2) in driver.sent
    assert driver.succeed("0/1.0", "shipped").output == "shipped"


def test_a_fork_waits_and_times_out_as_the_other_did_then(decider: Decider) -> None:
    class Waits(Workflow[Any]):
        def handle(self) -> Any:
            self.dispatch(ship("o-1"))
            self.wait("go", seconds=100)
            return self.execute(charge("o-1"))

        def on_event(self, event: Event) -> None:
            if event.name == "ask":
                self.execute(email("asked"))

    driver = Driver(Waits(), decider).settle().start("0/0.0").event("ask").event("go")
    driver.succeed("0/0.0", "charged").succeed("0/2.0", "charged")
    asked = next(each.step for each in driver.state.statuses if each.name == "email")
    fork = forked(driver.state, asked, "i-2")
    assert violations(fork) == []
    assert [(each.step, each.timestamp, each.event) for each in fork.waits] == [
        ("0/1.0", 100, "go")
    ]
    assert [(each.step, each.timestamp) for each in fork.timeouts] == [("0/0.0", 11)]
    assert {each.step: each.status for each in fork.statuses} == {
        "0/0.0": "scheduled",
        "0/1.0": "scheduled",
    }
    assert (fork.id, fork.decision_ongoing, fork.branches[0].output) == ("i-2", True, stored.UNSET)


def test_a_fork_gets_the_event_that_has_interrupted_it(decider: Decider) -> None:
    class Thinks(Workflow[Any]):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def handle(self) -> Any:
            try:
                self.execute(charge("o-1"), email("slow"))
            except Interrupted:
                self.execute(email("sorry"))
            self.wait("end")
            return self.seen

        def on_event(self, event: Event) -> None:
            self.seen = [*self.seen, event.name]

    driver = Driver(Thinks(), decider).settle()
    driver.receive(m.EventSent(driver.tick(), "stop", interrupts=True))
    driver.settle()
    driver.tick(-1)
    driver.event("later")
    sorry = next(each.step for each in driver.state.statuses if each.input == {"text": "sorry"})
    fork = Driver(Thinks(), decider, id="i-2")
    fork.instance = Instance(forked(driver.state, sorry, "i-2"))
    assert violations(fork.state) == []
    fork.now = driver.now
    fork.receive(m.Restore(fork.now))
    fork.settle()
    assert fork.properties == {"seen": ["stop"]}
    fork.succeed(sorry)
    assert fork.event("end").output == ["stop", "end"]


def test_a_failure_is_undone_or_kept_as_it_was(decider: Decider) -> None:
    driver = Driver(Order(), decider).settle().fail("0/0.0")
    driver.receive(m.RetryStep(driver.tick(), "0/0.0"))
    driver.settle().succeed("0/0.0", "charged").fail("0/2.0", message="bug")
    failed = rewound(driver.state, "0/2.0")
    assert [(each.step, each.status, each.attempt) for each in failed.statuses] == [
        ("0/0.0", "successful", 2),
        ("0/1.0", "scheduled", 1),
    ]
    driver.receive(m.Rewind(driver.tick(), "0/0.0"))
    driver.settle()
    assert driver.steps == [("0/0.0", "charge", {"order": "o-1"})]
    status = driver.instance.status("0/0.0")
    assert status is not None
    assert (status.status, status.attempt) == ("scheduled", 3)


class Talks(Workflow[Any]):
    """Emails for each event, while it charges."""

    def handle(self) -> Any:
        return self.execute(charge("o-1"))

    def on_event(self, event: Event) -> None:
        self.execute(email(event.name))


def asked_at(driver: Driver) -> str:
    return next(each.step for each in driver.state.statuses if each.name == "email")


def test_a_failure_that_was_retried_since_does_not_happen_again(decider: Decider) -> None:
    driver = Driver(Talks(), decider).settle().event("ask").fail("0/0.0")
    driver.receive(m.RetryStep(driver.tick(), "0/0.0"))
    driver.receive(m.Rewind(driver.tick(), asked_at(driver)))
    assert driver.settle().instance.stuck_on() is None
    driver.succeed(asked_at(driver))
    driver.receive(m.Succeeded(driver.tick(), "0/0.0", "charged", attempt=2))
    assert driver.settle().output == "charged"


def test_a_step_that_failed_after_it_was_undone_can_be_retried(decider: Decider) -> None:
    driver = Driver(Talks(), decider).settle()
    driver.receive(m.Rewind(driver.tick(), "0/0.0"))
    driver.settle().fail("0/0.0").event("ask")
    driver.receive(m.Rewind(driver.tick(), asked_at(driver)))
    driver.settle().succeed(asked_at(driver))
    stuck = driver.instance.stuck_on()
    assert stuck is not None
    assert (stuck.step, stuck.status, stuck.attempt) == ("0/0.0", "failed", 2)
    driver.receive(m.RetryStep(driver.tick(), "0/0.0"))
    assert driver.succeed("0/0.0", "charged").output == "charged"


def test_a_sub_workflow_that_waits_for_a_fix_still_does(decider: Decider) -> None:
    class Parent(Talks):
        def handle(self) -> Any:
            return self.execute(Order())

    driver = Driver(Parent(), decider).settle()
    driver.receive(m.Stalled(driver.tick(), "0/0.0", {"name": "Bug", "message": "no"}))
    driver.event("ask")
    driver.receive(m.Rewind(driver.tick(), asked_at(driver)))
    driver.settle().succeed(asked_at(driver))
    stuck = driver.instance.stuck_on()
    assert stuck is not None
    assert (stuck.step, stuck.error) == ("0/0.0", {"name": "Bug", "message": "no"})
