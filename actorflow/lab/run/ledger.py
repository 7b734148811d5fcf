"""The books of a run: latencies, batch sizes and depths, counted as they come."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.traffic import AT, KEY, PRIORITY
from actorflow.lab.run.result import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.lab.models.traffic import Message

__all__ = ["Histogram", "Ledger", "Series", "jain"]

_STEPS = 256  # of the histogram for each factor of e: a resolution of 0.4 %
_LEAST = 1e-9  # seconds; whatever is shorter counts as nothing
_OFFSET = 5_400  # so that the steps of all values from _LEAST on are positive
_SETTLE = 8_192  # messages after which they are counted, all at once
_PRIORITIES = 64  # told apart; further ones count with the nearest of these


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
        if not values:
            return
        self.count += len(values)
        # Not sum: since Python 3.12 it rounds in another way, and results would differ.
        self.total += math.fsum(values)
        self.maximum = max(self.maximum, max(values))  # noqa: PLW3301 - one of them is a list
        if min(values) < _LEAST:
            self._counts[0] += sum(value < _LEAST for value in values)
            values = [value for value in values if value >= _LEAST]
        log = math.log
        self._counts.update([int(log(value) * _STEPS + _OFFSET) for value in values])

    def add(self, other: Histogram) -> None:
        """Count what another one has counted."""
        self._counts.update(other._counts)
        self.count += other.count
        self.total += other.total
        self.maximum = max(self.maximum, other.maximum)

    @property
    def mean(self) -> float:
        """The exact mean."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Give the value that this share of the values does not exceed."""
        wanted = share * self.count
        seen = 0
        for step in sorted(self._counts):
            seen += self._counts[step]
            if seen >= wanted:
                return min(_middle(step), self.maximum)
        return self.maximum

    def table(self) -> dict[str, float]:
        """Give the percentiles that every result has, and the maximum."""
        table = {name: self.quantile(share) for name, share in QUANTILES.items()}
        return {**table, "max": self.maximum}

    def curve(self) -> list[tuple[float, float]]:
        """Give the cumulative distribution: (value, share of values up to it)."""
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
        """Note values. O(1) amortised each."""
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
        """End a stretch; with too many of them, make one of two."""
        if self._worst is not None:
            self._points.append(self._worst)
        self._worst = None
        self._skip = 0
        if len(self._points) >= self._limit:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [max(pair, key=itemgetter(1)) for pair in pairs]
            self._stretch *= 2

    def points(self) -> list[tuple[float, float]]:
        """Give the curve, with what has come since its last point."""
        return [*self._points, self._worst] if self._worst is not None else list(self._points)


class Ledger:
    """Keeps the books of one run: who waited how long, in which batches.

    Single messages are only noted; some thousands are counted together, which is much cheaper.
    """

    def __init__(self) -> None:
        self.processed = self.failed = 0
        self.busy = 0.0
        self._batches = self._taken = self._largest = self._deepest = 0
        self._oldest = 0.0
        self._depth, self._sizes = Series(), Series()
        self._takes: list[tuple[float, int, int]] = []
        self._latencies: list[float] = []
        self._keys: list[Any] = []
        self._priorities: list[Any] = []
        self._counts: Counter[Any] = Counter()
        self._totals: defaultdict[Any, float] = defaultdict(float)
        self._by_priority: dict[Any, Histogram] = {}

    def begin(self, at: float, size: int, held: int) -> None:
        """Note that a batch was taken, out of so many messages."""
        self._takes.append((at, size, held))
        if len(self._takes) >= _SETTLE:
            self._settle_takes()

    def _settle_takes(self) -> None:
        takes, self._takes = self._takes, []
        times, sizes, depths = zip(*takes, strict=True)
        self._batches += len(takes)
        self._taken += sum(sizes)
        self._largest = max(self._largest, *sizes)
        self._deepest = max(self._deepest, *depths)
        self._sizes.add_many(times, sizes)
        self._depth.add_many(times, depths)

    def finish(self, messages: list[Message], began: float, done: float) -> None:
        """Note that messages were processed."""
        latencies = [done - message[AT] for message in messages]
        self.processed += len(latencies)
        waited = max(latencies) - (done - began) if latencies else 0.0
        self._oldest = max(self._oldest, waited)
        self._latencies += latencies
        self._keys += map(_KEY, messages)
        self._priorities += map(_PRIORITY, messages)
        if len(self._latencies) >= _SETTLE:
            self._settle()

    def _settle(self) -> None:
        latencies, self._latencies = self._latencies, []
        keys, self._keys = self._keys, []
        priorities, self._priorities = self._priorities, []
        self._counts.update(keys)
        totals = self._totals
        for key, latency in zip(keys, latencies, strict=True):
            totals[key] += latency
        groups: defaultdict[Any, list[float]] = defaultdict(list)
        if len(set(priorities)) == 1:
            groups[priorities[0]] = latencies
        else:
            for priority, latency in zip(priorities, latencies, strict=True):
                groups[priority].append(latency)
        for priority, some in groups.items():
            self._histogram(priority).add_many(some)

    def _histogram(self, priority: Any) -> Histogram:
        known = self._by_priority
        if priority not in known:
            if len(known) >= _PRIORITIES:
                return known[min(known, key=lambda other: (abs(other - priority), other))]
            known[priority] = Histogram()
        return known[priority]

    def figures(self) -> dict[str, Any]:
        """Give the fields of a result that come from here."""
        if self._latencies:
            self._settle()
        if self._takes:
            self._settle_takes()
        latency = Histogram()
        for _, histogram in sorted(self._by_priority.items()):
            latency.add(histogram)
        means = [self._totals[key] / count for key, count in self._counts.items()]
        return {
            "processed": self.processed,
            "failed": self.failed,
            "latency_mean": latency.mean,
            "latency": latency.table(),
            "oldest": self._oldest,
            "batches": self._batches,
            "batch_mean": self._taken / self._batches if self._batches else 0.0,
            "batch_max": self._largest,
            "peak_depth": self._deepest,
            "fairness": jain(means),
            "priorities": {
                float(priority): {"count": histogram.count, **histogram.table()}
                for priority, histogram in sorted(self._by_priority.items())
            },
            "curve": latency.curve(),
            "depth_series": self._depth.points(),
            "batch_series": self._sizes.points(),
        }


_KEY, _PRIORITY = itemgetter(KEY), itemgetter(PRIORITY)


def jain(values: Iterable[float]) -> float:
    """Give Jain's fairness index of some values: 1 if all are equal.

    >>> jain([2.0, 2.0]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    numbers = list(values)
    squares = math.fsum(value * value for value in numbers)
    return math.fsum(numbers) ** 2 / (len(numbers) * squares) if squares else 1.0
