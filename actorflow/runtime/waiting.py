"""Callers who wait: one object for a thread, one for a task of any asyncio loop."""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

__all__ = ["AsyncTicket", "ThreadTicket"]


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
        return self._lock.acquire(timeout=-1 if timeout is None else max(timeout, 0.0))


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

    def _settle(self, error: BaseException | None) -> None:
        if self.future.done():  # the task was cancelled, or its time was up
            return
        if error is None:
            self.future.set_result(None)
        elif isinstance(error, StopIteration):  # which a future cannot hold
            wrapped = RuntimeError("the job raised StopIteration")
            wrapped.__cause__ = error
            self.future.set_exception(wrapped)
        else:
            self.future.set_exception(error)
