"""Callers who wait: one object for a thread, one for a task of any asyncio loop."""

from __future__ import annotations

from _thread import TIMEOUT_MAX, allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

__all__ = ["AsyncTicket", "ThreadTicket", "resolve_many"]


class ThreadTicket:
    """A thread that waits. A bare lock: an `Event` costs more than the whole hand-over."""

    __slots__ = ("_lock", "answer", "error")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()
        self.error: BaseException | None = None
        self.answer: Any = None

    @property
    def resolved(self) -> bool:
        """Whether the wait is over."""
        return not self._lock.locked()

    def resolve(self, error: BaseException | None = None) -> None:
        """Let the thread go on. Called exactly once, from any thread."""
        self.error = error
        self._lock.release()

    def wait(self, timeout: float | None) -> bool:
        """Wait until resolved; tell whether it was in time."""
        if timeout is None:
            return self._lock.acquire()
        return self._lock.acquire(timeout=min(max(timeout, 0.0), TIMEOUT_MAX))


_MANY = 100  # timeouts of different length that are kept apart for one event loop
_LATE = object()  # the result of a future whose time is up


class _Deadlines:
    """The futures of one event loop that have the same time to wait: they end in their order.

    One timer for all of them, and none that is cancelled: a timer of its own would cost each
    caller more than the rest of its wait.
    """

    __slots__ = ("_futures", "_loop", "_set", "_timeout")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        self._loop = loop
        self._timeout = timeout
        self._futures: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._set = False

    def add(self, future: asyncio.Future[Any]) -> None:
        """Give a future its time. O(1) amortised; those that are done by now go."""
        futures = self._futures
        while futures and futures[0][1].done():
            futures.popleft()
        futures.append((self._loop.time() + self._timeout, future))
        if not self._set:
            self._set = True
            self._loop.call_at(futures[0][0], self._on_due)

    def _on_due(self) -> None:
        futures, now = self._futures, self._loop.time()
        while futures and (futures[0][1].done() or futures[0][0] <= now):
            _, future = futures.popleft()
            if not future.done():
                future.set_result(_LATE)
        self._set = bool(futures)
        if futures:
            self._loop.call_at(futures[0][0], self._on_due)


_DEADLINES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, _Deadlines]] = (
    WeakKeyDictionary()
)


class AsyncTicket:
    """A task that waits, on whatever loop it runs. Make it on that loop."""

    __slots__ = ("_loop", "future")

    def __init__(self) -> None:
        import asyncio  # noqa: PLC0415 - most programs never need it

        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def resolve(self, error: BaseException | None = None) -> None:
        """Let the task go on. Called exactly once, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._settle, error)
        except RuntimeError:  # the loop is closed, so nobody waits any more
            return

    async def wait(self, timeout: float | None) -> bool:
        """Wait until resolved; tell whether it was in time.

        Raises:
            BaseException: what it was resolved with.

        """
        if timeout is not None:
            own = _DEADLINES.get(self._loop)
            if own is None:
                own = _DEADLINES[self._loop] = {}
            deadlines = own.get(timeout)
            if deadlines is None:
                if len(own) >= _MANY:
                    own.clear()  # each keeps itself alive for as long as it has a timer
                deadlines = own[timeout] = _Deadlines(self._loop, timeout)
            deadlines.add(self.future)
        return await self.future is not _LATE

    def _settle(self, error: BaseException | None) -> None:
        from asyncio import CancelledError  # noqa: PLC0415 - as above

        if self.future.done():  # the task was cancelled, or its time was up
            return
        if error is None:
            self.future.set_result(None)
        elif isinstance(error, (StopIteration, CancelledError)):
            # A future cannot hold the one, and the other would look as if this task was cancelled.
            wrapped = RuntimeError(f"the job raised {type(error).__name__}")
            wrapped.__cause__ = error
            self.future.set_exception(wrapped)
        else:
            self.future.set_exception(error)


def resolve_many(tickets: Iterable[tuple[Any, BaseException | None]]) -> None:
    """Resolve many tickets, each with its error; each event loop is woken once for all of its."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[AsyncTicket, BaseException | None]]] = {}
    for ticket, error in tickets:
        if type(ticket) is AsyncTicket:
            loops.setdefault(ticket._loop, []).append((ticket, error))  # noqa: SLF001
        else:
            ticket.resolve(error)
    for loop, own in loops.items():
        try:
            loop.call_soon_threadsafe(_settle_all, own)
        except RuntimeError:  # the loop is closed, so nobody waits any more
            continue


def _settle_all(tickets: list[tuple[AsyncTicket, BaseException | None]]) -> None:
    for ticket, error in tickets:
        ticket._settle(error)  # noqa: SLF001
