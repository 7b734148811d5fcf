"""Where the code of branches runs: on greenlets if possible, otherwise in threads."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TypeAlias

from actorflow.runtime.errors import BadOption
from actorflow.runtime.lanes.pool import HERE, POOL
from actorflow.runtime.log import log
from actorflow.workflows.suspended.greenlets import (
    CodeGreenlet,
    Home,
    home_here,
    is_installed,
)
from actorflow.workflows.suspended.threads import UNWOUND, CodeThread

if TYPE_CHECKING:
    CodeStack: TypeAlias = CodeThread | CodeGreenlet

__all__ = ["CodeStacks"]

_THREADS = 0  # stacks that are threads after code had to be moved from one thread to another


class CodeStacks:
    """Stacks for the code of branches. Thread-safe.

    By default, greenlets are used by the threads of the pool that stay for good. A decision of an
    instance may be taken in another thread than the one before it. Then its code is replayed, in a
    thread that all others can resume. After that, the next stacks are threads as well, so that
    replays stay rare.

    Args:
        keep: threads without a job that are kept for the next one.
        only: `"greenlets"` or `"threads"`; chosen automatically by default.

    """

    def __init__(self, keep: int, *, only: str | None = None) -> None:
        if only == "greenlets" and not is_installed():
            raise BadOption("greenlets are not installed: pip install actorflow[fast]")
        self._keep = keep
        self._only = only
        self._threads_next = 0 if is_installed() else -1
        self._idle: list[CodeThread] = []
        self._homes: dict[Home, None] = {}
        self._lock = threading.Lock()
        self._started = 0
        self._closed = False

    @property
    def started(self) -> int:
        """How many threads were ever started."""
        return self._started

    def take(self, *, movable: bool = False) -> CodeStack:
        """Return a stack without a job; with `movable`, one that every thread can resume."""
        if not movable and self._prefers_greenlet():
            home = home_here()
            if home.given_up:
                home.clear()
            self._homes[home] = None
            return CodeGreenlet()
        with self._lock:
            if self._idle:
                return self._idle.pop()
            self._started += 1
            number = self._started
        return CodeThread(f"workflow-{number}")

    def _prefers_greenlet(self) -> bool:
        if self._only is not None:
            return self._only == "greenlets"
        if self._threads_next:
            if self._threads_next > 0:
                self._threads_next -= 1
            return False
        return HERE.thread is not None and HERE.thread.stays

    def moved(self) -> None:
        """Record that code had to be moved to another thread."""
        if self._threads_next == 0:
            self._threads_next = _THREADS

    def give_back(self, stack: CodeStack) -> None:
        """Keep a thread whose job has ended, or stop it."""
        if isinstance(stack, CodeGreenlet) or stack.abandoned:
            return
        with self._lock:
            kept = not self._closed and len(self._idle) < self._keep
            if kept:
                self._idle.append(stack)
        if not kept:
            stack.stop()

    def close(self) -> None:
        """Stop the idle threads; busy ones are stopped when they come back.

        Greenlets that were given up are unwound in their threads.
        """
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.stop()
        home_here().clear()
        end = time.monotonic() + UNWOUND
        while time.monotonic() < end:
            left = [each for each in list(self._homes) if each.given_up and each.thread.is_alive()]
            if not left:
                return
            swept = _Sweep()
            POOL.submit(swept)
            swept.done.wait(end - time.monotonic())
        log.warning("code of workflows was not unwound, because its thread is busy")


class _Sweep:
    """Unwinds greenlets in whichever thread of the pool comes."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def run(self) -> None:
        """Unwind those of this thread. Only the pool calls this."""
        home_here().clear()
        self.done.set()
