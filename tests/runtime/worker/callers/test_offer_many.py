"""Many messages with their tickets at once: as if offered one by one, but together."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorflow as af
from actorflow.behaviours import (
    Base,
    Bounded,
    Chunk,
    Coalesce,
    Debounce,
    Expire,
    Fair,
    Linger,
    Priority,
    Queue,
    Stack,
    Throttle,
    Unique,
)
from actorflow.behaviours.adapt import adapt
from actorflow.runtime.errors import Full, Malformed, Replaced, WorkerStopped, WouldBlock
from actorflow.runtime.tickets import ThreadTicket
from actorflow.runtime.worker.pair.accumulation import Accumulation
from tests.runtime.worker.probe import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.testing import ManualLane, VirtualClock
    from tests.runtime.worker.probe import Probe


class Told:
    """A ticket that notes how often it was resolved, and with what."""

    def __init__(self, name: Any) -> None:
        self.name = name
        self.heard: list[BaseException | None] = []

    def __repr__(self) -> str:
        return f"ticket of {self.name!r}"

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        self.heard.append(error)


def pairs_of(*messages: Any) -> list[tuple[Any, Told]]:
    return [(message, Told(message)) for message in messages]


def heard(pairs: Sequence[tuple[Any, Told]]) -> list[list[Any]]:
    return [[type(error) for error in ticket.heard] for _, ticket in pairs]


DONE = [type(None)]


# --- the accumulator ---------------------------------------------------------------------------


def test_an_idle_worker_gets_them_as_one_batch(lane: ManualLane) -> None:
    batches: list[Any] = []
    worker = af.spawn(lambda batch, _: batches.append(batch), executor=lane)
    pairs = pairs_of(1, 2, 3)
    assert worker.actor.offers.offer_many(pairs) == []
    assert heard(pairs) == [[], [], []], "no caller is answered before it is done"
    lane.run()
    assert batches == [[1, 2, 3]]
    assert heard(pairs) == [DONE] * 3
    worker.stop()


def test_a_busy_worker_keeps_them_in_the_order_of_arrival(probe: Probe) -> None:
    worker = probe.spawn()
    worker.push(0)
    assert probe.begun() == [0]
    worker.push(1)
    pairs = pairs_of(2, 3)
    assert worker.actor.offers.offer_many(pairs) == []
    worker.push(4)
    probe.open()
    worker.push_block(5, timeout=PATIENCE)
    assert [message for batch in probe.batches for message in batch] == [0, 1, 2, 3, 4, 5]
    assert probe.batches[1][:4] == [1, 2, 3, 4]
    assert heard(pairs) == [DONE, DONE]


def test_a_busy_worker_takes_them_without_another_push(probe: Probe) -> None:
    worker = probe.spawn()
    worker.push(0)
    assert probe.begun() == [0]
    ticket = ThreadTicket()
    assert worker.actor.offers.offer_many([(1, ticket)]) == []
    probe.open()
    assert ticket.wait(PATIENCE)
    assert [message for batch in probe.batches for message in batch] == [0, 1]


def test_none_at_all_wakes_nobody(lane: ManualLane) -> None:
    worker = af.spawn(lambda batch, state: state, executor=lane)
    assert worker.actor.offers.offer_many([]) == []
    assert len(lane) == 0
    worker.stop()


def test_what_is_refused_is_given_back_and_its_ticket_left_alone(lane: ManualLane) -> None:
    batches: list[Any] = []
    worker = af.spawn(
        lambda batch, _: batches.append(batch), executor=lane, behaviour=Bounded(Queue(), 2)
    )
    pairs = pairs_of("a", "b", "c", "d")
    refused = worker.actor.offers.offer_many(pairs)
    assert [ticket for ticket, _ in refused] == [ticket for _, ticket in pairs[2:]]
    assert all(isinstance(error, Full) for _, error in refused)
    lane.run()
    assert batches == [["a", "b"]]
    assert heard(pairs) == [DONE, DONE, [], []]
    assert worker.statistics().rejected == 2
    worker.stop()


def test_one_that_is_malformed_is_refused_alone(lane: ManualLane) -> None:
    batches: list[Any] = []
    worker = af.spawn(lambda batch, _: batches.append(batch), executor=lane, behaviour=Unique)
    pairs = pairs_of(("a", 1), 7, ("b", 1), ("a", 2))
    ((ticket, error),) = worker.actor.offers.offer_many(pairs)
    assert ticket is pairs[1][1]
    assert isinstance(error, Malformed)
    lane.run()
    assert sorted(batches[0]) == [("a", 2), ("b", 1)]
    assert heard(pairs) == [[Replaced], [], DONE, DONE]
    worker.stop()


def test_where_others_would_wait_for_room_it_refuses(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Bounded(Queue(), 1, when_full="block"))
    worker.push(0)
    assert probe.begun() == [0]
    pairs = pairs_of(1, 2)
    ((ticket, error),) = worker.actor.offers.offer_many(pairs)
    assert ticket is pairs[1][1]
    assert isinstance(error, WouldBlock)
    probe.open()
    worker.push_block(3, timeout=PATIENCE)
    assert heard(pairs) == [DONE, []]


def test_a_worker_that_stops_takes_none(probe: Probe) -> None:
    worker = probe.spawn()
    worker.push(0)
    assert probe.begun() == [0]
    waiting = pairs_of(1, 2)
    assert worker.actor.offers.offer_many(waiting) == []
    worker.stop(drain=False, block=False)
    late = pairs_of(3)
    with pytest.raises(WorkerStopped):
        worker.actor.offers.offer_many(late)
    probe.open()
    worker.stop()
    with pytest.raises(WorkerStopped):
        worker.actor.offers.offer_many(late)
    assert heard(waiting) == [[WorkerStopped], [WorkerStopped]]
    assert heard(late) == [[]]
    assert probe.batches == [[0]]


def test_each_hears_what_the_job_raised(lane: ManualLane) -> None:
    def job(batch: list[Any], _state: Any) -> None:
        if "bad" in batch:
            raise ValueError("bad")

    worker = af.spawn(job, executor=lane, on_failure="isolate")
    pairs = pairs_of("a", "bad", "b")
    worker.actor.offers.offer_many(pairs)
    lane.run()
    assert heard(pairs) == [DONE, [ValueError], DONE]
    worker.stop()


def test_they_leave_when_their_time_has_come(lane: ManualLane, clock: VirtualClock) -> None:
    batches: list[Any] = []
    worker = af.spawn(
        lambda batch, _: batches.append((clock.now(), batch)),
        executor=lane,
        clock=clock,
        behaviour=Linger(Queue(), 5.0, 4),
    )
    first = pairs_of(1, 2)
    worker.actor.offers.offer_many(first)
    lane.run()
    assert batches == []
    clock.advance(5.0)
    lane.run()
    assert batches == [(5.0, [1, 2])]
    worker.actor.offers.offer_many(pairs_of(3))
    lane.run()
    full = pairs_of(4, 5, 6)  # the fourth ends the wait at once
    worker.actor.offers.offer_many(full)
    lane.run()
    assert batches[1:] == [(5.0, [3, 4, 5, 6])]
    assert heard([*first, *full]) == [DONE] * 5
    worker.stop()


def test_many_threads_lose_nothing() -> None:
    seen: list[Any] = []
    worker = af.spawn(lambda batch, _: seen.extend(batch))
    all_pairs: list[tuple[Any, Told]] = []
    lock = threading.Lock()

    def offer(thread: int) -> None:
        for number in range(100):
            pairs = pairs_of(*((thread, 3 * number + each) for each in range(3)))
            with lock:
                all_pairs.extend(pairs)
            assert worker.actor.offers.offer_many(pairs) == []

    threads = [threading.Thread(target=offer, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    worker.stop()
    for number in range(4):
        mine = [each for thread, each in seen if thread == number]
        assert mine == list(range(300))
    assert heard(all_pairs) == [DONE] * 1_200


# --- the accumulation: the same as one by one --------------------------------------------------


class Own(Base):
    """A custom behaviour, which takes bare messages: newest first, at most five."""

    def add(self, messages: Any, message: Any) -> Any:
        if message[1] == 3:
            raise ValueError("three")
        return [message, *messages][:5]


BEHAVIOURS: list[Callable[[], Any]] = [
    Queue,
    Stack,
    Unique,
    Fair,
    Priority,
    Own,
    lambda: Coalesce(0, lambda old, new: (old[0], old[1] + new[1])),
    lambda: Chunk(Queue(), 2),
    lambda: Throttle(Unique(), 2.0),
    lambda: Linger(Queue(), 2.0, 3),
    lambda: Debounce(Queue(), 2.0),
    lambda: Expire(Queue(), 3.0),
    *(
        lambda inner=inner, when=when: Bounded(inner(), 3, when_full=when)
        for inner in (Queue, Unique)
        for when in ("reject", "drop_oldest", "drop_newest", "block")
    ),
]

MESSAGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 4)) | st.just("malformed"), max_size=6
)
STEPS = st.lists(st.tuples(st.sampled_from(["offer", "raw", "take"]), MESSAGES), max_size=6)


def offer_each(core: Accumulation, pairs: list[Any], now: float) -> list[Any]:
    """Do what `offer_many` does, in the plainest way."""
    refused = []
    for message, ticket in pairs:
        try:
            core.offer(message, ticket, now)
        except Exception as error:  # noqa: BLE001 - compared
            refused.append((ticket, error))
    return refused


class Side:
    """One of the two accumulations that are compared."""

    def __init__(self, make: Any, offer: Callable[..., list[Any]]) -> None:
        self.core = Accumulation(adapt(make()))
        self.tickets: list[Told] = []
        self._offer = offer

    def step(self, what: str, messages: list[Any], now: float) -> Any:
        """Do one step; say all that can be seen after it."""
        core = self.core
        result: Any = None
        if what == "raw":
            stamped = core.shape.stamped
            flat = [part for each in messages for part in (now, each)]
            core.raw.extend(flat if stamped else messages)
            core.fold(now)
        elif what == "take":
            batch = core.take(now)
            if batch is not None:
                batch.resolve()
                result = batch.payload, batch.size
        else:
            pairs = [(each, Told((len(self.tickets), each))) for each in messages]
            self.tickets.extend(ticket for _, ticket in pairs)
            refused = self._offer(core, pairs, now)
            result = sorted((repr(ticket), type(error).__name__) for ticket, error in refused)
        told = heard([(None, ticket) for ticket in self.tickets])
        return result, told, len(core), core.folded, core.rejected, core.batches

    def end(self) -> Any:
        """Drop the held messages; return the answers to their callers."""
        count = self.core.abandon(WorkerStopped("over"))
        return count, heard([(None, ticket) for ticket in self.tickets])


@pytest.mark.parametrize("make", BEHAVIOURS)
@given(steps=STEPS)
def test_it_is_the_same_as_offering_them_one_by_one(make: Any, steps: Any) -> None:
    together, alone = Side(make, Accumulation.offer_many), Side(make, offer_each)
    for now, (what, messages) in enumerate(steps):
        assert together.step(what, messages, float(now)) == alone.step(what, messages, float(now))
    assert together.end() == alone.end()
