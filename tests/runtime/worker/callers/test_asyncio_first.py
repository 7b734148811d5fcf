"""Workers in asyncio programs: nothing blocks the loop, and cancellation leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pykka
import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Linger, Queue, Unique
from actorflow.runtime import tickets
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, until


async def eventually(condition: Any, what: str) -> None:
    """Wait until something that another thread does has happened, without blocking the loop."""
    await asyncio.to_thread(until, condition, what)


def blocked(worker: af.WorkerRef) -> int:
    """Return how many pushers stand in line for room."""
    return len(worker.actor.offers._blocked or ())


async def full(probe: Probe, **options: Any) -> af.WorkerRef:
    """Return a worker that is busy with 1 and full with 2."""
    worker = probe.spawn(behaviour=Bounded(Queue, 1, when_full="block"), **options)
    await worker.apush(1)
    await asyncio.to_thread(probe.begun)
    await worker.apush(2)
    return worker


# Beginning and ending.


def test_async_with_drains(probe: Probe) -> None:
    async def main() -> None:
        async with probe.spawn() as worker:
            for number in range(3):
                worker.push(number)
            probe.open()
        assert not worker.is_alive()
        assert worker.statistics().processed == 3

    asyncio.run(main())


def test_async_with_raises_after_a_crash_unless_the_body_raised(probe: Probe) -> None:
    probe.then(ValueError("broken"), ValueError("broken"))
    probe.open()

    async def main() -> None:
        with pytest.raises(af.WorkerCrashed) as raised:
            async with probe.spawn() as worker:
                worker.push(1)
        assert isinstance(raised.value.__cause__, ValueError)
        with pytest.raises(KeyError):  # noqa: PT012 - the test is about the block
            async with probe.spawn() as worker:
                worker.push(1)
                raise KeyError

    asyncio.run(main())


def test_astop_does_not_block_the_loop(probe: Probe) -> None:
    async def main() -> None:
        worker = probe.spawn()
        worker.push(1)
        await asyncio.to_thread(probe.begun)
        stopping = asyncio.create_task(worker.astop())
        await eventually(lambda: worker.status is af.PairState.STOPPING, "it stops")
        assert not stopping.done()
        probe.open()
        assert await stopping
        assert not await worker.astop()  # it has ended already

    asyncio.run(main())


@pytest.mark.parametrize(("drain", "processed"), [(None, 3), (True, 3), (False, 1)])
def test_astop_takes_the_modes_of_stop(probe: Probe, drain: Any, processed: int) -> None:
    async def main() -> None:
        worker = probe.spawn()
        worker.push(1)
        await asyncio.to_thread(probe.begun)
        worker.push_many([2, 3])
        stopping = asyncio.create_task(worker.astop(drain=drain))
        await eventually(lambda: worker.status is af.PairState.STOPPING, "it stops")
        probe.open()
        await stopping
        counted = worker.statistics()
        assert (counted.processed, counted.dropped) == (processed, 3 - processed)

    asyncio.run(main())


def test_astop_now_and_in_time(probe: Probe) -> None:
    async def main() -> None:
        worker = probe.spawn()
        worker.push(1)
        await asyncio.to_thread(probe.begun)
        with pytest.raises(af.StopTimeout, match=r"did not stop within 0\.001 s"):
            await worker.astop(timeout=0.001)
        assert not worker.is_alive()
        other = probe.spawn()
        other.push(1)
        assert await other.astop(now=True)
        with pytest.raises(af.BadOption, match="contradicts itself"):
            await other.astop(now=True, drain=True)

    asyncio.run(main())


def test_ctrl_c_in_asyncio_run_drains() -> None:
    """The body of `async with` is cancelled, as asyncio.run does for Ctrl-C; the worker drains."""
    handled: list[int] = []

    async def main() -> None:
        async with af.spawn(lambda batch, state: handled.extend(batch)) as worker:
            worker.push_many(range(100))
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert handled == list(range(100))


# Waiting for room.


def test_apush_waits_for_room_without_blocking_the_loop(probe: Probe) -> None:
    async def main() -> None:
        worker = await full(probe)
        waits = [asyncio.create_task(worker.apush(number)) for number in (3, 4, 5)]
        await eventually(lambda: blocked(worker) == 3, "they wait")
        assert not any(task.done() for task in waits)
        probe.let_end()
        await asyncio.wait_for(waits[0], PATIENCE)  # room for one, and it is the first
        assert not waits[1].done()
        probe.open()
        await asyncio.gather(*waits)
        await worker.astop()
        assert [m for batch in probe.batches for m in batch] == [1, 2, 3, 4, 5]

    asyncio.run(main())


def test_apush_in_time_or_not_at_all(probe: Probe) -> None:
    async def main() -> None:
        worker = await full(probe)
        with pytest.raises(af.Full):
            await worker.apush(3, timeout=0.001)
        assert blocked(worker) == 0
        probe.open()
        await worker.astop()
        assert worker.statistics().accepted == 2

    asyncio.run(main())


def test_apush_is_a_push_where_nobody_has_to_wait(probe: Probe) -> None:
    async def main() -> None:
        worker = probe.spawn()
        await worker.apush(1)
        await worker.apush(2)
        probe.open()
        await worker.astop()
        with pytest.raises(af.WorkerStopped):
            await worker.apush(3)
        unique = probe.spawn(behaviour=Unique)
        with pytest.raises(af.Malformed):
            await unique.apush(5)

    asyncio.run(main())
    assert probe.batches == [[1], [2]]


def test_a_push_that_would_block_the_loop_raises_and_takes_nothing(probe: Probe) -> None:
    async def main() -> None:
        worker = await full(probe)
        for blocking in (worker.push, worker.push_ack, worker.push_block, worker.ask):
            with pytest.raises(af.LoopBlocked, match=r"write `await worker\.a(push|ask)"):
                blocking(3)
        with pytest.raises(BlockingIOError):
            worker.push_many([4, 5])
        assert blocked(worker) == 0
        assert worker.statistics().accepted == 2
        probe.let_end()
        await asyncio.to_thread(probe.begun)
        worker.push(6)  # there is room now
        probe.open()
        await worker.astop()
        assert [m for batch in probe.batches for m in batch] == [1, 2, 6]

    asyncio.run(main())


def test_a_thread_of_a_program_with_a_loop_may_block(probe: Probe) -> None:
    async def main() -> None:
        worker = await full(probe)
        waits = Caller(worker.push, 3)
        await eventually(lambda: blocked(worker) == 1, "it waits")
        probe.open()
        await asyncio.to_thread(waits.value)

    asyncio.run(main())


# Cancellation.


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("timeout", [None, 3600.0])
@pytest.mark.parametrize("verb", ["apush", "apush_ack", "apush_block", "aask"])
def test_cancelled_while_it_waits_for_room_it_leaves_the_line(
    probe: Probe, verb: str, timeout: float | None
) -> None:
    async def main() -> None:
        worker = await full(probe)
        task = asyncio.create_task(getattr(worker, verb)("mine", timeout=timeout))
        others = asyncio.create_task(worker.apush("other"))
        await eventually(lambda: blocked(worker) == 2, "they wait")
        await cancelled(task)
        assert blocked(worker) == 1
        assert deadlines() == []
        probe.open()
        await others
        await worker.astop()
        assert worker.statistics().accepted == 3
        assert "mine" not in [m for batch in probe.batches for m in batch]

    asyncio.run(main())


def deadlines() -> list[Any]:
    """Return the futures that the running loop watches for their timeouts."""
    own = getattr(asyncio.get_running_loop(), tickets._TABLE, {})
    return [future for table in own.values() for future in table._ends]


@pytest.mark.parametrize("behaviour", [Queue, lambda: Unique(key=str), lambda: Linger(Queue(), 0)])
@pytest.mark.parametrize("verb", ["apush_block", "aask"])
def test_cancelled_while_it_waits_for_the_job_it_leaves_no_ticket(
    probe: Probe, verb: str, behaviour: Any
) -> None:
    class Message:
        """Something whose end can be seen."""

    async def main() -> None:
        worker = probe.spawn(behaviour=behaviour)
        worker.push("busy")
        await asyncio.to_thread(probe.begun)
        message = Message()
        gone = weakref.ref(message)
        task = asyncio.create_task(getattr(worker, verb)(message, timeout=3600.0))
        await eventually(lambda: len(worker) == 1, "it is accumulated")
        await cancelled(task)
        assert deadlines() == []
        probe.open()
        await worker.astop()
        done = worker.statistics()  # a message whose only caller has gone is left out
        assert done.processed + done.abandoned == 2
        assert done.abandoned == 0 or verb == "aask"
        assert not worker.actor.core._waiting
        probe.batches.clear()
        probe._begun = type(probe._begun)()
        del message, task
        gc.collect()
        await eventually(lambda: gone() is None, "the lane's thread lets go of the batch")

    asyncio.run(main())


def test_cancelled_while_it_waits_for_the_end_it_leaves_no_watcher(probe: Probe) -> None:
    async def main() -> None:
        worker = probe.spawn()
        worker.push(1)
        await asyncio.to_thread(probe.begun)
        task = asyncio.create_task(worker.astop(timeout=3600.0))
        await eventually(lambda: worker.status is af.PairState.STOPPING, "it stops")
        assert worker.actor.lifecycle._watchers
        await cancelled(task)
        assert not worker.actor.lifecycle._watchers
        assert deadlines() == []
        assert worker.is_alive()  # it goes on stopping
        probe.open()
        await worker.astop()

    asyncio.run(main())


def test_a_caller_that_was_too_late_leaves_nothing(probe: Probe) -> None:
    async def main() -> None:
        worker = probe.spawn()
        worker.push(1)
        await asyncio.to_thread(probe.begun)
        with pytest.raises(af.PushTimeout):
            await worker.apush_block(2, timeout=0.001)
        with pytest.raises(pykka.Timeout):
            await worker.aask(2, timeout=0.001)
        with pytest.raises(af.StopTimeout):
            await worker.astop(timeout=0.001)
        assert deadlines() == []
        assert not worker.actor.lifecycle._watchers

    asyncio.run(main())


# Event loops come and go.


def test_500_loops_that_waited_for_a_worker_are_not_kept_alive() -> None:
    loops: list[weakref.ref[Any]] = []

    with af.spawn(lambda batch, state: None) as worker:

        async def main() -> None:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            await worker.apush_block(1)

        for _ in range(500):
            asyncio.run(main())
        gc.collect()
        assert sum(loop() is not None for loop in loops) <= 1
        assert worker.statistics().processed == 500


def test_one_worker_serves_the_loops_of_several_threads() -> None:
    answers: list[Any] = []

    with af.spawn(lambda batch, state: af.Answers(None, [-n for n in batch])) as worker:

        async def main(first: int) -> None:
            numbers = range(first, first + 50)
            got = await asyncio.gather(*(worker.aask(number) for number in numbers))
            answers.extend(zip(numbers, got, strict=True))

        threads = [threading.Thread(target=lambda n=n: asyncio.run(main(n))) for n in (0, 100, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert len(answers) == 150
    assert all(answer == -number for number, answer in answers)
