"""Virtual time: it stands still until a test moves it."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from actorflow.runtime.clock import Timer, TimerHeap
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
        self._timers = TimerHeap()
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Schedule `callback` for the `advance` that reaches `when`. Thread-safe."""
        timer = Timer(when, callback, self._on_cancel)
        with self._lock:
            self._timers.push(timer)
        return timer

    def _on_cancel(self) -> None:
        if self._timers.count_cancelled():
            with self._lock:
                self._timers.compact()

    def next_time(self) -> float | None:
        """Return when the next call is due; `None` if there is none."""
        with self._lock:
            when = self._timers.next_time()
            return None if when == math.inf else when

    def advance(self, seconds: float) -> None:
        """Move time on, making the calls that become due, in order, each at its time.

        Raises:
            BadOption: `seconds` is negative.

        """
        if seconds < 0:
            msg = f"virtual time cannot go back: advance({seconds!r})"
            raise BadOption(msg)
        end = self._now + seconds
        while (when := self.next_time()) is not None and when <= end:
            with self._lock:
                callback = self._timers.pop_due(when)
            self._now = max(self._now, when)
            if callback is not None:
                callback()
        self._now = end
