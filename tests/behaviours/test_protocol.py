"""What drivers rely on beyond `add` and `take`: traits, times of arrival, reasons, waits."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from actorflow.behaviours import (
    Adaptive,
    Base,
    Behaviour,
    Bounded,
    Chunk,
    Coalesce,
    Debounce,
    Expire,
    Fair,
    Linger,
    Priority,
    Queue,
    Reason,
    Stack,
    TableUnique,
    Throttle,
    Traits,
    Unique,
    adapt,
)
from tests.behaviours.models import learn


def drop(inner: Any, when_full: str = "drop_oldest") -> Behaviour:
    return Bounded(inner, 3, when_full=when_full)


@pytest.mark.parametrize(
    ("behaviour", "accepts_all"),
    [
        (Queue(), True),
        (Stack(), True),
        (drop(Queue()), True),
        (drop(Stack(), "drop_newest"), True),
        (drop(Queue(), "reject"), False),
        (drop(Queue(), "block"), False),
        (drop(Unique()), False),
        (Linger(Throttle(Queue(), 1), 1), True),
        (Linger(Unique(), 1), False),
        (Expire(Debounce(Queue(), 1), 1), True),
        (Chunk(Queue(), 5), True),
        (Chunk(Queue(), 5, weight=len), False),
        (Adaptive(Queue()), True),
        *((kind(), False) for kind in (Unique, TableUnique, Priority, Fair)),
        (Coalesce(0, max), False),
        (adapt(Base), False),
    ],
    ids=repr,
)
def test_accepts_all_is_declared_where_nothing_can_be_refused(
    behaviour: Behaviour, *, accepts_all: bool
) -> None:
    assert behaviour.traits.accepts_all is accepts_all


@pytest.mark.parametrize(
    ("behaviour", "stamped", "first_stamped"),
    [
        (Queue(), False, False),
        (Throttle(Queue(), 1), False, False),
        (Linger(Queue(), 1), False, True),
        (Adaptive(Queue()), False, True),
        (Debounce(Queue(), 1), True, False),
        (Expire(Queue(), 1), True, False),
        (Linger(Expire(Queue(), 1), 1), True, True),
        (Bounded(Debounce(Linger(Queue(), 1), 1), 1), True, True),
    ],
    ids=repr,
)
def test_stamps_are_asked_for_where_they_matter(
    behaviour: Behaviour, *, stamped: bool, first_stamped: bool
) -> None:
    traits = behaviour.traits
    assert (traits.stamped, traits.first_stamped) == (stamped, first_stamped)


class Timed(Behaviour):
    """A custom timed behaviour, without any of the optional methods."""

    def __repr__(self) -> str:
        return "Timed()"

    traits = Traits(timed=True, stamped=True)

    def __init__(self) -> None:
        super().__init__()
        self.now = -inf
        self.calls: list[tuple[str, Any]] = []

    def add(self, message: Any) -> None:
        if message == "bad":
            raise ValueError(message)
        self.calls.append((message, self.now))

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        batch, self.calls = self.calls, []
        return batch

    def __len__(self) -> int:
        return len(self.calls)

    def ready_at(self, now: float) -> float:
        self.now = now
        return now


def test_extend_at_tells_the_time_before_each_message_by_default() -> None:
    timed = Timed()
    refused = timed.extend_at(["a", "b", "bad", "c"], [1.0, 1.0, 2.0, 3.0])
    assert [(list(some), type(error)) for some, error in refused] == [(["bad"], ValueError)]
    assert timed.take() == [("a", 1.0), ("b", 1.0), ("c", 3.0)]
    assert timed.until_full() == 1
    assert timed.reason() is Reason.IDLE


@pytest.mark.parametrize(
    "around", [lambda inner: Debounce(inner, 1.0), lambda inner: Linger(inner, 1.0)]
)
def test_extend_at_reaches_a_behaviour_of_the_users(around: Any) -> None:
    wrapped = around(Timed())
    wrapped.extend_at(["bad", "a", "b", "bad"], [1.0, 2.0, 3.0, 4.0])
    assert wrapped.ready_at(2.5) == (4.0 if isinstance(wrapped, Debounce) else 3.0)
    assert wrapped.take() == [("a", 2.0), ("b", 3.0)]


def test_m15_linger_says_size_time_or_flush() -> None:
    linger = Linger(Queue(), 5.0, size=2)
    linger.ready_at(1.0)
    linger.extend(["a", "b"])
    linger.take()
    assert linger.reason() is Reason.SIZE
    linger.add("c")
    assert linger.ready_at(6.0) <= 6.0
    linger.take()
    assert linger.reason() is Reason.TIME
    linger.add("d")
    linger.flush()
    assert linger.ready_at(7.0) <= 7.0
    linger.take()
    assert linger.reason() is Reason.FLUSH
    assert Linger(Queue(), 1.0).reason() is Reason.IDLE


def test_m15_debounce_says_time_deadline_or_flush() -> None:
    debounce = Debounce(Queue(), 2.0, at_most=3.0)
    debounce.extend_at(["a"], [1.0])
    debounce.ready_at(3.0)
    debounce.take()
    assert debounce.reason() is Reason.TIME
    debounce.extend_at(["b", "c"], [4.0, 6.0])
    assert debounce.ready_at(6.0) == 7.0
    debounce.ready_at(7.0)
    debounce.take()
    assert debounce.reason() is Reason.DEADLINE
    debounce.add("d")
    debounce.flush()
    debounce.ready_at(7.5)
    debounce.take()
    assert debounce.reason() is Reason.FLUSH


def test_m15_chunk_says_size_or_weight_where_it_is_full() -> None:
    chunk = Chunk(Queue(), 2)
    chunk.extend([1, 2, 3, 4, 5])
    reasons = []
    while len(chunk):
        chunk.take()
        reasons.append(chunk.reason())
    assert reasons == [Reason.SIZE, Reason.SIZE, Reason.IDLE]
    chunk = Chunk(Queue(), 10, weight=len)
    chunk.extend(["x" * 6, "x" * 6, "x" * 4, "x"])
    reasons = []
    while len(chunk):
        chunk.take()
        reasons.append(chunk.reason())
    assert reasons == [Reason.WEIGHT, Reason.WEIGHT, Reason.IDLE]


def test_m15_throttle_says_time_where_it_held_the_batch_back() -> None:
    throttle = Throttle(Queue(), 2.0)
    throttle.ready_at(10.0)
    throttle.add("a")
    throttle.take()
    assert throttle.reason() is Reason.IDLE
    throttle.add("b")
    assert throttle.ready_at(11.0) == 12.0
    throttle.ready_at(12.0)
    throttle.take()
    assert throttle.reason() is Reason.TIME
    throttle.add("c")
    throttle.ready_at(20.0)
    throttle.take()
    assert throttle.reason() is Reason.IDLE


def test_m15_adaptive_says_deadline_size_or_flush() -> None:
    adaptive = Adaptive(Queue(), target=1.0)
    adaptive.ready_at(5.0)
    adaptive.add("a")
    ready = adaptive.ready_at(5.0)
    assert adaptive.ready_at(ready) <= ready
    adaptive.take()
    assert adaptive.reason() is Reason.DEADLINE
    learn(adaptive, 1, 0.1)
    learn(adaptive, 3, 0.3)
    adaptive.extend(list(range(7)))
    adaptive.take()
    assert adaptive.reason() is Reason.SIZE
    adaptive.take()
    assert adaptive.reason() is Reason.IDLE
    adaptive.add("b")
    adaptive.flush()
    adaptive.ready_at(ready)
    adaptive.take()
    assert adaptive.reason() is Reason.FLUSH


def test_m15_a_wrapper_asks_the_inner_behaviour() -> None:
    bounded = Bounded(Expire(Chunk(Queue(), 2), 5.0), 9)
    bounded.ready_at(1.0)
    bounded.extend([1, 2, 3])
    bounded.take()
    assert bounded.reason() is Reason.SIZE
    for leaf in Queue, Stack, Unique, Priority, Fair, TableUnique:
        assert leaf.reason is Behaviour.reason


@pytest.mark.parametrize(
    ("behaviour", "messages"),
    [
        (Linger(Queue(), 5.0), None),
        (Linger(Queue(), 5.0, size=4), 3),
        (Throttle(Linger(Queue(), 5.0, size=4), 1.0), 3),
        (Linger(Linger(Queue(), 5.0, size=3), 5.0, size=4), 2),
        (Bounded(Debounce(Queue(), 5.0), 9), None),
        (Debounce(Linger(Unique(), 5.0, size=4), 5.0), 3),
        (Chunk(Expire(Linger(Queue(), 5.0, size=4), 9.0), 2), 3),
        (Throttle(Timed(), 5.0), 1),
        (Adaptive(Queue(), target=5.0), None),
    ],
    ids=repr,
)
def test_until_full_says_when_to_look_again(behaviour: Behaviour, messages: int | None) -> None:
    behaviour.ready_at(1.0)
    behaviour.extend([("a", 1)])
    behaviour.ready_at(1.0)
    assert behaviour.until_full() == messages


@pytest.mark.parametrize(
    ("behaviour", "patient"),
    [
        (Debounce(Queue(), 5.0), True),
        (Expire(Unique(), 5.0), True),
        (Expire(Debounce(Queue(), 5.0), 9.0), True),
        (Throttle(Expire(Queue(), 5.0), 9.0), True),
        (Debounce(Linger(Queue(), 5.0, size=4), 5.0), False),
        (Linger(Expire(Queue(), 9.0), 5.0, size=4), False),
        (Adaptive(Expire(Queue(), 9.0)), False),
        (Expire(Adaptive(Queue()), 9.0), False),
        (Queue(), False),
    ],
    ids=repr,
)
def test_a_behaviour_is_patient_where_no_number_of_messages_makes_a_batch_leave(
    behaviour: Behaviour, *, patient: bool
) -> None:
    assert behaviour.traits.patient is patient


def test_until_full_of_a_linger_that_is_full_or_flushed_is_that_of_the_inner() -> None:
    linger = Linger(Throttle(Queue(), 9.0), 5.0, size=2)
    linger.ready_at(1.0)
    linger.extend([1, 2])
    linger.take()
    linger.extend([3, 4, 5])
    assert linger.ready_at(1.0) == 10.0
    assert linger.until_full() is None


def test_adaptive_asks_to_look_again_before_its_reserve_is_used_up() -> None:
    adaptive = Adaptive(Queue(), target=1.0)
    learn(adaptive, 1, 0.001)
    learn(adaptive, 101, 0.101)
    adaptive.ready_at(5.0)
    adaptive.add("a")
    ready = adaptive.ready_at(5.0)
    more = adaptive.until_full()
    assert more is not None
    adaptive.extend(["x"] * more)
    assert ready - 0.0101 <= adaptive.ready_at(5.0) < ready


def test_an_empty_line_owns_no_list_and_adopts_one() -> None:
    for kind in Queue, Stack:
        line = kind()
        assert line.take() == []
        for messages in [1, 2], [3]:
            line.extend(messages)
            assert line.take() is messages
            assert line._new == ()
