"""Greenlets in which synchronous methods of workflows run, and stop in the middle.

Problem
    A synchronous `handle` that waits for a step must keep its stack. If a thread holds it, each
    step changes threads twice: to the holding thread and back.

Approach
    A greenlet has a stack of its own, and switching to it and back takes 1 us without waking a
    thread. The thread that takes the decision resumes the code itself. But a greenlet is bound to
    the thread that created it (its `Home`). If another thread takes a later decision, it gives the
    greenlet up, and the code is replayed once in a `CodeThread`, which any thread can resume.

Invariants
    1. Only the home thread switches to a greenlet. Another thread that gives it up puts it into
       `given_up`, and the home thread unwinds it before it next runs code.
    2. A greenlet runs, is parked, or has ended. `park` returns control to the greenlet that resumed
       it last, which is set as its parent before each switch.
    3. Unwinding raises `BranchClosed` at the place where the code is parked, so `finally` blocks
       run. Code that parks again meanwhile gets `BranchClosed` again.
    4. The watch reports code that runs for too long without parking. It only reports: a greenlet
       cannot be interrupted from outside.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from importlib import import_module
from typing import TYPE_CHECKING, Any

from actorflow.runtime.fork import after_fork
from actorflow.workflows.errors import BranchClosed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CodeGreenlet", "Home", "home_here", "is_installed"]

_LEAST = 0.005  # seconds between two looks of the watch
_QUIET = 10  # looks without code that runs, after which the watch sleeps

try:
    _greenlets: Any = import_module("greenlet")
except ImportError:
    _greenlets = None


def is_installed() -> bool:
    """Return whether greenlets can be used: the extra `fast`."""
    return _greenlets is not None


class Home:
    """A thread that greenlets are bound to."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.given_up: deque[CodeGreenlet] = deque()
        """Greenlets that other threads have given up: this one has to unwind them."""

    def clear(self) -> None:
        """Unwind the greenlets that others have given up. In its own thread."""
        while self.given_up:
            self.given_up.popleft().unwind_here()


class _GreenletThread(threading.local):
    home: Home | None = None


_HERE = _GreenletThread()


def home_here() -> Home:
    """Return the record of this thread."""
    home = _HERE.home
    if home is None:
        home = _HERE.home = Home()
    return home


class CodeGreenlet:
    """A greenlet that runs a job until that ends or parks. Made by the thread that it is bound to.

    It has the methods of a `CodeThread`.
    """

    def __init__(self) -> None:
        self._home = home_here()
        self._greenlet: Any = None
        self._parked = False
        self._closing = False

    @property
    def ident(self) -> int | None:
        """What `sys._current_frames` knows its thread by."""
        return self._home.thread.ident

    @property
    def is_here(self) -> bool:
        """Whether this thread can resume it."""
        return _HERE.home is self._home

    def run(self, job: Callable[[], None], patience: float, late: Callable[[], None]) -> bool:
        """Run a job until it ends or parks; return whether it has ended. See `CodeThread.run`."""
        self._greenlet = _greenlets.greenlet(job)
        return self.resume(patience, late)

    def resume(self, patience: float, late: Callable[[], None]) -> bool:
        """Resume a parked job until it ends or parks again; return whether it has ended."""
        self._greenlet.parent = _greenlets.getcurrent()
        _WATCH.begin(self, patience, late)
        try:
            self._greenlet.switch()
        finally:
            _WATCH.end(self)
        return not self._parked

    def unwind(self, patience: float, late: Callable[[], None]) -> None:
        """End a parked job by raising `BranchClosed` where it parks: now, or in its own thread."""
        if self.is_here:
            _WATCH.begin(self, patience, late)
            try:
                self.unwind_here()
            finally:
                _WATCH.end(self)
        else:
            self._home.given_up.append(self)

    def unwind_here(self) -> None:
        """Like `unwind`, in the thread that it is bound to."""
        self._closing = True
        self._greenlet.parent = _greenlets.getcurrent()
        self._greenlet.switch()
        self._closing = False

    def park(self) -> None:
        """Stop here, in the greenlet itself, until `resume`.

        Raises:
            BranchClosed: the job is unwound.

        """
        if not self._closing:
            self._parked = True
            self._greenlet.parent.switch()
            self._parked = False
        if self._closing:
            raise BranchClosed

    def abandon(self) -> None:
        """Stop here for good, in the greenlet itself: its code refuses to end."""
        self._parked = False
        self._greenlet.parent.switch()


class _Watch:
    """Notices code that neither ends nor parks. One thread, which sleeps while no code runs."""

    def __init__(self) -> None:
        self._reset()
        after_fork(self._reset)

    def _reset(self) -> None:
        self._running: dict[CodeGreenlet, tuple[float, Callable[[], None]]] = {}
        self._awake = False
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self._tick = 0.5

    def begin(self, greenlet: CodeGreenlet, patience: float, late: Callable[[], None]) -> None:
        """Call `late` if the code of a greenlet runs on for so many seconds."""
        self._running[greenlet] = time.monotonic() + patience, late
        if not self._awake or patience < 2 * self._tick:
            self._wake(patience)

    def end(self, greenlet: CodeGreenlet) -> None:
        """Record that it has ended or parked."""
        self._running.pop(greenlet, None)

    def _wake(self, patience: float) -> None:
        self._tick = max(min(self._tick, patience / 2), _LEAST)
        self._awake = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="workflow-watch", daemon=True)
            self._thread.start()
        self._bell.set()

    def _look(self) -> None:
        quiet = 0
        while True:
            self._bell.wait(None if quiet > _QUIET else self._tick)
            self._bell.clear()
            quiet = 0 if self._running else quiet + 1
            if quiet > _QUIET:
                self._awake = False  # the next caller wakes it
                if self._running:
                    self._awake, quiet = True, 0
            now = time.monotonic()
            for greenlet, (due, late) in list(self._running.items()):
                if now > due and self._running.pop(greenlet, None) is not None:
                    late()


_WATCH = _Watch()
