"""Behaviours that look at what is held without taking it, or find nothing that may leave."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import Any

import pytest

from actorflow.behaviours import (
    Adaptive,
    BadBehaviour,
    Behaviour,
    Bounded,
    Bucket,
    Chunk,
    Deadline,
    Debounce,
    Dedup,
    Expire,
    Full,
    Lanes,
    Linger,
    MessageOutcome,
    PerKey,
    Queue,
    Rate,
    Shortest,
    Stack,
    Throttle,
    Traits,
    Verdict,
    Window,
    adapt,
)
from actorflow.runtime.worker.pair.accumulation import Accumulation
from tests.behaviours.models import learn


def at(behaviour: Behaviour, now: float, *messages: Any) -> Behaviour:
    behaviour.ready_at(now)
    for message in messages:
        behaviour.add(message)
    return behaviour


@pytest.mark.parametrize(
    "waiting", [Linger(Queue(), 1.0), Debounce(Queue(), 1.0), Adaptive(Queue(), target=1.0)]
)
def test_a_look_does_not_end_the_wait(waiting: Behaviour) -> None:
    due = at(waiting, 10.0, "a").ready_at(10.0)
    assert due > 10.0
    assert not waiting.choose(lambda _: Verdict.STOP)
    assert waiting.ready_at(10.0) == due


def test_the_end_of_a_batch_does_not_end_the_wait_of_others() -> None:
    orders = PerKey(Linger(Queue(), 1.0), key=0)
    at(orders, 0.0, ("a", 1))
    assert orders.ready_at(1.0) == 1.0
    first = orders.take()
    at(orders, 1.5, ("b", 1))
    at(orders, 1.6, ("a", 2))
    orders.done(first, 0.6, [MessageOutcome.PROCESSED])
    assert orders.ready_at(1.6) == 2.5


def test_an_empty_bucket_is_not_ready() -> None:
    bucket = Bucket(key=0, inner=Rate(Queue(), 1))
    at(bucket, 0.0, ("a", 1), ("b", 1), ("b", 2))
    assert [bucket.take(), bucket.take()] == [[("a", 1)], [("b", 1)]]
    assert bucket.ready_at(0.5) == 1.0


def test_a_message_of_a_new_key_is_looked_at() -> None:
    bucket = Bucket(key=0, inner=Throttle(Queue(), 1.0))
    at(bucket, 0.0, ("a", 1))
    bucket.take()
    at(bucket, 0.0, ("a", 2))
    assert (bucket.ready_at(0.0), bucket.until_full(), bucket.traits.patient) == (1.0, 1, False)
    bucket.add(("b", 1))
    assert bucket.ready_at(0.0) == 0.0


def test_a_lighter_message_that_overtakes_its_key_is_looked_at() -> None:
    rate = Rate(Shortest(lambda message: message[1]), 1, burst=1, key=0, weight=second)
    at(rate, 0.0, ("a", 1))
    rate.take()
    at(rate, 0.5, ("a", 9))
    assert rate.ready_at(0.5) == 1.0
    at(rate, 0.5, ("a", 0.5))
    assert rate.ready_at(0.5) == 0.5
    assert rate.take() == [("a", 0.5)]


def test_a_lighter_message_on_top_of_a_stack_is_looked_at() -> None:
    rate = Rate(Stack(), 1, burst=1, weight=second)
    at(rate, 0.0, ("a", 1))
    rate.take()
    at(rate, 0.5, ("b", 9))
    assert rate.ready_at(0.5) == 1.0
    at(rate, 0.5, ("c", 0))
    assert rate.ready_at(0.5) == 0.5
    assert rate.take() == [("c", 0)]


@pytest.mark.parametrize("when_full", ["reject", "drop_newest"])
def test_a_message_that_a_full_bucket_refuses_does_not_make_it_younger(when_full: str) -> None:
    bucket = Bucket(key=0, inner=Bounded(Queue(), 1, when_full=when_full))
    at(bucket, 0.0, ("a", 1), ("b", 1))
    with suppress(Full):
        bucket.add(("a", 2))
    assert bucket.take() == [("a", 1)]


def second(message: Any) -> float:
    return message[1]  # type: ignore[no-any-return]


def test_a_bucket_counts_what_is_shed_when_a_batch_ends() -> None:
    bucket = Bucket(key=0, inner=PerKey(Chunk(Expire(Queue(), 1.0), 1), key=1))
    at(bucket, 0.0, ("a", "x", 1), ("a", "y", 1), ("a", "x", 2))
    batches = [bucket.take(), bucket.take()]
    bucket.ready_at(5.0)
    bucket.done(batches[0], 5.0, [MessageOutcome.PROCESSED])
    assert len(bucket) == 0
    bucket.check()


@pytest.mark.parametrize(
    "behaviour",
    [
        Bucket(key=0, inner=Rate(Queue(), 2)),
        Lanes(a=Rate(Queue(), 2), by=lambda message: message[0]),
    ],
)
def test_a_retry_respects_the_rate_inside(behaviour: Behaviour) -> None:
    at(behaviour, 0.0, ("a", 1))
    assert behaviour.traits.paces
    assert behaviour.retry_at(behaviour.take(), 0.0) == 0.5


def test_a_deadline_leaves_out_the_period_that_is_not_over() -> None:
    deadline = learnt(Deadline(Window(1.0), within=3.0))
    deadline.extend_at(["old 1", "old 2"], [0.0, 0.0])
    deadline.extend_at(["new 1", "new 2"], [2.4, 2.4])
    assert deadline.ready_at(2.5) <= 2.5
    assert deadline.portion() == 2  # the new ones are due after a batch of two, the old are not
    assert deadline.take() == ["old 1"]


def test_a_deadline_finds_what_the_key_of_its_first_choice_leaves() -> None:
    deadline = PerKey(Chunk(Deadline(Queue(), of=lambda message: message[1]), 1), key=0)
    at(deadline, 0.0, ("a", 1.0))
    first = deadline.take()
    at(deadline, 0.0, ("a", 2.0), ("b", 3.0))
    assert (first, deadline.take()) == ([("a", 1.0)], [("b", 3.0)])
    assert deadline.ready_at(0.0) == inf


def learnt(behaviour: Behaviour) -> Behaviour:
    """Let it know that a call takes 0.3 seconds for each message."""
    for size in 1, 3:
        learn(behaviour, size, size * 0.3)
    return behaviour


def test_a_message_that_its_period_has_dropped_is_no_duplicate() -> None:
    with pytest.raises(BadBehaviour, match="may lose some"):
        Dedup(Window(1.0, inner=Bounded(Queue(), 2, when_full="drop_newest")), within=60.0)


class Ticket:
    def __init__(self) -> None:
        self.error: BaseException | None = None

    def resolve(self, error: BaseException | None = None, result: Any = None) -> None:
        self.error = error


def test_callers_hear_at_once_of_what_is_shed_when_a_batch_ends() -> None:
    core = Accumulation(adapt(PerKey(Chunk(Expire(Queue(), 1.0), 1), key=0)))
    core.offer(("a", 1), None, 0.0)
    core.offer(("b", 1), None, 0.0)
    first = core.take(0.0)
    assert first is not None
    assert core.take(0.0) is not None
    ticket: Any = Ticket()
    core.offer(("a", 2), ticket, 0.0)
    core.behaviour.ready_at(5.0)
    core.report(first, 5.0, MessageOutcome.PROCESSED)
    assert "waited too long" in str(ticket.error)


class Empty(Behaviour):
    """Says that a batch may leave, and hands nothing over."""

    traits = Traits(timed=True, may_be_empty=True)

    def __init__(self) -> None:
        super().__init__()
        self.held = 0

    def add(self, message: Any) -> None:
        self.held += 1

    def __len__(self) -> int:
        return self.held

    def take(self, limit: int | None = None, free: int = 1) -> list[Any]:
        return []


def test_a_behaviour_that_is_ready_for_ever_but_hands_nothing_over_is_an_error() -> None:
    core = Accumulation(adapt(Empty()))
    core.offer("a", None, 0.0)
    with pytest.raises(BadBehaviour, match=r"take returns nothing of the 1 held"):
        core.take(0.0)
