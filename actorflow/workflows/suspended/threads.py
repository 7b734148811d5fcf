"""Threads in which sync methods of workflows run, and stop in the middle.

A thread holds the frame of a method that waits for a step. Only one side runs at a time: the
thread, or the code that handed over to it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from actorflow.runtime.log import log
from actorflow.workflows.errors import BranchClosed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UNWOUND", "CodeThread"]

UNWOUND = 5.0
"""Seconds after which code that was given up is left to its thread."""


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
        self.abandoned = False
        """Whether it never comes back."""
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """What `sys._current_frames` knows it by."""
        return self._thread.ident

    @property
    def is_here(self) -> bool:
        """Whether this thread can resume it: every thread can."""
        return True

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
        """End a parked job by raising `BranchClosed` where it parks.

        Code that blocks, in a `finally` for example, keeps the thread, and nobody waits for it.
        """
        self._closing = True
        self._go.release()
        if not self._back.acquire(timeout=patience):
            late()
            if not self._back.acquire(timeout=UNWOUND):
                self.abandoned = True
                log.warning(
                    "abandoned code of a workflow does not end; it keeps its thread",
                    thread=self._thread.name,
                )
                return
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

    def abandon(self) -> None:
        """Stop here for good, in the thread itself: its code refuses to end."""
        self.abandoned = True
        self._back.release()
        threading.Event().wait()

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
            if self.abandoned:
                return
