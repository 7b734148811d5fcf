"""An event loop in a thread of its own, for jobs that are coroutine functions."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import WouldDeadlock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from actorflow.runtime.lanes.lane import Runnable
    from actorflow.runtime.worker.tickets import ThreadTicket

__all__ = ["LOOP", "LoopLane"]


class LoopLane:
    """One asyncio loop in a daemon thread, for jobs that are coroutine functions."""

    can_help = False

    def __init__(self, name: str = "actorflow-loop") -> None:
        self.name = name
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ident: int | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop; it is started when first asked for."""
        if self._loop is None:
            with self._starting:
                if self._loop is None:
                    self._loop = self._start()
        return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        import asyncio  # noqa: PLC0415 - most programs never need it

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name=self.name, daemon=True)
        thread.start()
        self._ident = thread.ident
        return loop

    def submit(self, runnable: Runnable, /) -> None:
        """Have `runnable.run()` called on the loop."""
        self.loop.call_soon_threadsafe(runnable.run)

    def release(self) -> None:
        """Do nothing: the loop serves other actors too."""

    def wait(self, ticket: ThreadTicket, timeout: float | None) -> bool:
        """Wait for an actor of the loop.

        Raises:
            WouldDeadlock: called on the loop itself, which could then do nothing any more.

        """
        if threading.get_ident() == self._ident:
            msg = "a coroutine job must not block its event loop: await instead of waiting"
            raise WouldDeadlock(msg)
        return ticket.wait(timeout)

    def spawn(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine from within the loop's thread, and keep it until it ends."""
        task = self.loop.create_task(make())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


LOOP = LoopLane()
"""The loop that coroutine jobs run on."""

if hasattr(os, "register_at_fork"):  # the thread does not exist in the child
    os.register_at_fork(after_in_child=LOOP.__init__)  # type: ignore[misc]
