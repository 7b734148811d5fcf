"""Histograms and curves that stay small however long a run is."""

from __future__ import annotations

import math
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Self

from actorflow.lab.run.result import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Histogram", "Series", "step_of", "steps_of"]

_STEPS = 256  # of the histogram for each factor of e: a resolution of 0.4 %
_LEAST = 1e-9  # seconds; whatever is shorter counts as nothing
_OFFSET = 5_400  # so that the steps of all values from _LEAST on are positive


def step_of(value: float) -> int:
    """Return the step of a value; 0 for what counts as nothing."""
    return int(math.log(value) * _STEPS + _OFFSET) if value >= _LEAST else 0


def steps_of(values: Sequence[float]) -> list[int]:
    """Return the steps of many values. O(1) each, most of it in C."""
    log = math.log
    if min(values) < _LEAST:
        return [step_of(value) for value in values]
    return [int(log(value) * _STEPS + _OFFSET) for value in values]


class Histogram:
    """Counts of positive values in steps of 0.4 %: percentiles of any number of them, in O(1).

    >>> histogram = Histogram()
    >>> histogram.add_many([0.001] * 99 + [1.0])
    >>> round(histogram.quantile(0.5), 4), round(histogram.quantile(1.0), 2)
    (0.001, 1.0)
    """

    __slots__ = ("_counts", "count", "maximum", "total")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0

    def add_many(self, values: Sequence[float]) -> None:
        """Count values. O(1) each, most of it in C."""
        if values:
            self.add_steps(values, steps_of(values))

    @classmethod
    def of(cls, steps: Mapping[int, int]) -> Self:
        """Return a histogram of counted steps; its mean and maximum are as exact as they are."""
        made = cls()
        made._counts.update(steps)
        made.count = sum(steps.values())
        made.total = math.fsum(_middle(step) * count for step, count in steps.items())
        made.maximum = _middle(max(steps)) if steps else 0.0
        return made

    def add_steps(self, values: Sequence[float], steps: Iterable[int]) -> None:
        """Count values whose steps are known."""
        self.count += len(values)
        # Not sum: since Python 3.12 it rounds differently, and results would depend on the version.
        self.total += math.fsum(values)
        self.maximum = max(self.maximum, max(values))  # noqa: PLW3301 - one of them is a list
        self._counts.update(steps)

    def add(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        self._counts.update(other._counts)
        self.count += other.count
        self.total += other.total
        self.maximum = max(self.maximum, other.maximum)

    @property
    def mean(self) -> float:
        """The exact mean."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Return the value that this share of the values does not exceed."""
        wanted = share * self.count
        seen = 0
        for step in sorted(self._counts):
            seen += self._counts[step]
            if seen >= wanted:
                return min(_middle(step), self.maximum)
        return self.maximum

    def above(self, value: float) -> int:
        """Return how many values are greater, to the resolution of the steps."""
        step = step_of(value)
        return sum(count for each, count in self._counts.items() if each > step)

    def table(self) -> dict[str, float]:
        """Return the percentiles that every result has, and the maximum."""
        table = {name: self.quantile(share) for name, share in QUANTILES.items()}
        return {**table, "max": self.maximum}

    def curve(self) -> list[tuple[float, float]]:
        """Return the cumulative distribution: (value, share of values up to it)."""
        seen = 0
        points = []
        for step in sorted(self._counts):
            seen += self._counts[step]
            points.append((min(_middle(step), self.maximum), seen / self.count))
        return points


def _middle(step: int) -> float:
    return math.exp((step - _OFFSET + 0.5) / _STEPS) if step else 0.0


class Series:
    """A curve over time, thinned as it grows: of each stretch the largest value is kept.

    >>> series = Series(limit=4)
    >>> series.add_many(range(6), [0, 1, 2, 0, 1, 2])
    >>> series.points()
    [(1, 1), (2, 2), (5, 2)]
    """

    __slots__ = ("_limit", "_points", "_skip", "_stretch", "_worst")

    def __init__(self, limit: int = 2_000) -> None:
        self._points: list[tuple[float, float]] = []
        self._limit = limit
        self._stretch = 1
        self._skip = 0
        self._worst: tuple[float, float] | None = None

    def add_many(self, times: Sequence[float], values: Sequence[float]) -> None:
        """Add values. O(1) amortised each."""
        at, count = 0, len(times)
        while at < count:
            upto = min(at + self._stretch - self._skip, count)
            best = max(range(at, upto), key=values.__getitem__) if upto - at > 1 else at
            if self._worst is None or values[best] > self._worst[1]:
                self._worst = (times[best], values[best])
            self._skip += upto - at
            at = upto
            if self._skip == self._stretch:
                self._keep()

    def _keep(self) -> None:
        """End a stretch; when there are too many, join them in pairs."""
        if self._worst is not None:
            self._points.append(self._worst)
        self._worst = None
        self._skip = 0
        if len(self._points) >= self._limit:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [max(pair, key=itemgetter(1)) for pair in pairs]
            self._stretch *= 2

    def points(self) -> list[tuple[float, float]]:
        """Return the curve, including the values since its last point."""
        return [*self._points, self._worst] if self._worst is not None else list(self._points)
