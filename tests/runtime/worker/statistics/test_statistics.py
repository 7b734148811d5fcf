"""What a worker tells about itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Queue, Unique

if TYPE_CHECKING:
    from actorflow.testing import ManualLane
    from tests.runtime.worker.probe import Probe


def test_a_fresh_worker_has_done_nothing(lane: ManualLane) -> None:
    statistics = af.spawn(lambda batch, state: None, executor=lane).statistics()
    counts = dataclasses.asdict(statistics)
    assert counts.pop("batch_sizes") == {}
    assert counts.pop("reasons") == {}
    assert counts.pop("concurrency") == 1
    for time in ("latency", "wait", "service"):
        assert counts.pop(f"{time}_p50") is None
        assert counts.pop(f"{time}_p99") is None
    assert set(counts.values()) == {0}


def test_statistics_are_frozen(lane: ManualLane) -> None:
    statistics = af.spawn(lambda batch, state: None, executor=lane).statistics()
    with pytest.raises(dataclasses.FrozenInstanceError):
        statistics.accepted = 1  # type: ignore[misc]


def test_counts_of_a_busy_worker(lane: ManualLane) -> None:
    worker = af.spawn(lambda batch, state: None, executor=lane)
    for message in range(8):
        worker.push(message)
    before = worker.statistics()
    assert (before.accepted, before.held, before.processed, before.batches) == (8, 7, 0, 1)
    lane.run()
    after = worker.statistics()
    assert (after.accepted, after.held, after.processed, after.batches) == (8, 0, 8, 2)
    assert after.batch_sizes == {1: 1, 8: 1}  # 7 is "up to 8"
    assert after.busy > 0


@pytest.mark.parametrize(
    ("size", "bucket"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, 16), (1_000, 1_024)]
)
def test_batch_sizes_by_powers_of_two(lane: ManualLane, size: int, bucket: int) -> None:
    worker = af.spawn(lambda batch, state: None, executor=lane)
    worker.push_many(range(size))
    lane.run()
    assert worker.statistics().batch_sizes == {bucket: 1}


def test_replaced_dropped_and_rejected(lane: ManualLane) -> None:
    unique = af.spawn(lambda batch, state: None, behaviour=Unique, executor=lane)
    unique.push(("first", 0))
    for number in range(5):
        unique.push(("a", number))
    unique.push("")
    lane.run()
    statistics = unique.statistics()
    assert (statistics.accepted, statistics.rejected) == (6, 1)
    assert (statistics.replaced, statistics.processed) == (4, 2)

    newest = af.spawn(
        lambda batch, state: None,
        behaviour=Bounded(Queue, 2, when_full="drop_oldest"), executor=lane,
    )  # fmt: skip
    for number in range(5):
        newest.push(number)
    lane.run()
    assert (newest.statistics().dropped, newest.statistics().processed) == (2, 3)

    bounded = af.spawn(lambda batch, state: None, behaviour=Bounded(Queue, 2), executor=lane)
    for number in range(5):
        bounded.push(number)
    with pytest.raises(af.Full):
        bounded.push_ack(5)
    lane.run()
    statistics = bounded.statistics()
    assert (statistics.accepted, statistics.rejected, statistics.processed) == (3, 3, 3)


def test_discarded_is_what_was_accumulated_at_the_end(lane: ManualLane) -> None:
    worker = af.spawn(lambda batch, state: None, executor=lane)
    for number in range(5):
        worker.push(number)
    worker.stop(drain=False, block=False)
    lane.run()
    statistics = worker.statistics()
    assert statistics.dropped + statistics.processed == 5
    assert statistics.held == 0


def test_everything_is_accounted_for_after_a_crash(pool_probe: Probe) -> None:
    pool_probe.then(ValueError("broken"))
    worker = pool_probe.spawn()
    worker.push(1)
    pool_probe.begun()
    worker.push_many([2, 3])
    pool_probe.open()
    worker.stop()
    statistics = worker.statistics()
    assert statistics.accepted == 3
    assert statistics.processed == 0
    assert statistics.failed == 1  # it was in the hands of the job
    assert statistics.dropped == 2


def test_latency_is_sampled(pool_probe: Probe) -> None:
    worker = pool_probe.spawn()
    worker.push(0)
    pool_probe.begun()
    for number in range(1, 50):
        worker.push(number)  # there when the first batch ends, so its last one is marked
        pool_probe.let_end()
        pool_probe.begun()
    pool_probe.open()
    worker.push_block("end")
    statistics = worker.statistics()
    assert statistics.latency_p50 is not None
    assert statistics.latency_p99 is not None
    assert 0 <= statistics.latency_p50 <= statistics.latency_p99
    assert statistics.oldest_age == 0.0


def test_age_of_the_oldest(pool_probe: Probe) -> None:
    worker = pool_probe.spawn()
    worker.push(0)
    pool_probe.begun()
    worker.push(1)
    pool_probe.let_end()
    pool_probe.begun()  # [1] is being processed; it was marked as it was waiting
    worker.push(2)
    assert worker.statistics().oldest_age > 0.0
    assert worker.statistics().held == 1


def test_payloads_that_are_no_lists_count_what_left(lane: ManualLane) -> None:
    class OneByOne:
        def __init__(self) -> None:
            self.held: list[Any] = []

        def add(self, message: Any) -> None:
            self.held.append(message)

        def take(self) -> Any:
            return self.held.pop(0)

        def __len__(self) -> int:
            return len(self.held)

    worker = af.spawn(lambda batch, state: None, behaviour=OneByOne, executor=lane)
    for message in ("a", "b", "c"):
        worker.push(message)
    lane.run()
    statistics = worker.statistics()
    assert (statistics.processed, statistics.batches) == (3, 3)
    assert statistics.batch_sizes == {1: 3}
