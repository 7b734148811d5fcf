"""Whether callers that start executions come back at once, with one start after the other.

A loop that starts executions and waits for none of them is told of each start by a commit, and
comes back with the next a moment later. What the executions that run meanwhile have to commit goes
with that next start: a commit of its own would make the loop wait, and costs as much as a start.
"""

from __future__ import annotations

from math import inf

__all__ = ["Starters"]

_ROW = 3  # starts in a row that came soon, after which more are expected
_LATE = 0.001  # seconds after the last start from which on no other is expected


class Starters:
    """Learns from when starts come, and when their callers are told. Thread-safe.

    Two threads that note something at the same time may lose one of the two: this is only a matter
    of speed.

    >>> starters = Starters()
    >>> for number in range(4):
    ...     starters.come(now=number, soon=1.5)
    ...     starters.tell(now=number)
    >>> starters.expected(now=3.0005), starters.expected(now=4.0)
    (True, False)
    """

    __slots__ = ("_last", "_row")

    def __init__(self) -> None:
        self._last = -inf
        self._row = 0

    def come(self, now: float, soon: float) -> None:
        """Note that a start has come, which counts if the last one was not long ago."""
        self._row = self._row + 1 if now - self._last < soon else 0
        self._last = now

    def tell(self, now: float) -> None:
        """Note that whoever started an execution is about to be told."""
        self._last = now

    def miss(self) -> None:
        """Note that something has waited for a start in vain."""
        self._row = 0

    def expected(self, now: float) -> bool:
        """Return whether another start is about to come."""
        return self._row >= _ROW and now - self._last < _LATE
