"""Virtual time: it stands still until a test moves it."""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import TYPE_CHECKING

from actorflow.runtime.clock import Timer
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["VirtualClock"]


class VirtualClock:
    """A clock that only `advance` moves. Calls that become due are made in the test's thread.

    >>> clock = VirtualClock()
    >>> timer = clock.call_at(2.0, lambda: print("due at", clock.now()))
    >>> clock.advance(5.0)
    due at 2.0
    >>> clock.now()
    5.0
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._timers: list[tuple[float, int, Timer]] = []
        self._number = itertools.count()
        self._lock = threading.Lock()

    def now(self) -> float:
        """Give the virtual time in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Have `callback` called by the `advance` that reaches `when`."""
        timer = Timer(when, callback)
        with self._lock:
            heapq.heappush(self._timers, (when, next(self._number), timer))
        return timer

    def next_time(self) -> float | None:
        """Tell when the next call is due; `None` if there is none."""
        with self._lock:
            while self._timers and self._timers[0][2].callback is None:
                heapq.heappop(self._timers)
            return self._timers[0][0] if self._timers else None

    def advance(self, seconds: float) -> None:
        """Move time on, making the calls that become due, in order, each at its time."""
        if seconds < 0:
            msg = f"time does not go back: advance({seconds!r})"
            raise BadOption(msg)
        end = self._now + seconds
        while (when := self.next_time()) is not None and when <= end:
            with self._lock:
                timer = heapq.heappop(self._timers)[2]
            self._now = max(self._now, when)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._now = end
