"""The stored form of an instance: wholes and additions are equivalent, at any length."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from msgspec import msgpack

import actorflow as af
from actorflow.engine import growing_bytes
from actorflow.engine.kind import Addition, Context, Message, TaskEnded
from actorflow.testing.kinds import check_kind
from actorflow.workflows.decider import Decider
from actorflow.workflows.errors import MessageRefused
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.service.kind import WorkflowKind
from actorflow.workflows.service.received_messages import event_body, start_body
from actorflow.workflows.service.stored import read
from tests.workflows.service.test_kind import CONTROLS, EVENTS, START, Busy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.kind import Outcome


class Watched(WorkflowKind):
    """Checks after each run that its bytes decode to the state in memory."""

    def run(self, context: Context, state: Any, batch: Any) -> Outcome:
        outcome = super().run(context, state, batch)
        held = outcome.state.stored
        again = read(outcome.state.data)
        assert msgpack.encode(again) == msgpack.encode(held)
        assert again.instance == held.instance
        return outcome


@pytest.fixture
def deciders() -> Iterator[list[Decider]]:
    made: list[Decider] = []
    yield made
    for decider in made:
        decider.close()


def kind_of(deciders: list[Decider], cls: type[af.Workflow[Any]]) -> WorkflowKind:
    deciders.append(Decider())
    return Watched(cls, deciders[-1])


@pytest.mark.parametrize("small", [0, 800])
def test_additions_stand_for_the_same_as_a_whole(
    deciders: list[Decider], monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """Any messages, any outcomes of steps; read again after each run, or not."""
    monkeypatch.setattr(growing_bytes, "SMALL", small)
    check_kind(
        lambda: kind_of(deciders, Busy),
        messages=START | EVENTS | EVENTS | CONTROLS,
        results=st.integers(0, 3),
        refuses=(MessageRefused,),
        max_examples=50,
    )


@af.task
def count(number: int) -> int:
    return number


class Long(af.Workflow[int]):
    def __init__(self) -> None:
        self.events = 0

    def handle(self) -> int:
        found = 0
        while found >= 0:
            found = self.execute(count(7))
        return found

    def on_event(self, event: af.Event) -> None:
        self.events += 1


def steps(kind: WorkflowKind, number: int, last: int = 7) -> Iterator[Outcome]:
    """Yield the outcomes of so many steps of a long workflow, and of one that ends it."""
    made = kind.run(
        Context("i", 0.0), kind.decode(None), [Message(0, 0.0, start_body({"events": 0}))]
    )
    yield made
    for at in range(number):
        value = last if at == number - 1 else 7
        batch: list[Any] = [TaskEnded(None, float(at), f"i/0/{at}.0", "ok", value)]
        if at % 3 == 0:
            batch.append(Message(at, float(at), event_body("seen", None)))
        made = kind.run(Context("i", float(at)), made.state, batch)
        yield made


def test_a_step_writes_the_same_at_any_length(deciders: list[Decider]) -> None:
    kind = kind_of(deciders, Long)
    written = [kind.encode(outcome.state) for outcome in steps(kind, 400, last=-1)]
    added = [len(each.data) for each in written if isinstance(each, Addition)]
    wholes = [len(each) for each in written if isinstance(each, bytes)]
    assert max(added[-100:]) < max(added[:100]) * 1.1  # numbers have become longer
    large = [size for size in wholes if size > growing_bytes.SMALL]
    assert all(new > 1.4 * old for old, new in pairwise(large[:-1])), "seldom, and ever more so"
    assert isinstance(written[-1], bytes), "an instance that has ended is stored as a whole"
    assert sum(added) + sum(large) < 6 * large[-1]


def test_a_run_that_is_thrown_away_adds_nothing(deciders: list[Decider]) -> None:
    kind = kind_of(deciders, Long)
    *_, last = steps(kind, 50)
    before = last.state.data
    done: list[Any] = [TaskEnded(None, 60.0, "i/0/50.0", "ok", 7)]
    lost = kind.run(Context("i", 60.0), last.state, done)
    assert isinstance(kind.encode(lost.state), Addition)
    again = kind.run(Context("i", 60.0), last.state, done)
    assert last.state.data == before
    assert kind.encode(again.state) == kind.encode(lost.state)


def test_frames_are_kept_over_additions(deciders: list[Decider]) -> None:
    kind = kind_of(deciders, Long)
    *_, _last = steps(kind, 60)
    assert deciders[-1].statistics().replays == 0


def test_a_changed_past_is_written_as_a_whole(deciders: list[Decider]) -> None:
    kind = kind_of(deciders, Long)
    *_, last = steps(kind, 50)
    held, instance = last.state.take()
    assert held is not None
    assert instance is not None
    del held.instance.statuses[-1]
    assert instance.changes.take() is None
    shorter = last.state.after(held, Instance(held.instance))
    assert isinstance(shorter.encoded(), bytes)
    assert read(shorter.data or b"") == held
