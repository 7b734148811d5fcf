"""Callers who wait, and how long: many of them with one timer."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from actorflow.runtime.worker import tickets as tickets_module
from actorflow.runtime.worker.tickets import AsyncTicket


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


def test_who_waits_too_long_is_told_at_the_right_moment() -> None:
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


def test_many_who_are_answered_in_time_cost_one_timer_and_are_forgotten() -> None:
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
        assert sum(each() is not None for each in kept) <= 2

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
        assert len(tickets_module._DEADLINES[asyncio.get_running_loop()]) <= 100

    run(main())
