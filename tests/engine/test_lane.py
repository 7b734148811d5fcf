"""Lanes: the queue against a model, the kind as engines need it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.engine.growing_bytes import SMALL
from actorflow.engine.kind import Addition, ChildEnded, Context, Message, TimerFired
from actorflow.engine.kinds.lane import Lane, LaneKind
from actorflow.engine.kinds.lane_queue import LaneLimits, LaneQueue, LaneState
from actorflow.runtime.errors import ActorflowError
from actorflow.testing.kinds import check_kind

IDS = st.sampled_from([f"e{n}" for n in range(12)])
LIMITS = st.builds(
    LaneLimits,
    st.none() | st.integers(1, 3),
    st.none() | st.tuples(st.integers(1, 3), st.sampled_from([0.5, 2.0, 10.0])),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), IDS, st.integers(-1, 1)),
        st.tuples(st.just("leave"), IDS),
        st.tuples(st.just("limit"), LIMITS),
        st.tuples(st.just("pause"), st.booleans()),
        st.tuples(st.just("after"), st.sampled_from([0.0, 0.5, 3.0])),
    ),
    max_size=60,
)


class Model:
    """The rules of a lane, in the plainest form: lists, and no bytes."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, str]] = []
        self.running: list[str] = []
        self.begun_at: list[float] = []
        self.limits = LaneLimits()
        self.paused = False

    def do(self, what: str, *given: Any) -> None:
        if what == "enter" and given[0] not in [*self.running, *(id_ for _, id_ in self.waiting)]:
            self.waiting.append((-given[1], given[0]))
            self.waiting.sort(key=lambda each: each[0])
        elif what == "leave":
            self.running = [each for each in self.running if each != given[0]]
            self.waiting = [each for each in self.waiting if each[1] != given[0]]
        elif what == "limit":
            self.limits = given[0]
            rate = self.limits.rate
            self.begun_at = [] if rate is None else self.begun_at[-rate[0] :]
        elif what == "pause":
            self.paused = given[0]

    def begin(self, now: float) -> list[str]:
        begun = []
        most, rate = self.limits.concurrency, self.limits.rate
        while self.waiting and not self.paused and (most is None or len(self.running) < most):
            if rate is not None:
                recent = [at for at in self.begun_at if at > now - rate[1]]
                if len(recent) >= rate[0]:
                    break
                self.begun_at = [*self.begun_at, now][-rate[0] :]
            begun.append(self.waiting.pop(0)[1])
            self.running.append(begun[-1])
        return begun


@given(STEPS, st.booleans())
def test_a_lane_is_what_the_model_says_however_it_is_stored(steps: Any, grows: bool) -> None:  # noqa: FBT001
    model, state, now = Model(), LaneState(), 0.0
    if grows:  # a whole that is so long that runs add to it
        first = state.take()
        for n in range(300):
            first.enter(f"{n:020}")
            first.leave(f"{n:020}")
        for n in range(300):
            first.enter(f"long {n:020}", -10)
        state = state.after(first)
        model.waiting = [(10, f"long {n:020}") for n in range(300)]
        data = state.encoded()
        assert isinstance(data, bytes)
        assert len(data) > SMALL
    stored = _bytes(b"", state)
    for what, *given_ in steps:
        queue = state.take()
        if what == "after":
            now += given_[0]
        else:
            model.do(what, *given_)
            _do(queue, what, given_)
        assert queue.begin(now) == model.begin(now)
        state = state.after(queue)
        stored = _bytes(stored, state)
        assert queue.running == model.running
        assert queue.waiting == [each for _, each in model.waiting]
        due = queue.due()
        if due is not None:
            assert due > now
        again = LaneState(stored).take()
        assert (again.running, again.waiting) == (queue.running, queue.waiting)
        assert (again.limits, again.paused, again.due()) == (queue.limits, queue.paused, due)
        if len(steps) % 2:  # as after a crash
            state = LaneState(stored)


def _do(queue: LaneQueue, what: str, given_: list[Any]) -> None:
    if what == "enter":
        queue.enter(*given_)
    elif what == "leave":
        queue.leave(*given_)
    elif what == "limit":
        queue.limits = given_[0]
    else:
        queue.paused = given_[0]


