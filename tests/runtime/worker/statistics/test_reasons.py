"""Why a batch left (M15): for the job, in the statistics and in debug logs."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import (
    Adaptive,
    Bounded,
    Chunk,
    Debounce,
    Fair,
    Linger,
    Queue,
    Reason,
    Throttle,
    Unique,
)
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.probe import PATIENCE, Probe

if TYPE_CHECKING:
    from actorflow.runtime.worker.job.batch import Batch


class Log:
    """A worker on virtual time whose job notes each batch with its reason and attempt."""

    def __init__(self, behaviour: Any = Queue, **options: Any) -> None:
        self.lane, self.clock = ManualLane(), VirtualClock()
        self.left: list[tuple[Any, str, int]] = []
        self.failures = 0
        self.worker = af.spawn(
            self.job, behaviour=behaviour, executor=self.lane, clock=self.clock, **options
        )

    def job(self, batch: Any, state: Any) -> None:
        current = af.current_batch()
        assert current is not None
        assert current.payload == batch
        self.left.append((batch, str(current.reason), current.attempt))
        if self.failures:
            self.failures -= 1
            raise ValueError(batch)

    def push(self, *messages: Any, then: float = 0.0) -> None:
        for message in messages:
            self.worker.push(message)
        self.lane.run()
        if then:
            self.clock.advance(then)
            self.lane.run()

    @property
    def reasons(self) -> list[tuple[Any, str]]:
        return [(batch, reason) for batch, reason, _ in self.left]

    def check(self) -> None:
        """Compare the statistics with the batches the job has seen, except repeated ones."""
        counted: dict[str, int] = {}
        for _, reason, _ in self.left:
            if reason != "retry":
                counted[reason] = counted.get(reason, 0) + 1
        assert self.worker.statistics().reasons == counted


def test_m15_idle_for_what_nothing_held_back() -> None:
    log = Log()
    log.push(1, 2, 3)
    assert log.reasons == [([1], "idle"), ([2, 3], "idle")]
    log.check()


def test_m15_size_for_a_full_chunk_and_idle_for_the_rest() -> None:
    log = Log(Chunk(Queue(), 2))
    log.push(1, 2, 3, 4)
    assert log.reasons == [([1], "idle"), ([2, 3], "size"), ([4], "idle")]
    log.check()


def test_m15_weight_for_a_chunk_that_weighs_enough() -> None:
    log = Log(Chunk(Queue(), 10, weight=len))
    log.push("x", "a" * 6, "b" * 6, "c")
    assert log.reasons == [(["x"], "idle"), (["a" * 6], "weight"), (["b" * 6, "c"], "idle")]
    log.check()


def test_m15_time_and_size_of_linger() -> None:
    log = Log(Linger(Queue(), 1.0, size=3))
    log.push(1, 2, then=1.0)
    log.push(3, 4, 5)
    assert log.reasons == [([1, 2], "time"), ([3, 4, 5], "size")]
    log.check()


def test_m15_time_of_throttle() -> None:
    log = Log(Throttle(Queue(), 1.0))
    log.push(1, 2, then=1.0)
    log.push(then=5.0)
    log.push(3)
    assert log.reasons == [([1], "idle"), ([2], "time"), ([3], "idle")]
    log.check()


def test_m15_time_and_deadline_of_debounce() -> None:
    log = Log(Debounce(Queue(), 1.0, at_most=2.5))
    log.push(1, then=1.0)
    for number in range(4):
        log.push(number, then=0.7)
    assert log.reasons == [([1], "time"), ([0, 1, 2, 3], "deadline")]
    log.check()


def test_m15_deadline_of_adaptive() -> None:
    log = Log(Adaptive(Queue(), target=0.05))
    log.push(1)
    log.push(2, 3, then=1.0)
    assert set(log.worker.statistics().reasons) <= {"idle", "deadline", "time"}
    assert sum(log.worker.statistics().reasons.values()) == len(log.left)
    log.check()


@pytest.mark.parametrize(
    "behaviour",
    [Queue, lambda: Linger(Queue(), 10.0),
     lambda: Debounce(Unique(key=str), 10.0), lambda: Bounded(Fair(key=str), 10)],
)  # fmt: skip
def test_m15_drain_for_what_a_stop_processes(behaviour: Any) -> None:
    log = Log(behaviour)
    log.worker.push(1)
    log.worker.push(2)
    log.worker.stop(block=False)
    log.lane.run()
    assert log.worker.statistics().processed == 2
    reasons = [reason for _, reason in log.reasons]
    assert reasons[-1] == "drain"
    assert set(reasons) <= {"idle", "drain"}
    log.check()


def test_m15_a_throttle_holds_in_a_drain_too() -> None:
    log = Log(Throttle(Queue(), 10.0))
    log.worker.push(1)
    log.worker.push(2)
    log.worker.stop(block=False)
    log.lane.run()
    log.push(then=10.0)
    assert log.reasons == [([1], "idle"), ([2], "time")]
    log.check()


def test_m15_a_full_chunk_is_one_in_a_drain_too() -> None:
    log = Log(Chunk(Queue(), 2))
    for number in range(6):
        log.worker.push(number)
    log.worker.stop(block=False)
    log.lane.run()
    assert [reason for _, reason in log.reasons] == ["idle", "size", "size", "drain"]


class FlushedEachTime(Linger):
    """A user may flush a behaviour of his own at any time, for example when memory is short."""

    __slots__ = ()

    def add(self, message: Any) -> None:
        super().add(message)
        if message == "now":
            self.flush()

    def extend(self, messages: list[Any]) -> Any:
        refused = super().extend(messages)
        if "now" in messages:
            self.flush()
        return refused


def test_m15_flush() -> None:
    log = Log(FlushedEachTime(Queue(), 10.0))
    log.push(1)
    log.clock.advance(10.0)
    log.worker.push_many([2, "now"])  # while the first batch is in flight
    log.lane.run()
    assert log.reasons == [([1], "time"), ([2, "now"], "flush")]
    log.check()


# Retries.


def test_m15_retry_for_what_is_run_again_with_its_attempt() -> None:
    log = Log(on_failure=af.Retry(2))
    log.failures = 2
    log.push(1)
    assert log.left == [([1], "idle", 1), ([1], "retry", 2), ([1], "retry", 3)]
    assert log.worker.statistics().reasons == {"idle": 1}
    assert log.worker.statistics().batches == 1


def test_m15_retry_for_the_halves_of_a_batch_that_is_searched() -> None:
    log = Log(on_failure="isolate")
    log.failures = 1
    log.worker.push_many([5, 6, 7, 8])
    log.lane.run()
    assert log.reasons == [
        ([5, 6, 7, 8], "idle"), ([5, 6], "retry"), ([7, 8], "retry"),
    ]  # fmt: skip


# Where the batch can be seen.


def test_outside_a_job_there_is_no_current_batch(pool_probe: Probe) -> None:
    assert af.current_batch() is None
    pool_probe.spawn().push(1)
    pool_probe.begun()
    assert af.current_batch() is None


def test_the_current_batch_on_each_lane() -> None:
    seen: list[Batch | None] = []

    def job(batch: Any, state: Any) -> None:
        seen.append(af.current_batch())

    async def ajob(batch: Any, state: Any) -> None:
        seen.append(af.current_batch())
        await asyncio.sleep(0)
        seen.append(af.current_batch())
        seen.append(await asyncio.create_task(later()))
        seen.append(await asyncio.to_thread(af.current_batch))

    async def later() -> Batch | None:
        return af.current_batch()

    class Plain(af.Executor):
        def handle(self, batch: Any) -> None:
            seen.append(af.current_batch())

        def handle_message(self, message: Any) -> Any:
            return af.current_batch()

    class Async(af.Executor):
        async def handle(self, batch: Any) -> None:
            await ajob(batch, None)

    for subject in (job, ajob, Plain, Async):
        worker = af.spawn(subject)
        worker.push_block("message", timeout=PATIENCE)
        assert seen
        for batch in seen:
            assert batch is not None
            assert (batch.payload, batch.size, batch.attempt) == (["message"], 1, 1)
            assert batch.reason is Reason.IDLE
            assert "reason='idle'" in repr(batch)
        seen.clear()
        if subject is Plain:
            assert worker.executor.ask("mail", timeout=PATIENCE) is None
        worker.stop()


def test_a_helping_caller_sees_the_batch_too() -> None:
    seen: list[Any] = []
    with af.spawn(lambda batch, state: seen.append(af.current_batch()), help=True) as worker:
        worker.push_block(1)
        assert af.current_batch() is None
    assert [batch.payload for batch in seen] == [[1]]


def test_a_job_that_waits_for_itself_in_a_helping_caller_is_told() -> None:
    def job(batch: Any, state: Any) -> None:
        worker.push_block(2)

    worker = af.spawn(job, help=True)
    with pytest.raises(af.WouldDeadlock):
        worker.push_block(1)


def test_a_job_inside_of_a_job_has_its_own_batch() -> None:
    seen: list[Any] = []
    inner = af.spawn(lambda batch, state: seen.append(af.current_batch()), help=True)

    def job(batch: Any, state: Any) -> None:
        inner.push_block("inner")
        seen.append(af.current_batch())

    with af.spawn(job) as outer:
        outer.push_block("outer")
    assert [batch.payload for batch in seen] == [["inner"], ["outer"]]
    inner.stop()


@pytest.mark.parametrize("verbose", [True, False])
def test_verbose_logs_each_batch_with_its_reason(
    caplog: pytest.LogCaptureFixture,
    verbose: bool,  # noqa: FBT001
) -> None:
    caplog.set_level(logging.DEBUG, logger="actorflow")
    log = Log(Chunk(Queue(), 2), verbose=verbose, name=f"verbose {verbose}")
    log.push(1, 2, 3)
    log.worker.stop(block=False)
    log.lane.run()
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    lines = [line for line in lines if "event='batch'" in line]
    if not verbose:
        assert lines == []
        return
    assert len(lines) == 2
    assert f"worker 'verbose {verbose}'" in lines[0]
    assert "size=1" in lines[0]
    assert "reason='idle'" in lines[0]
    assert "size=2" in lines[1]
    assert "reason='size'" in lines[1]
