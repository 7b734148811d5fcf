"""Virtual time: it stands still until a test moves it."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from typing import TYPE_CHECKING

from actorflow.runtime.clock import Timer
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["VirtualClock"]


class VirtualClock:
    """A clock that only `advance` moves. Due calls are made in the thread that calls `advance`.

    >>> clock = VirtualClock()
    >>> timer = clock.call_at(2.0, lambda: print("due at", clock.now()))
    >>> clock.advance(5.0)
    due at 2.0
    >>> clock.now()
    5.0
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        # A heap of its own: tests pause threads inside the runtime's code, where this clock's lock
        # must not be held.
        self._timers: list[tuple[float, int, Timer]] = []
        self._number = itertools.count()
        self._cancelled = 0
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Schedule `callback` for the `advance` that reaches `when`. Thread-safe."""
        timer = Timer(when, callback, self._on_cancel)
        with self._lock:
            heapq.heappush(self._timers, (when, next(self._number), timer))
        return timer

    def _on_cancel(self) -> None:
        with self._lock:
            self._cancelled += 1
            if 2 * self._cancelled > len(self._timers):
                self._timers = [entry for entry in self._timers if entry[2].callback is not None]
                heapq.heapify(self._timers)
                self._cancelled = 0

    def next_time(self) -> float | None:
        """Return when the next call is due, or `None` without calls."""
        with self._lock:
            self._prune()
            if not self._timers or self._timers[0][0] == math.inf:
                return None
            return self._timers[0][0]

    def _prune(self) -> None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)

    def _pop_due(self, end: float) -> Timer | None:
        with self._lock:
            self._prune()
            if not self._timers or self._timers[0][0] > end:
                return None
            return heapq.heappop(self._timers)[2]

    def advance(self, seconds: float) -> None:
        """Move time on, making the calls that become due, in order, each at its time.

        Raises:
            BadOption: `seconds` is negative.

        """
        if seconds < 0:
            msg = f"virtual time cannot go back: advance({seconds!r})"
            raise BadOption(msg)
        end = self._now + seconds
        while (timer := self._pop_due(end)) is not None:
            self._now = max(self._now, timer.when)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._now = end
