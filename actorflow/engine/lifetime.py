"""How engines end: closed once, also when the interpreter ends; abandoned in a forked child."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from actorflow.runtime.actor.current import CURRENT
from actorflow.runtime.lanes.apart import run_apart

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import Engine

__all__ = ["OPEN", "Closing"]

OPEN: set[Closing] = set()
"""Those of open engines. A worker's handle may be all that a user keeps of an engine."""

_AT_EXIT = 5.0  # seconds for an engine that nobody has closed


class Closing:
    """Closes an engine, once; whoever closes it meanwhile waits for that. Thread-safe.

    No signal interrupts it: KeyboardInterrupt comes out of `close`, and the engine is closed all
    the same. Cut short, it would leave callers who wait for ever, and the store locked.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._vacant: list[None] = [None]  # atomic flag: the thread that pops it does the work
        self._ended = threading.Event()
        self.before: list[Callable[[], object]] = []
        """What is closed before the engine, in this order."""
        self.after: list[Callable[[], object]] = []
        """What is closed after it."""
        OPEN.add(self)

    def run(self, timeout: float) -> None:
        """Close the engine; return when it is closed. A job only has it closed, and goes on."""
        if self._vacant:
            if CURRENT.get() is None:
                run_apart(self._close, timeout)
            else:  # else it would wait for the very job that waits here
                self._close(timeout)
        if CURRENT.get() is None:
            self._ended.wait()

    def _close(self, timeout: float) -> None:
        try:
            self._vacant.pop()
        except IndexError:
            return
        try:
            with ExitStack() as stack:  # each is called although another one fails
                for call in reversed(self.after):
                    stack.callback(call)
                stack.callback(self._engine.core.close, timeout)
                for call in reversed(self.before):
                    stack.callback(call)
        finally:
            self._ended.set()
            OPEN.discard(self)

    def abandon(self) -> None:
        """Leave it to the parent of a fork."""
        self._engine.core.abandon()
        self._vacant = []
        self._ended = threading.Event()  # a thread that is not here may have the lock of the old
        self._ended.set()


def _close_all() -> None:
    for closing in list(OPEN):
        closing.run(_AT_EXIT)


def _abandon_all() -> None:
    """Abandon what belongs to the parent of a fork."""
    for closing in list(OPEN):
        closing.abandon()
    OPEN.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
