"""`concurrency=Limit(least, most)` follows what the job can take."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorflow as af
from actorflow.behaviours import Chunk, Queue
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.job.limit import Limiter
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.probe import PATIENCE
from tests.runtime.worker.statistics.law import check_law

BASE = 0.010


class Service:
    """Takes 10 ms for a batch, and longer where more than `capacity` are under way."""

    def __init__(self, capacity: int, *, jitter: float = 0.0, limit: af.Limit) -> None:
        self.clock, self.lane = VirtualClock(), ManualLane()
        self.capacity = capacity
        self.active = self.most = 0
        self._random = random.Random(7)
        self._jitter = jitter
        self.worker = af.spawn(
            self.job,
            behaviour=Chunk(Queue(), 1),
            executor=self.lane,
            clock=self.clock,
            concurrency=limit,
        )

    def job(self, batch: list[Any], _: object) -> Deferred:
        deferred = Deferred()
        self.active += 1
        self.most = max(self.most, self.active)
        share = self._random.uniform(1 - self._jitter, 1 + self._jitter)
        took = BASE * share * max(1.0, self.active / self.capacity)

        def end() -> None:
            self.active -= 1
            deferred.resolve(None, None)

        self.clock.call_at(self.clock.now() + took, end)
        return deferred

    def run(self, seconds: float) -> list[int]:
        """Process for a while, and return the limits in the second half of it."""
        begin, limits = self.clock.now(), []
        while self.clock.now() < begin + seconds:
            if len(self.worker) < 100:
                self.worker.push_many(range(1_000))
                self.lane.run()
            due = self.clock.next_time()
            assert due is not None, "it has stopped"
            self.clock.advance(max(due - self.clock.now(), 0.0))
            self.lane.run()
            if self.clock.now() > begin + seconds / 2:
                limits.append(self.worker.statistics().concurrency)
        return limits

    def end(self) -> None:
        self.worker.stop(drain=False, block=False)
        while (due := self.clock.next_time()) is not None:
            self.clock.advance(max(due - self.clock.now(), 0.0))
            self.lane.run()
        assert not self.worker.is_alive()


@pytest.mark.parametrize("jitter", [0.0, 0.5])
@pytest.mark.parametrize("capacity", [6, 20])
def test_the_limit_settles_a_little_above_the_capacity(capacity: int, jitter: float) -> None:
    service = Service(capacity, jitter=jitter, limit=af.Limit(2, 64))
    limits = sorted(service.run(4.0))
    assert capacity <= limits[len(limits) // 2] <= 2.2 * capacity
    processed = service.worker.statistics().processed
    assert processed >= 0.8 * 4.0 * capacity / BASE
    check_law(service.worker)
    service.end()


def test_the_limit_follows_a_capacity_that_changes() -> None:
    service = Service(24, limit=af.Limit(2, 64))
    before = service.run(3.0)
    service.capacity = 5
    after = service.run(4.0)
    assert sorted(before)[len(before) // 2] >= 24
    assert sorted(after)[len(after) // 2] <= 16
    service.end()


def test_a_job_that_never_becomes_slower_gets_the_most() -> None:
    service = Service(1_000, limit=af.Limit(1, 16))
    assert max(service.run(1.0)) == service.most == 16
    service.end()


@given(
    least=st.integers(1, 4),
    more=st.integers(0, 12),
    batches=st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(1, 16)), max_size=300),
)
def test_the_limit_stays_within_its_bounds(
    least: int, more: int, batches: list[tuple[float, int]]
) -> None:
    limiter = Limiter(af.Limit(least, least + more))
    slots: list[Any] = list(range(least + more))
    free = list(slots)
    for took, active in batches:
        limiter.finished(took, min(active, limiter.limit), free)
        assert least <= limiter.limit <= least + more
        assert sorted(free + limiter.parked) == slots
        assert len(free) <= limiter.limit


def test_a_stop_drains_whatever_the_limit_is() -> None:
    seen: list[int] = []
    lock = threading.Lock()

    async def job(batch: list[int], _: object) -> None:
        with lock:
            seen.extend(batch)

    with af.spawn(job, behaviour=Chunk(Queue(), 2), concurrency=af.Limit(1, 8)) as worker:
        worker.push_many(range(2_000))
    assert sorted(seen) == list(range(2_000))


def test_an_executor_that_is_cut_off_leaves_no_slot_behind() -> None:
    service = Service(8, limit=af.Limit(2, 8))
    service.run(0.5)
    pair = service.worker.actor
    service.worker.kill()
    assert pair.limiter is not None
    assert pair.free_slots is not None
    assert len(pair.free_slots) + len(pair.limiter.parked) == 8


def test_hooks_and_mail_still_run_alone() -> None:
    def job(batch: list[int], _: object) -> af.Answers[None, int]:
        return af.Answers(None, batch)

    with af.spawn(job, concurrency=af.Limit(1, 4)) as worker:
        assert [worker.ask(number, timeout=PATIENCE) for number in range(50)] == list(range(50))
        worker.pause()
        worker.push(1)
        worker.resume()
        worker.change(Chunk(Queue(), 3))
        assert worker.ask(7, timeout=PATIENCE) == 7


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: af.Limit(0, 4), "least"),
        (lambda: af.Limit(4, 2), "most"),
        (lambda: af.Limit(1, 4, "magic"), "magic"),
        (lambda: af.Limit(1, 4, tolerance=0.5), "tolerance"),
        (
            lambda: af.spawn(lambda batch, state: state, state=1, concurrency=af.Limit(1, 4)),
            "state",
        ),
    ],
)
def test_a_limit_that_cannot_work_is_refused(build: Any, match: str) -> None:
    with pytest.raises(af.BadOption, match=match):
        build()
