"""Closes engines: once, also when the interpreter ends; abandons them in a forked child."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

# Functions for the end of a process run in reverse order: engines close before workers are cut.
import actorflow.runtime.worker.spec  # noqa: F401
from actorflow.runtime.lanes.uninterruptible import run_in_new_thread
from actorflow.runtime.registry import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.parts import EngineParts

__all__ = ["OPEN", "EngineCloser"]

OPEN: set[EngineCloser] = set()
"""The open engines. They must not be collected while a user keeps only the handle of a worker."""

_AT_EXIT = 5.0  # seconds for an engine that nobody has closed


class EngineCloser:
    """Closes an engine once; concurrent calls wait for the first. Thread-safe.

    No signal interrupts it: `close` raises KeyboardInterrupt, and the engine still closes.
    Otherwise callers would wait forever, and the store would stay locked.
    """

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._vacant: list[None] = [None]  # atomic flag: the thread that pops it does the work
        self._ended = threading.Event()
        self.before: list[Callable[[], object]] = []
        """Functions called before the engine closes, in this order."""
        self.after: list[Callable[[], object]] = []
        """Functions called after it has closed."""
        OPEN.add(self)

    def run(self, timeout: float) -> None:
        """Close the engine and wait until it is closed. Inside a job, do not wait."""
        if self._vacant:
            if CURRENT.get() is None:
                run_in_new_thread(self._close, timeout)
            else:  # waiting would deadlock: the engine waits for this job
                self._close(timeout)
        if CURRENT.get() is None:
            self._ended.wait()

    def _close(self, timeout: float) -> None:
        try:
            self._vacant.pop()
        except IndexError:
            return
        try:
            with ExitStack() as stack:  # call all of them, even if one fails
                for call in reversed(self.after):
                    stack.callback(call)
                stack.callback(self._parts.close, timeout)
                for call in reversed(self.before):
                    stack.callback(call)
        finally:
            self._ended.set()
            OPEN.discard(self)

    def abandon(self) -> None:
        """Leave it to the parent of a fork."""
        self._parts.abandon()
        self._vacant = []
        self._ended = threading.Event()  # the old lock may be held by a thread of the parent
        self._ended.set()


def _close_all() -> None:
    for closing in list(OPEN):
        closing.run(_AT_EXIT)


def _abandon_all() -> None:
    """Abandon the engines that belong to the parent of a fork."""
    for closing in list(OPEN):
        closing.abandon()
    OPEN.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
