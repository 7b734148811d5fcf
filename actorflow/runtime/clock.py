"""Time goes through one `Clock`: the system's here, a virtual one in `actorflow.testing`."""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SYSTEM", "Clock", "SystemClock", "Timer"]


class Timer:
    """A call that is to be made at a moment. Cancelling it is O(1)."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Make the call not happen. Harmless when it has happened already."""
        self.callback = None


class Clock(Protocol):
    """What the runtime needs of time: to read it, and to be called at a moment."""

    def now(self) -> float:
        """Give the monotonic time in seconds."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once `now() >= when`, in a thread of the clock's: it must be short."""


class SystemClock:
    """The machine's monotonic clock; one daemon thread makes the calls, started when needed."""

    def __init__(self) -> None:
        self._timers: list[tuple[float, int, Timer]] = []
        self._number = itertools.count()
        self._changed = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None

    now = staticmethod(time.monotonic)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` at `when`. O(log n) in the number of pending calls."""
        timer = Timer(when, callback)
        if when == math.inf:
            return timer  # never
        with self._changed:
            first = not self._timers or when < self._timers[0][0]
            heapq.heappush(self._timers, (when, next(self._number), timer))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="actorflow-clock", daemon=True
                )
                self._thread.start()
            elif first:
                self._changed.notify()
        return timer

    def _run(self) -> None:
        while True:
            timer = self._next_due()
            callback, timer.callback = timer.callback, None
            if callback is None:
                continue
            try:
                callback()
            except Exception:  # noqa: BLE001 - one bad call must not stop the clock
                log.error("timer call failed", exc_info=True)

    def _next_due(self) -> Timer:
        with self._changed:
            while True:
                while self._timers and self._timers[0][2].callback is None:
                    heapq.heappop(self._timers)
                if not self._timers:
                    self._changed.wait()
                    continue
                delay = self._timers[0][0] - time.monotonic()
                if delay <= 0:
                    return heapq.heappop(self._timers)[2]
                self._changed.wait(min(delay, threading.TIMEOUT_MAX))

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Copy and pickle the clock of the process as itself: specifications refer to it."""
        return "SYSTEM" if self is SYSTEM else super().__reduce__()

    def _after_fork(self) -> None:
        """Forget the thread, which does not exist in a forked child, and its calls."""
        self._timers = []
        self._changed = threading.Condition(threading.Lock())
        self._thread = None


SYSTEM = SystemClock()
"""The clock that workers use unless told otherwise."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SYSTEM._after_fork)  # noqa: SLF001
