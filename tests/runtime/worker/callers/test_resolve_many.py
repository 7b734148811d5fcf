"""Many tickets at once: each gets its own outcome, each event loop is woken once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Linger, Queue
from actorflow.runtime.tickets import AsyncTicket, ThreadTicket, resolve_many

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

PATIENCE = 20.0


class Loop(asyncio.SelectorEventLoop):
    """An event loop that counts how often it is woken from outside."""

    calls = 0

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self.calls += 1
        return super().call_soon_threadsafe(callback, *args, context=context)


def tickets(loop: Loop, count: int) -> list[AsyncTicket]:
    async def make() -> list[AsyncTicket]:
        return [AsyncTicket() for _ in range(count)]

    made = loop.run_until_complete(make())
    loop.calls = 0
    return made


def outcomes(loop: Loop, waiting: list[AsyncTicket]) -> list[Any]:
    async def gather() -> list[Any]:
        return await asyncio.gather(*(each.future for each in waiting), return_exceptions=True)

    return loop.run_until_complete(asyncio.wait_for(gather(), PATIENCE))


class Recorder:
    """A ticket of another kind: it records its resolutions."""

    def __init__(self, record: list[Any]) -> None:
        self._record = record

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        self._record.append((self, error, answer))


def test_each_gets_its_own_outcome_and_each_loop_is_woken_once() -> None:
    first, second = Loop(), Loop()
    here, there = tickets(first, 100), tickets(second, 50)
    thread = ThreadTicket()
    errors = [ValueError(str(number)) if number % 3 else None for number in range(100)]
    pairs: list[tuple[Any, Any]] = list(zip(here, errors, strict=True))
    for at, ticket in enumerate(there):  # mixed, as they come
        pairs.insert(2 * at, (ticket, None))
    pairs.insert(7, (thread, KeyError("thread")))
    resolve_many(iter(pairs))
    assert (first.calls, second.calls) == (1, 1)
    assert isinstance(thread.error, KeyError)
    assert thread.resolved
    assert outcomes(first, here) == errors
    assert outcomes(second, there) == [None] * 50
    first.close()
    second.close()


def test_other_tickets_are_resolved_one_by_one_in_their_order() -> None:
    record: list[Any] = []
    recorders = [Recorder(record) for _ in range(5)]
    errors = [None, ValueError(), None, KeyError(), None]
    resolve_many(zip(recorders, errors, strict=True))
    assert record == list(zip(recorders, errors, [None] * 5, strict=True))
    resolve_many([])


def test_answers_are_delivered_with_the_resolution() -> None:
    loop = Loop()
    here = tickets(loop, 3)
    thread, record = ThreadTicket(), list[Any]()
    recorder = Recorder(record)
    error = ValueError("no")
    resolve_many(
        [
            (here[0], None, "a"),
            (here[1], error, None),
            (here[2], None),
            (thread, None, "b"),
            (recorder, None, "c"),
        ]
    )
    assert outcomes(loop, here) == ["a", error, None]
    assert here[0].answer == "a"
    assert thread.answer == "b"
    assert record == [(recorder, None, "c")]
    loop.close()


def test_a_loop_that_is_closed_does_not_keep_the_others_waiting() -> None:
    closed, open_ = Loop(), Loop()
    gone, there = tickets(closed, 2), tickets(open_, 2)
    thread = ThreadTicket()
    closed.close()
    resolve_many([(gone[0], None), (there[0], None), (gone[1], None), (there[1], None)])
    resolve_many([(gone[0], None), (thread, None)])
    assert outcomes(open_, there) == [None, None]
    assert thread.resolved
    open_.close()


def test_a_cancelled_task_is_skipped() -> None:
    loop = Loop()
    gone, there = tickets(loop, 2)
    gone.future.cancel()
    resolve_many([(gone, ValueError()), (there, None)])
    assert outcomes(loop, [there]) == [None]
    assert gone.future.cancelled()
    loop.close()


def test_what_a_future_cannot_hold_is_wrapped() -> None:
    loop = Loop()
    stopped, cancelled = tickets(loop, 2)
    resolve_many([(stopped, StopIteration()), (cancelled, asyncio.CancelledError())])
    found = outcomes(loop, [stopped, cancelled])
    assert [type(each) for each in found] == [RuntimeError, RuntimeError]
    assert [type(each.__cause__) for each in found] == [StopIteration, asyncio.CancelledError]
    loop.close()


def test_loops_that_run_in_other_threads() -> None:
    made: list[AsyncTicket] = []
    ready, woken = threading.Barrier(4), threading.Semaphore(0)

    async def wait() -> None:
        mine = [AsyncTicket() for _ in range(10)]
        made.extend(mine)
        await asyncio.to_thread(ready.wait, PATIENCE)
        await asyncio.gather(*(each.future for each in mine))
        woken.release()

    def run(main: Callable[[], Any]) -> None:
        asyncio.run(main())

    threads = [threading.Thread(target=run, args=(wait,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE)
    resolve_many([(ticket, None) for ticket in made])
    for thread in threads:
        assert woken.acquire(timeout=PATIENCE)
        thread.join(PATIENCE)


CALLERS = 64


@pytest.mark.parametrize("how", ["answers", "state", "raise"])
def test_one_wake_up_for_all_callers_of_a_batch(how: str) -> None:
    def job(batch: list[int], state: Any) -> Any:
        if how == "raise":
            raise ValueError(len(batch))
        return af.Answers(state, [2 * each for each in batch]) if how == "answers" else state

    async def main() -> int:
        loop = asyncio.get_running_loop()
        wakes = []
        original = loop.call_soon_threadsafe

        def counted(*args: Any, **options: Any) -> asyncio.Handle:
            wakes.append(args)
            return original(*args, **options)

        loop.call_soon_threadsafe = counted  # type: ignore[assignment, method-assign]
        calls = [worker.aask(each) for each in range(CALLERS)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        if how == "answers":
            assert results == [2 * each for each in range(CALLERS)]
        elif how == "raise":
            assert {type(each) for each in results} == {ValueError}
        return len(wakes)

    worker = af.spawn(job, behaviour=Linger(Queue(), 60, size=CALLERS), on_failure=af.Isolate())
    try:
        wakes = asyncio.run(main())
    finally:
        worker.stop()
    # Poison is sought message by message; after answers, the loop says that the callers have run.
    assert wakes == {"raise": CALLERS, "state": 1, "answers": 2}[how]
