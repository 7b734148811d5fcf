"""The engine's time: seconds since the epoch, so that timers outlive the process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from actorflow.runtime.clock import SYSTEM, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WALL", "WallClock"]

_LOOK = 10.0  # seconds after which the wall clock is looked at again: somebody may have set it


class WallClock:
    """The machine's wall clock; calls are made by the runtime's clock thread.

    A call that is far away is looked at every 10 s, so it is late by no more than that when the
    clock of the machine is set, or the machine was asleep.
    """

    now = staticmethod(time.time)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` at a moment of wall time, however far away. O(log n)."""
        timer = Timer(when, callback)
        self._arm(timer)
        return timer

    def _arm(self, timer: Timer) -> None:
        delay = min(timer.when - time.time(), _LOOK)
        SYSTEM.call_at(SYSTEM.now() + delay, lambda: self._look(timer))

    def _look(self, timer: Timer) -> None:
        """Make the call if its time has come. In the clock's thread."""
        if timer.callback is None:
            return
        if timer.when > time.time():
            self._arm(timer)
            return
        callback, timer.callback = timer.callback, None
        callback()


WALL = WallClock()
"""The clock that engines use unless told otherwise."""
