"""Several batches in flight (M8): at most n, in the behaviour's order, whatever else happens."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import TYPE_CHECKING, Any

import pykka
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import actorflow as af
from actorflow.behaviours import Bounded, Chunk, Linger, Priority, Queue, Stack, Throttle, Unique
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.job.crowd import Crowd, busy
from tests.runtime.worker.probe import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    """Yield a job in the hand of the test."""
    made = Crowd()
    yield made
    made.open()


# How many, and in which order.


@pytest.mark.parametrize("executor", ["pool", "thread"])
def test_m8_at_most_n_batches_are_in_flight(crowd: Crowd, executor: str) -> None:
    count = 1 if executor == "thread" else 3  # a single thread runs one at a time
    worker = af.spawn(crowd, concurrency=3, executor=executor)
    for number in range(count):
        worker.push(number)
        crowd.await_begun(number + 1)
    worker.push_many(["more", "and more"])
    assert worker.statistics().accepted == count + 2
    crowd.release([0])
    crowd.await_begun(count + 1)
    assert crowd.begun[:count] == [[number] for number in range(count)]
    crowd.open()
    assert worker.stop()
    assert sorted(map(str, itertools.chain(*crowd.begun))) == sorted(
        [*"012"[:count], "more", "and more"]
    )
    assert crowd.most == count


def test_m8_what_accumulates_while_n_run_leaves_as_one_batch(crowd: Crowd) -> None:
    worker = busy(crowd)
    for number in "abc":
        worker.push(number)
    assert len(worker) == 3
    crowd.release([1])
    crowd.await_begun(4)
    assert crowd.begun[3] == ["a", "b", "c"]
    assert worker.statistics().in_flight == 5
    crowd.open()
    worker.stop()


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (Chunk(Queue(), 2), [["a", "b"], ["c", "d"], ["e"]]),
        (Chunk(Stack(), 2), [["e", "d"], ["c", "b"], ["a"]]),
        (Chunk(Priority(key=lambda m: ord(m[0])), 1), [["e"], ["d"], ["c"], ["b"], ["a"]]),
        (Chunk(Unique(key=lambda m: m in "ab"), 1), [["b"], ["e"]]),
    ],
    ids=["queue", "stack", "priority", "unique"],
)
def test_m8_batches_leave_in_the_order_of_the_behaviour(
    behaviour: Any, expected: list[list[str]]
) -> None:
    lane = ManualLane()
    batches: list[list[str]] = []
    started: list[af.Deferred] = []

    def job(batch: list[str], state: Any) -> af.Deferred:
        batches.append(batch)
        started.append(af.Deferred())
        return started[-1]

    worker = af.spawn(job, concurrency=2, behaviour=behaviour, executor=lane)
    for message in ("first", "second"):
        worker.push(message)
    lane.run()
    assert batches == [["first"], ["second"]]
    for message in "abcde":
        worker.push(message)
    lane.run()
    assert len(batches) == 2  # both places are taken
    at = 2
    while started:
        started.pop().resolve()  # the newest first: batches may finish in any order
        lane.run()
        at += 1
    assert batches[2:] == expected
    assert worker.is_idle


def test_m8_a_burst_fills_all_places(crowd: Crowd) -> None:
    worker = af.spawn(crowd, concurrency=4, behaviour=Chunk(Queue(), 2))
    worker.push_many(range(20))
    crowd.await_begun(4)
    assert sorted(crowd.begun) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert worker.statistics().in_flight == 8
    crowd.open()
    worker.stop()
    assert crowd.most <= 4
    assert worker.statistics().processed == 20


def test_m8_an_idle_worker_with_room_takes_a_message_at_once_alone(crowd: Crowd) -> None:
    worker = busy(crowd, 2, behaviour=Queue)
    crowd.release([0])
    until(lambda: crowd.inside == 1, "one has ended")
    worker.push("x")
    crowd.await_begun(3)
    assert crowd.begun[2] == ["x"]
    crowd.open()
    worker.stop()


@settings(max_examples=25)
@given(
    limit=st.integers(2, 5),
    producers=st.integers(1, 4),
    each=st.integers(1, 60),
    behaviour=st.sampled_from(
        [Queue, Stack, lambda: Chunk(Queue(), 3), lambda: Bounded(Queue(), 7, when_full="block"),
         lambda: Linger(Queue(), 0.0005, size=4)]
    ),
)  # fmt: skip
def test_m8_a_storm_exceeds_no_limit_and_loses_nothing(
    limit: int, producers: int, each: int, behaviour: Any
) -> None:
    inside = most = 0
    seen: list[int] = []
    lock = threading.Lock()

    def job(batch: list[int], state: Any) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        seen.extend(batch)
        with lock:
            inside -= 1

    worker = af.spawn(job, concurrency=limit, behaviour=behaviour)

    def produce(first: int) -> None:
        for number in range(first, first + each):
            if number % 7:
                worker.push(number)
            else:
                worker.push_block(number, timeout=PATIENCE)

    threads = [threading.Thread(target=produce, args=(n * 1_000,)) for n in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    worker.stop()
    assert sorted(seen) == sorted(n * 1_000 + i for n in range(producers) for i in range(each))
    assert most <= limit
    counted = worker.statistics()
    assert counted.processed == counted.accepted == producers * each
    assert counted.in_flight == counted.held == 0


# Refusals.


def test_stateful_jobs_are_refused_with_the_reason() -> None:
    class Keeper(af.Executor):
        def handle(self, batch: Any) -> None:
            pass

    with pytest.raises(af.BadOption, match="Keeper keeps what it likes between two batches"):
        af.spawn(Keeper, concurrency=2)
    with pytest.raises(af.BadOption, match="state=0 would be changed by several batches at once"):
        af.spawn(lambda batch, state: state, state=0, concurrency=2)
    with pytest.raises(af.BadOption, match="for jobs without state"):
        af.Worker("w", Keeper, concurrency=2)
    af.spawn(Keeper, concurrency=1).stop()


@pytest.mark.parametrize("concurrency", [0, -1, True, 1.5, "2", None])
def test_what_is_no_count_is_refused(concurrency: Any) -> None:
    with pytest.raises(af.BadOption, match="concurrency"):
        af.spawn(lambda batch, state: None, concurrency=concurrency)


def test_a_job_that_returns_a_state_is_told_so() -> None:
    worker = af.spawn(lambda batch, state: len(batch), concurrency=2)
    with pytest.raises(af.BadJob, match="runs with concurrency=2, so it keeps no state"):
        worker.push_block(1)
    worker = af.spawn(lambda batch, state: af.Answers(7, batch), concurrency=2)
    with pytest.raises(af.BadJob, match="keeps no state, but returned 7"):
        worker.push_block(1)


def test_help_needs_a_single_place() -> None:
    with pytest.raises(af.BadOption, match="concurrency=1"):
        af.spawn(lambda batch, state: None, concurrency=2, help=True)


# Time.


def test_throttle_spaces_the_beginnings_of_batches() -> None:
    lane, clock = ManualLane(), VirtualClock()
    begun: list[tuple[float, list[int]]] = []
    started: list[af.Deferred] = []

    def job(batch: list[int], state: Any) -> af.Deferred:
        begun.append((clock.now(), batch))
        started.append(af.Deferred())
        return started[-1]

    worker = af.spawn(
        job, concurrency=3, behaviour=Throttle(Chunk(Queue(), 1), 1.0), executor=lane, clock=clock
    )
    worker.push_many(range(5))
    for _ in range(10):
        lane.run()
        clock.advance(0.5)
    assert begun == [(0.0, [0]), (1.0, [1]), (2.0, [2])]  # the places are taken then
    started[1].resolve()
    lane.run()
    assert begun[3:] == [(5.0, [3])]
    for deferred in started:
        deferred.resolve()
    clock.advance(1.0)
    lane.run()
    assert begun[4:] == [(6.0, [4])]
    started[-1].resolve()
    lane.run()
    assert worker.statistics().processed == 5
    assert clock.next_time() is None


def test_linger_holds_back_while_places_are_free() -> None:
    lane, clock = ManualLane(), VirtualClock()
    batches: list[list[int]] = []
    started: list[af.Deferred] = []

    def job(batch: list[int], state: Any) -> af.Deferred:
        batches.append(batch)
        started.append(af.Deferred())
        return started[-1]

    worker = af.spawn(
        job, concurrency=2, behaviour=Linger(Queue(), 1.0, size=3), executor=lane, clock=clock
    )
    for number in range(4):
        worker.push(number)
    lane.run()
    assert batches == [[0, 1, 2]]
    clock.advance(1.0)
    lane.run()
    assert sorted(itertools.chain(*batches)) == [0, 1, 2, 3]
    worker.push(4)
    lane.run()
    before = len(batches)
    clock.advance(0.9)
    lane.run()
    assert len(batches) == before
    for deferred in started:
        deferred.resolve()
    clock.advance(0.2)
    lane.run()
    assert batches[-1] == [4]
    for deferred in started:
        deferred.resolve()
    lane.run()
    assert worker.is_idle
    assert worker.statistics().processed == 5


# Coroutine jobs, answers, mail, statistics.


def test_coroutine_jobs_wait_together() -> None:
    inside = most = 0

    async def job(batch: list[int], state: Any) -> af.Answers:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(3):
            await asyncio.sleep(0)
        inside -= 1
        return af.Answers(None, [-number for number in batch])

    worker = af.spawn(job, concurrency=4, behaviour=Chunk(Queue(), 2))

    async def main() -> None:
        answers = await asyncio.gather(*(worker.aask(number) for number in range(40)))
        assert answers == [-number for number in range(40)]

    asyncio.run(main())
    assert most <= 4
    worker.push_many(range(40))
    worker.stop()
    assert most == 4


def test_answers_find_their_callers_in_whatever_order_batches_end(crowd: Crowd) -> None:
    worker = af.spawn(crowd, concurrency=3)
    futures = []
    for number in range(3):
        futures.append(worker.ask(number, block=False))
        crowd.await_begun(number + 1)
    for number in (2, 0, 1):
        crowd.release([number])
        assert futures[number].get(timeout=PATIENCE) == ("answer", number)
    crowd.open()
    later = pykka.get_all([worker.ask(name, block=False) for name in "xyz"], timeout=PATIENCE)
    assert list(later) == [("answer", name) for name in "xyz"]
    worker.stop()


def test_m9_mail_is_served_when_no_batch_is_in_flight_and_before_the_next(crowd: Crowd) -> None:
    worker = busy(crowd, 2)
    answer = worker.executor.ask("mail", block=False)
    worker.push("later")
    crowd.release([0])
    until(lambda: crowd.inside == 1, "one batch has ended")
    assert len(crowd.begun) == 2  # nothing begins before the mail was served
    crowd.release([1])
    answer.get(timeout=PATIENCE)
    crowd.await_begun(3)
    assert crowd.begun[2] == ["later"]
    crowd.open()
    worker.stop()


def test_statistics_count_all_that_is_in_flight(crowd: Crowd) -> None:
    worker = busy(crowd)
    worker.push_many("abcd")
    counted = worker.statistics()
    assert (counted.accepted, counted.in_flight, counted.held) == (7, 3, 4)
    assert (counted.batches, counted.processed) == (3, 0)
    crowd.open()
    worker.stop()
    counted = worker.statistics()
    assert (counted.processed, counted.in_flight, counted.held) == (7, 0, 0)
    assert counted.batch_sizes == {1: 3, 4: 1}
    assert sum(counted.reasons.values()) == counted.batches == 4


def test_the_current_batch_is_that_of_the_place() -> None:
    seen: dict[Any, Any] = {}
    both = threading.Barrier(2)

    def job(batch: list[Any], state: Any) -> None:
        both.wait(PATIENCE)
        seen[batch[0]] = af.current_batch()

    worker = af.spawn(job, concurrency=2)
    worker.push("a")
    worker.push("b")
    worker.stop()
    assert {key: batch.payload for key, batch in seen.items()} == {"a": ["a"], "b": ["b"]}
