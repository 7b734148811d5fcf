"""The books of a run: latencies, batch sizes and depths, counted as they come."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.lab.models.traffic import AT, KEY, PRIORITY, SIZE
from actorflow.lab.run.result import QUANTILES, Result, RunFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.lab.models.traffic import Message

__all__ = ["Histogram", "Ledger", "Series", "error_text", "jain"]

_STEPS = 256  # of the histogram for each factor of e: a resolution of 0.4 %
_LEAST = 1e-9  # seconds; whatever is shorter counts as nothing
_OFFSET = 5_400  # so that the steps of all values from _LEAST on are positive
_SETTLE = 8_192  # messages that are noted before they are counted, all at once
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
        # Not sum: since Python 3.12 it rounds differently, and results would depend on the version.
        self.total += math.fsum(values)
        self.maximum = max(self.maximum, max(values))  # noqa: PLW3301 - one of them is a list
        if min(values) < _LEAST:
            self._counts[0] += sum(value < _LEAST for value in values)
            values = [value for value in values if value >= _LEAST]
        log = math.log
        self._counts.update([int(log(value) * _STEPS + _OFFSET) for value in values])

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
        """Return the curve, including what came since its last point."""
        return [*self._points, self._worst] if self._worst is not None else list(self._points)


class _Tally(Protocol):
    """What a behaviour, or a worker, did with messages before they could be taken."""

    @property
    def replaced(self) -> int: ...
    @property
    def merged(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def expired(self) -> int: ...


class Ledger:
    """Keeps the books of one run: what arrived, who waited how long, in which batches.

    Single messages are only noted; some thousands are counted together, which is much cheaper.
    """

    def __init__(self) -> None:
        self.arrived = self.processed = self.failed = 0
        self.busy = 0.0
        """Seconds that the executor has been busy."""
        self.end = 0.0
        """When the last batch ended."""
        self.last = 0.0
        """When the last message arrived."""
        self._begin: float | None = None
        self._volume = 0.0
        self._error: BaseException | None = None
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
        self._seen_priorities: set[Any] = set()

    def arrive(self, chunk: Sequence[Message]) -> None:
        """Note messages that have arrived, in order."""
        if self._begin is None:
            self._begin = chunk[0][AT]
        self.arrived += len(chunk)
        self._volume += math.fsum(map(_SIZE, chunk))
        self.last = chunk[-1][AT]
        if len(self._seen_priorities) <= _PRIORITIES:
            self._seen_priorities.update(map(_PRIORITY, chunk))

    def blame(self, error: BaseException) -> None:
        """Note an error that cost messages; the first one is reported."""
        self._error = self._error or error

    def begin(self, at: float, size: int, held: int) -> None:
        """Note that a batch was taken, and how many messages were accumulated."""
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

    def result(self, *, policy: str, mode: str, seed: int, tally: _Tally, rejected: int) -> Result:
        """Close the books.

        Raises:
            RunFailed: nothing was processed, and there was an error.

        """
        if self._latencies:
            self._settle()
        if self._takes:
            self._settle_takes()
        error = self._error
        if error is not None and not self.processed:
            msg = (
                f"not one of {self.arrived:,} messages was processed with {policy}; "
                f"the first error: {error_text(error)}"
            )
            raise RunFailed(msg) from error
        latency = Histogram()
        for _, histogram in sorted(self._by_priority.items()):
            latency.add(histogram)
        duration = max(max(self.end, self.last) - (self._begin or 0.0), 1e-9)
        gone = tally.replaced + tally.dropped + tally.expired + rejected + self.failed
        carried = self.processed + tally.merged
        share = carried / max(self.arrived, 1)
        means = [self._totals[key] / count for key, count in self._counts.items()]
        return Result(
            policy=policy,
            mode=mode,
            seed=seed,
            arrived=self.arrived,
            processed=self.processed,
            duration=duration,
            throughput=carried / duration,
            latency_mean=latency.mean,
            latency=latency.table(),
            oldest=self._oldest,
            batches=self._batches,
            batch_mean=self._taken / self._batches if self._batches else 0.0,
            batch_max=self._largest,
            busy=self.busy / duration,
            replaced=tally.replaced,
            merged=tally.merged,
            dropped=tally.dropped,
            rejected=rejected,
            expired=tally.expired,
            failed=self.failed,
            unaccounted=max(self.arrived - carried - gone, 0),
            peak_depth=self._deepest,
            memory=self._deepest * self._volume / max(self.arrived, 1),
            fairness=jain(means),
            error=None if error is None else error_text(error),
            priorities=self._tables(),
            curve=[(value, part * share) for value, part in latency.curve()],
            depth_series=self._depth.points(),
            batch_series=self._sizes.points(),
        )

    def _tables(self) -> dict[float, dict[str, float]]:
        """Return the latencies of each priority; those that were never processed count 0."""
        known = dict(self._by_priority)
        if len(self._seen_priorities) <= _PRIORITIES:
            known |= {each: Histogram() for each in self._seen_priorities if each not in known}
        return {
            float(priority): {"count": histogram.count, **histogram.table()}
            for priority, histogram in sorted(known.items())
        }


_KEY, _PRIORITY, _SIZE = itemgetter(KEY), itemgetter(PRIORITY), itemgetter(SIZE)


def error_text(error: BaseException) -> str:
    """Return the kind of an error and what it says, in one line.

    >>> error_text(ValueError("no disk"))
    'ValueError: no disk'
    """
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def jain(values: Iterable[float]) -> float:
    """Return Jain's fairness index of some values: 1 if all are equal.

    >>> jain([2.0, 2.0]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    numbers = list(values)
    squares = math.fsum(value * value for value in numbers)
    return math.fsum(numbers) ** 2 / (len(numbers) * squares) if squares else 1.0
