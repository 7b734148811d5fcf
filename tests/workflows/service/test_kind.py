"""Workflows as a kind of execution: pure, restored at every point, within the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

import actorflow as af
from actorflow.behaviours import Unique
from actorflow.engine.kind import Context, Message, Status, TaskEnded
from actorflow.testing.kinds import check_kind
from actorflow.workflows.decider import Decider
from actorflow.workflows.errors import MessageRefused
from actorflow.workflows.service.dispatched import DispatchedKind
from actorflow.workflows.service.kind import WorkflowKind
from actorflow.workflows.service.received_messages import control_body, event_body, start_body
from tests.workflows.service.orders import Order, Parent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.workflows.service.stored import WorkflowState
    from actorflow.workflows.workflow import StepError, StepInfo


@af.task(timeout=5)
def step(number: int) -> int:
    return number


@af.task
def note(text: str) -> None: ...


class Busy(af.Workflow[int]):
    """Uses all that an instance can send."""

    def __init__(self, start: int) -> None:
        self.total = start
        self.seen = 0

    def handle(self) -> int:
        self.dispatch(note("begun"), Order("o"))
        self.total += self.execute(step(1), raises=True) or 0
        first = self.first(step(2), af.Wait("go", seconds=30), cancel=True)
        self.publish({"first": first.index})
        self.tag(stage="waited")
        self.wait("end", minutes=1)
        self.execute(Order("child"))
        return self.total

    def on_event(self, event: af.Event) -> int:
        self.seen += 1
        self.execute(step(self.seen))
        return self.seen

    def on_start(self, step: StepInfo) -> None:
        self.seen += 1

    def on_failure(self, step: StepInfo, error: StepError) -> None:
        self.dispatch(note(error.name))

    def on_timeout(self, step: StepInfo) -> None:
        self.dispatch(note("late"))


@pytest.fixture
def deciders() -> Iterator[list[Decider]]:
    made: list[Decider] = []
    yield made
    for decider in made:
        decider.close()


def kind_of(deciders: list[Decider], cls: type[af.Workflow[Any]], **options: Any) -> WorkflowKind:
    deciders.append(Decider())
    return WorkflowKind(cls, deciders[-1], **options)


START = st.just(start_body({"total": 1, "seen": 0}))
EVENTS = st.sampled_from(["go", "end", "other"]).map(lambda name: event_body(name, {}, None))
CONTROLS = st.sampled_from(
    [
        control_body("pause"), control_body("resume"), control_body("kill"),
        control_body("retry"), control_body("retry", "0/1.0"), control_body("cancel", "0/1.0"),
        control_body("rewind", "0/1.0"), control_body("rewind", "0/2.1"), control_body("cancel"),
        {"do": "go on"}, event_body("go", None, "question"),
    ]
)  # fmt: skip


def test_the_engine_can_rely_on_it(deciders: list[Decider]) -> None:
    check_kind(
        lambda: kind_of(deciders, Busy),
        messages=START | EVENTS | EVENTS | CONTROLS,
        results=st.integers(0, 3),
        refuses=(MessageRefused,),
        max_examples=150,
    )


def test_the_engine_can_rely_on_it_with_an_inbox(deciders: list[Decider]) -> None:
    check_kind(
        lambda: kind_of(deciders, Busy, inbox=lambda: Unique(key=lambda event: event.name)),
        messages=START | EVENTS,
        results=st.integers(0, 3),
        refuses=(MessageRefused,),
        max_examples=30,
    )


def test_the_engine_can_rely_on_dispatched_tasks() -> None:
    check_kind(
        DispatchedKind,
        messages=st.just({"tasker": "note", "step": "0/0.0", "input": {}}),
        refuses=(MessageRefused,),
    )


def test_what_is_no_message_to_a_workflow_is_refused(deciders: list[Decider]) -> None:
    check_kind(lambda: kind_of(deciders, Order), refuses=(MessageRefused,), max_examples=30)


def test_a_run_that_is_thrown_away_leaves_no_trace(deciders: list[Decider]) -> None:
    """The frames have come further than the state: they must not be used for another batch."""
    kind = kind_of(deciders, Busy)
    before = kind.run(
        Context("i", 1.0), kind.decode(None), [Message(1, 1.0, start_body({"total": 1, "seen": 0}))]
    )
    state = before.state
    done = TaskEnded(2, 2.0, "i/0/0.0", "ok", 5)
    lost = kind.run(Context("i", 2.0), state, [TaskEnded(3, 2.0, "i/0/1.0", "ok", 50)])
    assert lost.tasks
    again = kind.run(Context("i", 2.0), state, [done])
    fresh = kind_of(deciders, Busy)
    expected = fresh.run(Context("i", 2.0), fresh.decode(state.data), [done])
    assert kind.encode(again.state) == fresh.encode(expected.state)
    assert again.history == expected.history


@pytest.mark.parametrize("forget", [False, True])
def test_restored_after_every_run_it_comes_to_the_same(
    deciders: list[Decider], *, forget: bool
) -> None:
    """Replays of the stored state lead to the same results as the frames in memory."""

    def outcome(*, restore: bool) -> tuple[Any, list[Any]]:
        kind = kind_of(deciders, Order)
        state: WorkflowState = kind.decode(None)
        batches: list[list[Any]] = [
            [Message(1, 1.0, start_body({"order": "o-1", "paid": 0}))],
            [TaskEnded(2, 2.0, "i/0/0.0", "ok", 3)],
            [TaskEnded(3, 3.0, "i/0/0.1", "ok", "r")],
            [Message(4, 4.0, event_body("other", None))],
            [Message(5, 5.0, event_body("paid", {"amount": 7}))],
            [TaskEnded(6, 6.0, "i/0/2.0", "ok", "shipped")],
        ]
        history = []
        for number, batch in enumerate(batches):
            if restore:
                state = kind.decode(state.data)
                if forget:
                    kind = kind_of(deciders, Order)
            made = kind.run(Context("i", float(number + 1)), state, batch)
            history += made.history
            state = made.state
        assert made.status is Status.DONE
        return made.result, history

    assert outcome(restore=True) == outcome(restore=False)


def test_what_the_budget_leaves_is_a_message_to_itself(deciders: list[Decider]) -> None:
    kind = kind_of(deciders, Parent)
    spent = Context("i", 1.0, lambda: False)
    # on_start of the child is a second decision.
    first = kind.run(
        spent, kind.decode(None), [Message(1, 1.0, start_body({"order": "o", "seen": []}))]
    )
    assert [out.body for out in first.messages] == [{"do": "go on"}]
    assert [child.id for child in first.children] == ["i/0/0.0"]
    second = kind.run(spent, first.state, [Message(2, 1.0, {"do": "go on"})])
    assert second.messages == []
    view = kind.view(_row(kind, second.state), None)  # type: ignore[arg-type]
    assert view is not None
    assert view.properties["seen"] == ["start Order"]


def _row(kind: WorkflowKind, state: Any) -> Any:
    class Row:
        pass

    row: Any = Row()
    row.state, row.status = kind.encode(state), "active"
    return row
