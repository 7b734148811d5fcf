"""The statistics of a run: latencies, batch sizes and depths, counted as they come."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.lab.models.traffic import AT, KEY, PRIORITY, SIZE
from actorflow.lab.run.histogram import Histogram, Series, step_of, steps_of
from actorflow.lab.run.over_time import InformationAge, OverTime
from actorflow.lab.run.result import QUANTILES, BatchRecord, Result, RunFailed
from actorflow.lab.run.waits import IdleTime, LatencySplit
from actorflow.runtime.errors import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.lab.models.traffic import Message

__all__ = ["RunStatistics", "error_text", "jain"]

_LOGGED = 200_000  # batches that are kept at most
_SETTLE = 8_192  # messages that are noted before they are counted, all at once
_PRIORITIES = 64  # told apart; further ones count with the nearest of these


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


class RunStatistics:
    """Statistics of one run: arrivals, waiting times and batches.

    Single messages are only noted; some thousands are counted together, which is much cheaper.

    Args:
        executors: how many batches may run at once.
        since: latencies, batches and busy time before this moment are a warm-up, and not counted.
        keep: whether to keep every latency and every batch, for `latencies` and `batch_log`.

    """

    def __init__(self, executors: int = 1, *, since: float = 0.0, keep: bool = False) -> None:
        self.arrived = self.processed = self.failed = 0
        self.executors = executors
        self.since = since
        self.latencies: list[tuple[float, float]] | None = [] if keep else None
        """(when it was processed, latency) of each message, in that order, if they are kept."""
        self.batch_log: list[BatchRecord] | None = [] if keep else None
        self.end = 0.0
        """When the last batch ended."""
        self.last = 0.0
        """When the last message arrived."""
        self.idle = IdleTime()
        """When an executor was free. The runs report that."""
        self._busy = 0.0
        self._begin: float | None = None
        self._volume = 0.0
        self._error: BaseException | None = None
        self._batches = self._taken = self._largest = self._deepest = 0
        self._oldest = 0.0
        self._depth, self._sizes = Series(), Series()
        self._by_size: Counter[int] = Counter()
        self._takes: list[tuple[float, int, int]] = []
        self._calls: list[tuple[float, float]] = []
        self._latencies: list[float] = []
        self._arrivals: list[float] = []
        self._keys: list[Any] = []
        self._priorities: list[Any] = []
        self._counts: Counter[Any] = Counter()
        self._totals: defaultdict[Any, float] = defaultdict(float)
        self._by_priority: dict[Any, Histogram] = {}
        self._seen_priorities: set[Any] = set()
        self._split = LatencySplit(step_of)
        self._over_time = OverTime()
        self._age = InformationAge()

    def arrive(self, chunk: Sequence[Message]) -> None:
        """Record messages that have arrived, in order."""
        if self._begin is None:
            self._begin = chunk[0][AT]
        self.arrived += len(chunk)
        self._volume += math.fsum(map(_SIZE, chunk))
        self.last = chunk[-1][AT]
        self._over_time.arrive(list(map(_AT, chunk)))
        if len(self._seen_priorities) <= _PRIORITIES:
            self._seen_priorities.update(map(_PRIORITY, chunk))

    def blame(self, error: BaseException) -> None:
        """Record an error that cost messages; the first one is reported."""
        self._error = self._error or error

    def begin(self, at: float, size: int, held: int) -> None:
        """Record that a batch was taken, and how many messages were accumulated."""
        if at >= self.since:
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
        self._by_size.update(sizes)
        self._sizes.add_many(times, sizes)
        self._depth.add_many(times, depths)
        self._over_time.begin(times, sizes)

    def occupy(self, began: float, done: float) -> None:
        """Record that an executor was busy for some time."""
        self.end = max(self.end, done)
        began = max(began, self.since)
        if done > began:
            self._calls.append((began, done))
            if len(self._calls) >= _SETTLE:
                self._settle_calls()

    def _settle_calls(self) -> None:
        calls, self._calls = self._calls, []
        self._busy += math.fsum(done - began for began, done in calls)
        occupy = self._over_time.occupy
        for began, done in calls:
            occupy(began, done)

    def log_batch(self, record: BatchRecord) -> None:
        """Keep a batch, if batches are kept."""
        if self.batch_log is not None and len(self.batch_log) < _LOGGED:
            self.batch_log.append(record)

    def finish(self, messages: list[Message], began: float, done: float) -> None:
        """Record that messages were processed."""
        self.processed += len(messages)
        if self.since:
            messages = [message for message in messages if message[AT] >= self.since]
        if not messages:
            return
        arrivals = list(map(_AT, messages))
        latencies = [done - at for at in arrivals]
        self._oldest = max(self._oldest, max(latencies) - (done - began))
        self._latencies += latencies
        self._arrivals += arrivals
        self._keys += map(_KEY, messages)
        self._priorities += map(_PRIORITY, messages)
        self._split.add(arrivals, began, done, self.idle)
        if self.latencies is not None:
            self.latencies += [(done, latency) for latency in latencies]
        if len(self._latencies) >= _SETTLE:
            self._settle()

    def _settle(self) -> None:
        latencies, self._latencies = self._latencies, []
        arrivals, self._arrivals = self._arrivals, []
        keys, self._keys = self._keys, []
        priorities, self._priorities = self._priorities, []
        self._counts.update(keys)
        totals = self._totals
        for key, latency in zip(keys, latencies, strict=True):
            totals[key] += latency
        steps = steps_of(latencies)
        self._over_time.finish(arrivals, latencies, steps)
        self._age.add(keys, arrivals, latencies)
        if len(set(priorities)) == 1:
            self._histogram(priorities[0]).add_steps(latencies, steps)
            return
        groups: defaultdict[Any, list[float]] = defaultdict(list)
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

    def _settle_all(self) -> None:
        if self._latencies:
            self._settle()
        if self._takes:
            self._settle_takes()
        if self._calls:
            self._settle_calls()

    def result(
        self,
        *,
        policy: str,
        mode: str,
        seed: int,
        tally: _Tally,
        rejected: int,
        abandoned: int = 0,
        price: float = 0.0,
    ) -> Result:
        """Return the statistics of the finished run.

        Raises:
            RunFailed: nothing was processed, and there was an error.

        """
        self._settle_all()
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
        end = max(self.end, self.last)
        duration = max(end - (self._begin or 0.0), 1e-9)
        counted = max(end - max(self._begin or 0.0, self.since), 1e-9) * self.executors
        gone = tally.replaced + tally.dropped + tally.expired + rejected + self.failed + abandoned
        carried = self.processed + tally.merged
        share = carried / max(self.arrived, 1)
        means = [self._totals[key] / count for key, count in self._counts.items()]
        figures = {
            "latency_mean": latency.mean,
            **{name: latency.quantile(quantile) for name, quantile in QUANTILES.items()},
            "batch_mean": self._taken / self._batches if self._batches else 0.0,
            "busy": self._busy / counted,
        }
        return Result(
            policy=policy,
            mode=mode,
            seed=seed,
            arrived=self.arrived,
            processed=self.processed,
            observed=latency.count,
            duration=duration,
            throughput=carried / duration,
            latency_mean=latency.mean,
            latency=latency.table(),
            split={
                name: self._split.at(quantile, latency.quantile(quantile))
                for name, quantile in QUANTILES.items()
            },
            oldest=self._oldest,
            age=self._age.mean,
            batches=self._batches,
            batch_mean=figures["batch_mean"],
            batch_max=self._largest,
            batch_histogram=dict(sorted(self._by_size.items())),
            executors=self.executors,
            busy=figures["busy"],
            cost=price * self.executors * duration,
            replaced=tally.replaced,
            merged=tally.merged,
            dropped=tally.dropped,
            rejected=rejected,
            expired=tally.expired,
            failed=self.failed,
            abandoned=abandoned,
            unaccounted=max(self.arrived - carried - gone, 0),
            peak_depth=self._deepest,
            memory=self._deepest * self._volume / max(self.arrived, 1),
            fairness=jain(means),
            error=None if error is None else error_text(error),
            warm_up=self.since,
            priorities=self._tables(),
            intervals=self._over_time.intervals(
                figures, since=self.since, until=end, executors=self.executors
            ),
            curve=[(value, part * share) for value, part in latency.curve()],
            depth_series=self._depth.points(),
            batch_series=self._sizes.points(),
            time_series=self._over_time.points(),
            batch_log=self.batch_log or [],
        )

    def _tables(self) -> dict[float, dict[str, float]]:
        """Return the latencies of each priority; messages that were never processed count 0."""
        known = dict(self._by_priority)
        if len(self._seen_priorities) <= _PRIORITIES:
            known |= {each: Histogram() for each in self._seen_priorities if each not in known}
        return {
            float(priority): {"count": histogram.count, **histogram.table()}
            for priority, histogram in sorted(known.items())
        }


_KEY, _PRIORITY, _SIZE = itemgetter(KEY), itemgetter(PRIORITY), itemgetter(SIZE)
_AT = itemgetter(AT)


def error_text(error: BaseException) -> str:
    """Return the kind of an error and what it says, in one line.

    >>> error_text(ValueError("no disk"))
    'ValueError: no disk'
    """
    first = text_of(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def jain(values: Iterable[float]) -> float:
    """Return Jain's fairness index of some values: 1 if all are equal.

    >>> jain([2.0, 2.0]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    numbers = list(values)
    squares = math.fsum(value * value for value in numbers)
    return math.fsum(numbers) ** 2 / (len(numbers) * squares) if squares else 1.0
