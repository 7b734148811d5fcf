"""Latency, wait and service in the statistics, against measurements of each message."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import (
    Bounded,
    Chunk,
    Debounce,
    Expire,
    Fair,
    Linger,
    Priority,
    Queue,
    Shortest,
    Stack,
    Throttle,
    Unique,
)
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.probe import Probe, until

SERVICE = 0.010


class Line:
    """A worker in virtual time whose job takes 10 ms, and the true times of every message."""

    def __init__(self, behaviour: Any = Queue, service: float = SERVICE, **options: Any) -> None:
        self.clock, self.lane = VirtualClock(), ManualLane()
        self.service = service
        self.pushed: dict[Any, float] = {}
        self.waits: list[float] = []
        self.latencies: list[float] = []
        self.worker = af.spawn(
            self.job, behaviour=behaviour, executor=self.lane, clock=self.clock, **options
        )

    def job(self, batch: list[Any], state: Any) -> None:
        begun = self.clock.now()
        self.clock.advance(self.service)  # messages arrive meanwhile
        for message in batch:
            self.waits.append(begun - self.pushed[message])
            self.latencies.append(self.clock.now() - self.pushed[message])

    def arrive(self, times: list[float]) -> None:
        """Let messages arrive at these times, and process all."""
        for number, when in enumerate(times):
            self.clock.call_at(when, partial(self._push, number))
        while (due := self.clock.next_time()) is not None:
            self.clock.advance(max(due - self.clock.now(), 0.0))
            self.lane.run()

    def _push(self, number: int) -> None:
        self.pushed[number] = self.clock.now()
        self.worker.push(number)

    def check(self, within: float = 0.2, near: float = 0.1) -> af.WorkerStatistics:
        """Compare the statistics with the measurements.

        They may differ by `within` of the measurement, or by `near` of the service.
        """
        s = self.worker.statistics()
        for said, true in (
            ((s.latency_p50, s.latency_p99), self.latencies),
            ((s.wait_p50, s.wait_p99), self.waits),
            ((s.service_p50, s.service_p99), [self.service]),
        ):
            for value, share in zip(said, (0.5, 0.99), strict=True):
                expected = quantile(true, share)
                assert value == pytest.approx(expected, rel=within, abs=near * SERVICE), (
                    said,
                    true,
                )
        return s


def quantile(values: list[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)]


def every(step: float, count: int, first: float = 1.0) -> list[float]:
    return [first + step * number for number in range(count)]


def at_random(rate: float, count: int, seed: int = 1) -> list[float]:
    source, now, times = random.Random(seed), 1.0, []
    for _ in range(count):
        now += source.expovariate(rate)
        times.append(now)
    return times


LOADS = {
    "sparse": every(0.030, 200),
    "paced": every(0.001, 2_000),
    "just busy": every(0.0099, 220),
    "continuous": every(0.0001, 20_000),
    "long": every(0.001, 10_000),
    "random 30/s": at_random(30, 400),
    "random 200/s": at_random(200, 1_500),
    "random 5000/s": at_random(5_000, 10_000),
}


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(
    "behaviour",
    [Queue, Stack, lambda: Unique(key=int), lambda: Bounded(Queue, 100_000),
     lambda: Priority(key=int)],
    ids=["Queue", "Stack", "Unique", "Bounded", "Priority"],
)  # fmt: skip
def test_times_are_within_a_fifth_of_the_truth(behaviour: Any, load: str) -> None:
    line = Line(behaviour)
    line.arrive(LOADS[load])
    assert len(line.latencies) == len(LOADS[load])
    line.check()


def test_a_paced_load_shows_waits_between_none_and_a_whole_service() -> None:
    line = Line()
    line.arrive(LOADS["paced"])
    s = line.check()
    assert s.latency_p50 == pytest.approx(0.015, rel=0.1)
    assert s.latency_p99 == pytest.approx(0.020, rel=0.1)
    assert s.wait_p50 == pytest.approx(0.005, rel=0.2)
    assert s.service_p50 == pytest.approx(0.010)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(
    "behaviour",
    [lambda: Linger(Queue, 0.005), lambda: Linger(Queue, 0.005, size=128),
     lambda: Linger(Unique(key=int), 0.200), lambda: Throttle(Queue, 0.020)],
    ids=["Linger", "Linger by size", "long Linger", "Throttle"],
)  # fmt: skip
def test_times_of_what_is_held_back(behaviour: Any, load: str) -> None:
    line = Line(behaviour)
    line.arrive(LOADS[load])
    assert len(line.latencies) == len(LOADS[load])
    line.check(near=0.2)  # where half of the messages wait for nothing, the median is steep


def test_times_of_debounce() -> None:
    line = Line(lambda: Debounce(Queue, 0.005, at_most=0.025))
    line.arrive([start + n * 0.004 for start in every(0.1, 200) for n in range(5)])
    line.check()


def test_times_of_a_chunk_that_keeps_up() -> None:
    line = Line(lambda: Chunk(Queue, 16))
    line.arrive(LOADS["paced"])
    line.check()


BACKLOGS = {
    "one burst": [1.0] * 400,
    "bursts": [start for start in every(0.3, 10) for _ in range(200)],
    "too many": every(0.0003, 3_000),
    "too many at random": at_random(3_000, 2_000),
    "now and then too many": [at for start in every(1.0, 8) for at in every(0.0002, 300, start)],
}


@pytest.mark.parametrize("load", BACKLOGS)
@pytest.mark.parametrize(
    "behaviour",
    [
        lambda: Chunk(Queue, 16),
        lambda: Chunk(Unique(key=int), 16),
        lambda: Chunk(Queue, 100),
        lambda: Linger(Queue, 0.005, size=16),
    ],
    ids=["Queue", "Unique", "large", "Linger"],
)
def test_times_of_a_chunk_with_a_backlog(behaviour: Any, load: str) -> None:
    line = Line(behaviour)
    line.arrive(BACKLOGS[load])
    assert len(line.latencies) == len(BACKLOGS[load])
    line.check()


def test_early_batches_count_no_more_than_late_ones() -> None:
    line = Line(lambda: Chunk(Queue, 4))
    line.arrive(every(0.0017, 4_000))  # the backlog grows: the first batches waited least
    line.check(within=0.1)


MANY = {
    "too many": [*every(0.0003, 3_000), *every(0.004, 1_000, 1.9)],
    "bursts": [start for start in every(0.3, 40) for _ in range(100)],
    "paced": every(0.001, 4_000),
}


@pytest.mark.parametrize("load", MANY)
@pytest.mark.parametrize(
    "behaviour",
    [
        lambda: Chunk(Stack, 16),
        lambda: Chunk(Priority(key=lambda number: number * 7919 % 101), 16),
        lambda: Chunk(Expire(Queue, 0.040), 16),
        lambda: Expire(Queue, 0.012),
        lambda: Chunk(Fair(key=lambda number: number % 7), 16),
        lambda: Chunk(Shortest(weight=lambda number: number * 31 % 17), 16),
    ],
    ids=["Stack", "Priority", "Expire in Chunk", "Expire", "Fair", "Shortest"],
)
def test_times_of_messages_that_overtake_each_other(behaviour: Any, load: str) -> None:
    line = Line(behaviour)
    line.arrive(MANY[load])
    s = line.worker.statistics()
    for said, true in (
        ((s.latency_p50, s.latency_p99), line.latencies),
        ((s.wait_p50, s.wait_p99), line.waits),
    ):
        for value, share in zip(said, (0.5, 0.99), strict=True):
            assert value is not None
            # Arrivals are known to within a call of the job, and shares as well as a sample can.
            at_least = sum(1 for each in true if each <= value - SERVICE) / len(true)
            at_most = sum(1 for each in true if each <= value + SERVICE) / len(true)
            assert at_least <= share + 0.06
            assert at_most >= share - 0.06 * (1 if share < 0.9 else 0.3)


def test_starvation_and_expiry_are_seen() -> None:
    """Estimates that take the oldest messages to leave first are off by factors here."""
    stack = Line(lambda: Chunk(Stack, 16))
    stack.arrive(MANY["too many"])
    s = stack.worker.statistics()
    assert s.latency_p50 is not None
    assert s.latency_p99 is not None
    assert s.latency_p50 < 0.025
    assert s.latency_p99 > 1.5
    expire = Line(lambda: Chunk(Expire(Queue, 0.040), 16))
    expire.arrive(MANY["too many"])
    p99 = expire.worker.statistics().latency_p99
    assert p99 is not None
    assert p99 <= 0.040 + SERVICE + 1e-6


def test_a_message_that_is_sampled_and_refused_is_still_logged_and_counted() -> None:
    line = Line(lambda: Chunk(Priority(key=lambda number: number[0]), 4))
    for number in range(3):
        line.worker.push(number)  # has no first element
    line.lane.run()
    s = line.worker.statistics()
    assert (s.rejected, s.accepted, s.processed) == (3, 0, 0)


def test_a_caller_that_gives_up_withdraws_a_sampled_message(probe: Probe) -> None:
    worker = probe.spawn(behaviour=lambda: Chunk(Stack, 1))
    worker.push(0)
    probe.begun()
    with pytest.raises(af.AnswerTimeout):
        worker.ask(1, timeout=0.001)
    probe.open()
    until(lambda: worker.is_idle, "the worker is idle")
    s = worker.statistics()
    assert (s.processed, s.abandoned) == (1, 1)


@pytest.mark.parametrize(
    "behaviour",
    [Queue, lambda: Unique(key=int), lambda: Linger(Queue, 0.0), lambda: Debounce(Queue, 0.0)],
    ids=["Queue", "Unique", "Linger", "Debounce"],
)
@pytest.mark.parametrize("verb", ["push", "push_block", "push_ack", "ask"])
def test_an_idle_worker_lets_nobody_wait(behaviour: Any, verb: str) -> None:
    line = Line(behaviour)
    for number in range(20):
        line.clock.advance(5.0)
        line.pushed[number] = line.clock.now()
        getattr(line.worker, verb)(number)
        line.lane.run()
    s = line.check()
    assert s.wait_p99 == 0.0


def test_what_was_not_processed_has_no_times() -> None:
    def broken(batch: Any, state: Any) -> None:
        raise ValueError(batch)

    lane, clock = ManualLane(), VirtualClock()
    worker = af.spawn(broken, executor=lane, clock=clock)
    worker.push(1)
    lane.run()
    assert worker.statistics().latency_p50 is None


@pytest.mark.parametrize("concurrency", [1, 3])
def test_times_of_several_batches_in_flight(concurrency: int) -> None:
    """A job that takes its time without holding a thread, under a load that it keeps up with."""
    clock, lane = VirtualClock(), ManualLane()
    latencies: list[float] = []

    def job(batch: list[float], _state: Any) -> Deferred:
        place = Deferred()

        def end() -> None:
            latencies.extend(clock.now() - pushed for pushed in batch)
            place.resolve(None, None)

        clock.call_at(clock.now() + SERVICE, end)
        return place

    worker = af.spawn(job, executor=lane, clock=clock, concurrency=concurrency)
    for number in range(150):
        clock.call_at(0.002 * number, lambda: worker.push(clock.now()))
    while (due := clock.next_time()) is not None:
        clock.advance(max(due - clock.now(), 0.0))
        lane.run()
    s = worker.statistics()
    assert s.processed == len(latencies) == 150
    assert s.latency_p50 == pytest.approx(quantile(latencies, 0.5), rel=0.2)
    assert s.latency_p99 == pytest.approx(quantile(latencies, 0.99), rel=0.2)
