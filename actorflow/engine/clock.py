"""The engine's time: seconds since the epoch, so that timers outlive the process.

Waits inside one process are measured by a clock that nobody can set: the machine's wall clock is
read once, and counted on from there. A step forward (somebody sets the clock, or the machine
sleeps) is followed; a step back is not, so no wait grows because of it.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from actorflow.runtime.clock import SYSTEM, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.clock import Clock

__all__ = ["WALL", "EngineClock", "StoreClock", "WallClock"]

_LOOK = 10.0  # seconds after which the wall clock is looked at again: somebody may have set it
_AT_ONCE = 0.01  # seconds that two looks at clocks take at most, if nothing comes in between
_STEP = 0.5  # seconds that the machine's clock may be ahead before that counts as a step


class WallClock:
    """Wall time that never goes back; calls are made by the runtime's clock thread.

    A call that is far away is looked at every 10 s, so it is late by no more than that when the
    clock of the machine is set forward, or the machine was asleep.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._offset = wall() - steady()

    def now(self) -> float:
        """Return seconds since the epoch."""
        steady = self._steady()
        wall = self._wall()
        now = steady + self._offset
        # A thread that had to wait between the two looks has seen no step; the next look finds out.
        if wall - now > _STEP and self._steady() - steady < _AT_ONCE:
            # Not added to: another thread may have followed the same step just now.
            self._offset = max(self._offset, wall - steady)
            return steady + self._offset
        return now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` at a moment of wall time, however far away. O(log n)."""
        timer = Timer(when, callback)
        self._arm(timer)
        return timer

    def _arm(self, timer: Timer) -> None:
        delay = min(timer.when - self.now(), _LOOK)
        SYSTEM.call_at(SYSTEM.now() + delay, lambda: self._look(timer))

    def _look(self, timer: Timer) -> None:
        """Make the call if its time has come. In the clock's thread."""
        if timer.callback is None:
            return
        if timer.when > self.now():
            self._arm(timer)
            return
        callback, timer.callback = timer.callback, None
        callback()


class StoreClock(WallClock):
    """The time of a store that several engines share; timers are due by it.

    What a machine's own clock says does not matter then. Corrections are followed in both
    directions; a wait inside one process is not affected by the machine's clock at all.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        super().__init__(wall)

    def now(self) -> float:
        """Return seconds since the epoch, by the store's clock."""
        return self._wall()


class EngineClock:
    """The clock of one engine, on one that others share.

    The shared one refers to no call of the engine, so that it keeps nothing of a closed engine in
    memory: a call may be days away.

    Args:
        clock: says the time, and when to make a call.

    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[int, Callable[[], object]] = {}
        self._numbers = count()
        self.now: Callable[[], float] = clock.now
        """Returns the time of the shared clock."""

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` at a moment, unless the engine is closed before. Thread-safe."""
        number = next(self._numbers)
        self._calls[number] = callback
        call = partial(_call, self._calls, number)
        shared = self._clock.call_at(when, call)

        def cancel() -> None:
            self._calls.pop(number, None)
            shared.cancel()

        return Timer(when, call, cancel)

    def close(self) -> None:
        """Forget all calls."""
        self._calls.clear()


def _call(calls: dict[int, Callable[[], object]], number: int) -> None:
    callback = calls.pop(number, None)
    if callback is not None:
        callback()


WALL = WallClock()
"""The clock that engines use unless told otherwise."""
