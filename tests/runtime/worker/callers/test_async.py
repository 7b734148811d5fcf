"""Workers and asyncio: coroutine jobs on the loop, and callers from any other loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Queue, Unique
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, ended, until, until_accumulated


def test_apush_block_returns_after_its_batch(probe: Probe) -> None:
    worker = probe.spawn()

    async def main() -> None:
        waits = asyncio.create_task(worker.apush_block(1))
        other = asyncio.create_task(asyncio.to_thread(probe.begun))
        assert await other == [1]
        assert not waits.done()
        probe.let_end()
        await waits

    asyncio.run(main())


def test_apush_ack_returns_once_accumulated(probe: Probe) -> None:
    worker = probe.spawn()

    async def main() -> None:
        for message in (1, 2, 3):
            await worker.apush_ack(message)

    asyncio.run(main())
    assert probe.begun() == [1]
    probe.let_end()
    assert probe.begun() == [2, 3]


def test_apush_raises_what_push_raises(probe: Probe) -> None:
    error = ValueError("broken")
    probe.then(error)
    worker = probe.spawn(behaviour=Unique)

    async def main() -> None:
        with pytest.raises(af.Malformed):
            await worker.apush_ack(5)
        with pytest.raises(af.Malformed):
            await worker.apush_block(5)
        within = asyncio.create_task(worker.apush_block(("a", 1)))
        await asyncio.to_thread(probe.begun)
        waits = asyncio.create_task(worker.apush_block(("b", 1)))
        replaced = asyncio.create_task(worker.apush_block(("c", 1)))
        await asyncio.to_thread(until_accumulated, worker, 2)
        await worker.apush_ack(("c", 2))
        with pytest.raises(af.Replaced):
            await replaced
        probe.let_end()
        with pytest.raises(ValueError, match="broken") as raised:
            await within
        assert raised.value is error
        with pytest.raises(af.WorkerCrashed) as crashed:
            await waits
        assert crashed.value.__cause__ is error
        for late in (worker.apush_ack, worker.apush_block):
            with pytest.raises(af.WorkerCrashed):
                await late(("d", 1))

    asyncio.run(main())


def test_apush_block_in_time_or_not_the_message_stays(probe: Probe) -> None:
    worker = probe.spawn()

    async def main() -> None:
        await worker.apush_ack(1)
        with pytest.raises(af.PushTimeout, match="stays accumulated"):
            await worker.apush_block(2, timeout=0.001)

    asyncio.run(main())
    assert probe.begun() == [1]
    probe.let_end()
    assert probe.begun() == [2]


def test_the_jobs_own_timeout_error_is_passed_on() -> None:
    def job(batch: Any, state: Any) -> None:
        raise TimeoutError("the job's")

    worker = af.spawn(job)

    async def main() -> None:
        with pytest.raises(TimeoutError, match="the job's") as raised:
            await worker.apush_block(1)
        assert not isinstance(raised.value, af.PushTimeout)

    asyncio.run(main())


@pytest.mark.parametrize("error", [StopIteration("odd"), asyncio.CancelledError("odd")])
def test_errors_that_asyncio_treats_specially_do_not_hang_the_caller(
    error: BaseException,
) -> None:
    def job(batch: Any, state: Any) -> None:
        raise error

    worker = af.spawn(job)

    async def main() -> BaseException:
        try:
            await worker.apush_block(1, timeout=None)
        except BaseException as raised:  # noqa: BLE001 - whatever it is
            return raised
        raise AssertionError("it should have raised")

    raised = asyncio.run(main())
    assert isinstance(raised, type(error)) or raised.__cause__ is error


def test_a_cancelled_task_stops_waiting_and_its_message_is_processed(probe: Probe) -> None:
    worker = probe.spawn()

    async def main() -> None:
        await worker.apush_ack(1)
        waits = asyncio.create_task(worker.apush_block(2, timeout=None))
        await asyncio.to_thread(until_accumulated, worker, 1)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits

    asyncio.run(main())
    assert probe.begun() == [1]
    probe.let_end()
    assert probe.begun() == [2]
    probe.let_end()
    probe.open()
    worker.push_block(3)


def test_a_loop_that_is_gone_does_not_disturb_the_worker(probe: Probe) -> None:
    worker = probe.spawn()

    async def main() -> None:
        await worker.apush_ack(1)
        task = asyncio.create_task(worker.apush_block(2, timeout=None))
        await asyncio.to_thread(until_accumulated, worker, 1)
        del task  # asyncio.run cancels it and closes the loop

    asyncio.run(main())
    probe.open()
    worker.push_block(3)
    assert [message for batch in probe.batches for message in batch] == [1, 2, 3]


def test_when_full_blocks_the_task_not_the_loop(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Bounded(Queue, 1, when_full="block"))

    async def main() -> None:
        await worker.apush_ack(1)
        await worker.apush_ack(2)
        blocked = [asyncio.create_task(worker.apush_ack(n)) for n in (3, 4)]
        await asyncio.to_thread(
            until, lambda: len(worker.actor.offers._blocked or ()) == 2, "two wait"
        )
        assert not any(task.done() for task in blocked)
        probe.open()
        await asyncio.gather(*blocked)

    asyncio.run(main())
    worker.push_block(5)
    assert sorted(m for batch in probe.batches for m in batch) == [1, 2, 3, 4, 5]


def test_when_full_the_timeout_raises_full(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Bounded(Queue, 1, when_full="block"))

    async def main() -> None:
        await worker.apush_ack(1)
        await worker.apush_ack(2)
        with pytest.raises(af.Full):
            await worker.apush_ack(3, timeout=0.001)
        with pytest.raises(af.Full):
            await worker.apush_block(3, timeout=0.001)

    asyncio.run(main())
    assert not worker.actor.offers._blocked
    probe.open()
    worker.push_block(4)
    assert [m for batch in probe.batches for m in batch] == [1, 2, 4]


def test_a_task_cancelled_while_it_waits_for_room_pushes_nothing(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Bounded(Queue, 1, when_full="block"))

    async def main() -> None:
        await worker.apush_ack(1)
        await worker.apush_ack(2)
        blocked = asyncio.create_task(worker.apush_ack(3, timeout=None))
        await asyncio.to_thread(until, lambda: bool(worker.actor.offers._blocked), "it waits")
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked

    asyncio.run(main())
    assert not worker.actor.offers._blocked
    probe.open()
    worker.push_block(4)
    assert [m for batch in probe.batches for m in batch] == [1, 2, 4]


def test_many_tasks_of_many_loops(probe: Probe) -> None:
    probe.open()
    worker = probe.spawn()

    async def main(base: int) -> None:
        await asyncio.gather(*(worker.apush_block(base + n, timeout=PATIENCE) for n in range(50)))

    callers = [Caller(asyncio.run, main(base)) for base in (0, 100, 200)]
    for caller in callers:
        caller.value()
    processed = sorted(m for batch in probe.batches for m in batch)
    assert processed == [base + n for base in (0, 100, 200) for n in range(50)]


# Jobs that are coroutines.


def test_coroutine_jobs_of_many_workers_wait_together_on_one_thread() -> None:
    arrived: list[int] = []
    together = asyncio.Event()
    threads: set[int] = set()

    async def job(batch: Any, state: Any) -> None:
        threads.add(threading.get_ident())
        arrived.append(1)
        if len(arrived) == 100:
            together.set()
        await asyncio.wait_for(together.wait(), PATIENCE)

    workers = [af.spawn(job) for _ in range(100)]
    for worker in workers:
        worker.push("go")
    for worker in workers:
        worker.stop()
    assert len(arrived) == 100
    assert len(threads) == 1


def test_a_callable_object_with_an_async_call_is_a_coroutine_job() -> None:
    class Job:
        async def __call__(self, batch: Any, state: int) -> int:
            await asyncio.sleep(0)
            return state + len(batch)

    with af.spawn(Job(), state=1) as worker:
        worker.push_block("a")
        executor: Any = worker.executor.actor
        assert executor.state == 2


def test_a_coroutine_job_may_await_another_worker() -> None:
    seen: list[Any] = []

    async def front(batch: Any, state: Any) -> None:
        for message in batch:
            await back.apush_block(message * 2)

    async def behind(batch: Any, state: Any) -> None:
        seen.extend(batch)

    with af.spawn(behind) as back, af.spawn(front) as worker:
        worker.push_block(21)
        assert seen == [42]


def test_apush_block_in_its_own_job_would_deadlock() -> None:
    async def job(batch: Any, state: Any) -> None:
        await workers[0].apush_block("again")

    workers = [af.spawn(job)]
    with pytest.raises(af.WouldDeadlock, match="apush_block"):
        workers[0].push_block("first")


def test_blocking_the_loop_for_a_worker_of_the_loop_would_deadlock() -> None:
    async def idle(batch: Any, state: Any) -> None: ...

    with af.spawn(idle) as other:
        outcomes: list[BaseException] = []

        async def job(batch: Any, state: Any) -> None:
            other.push(1)  # so that stop has to wait, for this very loop
            for call in (lambda: other.push_block(1), other.stop):
                try:
                    call()
                except (af.LoopBlocked, af.WouldDeadlock) as error:
                    outcomes.append(error)

        with af.spawn(job) as worker:
            worker.push_block("go")
        assert list(map(type, outcomes)) == [af.LoopBlocked, af.WouldDeadlock]


def test_cancellation_inside_a_coroutine_job_is_a_crash_like_any_other() -> None:
    async def job(batch: Any, state: Any) -> None:
        raise asyncio.CancelledError

    with af.spawn(lambda batch, state: None) as other:
        worker = af.spawn(job)
        worker.push(1)
        assert isinstance(ended(worker), af.Crash)
        other.push_block(1)
