"""Threads in which sync methods of workflows run, and stop in the middle.

A thread holds the frame of a method that waits for a work. Only one side runs at a time: the
thread, or whoever handed over to it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from actorflow.workflows.errors import BranchClosed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CodeThread", "CodeThreads"]


class CodeThread:
    """A thread that runs a job until that ends or parks."""

    def __init__(self, name: str) -> None:
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._job: Callable[[], None] | None = None
        self._closing = False
        self._parked = False
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """What `sys._current_frames` knows it by."""
        return self._thread.ident

    def run(self, job: Callable[[], None], patience: float, late: Callable[[], None]) -> bool:
        """Run a job until it ends or parks; return whether it has ended.

        Args:
            job: must not raise.
            patience: seconds until `late` is called, once.
            late: what to do about a job that takes longer.

        """
        self._job = job
        return self._hand_over(patience, late)

    def resume(self, patience: float, late: Callable[[], None]) -> bool:
        """Resume a parked job until it ends or parks again; return whether it has ended."""
        return self._hand_over(patience, late)

    def unwind(self, patience: float, late: Callable[[], None]) -> None:
        """End a parked job by raising `BranchClosed` where it parks."""
        self._closing = True
        try:
            while not self._hand_over(patience, late):
                pass
        finally:
            self._closing = False

    def _hand_over(self, patience: float, late: Callable[[], None]) -> bool:
        self._go.release()
        if not self._back.acquire(timeout=patience):
            late()
            self._back.acquire()
        return not self._parked

    def park(self) -> None:
        """Stop here, in the thread itself, until `resume`.

        Raises:
            BranchClosed: the job is unwound.

        """
        if not self._closing:
            self._parked = True
            self._back.release()
            self._go.acquire()
            self._parked = False
        if self._closing:
            raise BranchClosed

    def stop(self) -> None:
        """End a thread that has no job."""
        self._job = None
        self._go.release()
        self._thread.join()

    def _main(self) -> None:
        while True:
            self._go.acquire()
            if self._job is None:
                return
            self._job()
            self._job = None
            self._back.release()


class CodeThreads:
    """Threads without a job, kept for the next one. Thread-safe."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._idle: list[CodeThread] = []
        self._lock = threading.Lock()
        self._started = 0
        self._closed = False

    @property
    def started(self) -> int:
        """How many threads were ever started."""
        return self._started

    def take(self) -> CodeThread:
        """Return a thread without a job."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            self._started += 1
            number = self._started
        return CodeThread(f"workflow-{number}")

    def give_back(self, thread: CodeThread) -> None:
        """Keep a thread whose job has ended, or stop it."""
        with self._lock:
            kept = not self._closed and len(self._idle) < self._keep
            if kept:
                self._idle.append(thread)
        if not kept:
            thread.stop()

    def close(self) -> None:
        """Stop the idle threads; those that come back later are stopped then."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.stop()
