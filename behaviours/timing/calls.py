"""How long calls of a job take: a fixed part, and a part for each message."""

from __future__ import annotations

__all__ = ["FORGET", "Calls"]

FORGET = 0.98
"""How much a call still counts when the next one is observed."""


class Calls:
    """Learns from calls by least squares, where older calls fade. O(1) for each.

    >>> calls = Calls()
    >>> for size in 1, 3, 5:
    ...     calls.observe(size, 0.5 + size / 4)
    >>> round(calls.fixed, 3), round(calls.slope, 3)
    (0.5, 0.25)
    """

    __slots__ = ("_sums", "fixed", "slope")

    def __init__(self) -> None:
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)  # of 1, n, n*n, t and n*t
        self.fixed = 0.0
        self.slope = 0.0

    @property
    def count(self) -> float:
        """How many calls are known, where older ones count less."""
        return self._sums[0]

    def observe(self, size: int, took: float) -> None:
        """Learn that a call with `size` messages took `took` seconds."""
        count, n, nn, t, nt = (FORGET * value for value in self._sums)
        self._sums = (count + 1, n + size, nn + size * size, t + took, nt + size * took)
        self.fixed, self.slope = _line(*self._sums)


def _line(count: float, n: float, nn: float, t: float, nt: float) -> tuple[float, float]:
    """Return the fixed part of a call and the part for each message, by least squares."""
    spread = count * nn - n * n
    if spread <= 1e-9 * nn * count:  # all batches had the same size, or there was only one
        return (t / count, 0.0)
    slope = max((count * nt - n * t) / spread, 0.0)
    return (max((t - slope * n) / count, 0.0), slope)
