"""Times of arrival of the messages in a line, beside it."""

from __future__ import annotations

from bisect import bisect_left


class Ages:
    """Times that never decrease, taken away at both ends. O(1) on average, except `older`.

    >>> ages = Ages()
    >>> ages.extend([1.0, 2.0, 2.0, 5.0])
    >>> ages.older(2.0), ages.older(3.0)
    (1, 3)
    >>> ages.drop_oldest(2)
    >>> ages.drop_newest(1)
    >>> len(ages), ages.older(3.0)
    (1, 1)
    """

    __slots__ = ("_start", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._times) - self._start

    def extend(self, times: list[float]) -> None:
        """Append times; if there were none, keep the list itself."""
        if self._times:
            self._times += times
        else:
            self._times = times

    def older(self, horizon: float) -> int:
        """Return how many times lie before `horizon`. O(log n)."""
        return bisect_left(self._times, horizon, self._start) - self._start

    def drop_oldest(self, count: int) -> None:
        """Forget the first `count` times."""
        self._start += count
        if self._start >= len(self._times):
            self._times = []
            self._start = 0
        elif self._start * 2 > len(self._times):
            del self._times[: self._start]
            self._start = 0

    def drop_newest(self, count: int) -> None:
        """Forget the last `count` times."""
        if count >= len(self):
            self._times = []
            self._start = 0
        elif count:
            del self._times[-count:]