def _bytes(before: bytes, state: LaneState) -> bytes:
    data = state.encoded()
    return before + data.data if isinstance(data, Addition) else data


def test_a_run_of_a_long_lane_stores_only_what_it_adds() -> None:
    kind, state = LaneKind(), LaneState()
    first = state.take()
    first.limits = LaneLimits(1)
    for n in range(10_000):
        first.enter(f"waits-{n}")
    first.begin(0.0)
    state = state.after(first)
    outcome = kind.run(Context("lane:c", 1.0), state, [ChildEnded(None, 1.0, "waits-0", "done")])
    assert [each.to for each in outcome.messages] == ["waits-1"]
    data = kind.encode(outcome.state)
    assert isinstance(data, Addition)
    assert len(data.data) < 100


def test_a_discarded_run_leaves_the_lane_as_it_was() -> None:
    kind, state = LaneKind(), LaneState()
    enters = [Message(None, 0.0, Lane("c").entry("a"))]
    state = LaneState(kind.encode(kind.run(Context("lane:c", 0.0), state, enters).state))
    kind.run(Context("lane:c", 0.0), state, [ChildEnded(None, 1.0, "a", "done")])
    assert state.take().running == ["a"]


def test_the_timer_of_a_rate_is_set_once_and_cleared() -> None:
    kind, state = LaneKind(), LaneState()
    entries = [Message(None, 0.0, Lane("c", rate=(1, 10)).entry(each)) for each in "abc"]
    first = kind.run(Context("lane:c", 0.0), state, entries)
    assert [each.to for each in first.messages] == ["a"]
    assert [each.at for each in first.timers] == [10.0]
    again = kind.run(Context("lane:c", 1.0), first.state, [ChildEnded(None, 1.0, "a", "done")])
    assert (again.messages, again.timers, again.cancelled_timers) == ([], [], [])
    second = kind.run(Context("lane:c", 10.0), again.state, [TimerFired(None, 10.0, "rate", 10.0)])
    assert [each.to for each in second.messages] == ["b"]
    assert [each.at for each in second.timers] == [20.0]
    ended = [ChildEnded(None, 11.0, "c", "cancelled")]
    last = kind.run(Context("lane:c", 11.0), second.state, ended)
    assert last.cancelled_timers == ["rate"]


def test_a_stuck_child_keeps_its_place() -> None:
    kind = LaneKind()
    entries = [Message(None, 0.0, Lane("c", concurrency=1).entry(each)) for each in "ab"]
    first = kind.run(Context("lane:c", 0.0), LaneState(), entries)
    stuck = kind.run(Context("lane:c", 0.0), first.state, [ChildEnded(None, 1.0, "a", "stuck")])
    assert stuck.messages == []
    ended = kind.run(Context("lane:c", 0.0), stuck.state, [ChildEnded(None, 1.0, "a", "done")])
    assert [each.to for each in ended.messages] == ["b"]


def test_a_lane_is_a_kind_that_engines_can_rely_on() -> None:
    messages = st.one_of(
        st.builds(lambda id_, n: Lane("c", concurrency=n).entry(id_), IDS, st.integers(1, 3)),
        st.builds(lambda id_: Lane("c", rate=(2, 5.0)).entry(id_), IDS),
        st.sampled_from([{"do": "pause"}, {"do": "resume"}]),
        st.builds(lambda id_: {"leave": id_}, IDS),
    )
    check_kind(LaneKind, messages=messages)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"concurrency": 0}, "concurrency=0"),
        ({"rate": 5}, "rate=5: give how many may begin, and within how many seconds"),
        ({"rate": (0, 5)}, r"rate\[0\]=0"),
        ({"rate": (1, 0)}, r"rate\[1\]=0"),
        ({"priority": "high"}, "priority='high'"),
    ],
)
def test_wrong_limits_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ActorflowError, match=text):
        Lane("c", **options)


def test_a_lane_shows_what_was_given() -> None:
    assert repr(Lane("c")) == "Lane('c')"
    assert repr(Lane("c", concurrency=2, priority=1)) == "Lane('c', concurrency=2, priority=1)"
    assert Lane("c", rate=(5, 30)) == Lane("c", rate=(5, 30.0))
    assert Lane("c") != Lane("d")
