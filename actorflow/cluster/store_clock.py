"""An estimate of the store's clock, from occasional requests."""

from __future__ import annotations

from time import monotonic, time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["StoreTime"]

_DRIFT = 0.05  # seconds per second by which two clocks may run apart; a lease allows for twice that


class StoreTime:
    """The time of a store's clock, carried on by the monotonic clock. Thread-safe.

    The store reads its clock between the request and the arrival of the answer. So each answer
    gives bounds for the difference of the two clocks. The estimate is never above the lower bound,
    so that no timer counts as due too early, and a slow answer lowers it only as far as the clocks
    may have drifted apart since the quickest one.

    >>> clock = StoreTime()
    >>> clock.note(asked=10.0, said=1_000.0, heard=10.2)
    >>> round(clock.at(20.0), 3)
    1009.79
    >>> clock.note(asked=30.0, said=1_021.0, heard=34.0)
    >>> round(clock.at(40.0), 3)
    1028.6
    """

    def __init__(
        self, now: Callable[[], float] = monotonic, wall: Callable[[], float] = time
    ) -> None:
        self._now = now
        self._wall = wall
        self._ahead: float | None = None
        self._heard = 0.0

    def note(self, *, asked: float, said: float, heard: float) -> None:
        """Record an answer; `asked` and `heard` are times of `time.monotonic`."""
        # All bounds are for the moment of `heard`, so that no drift is counted twice.
        ahead = said - heard - _DRIFT * (heard - asked)
        if self._ahead is not None:
            ahead = max(ahead, self._ahead - _DRIFT * (heard - self._heard))
        self._ahead, self._heard = min(ahead, said - asked), heard

    def at(self, now: float) -> float:
        """Return the time at a moment of `time.monotonic`; this machine's before any answer."""
        return self._wall() if self._ahead is None else now + self._ahead

    def now(self) -> float:
        """Return the time."""
        return self.at(self._now())
