"""Several batches in flight when the worker fails or stops (M7, M8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Chunk, Queue
from actorflow.testing import ManualLane
from tests.runtime.worker.job.crowd import Crowd, busy
from tests.runtime.worker.probe import PATIENCE, Caller, ended, until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    """Yield a job in the hand of the test."""
    made = Crowd()
    yield made
    made.open()


# Failures.


def test_m7_a_crash_cuts_all_batches_off_and_tells_all_callers(crowd: Crowd) -> None:
    error = ValueError("broken")
    crowd.failing["b"] = error
    worker = af.spawn(crowd, concurrency=3)
    callers = {}
    for number, message in enumerate("abc"):
        callers[message] = Caller(worker.push_block, message)
        crowd.await_begun(number + 1)
    held = worker.ask("held", block=False)
    crowd.release(["b"])
    with pytest.raises(ValueError, match="broken") as raised:
        callers["b"].value()
    assert raised.value is error
    for other in "ac":
        with pytest.raises(ValueError, match="broken"):
            callers[other].value()
    with pytest.raises(af.WorkerCrashed):
        held.get(timeout=PATIENCE)
    assert ended(worker) == af.Crash(error)
    crowd.open()
    counted = worker.statistics()
    assert (counted.failed, counted.dropped, counted.processed) == (3, 1, 0)


def test_a_supervised_worker_goes_on_after_a_crash_with_n_in_flight(crowd: Crowd) -> None:
    crowd.failing["b"] = ValueError("broken")
    with af.Supervisor([af.Worker("w", crowd, concurrency=3)]) as tree:
        worker = tree.worker("w")
        for number, message in enumerate("abc"):
            worker.push(message)
            crowd.await_begun(number + 1)
        worker.push("held")
        crowd.release(["b"])
        crowd.await_begun(4)  # the new executor; the old batches are cut off, and still running
        assert crowd.begun[3] == ["held"]
        crowd.open()
        assert worker.ask("late", timeout=PATIENCE) == ("answer", "late")
        until(lambda: worker.is_idle and not worker.statistics().in_flight, "all is done")
        counted = worker.statistics()
        assert (counted.failed, counted.processed, counted.restarts) == (3, 2, 1)
        assert counted.in_flight == counted.held == 0


def test_isolate_finds_the_poison_in_each_batch() -> None:
    lane = ManualLane()
    handled: list[int] = []

    def job(batch: list[int], state: Any) -> None:
        if any(number % 10 == 3 for number in batch):
            raise ValueError(batch)
        handled.extend(batch)

    worker = af.spawn(
        job, concurrency=3, behaviour=Chunk(Queue(), 8), on_failure="isolate", executor=lane
    )
    worker.push_many(range(40))
    lane.run()
    assert sorted(handled) == [n for n in range(40) if n % 10 != 3]
    assert sorted(letter.message for letter in worker.dead_letters) == [3, 13, 23, 33]
    counted = worker.statistics()
    assert (counted.processed, counted.dead_lettered, counted.in_flight) == (36, 4, 0)


def test_retry_runs_each_batch_again() -> None:
    lane = ManualLane()
    calls: list[list[int]] = []

    def job(batch: list[int], state: Any) -> None:
        calls.append(batch)
        if calls.count(batch) < 3:
            raise OSError("not yet")

    worker = af.spawn(
        job, concurrency=2, behaviour=Chunk(Queue(), 2), on_failure=af.Retry(2), executor=lane
    )
    worker.push_many(range(4))
    lane.run()
    assert sorted(calls) == [[0, 1]] * 3 + [[2, 3]] * 3
    assert worker.statistics().processed == 4


# Stopping.


def test_a_drain_ends_when_the_last_batch_has(crowd: Crowd) -> None:
    worker = busy(crowd)
    worker.push_many("xy")
    stopping = Caller(worker.stop)
    until(lambda: worker.status is af.PairState.STOPPING, "it stops")
    with pytest.raises(af.WorkerStopped):
        worker.push("late")
    crowd.release([1])
    crowd.await_begun(4)
    assert crowd.begun[3] == ["x", "y"]
    assert not stopping.done.is_set()
    crowd.open()
    assert stopping.value()
    assert worker.statistics().processed == 5


def test_finish_waits_for_all_that_is_in_flight_and_drops_the_rest(crowd: Crowd) -> None:
    worker = busy(crowd)
    waits = worker.ask("held", block=False)
    stopping = Caller(worker.stop, drain=False)
    until(lambda: worker.status is af.PairState.STOPPING, "it stops")
    crowd.release([0], [1])
    until(lambda: crowd.inside == 1, "two have ended")
    assert not stopping.done.is_set()
    crowd.open()
    assert stopping.value()
    with pytest.raises(af.WorkerStopped):
        waits.get(timeout=PATIENCE)
    counted = worker.statistics()
    assert (counted.processed, counted.dropped) == (3, 1)


def test_m7_now_ends_at_once_and_tells_the_callers_of_all_batches(crowd: Crowd) -> None:
    worker = af.spawn(crowd, concurrency=2)
    callers = []
    for number in range(2):
        callers.append(Caller(worker.push_block, number))
        crowd.await_begun(number + 1)
    worker.push("held")
    worker.stop(now=True)
    for caller in callers:
        with pytest.raises(af.WorkerStopped):
            caller.value()
    crowd.open()
    counted = worker.statistics()
    assert (counted.failed, counted.dropped, counted.in_flight) == (2, 1, 0)


def test_a_job_that_stops_the_worker_lets_the_others_finish(crowd: Crowd) -> None:
    crowd.failing["stop"] = af.Stop()
    worker = af.spawn(crowd, concurrency=2)
    other = Caller(worker.ask, "other")
    crowd.await_begun(1)
    worker.push("stop")
    crowd.await_begun(2)
    crowd.release(["stop"])
    until(lambda: worker.status is af.PairState.STOPPING, "it stops")
    crowd.open()
    assert other.value() == ("answer", "other")
    assert ended(worker) == af.Normal()
