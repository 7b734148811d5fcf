"""Requests that wait for something: they are answered before their socket is closed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from actorflow.engine.errors import EngineClosed

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["PendingRequests"]

T = TypeVar("T")


class PendingRequests:
    """The waits of one application. Its event loop waits; any thread may close."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], asyncio.AbstractEventLoop] = {}
        self._closed = False

    async def wait(self, what: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns.

        Raises:
            EngineClosed: `close` came first.

        """
        loop = asyncio.get_running_loop()
        task = loop.create_task(what)
        self._tasks[task] = loop
        try:
            if self._closed:
                task.cancel()
            return await task
        except asyncio.CancelledError:
            if not self._closed:
                raise
            msg = "the engine is being closed before the request could be answered"
            raise EngineClosed(msg) from None
        finally:
            del self._tasks[task]

    def close(self) -> None:
        """End all waiting requests, and refuse new ones. Thread-safe; idempotent."""
        self._closed = True
        for task, loop in list(self._tasks.items()):
            with suppress(RuntimeError):  # that loop has ended, and the wait with it
                loop.call_soon_threadsafe(task.cancel)
