"""Callers that wait, and how long: many of them with one timer."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import threading
import weakref
from typing import Any

import pytest

import actorflow as af
from actorflow.runtime import tickets as tickets_module
from actorflow.runtime.tickets import AsyncTicket, ThreadTicket


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer as soon as there is nothing to do."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers = 0
        super().__init__()

    def time(self) -> float:
        return self.now

    def call_at(  # type: ignore[override]
        self, when: float, *args: Any, **options: Any
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when, *args, **options)

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run(main: Any) -> Any:
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(main)


def test_a_wait_that_is_too_long_ends_at_the_right_moment() -> None:
    async def late(timeout: float) -> tuple[float, bool]:
        begin = asyncio.get_running_loop().time()
        answer = await AsyncTicket().wait(timeout)
        return asyncio.get_running_loop().time() - begin, answer

    async def main() -> None:
        waits = (3.0, 1.0, 2.0, 1.0, 0.0)
        found = await asyncio.gather(*map(late, waits))
        assert found == [(timeout, False) for timeout in waits]

    run(main())


def test_each_has_its_time_though_the_timer_is_shared() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended: list[float] = []

        async def wait() -> None:
            assert not await AsyncTicket().wait(5.0)
            ended.append(loop.time())

        tasks = []
        for _ in range(3):
            tasks.append(asyncio.create_task(wait()))
            await AsyncTicket().wait(1.0)
        await asyncio.gather(*tasks)
        assert ended == [5.0, 6.0, 7.0]

    run(main())


def test_many_callers_that_are_answered_in_time_cost_one_timer_and_are_forgotten() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        kept: list[weakref.ref[Any]] = []
        for _ in range(1_000):
            ticket = AsyncTicket()
            kept.append(weakref.ref(ticket.future))
            ticket.resolve()
            assert await ticket.wait(5.0)
            del ticket
        gc.collect()
        assert loop.timers == 1
        assert sum(each() is not None for each in kept) <= 1  # asyncio refers to the last one

    run(main())


def test_an_error_is_raised_and_a_late_answer_is_ignored() -> None:
    async def main() -> None:
        ticket = AsyncTicket()
        ticket.resolve(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await ticket.wait(5.0)
        ticket = AsyncTicket()
        assert not await ticket.wait(0.5)
        ticket.resolve()
        await asyncio.sleep(0)
        assert not await ticket.wait(0.5)

    run(main())


def test_a_task_that_is_cancelled_leaves_the_others_alone() -> None:
    async def main() -> None:
        first, second = AsyncTicket(), AsyncTicket()
        task = asyncio.create_task(first.wait(1.0))
        other = asyncio.create_task(second.wait(1.0))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await other

    run(main())


def test_timeouts_of_any_length_do_not_pile_up() -> None:
    async def main() -> None:
        tickets = [AsyncTicket() for _ in range(1_000)]
        waits = [ticket.wait(1.0 + number / 1_000) for number, ticket in enumerate(tickets)]
        assert not any(await asyncio.gather(*waits))
        assert len(getattr(asyncio.get_running_loop(), tickets_module._TABLE)) <= 100

    run(main())


def pending(timeout: float) -> int:
    """Return how many futures the running loop has a deadline for."""
    table = getattr(asyncio.get_running_loop(), tickets_module._TABLE)
    return len(table[timeout]._ends)


def test_a_done_future_is_not_kept_behind_one_that_waits() -> None:
    async def main() -> None:
        waiting = asyncio.create_task(AsyncTicket().wait(3_600.0))
        await asyncio.sleep(0)
        kept: list[weakref.ref[Any]] = []
        for _ in range(100):
            ticket = AsyncTicket()
            kept.append(weakref.ref(ticket.future))
            ticket.resolve(answer=bytearray(10))
            task = asyncio.create_task(ticket.wait(3_600.0))
            assert await task
            del ticket, task
        gc.collect()
        assert not any(each() for each in kept)
        assert pending(3_600.0) == 1
        waiting.cancel()

    run(main())


@pytest.mark.parametrize("resolved_later", [False, True])
def test_a_task_that_is_cancelled_leaves_nothing_behind(resolved_later: bool) -> None:  # noqa: FBT001
    async def main() -> None:
        ticket = AsyncTicket()
        task = asyncio.create_task(ticket.wait(3_600.0))
        await asyncio.sleep(0)
        assert pending(3_600.0) == 1
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert pending(3_600.0) == 0
        if resolved_later:
            ticket.resolve(ValueError("nobody waits"))
        kept = weakref.ref(ticket.future)
        del ticket, task
        await asyncio.sleep(0)  # asyncio drops its reference to the last task
        await asyncio.sleep(0)
        gc.collect()
        assert kept() is None

    run(main())


def test_event_loops_do_not_outlive_their_run() -> None:
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def main(worker: af.WorkerRef) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await worker.apush_block(1)
        await worker.apush_block(2, timeout=3_600.0)

    with af.spawn(lambda batch, state: None) as worker:
        for _ in range(50):
            asyncio.run(main(worker))
        gc.collect()
        assert sum(loop() is not None for loop in loops) <= 1  # of the last batch, perhaps


def test_a_loop_that_takes_no_attributes_still_ends_waits_in_time() -> None:
    class Slotted(Loop):
        def __setattr__(self, name: str, value: object) -> None:
            if name == tickets_module._TABLE:
                raise AttributeError(name)
            super().__setattr__(name, value)

    async def main() -> None:
        assert not await AsyncTicket().wait(5.0)
        ticket = AsyncTicket()
        ticket.resolve()
        assert await ticket.wait(5.0)

    with asyncio.Runner(loop_factory=Slotted) as runner:
        runner.run(main())


# Resolutions.


def test_a_thread_gets_the_answer_or_the_error() -> None:
    ticket = ThreadTicket()
    assert (ticket.resolved, ticket.error, ticket.answer) == (False, None, None)
    assert not ticket.wait(0.0)
    ticket.resolve(answer=42)
    assert ticket.wait(None)
    assert ticket.wait(0.0)  # again
    assert (ticket.resolved, ticket.error, ticket.answer) == (True, None, 42)
    error = ValueError("no")
    ticket = ThreadTicket()
    ticket.resolve(error)
    assert ticket.wait(None)
    assert ticket.error is error


@pytest.mark.parametrize("waited", [False, True])
def test_the_first_resolution_of_a_thread_counts(waited: bool) -> None:  # noqa: FBT001
    ticket = ThreadTicket()
    ticket.resolve(answer=1)
    if waited:
        assert ticket.wait(None)
    ticket.resolve(ValueError("late"))
    ticket.resolve(answer=2)
    assert ticket.wait(None)
    assert (ticket.error, ticket.answer) == (None, 1)


def test_threads_that_resolve_at_once_leave_one_outcome() -> None:
    for _ in range(200):
        ticket, together = ThreadTicket(), threading.Barrier(3)

        def resolve(
            number: int, ticket: ThreadTicket = ticket, together: threading.Barrier = together
        ) -> None:
            together.wait(20.0)
            ticket.resolve(ValueError(number), number)

        threads = [threading.Thread(target=resolve, args=(number,)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        together.wait(20.0)
        assert ticket.wait(20.0)
        assert ticket.error is not None
        assert ticket.error.args == (ticket.answer,)
        first = ticket.answer
        for thread in threads:
            thread.join(20.0)
        assert ticket.answer == first


def test_m13_a_resolution_that_is_interrupted_anywhere_can_be_repeated() -> None:
    for stop in itertools.count(1):
        ticket, count = ThreadTicket(), 0

        def strike(frame: Any, event: str, arg: object, stop: int = stop) -> Any:
            nonlocal count
            frame.f_trace_opcodes = True
            if event == "opcode":
                count += 1
                if count == stop:
                    raise KeyboardInterrupt
            return strike

        sys.settrace(strike)
        try:
            ticket.resolve(answer=1)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        if count < stop:
            break
        ticket.resolve(answer=1)
        assert ticket.wait(0.0)
        assert ticket.answer == 1
    assert stop > 5


def test_a_task_gets_the_answer_and_the_first_resolution_counts() -> None:
    async def main() -> None:
        ticket = AsyncTicket()
        ticket.resolve(answer="first")
        ticket.resolve(ValueError("late"))
        ticket.resolve(answer="second")
        assert await ticket.wait(5.0)
        await asyncio.sleep(0)
        assert ticket.answer == "first"
        late = AsyncTicket()
        assert not await late.wait(0.5)
        assert late.answer is None

    run(main())
