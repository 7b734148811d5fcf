"""An event loop in a thread of its own, for jobs that are coroutine functions."""

from __future__ import annotations

import queue
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import WouldDeadlock
from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.headroom import require_headroom
from actorflow.runtime.lanes.thread_start import retry_later, start_thread
from actorflow.runtime.lanes.uninterruptible import (
    UNINTERRUPTIBLE,
    hand_over,
    hand_over_to_helper,
    in_main_thread,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from actorflow.runtime.lanes.lane import Runnable, Waiter

__all__ = ["LOOP", "LoopLane"]


class LoopLane:
    """One asyncio event loop in a daemon thread, for jobs that are coroutine functions."""

    can_help = False

    def __init__(self, name: str = "actorflow-loop") -> None:
        self.name = name
        self._inherited: list[object] = []
        self._reset()
        after_fork(self._after_fork)

    def _reset(self) -> None:
        self._starting = threading.Lock()
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = False  # the thread has been started
        self._tasks: set[asyncio.Task[None]] = set()
        self._ident: int | None = None

    def submit(self, runnable: Runnable, /) -> None:
        """Schedule `runnable.run()` on the loop. Thread-safe."""
        self.call_soon(runnable.run)

    def claim(self, idle: list[Any]) -> bool:
        """Move a token from `idle` to the loop; return whether there was one."""
        if in_main_thread():
            return hand_over_to_helper(idle, self.submit)
        require_headroom()
        return hand_over(idle, self.submit)

    def call_soon(self, function: Callable[[], object], /) -> None:
        """Schedule `function()` on the loop, which is started if need be. Thread-safe."""
        if self._running and self._loop is not None:
            self._loop.call_soon_threadsafe(function)
        elif in_main_thread():  # one C call: an interrupt cannot separate the two steps
            UNINTERRUPTIBLE.post(partial(self._call_first, function))
        else:
            self._call_first(function)

    def _call_first(self, function: Callable[[], object]) -> None:
        self._waiting.put(function)
        self._start()

    def _start(self) -> None:
        """Start the loop, and hand over the work that was waiting. Idempotent, thread-safe."""
        with self._starting:
            try:
                loop = self._loop = self._loop or _new_event_loop()
            except OSError:  # no file descriptors left
                retry_later(self._start)
                return
            if not self._running and not start_thread(self._work, loop, name=self.name):
                retry_later(self._start)
                return
            self._running = True
            while not self._waiting.empty():
                loop.call_soon_threadsafe(self._waiting.get())

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ident = threading.get_ident()
        loop.run_forever()

    def release(self) -> None:
        """Do nothing: the loop serves other actors too."""

    def wait(self, ticket: Waiter, timeout: float | None) -> bool:
        """Wait for an actor of the loop; return whether it was in time.

        Raises:
            WouldDeadlock: called on the loop itself, which this would block.

        """
        if threading.get_ident() == self._ident:
            msg = "a coroutine job must not block its event loop: await instead of waiting"
            raise WouldDeadlock(msg)
        return ticket.wait(timeout)

    def spawn(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine, and refer to it until it ends. Called in the loop's thread."""
        loop = self._loop
        assert loop is not None  # noqa: S101 - this runs on it
        task = loop.create_task(make())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _after_fork(self) -> None:
        """Start afresh: the thread does not exist in the child."""
        if self._loop is not None:
            # Kept, because finalizers would close the loop, which removes its sockets from the
            # selector of the parent (the child shares it), and complain about pending tasks.
            self._inherited.append((self._loop, self._tasks))
        self._reset()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    import asyncio  # noqa: PLC0415 - most programs never need it

    return asyncio.new_event_loop()


LOOP = LoopLane()
"""The loop that coroutine jobs run on."""
