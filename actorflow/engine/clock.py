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


class _WallTimer(Timer):
    """A call at a moment of wall time."""

    __slots__ = ("look",)

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        super().__init__(when, callback, self._forget)
        self.look: Timer | None = None  # when it is looked at next

    def _forget(self) -> None:
        if self.look is not None:
            self.look.cancel()


class WallClock:
    """Wall time that never goes back; calls are made by the runtime's clock thread.

    A call that is far away is looked at every 10 s, so it is late by no more than that when the
    clock of the machine is set forward, or the machine was asleep.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        clock: Clock = SYSTEM,
    ) -> None:
        self._clock = clock
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
        timer = _WallTimer(when, callback)
        self._arm(timer)
        return timer

    def _arm(self, timer: _WallTimer) -> None:
        delay = min(timer.when - self.now(), _LOOK)
        timer.look = self._clock.call_at(self._clock.now() + delay, lambda: self._look(timer))

    def _look(self, timer: _WallTimer) -> None:
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

    def __init__(self, wall: Callable[[], float], clock: Clock = SYSTEM) -> None:
        super().__init__(wall, clock.now, clock)

    def now(self) -> float:
        """Return seconds since the epoch, by the store's clock."""
        return self._wall()


class EngineClock:
    """The clock of one engine, on one that others share.

    Calls of a closed engine are cancelled, so that the shared one keeps nothing of it in memory: a
    call may be days away.

    Args:
        clock: says the time, and when to make a call.

    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[int, Timer] = {}
        self._numbers = count()
        self.now: Callable[[], float] = clock.now
        """Returns the time of the shared clock."""

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` at a moment, unless the engine is closed before. Thread-safe."""
        number = next(self._numbers)
        shared: Timer | None = None

        def cancel() -> None:
            self._timers.pop(number, None)
            if shared is not None:
                shared.cancel()

        timer = self._timers[number] = Timer(when, callback, cancel)
        shared = self._clock.call_at(when, partial(_call, self._timers, number))
        if timer.callback is None:  # the engine was closed meanwhile, or the call was made
            shared.cancel()
        return timer

    def close(self) -> None:
        """Cancel all calls."""
        for timer in list(self._timers.values()):
            timer.cancel()


def _call(timers: dict[int, Timer], number: int) -> None:
    timer = timers.pop(number, None)
    if timer is not None:
        callback, timer.callback = timer.callback, None
        if callback is not None:
            callback()


WALL = WallClock()
"""The clock that engines use unless told otherwise."""
