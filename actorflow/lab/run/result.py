"""The result of one policy, and which results are beaten by others in everything that counts."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.lab.run.intervals import samples_needed
from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["QUANTILES", "BatchRecord", "Result", "RunFailed", "dominated"]

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
"""The percentiles that every result has."""


class BatchRecord(NamedTuple):
    """One call of the job."""

    executor: int
    began: float
    done: float
    size: int
    reason: str
    """Why the batch left."""
    oldest: float
    """When its oldest message arrived."""


class RunFailed(ActorflowError):
    """Not one message was processed because of an error, which is the `__cause__`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one policy did with one traffic. Times in seconds.

    A message is *carried* if it was processed, or merged into one that was. Replaced and lost
    messages were not carried. Latencies are those of the processed messages.
    """

    policy: str
    mode: str
    """`simulate` or `measure`."""
    seed: int
    arrived: int
    processed: int
    observed: int = 0
    """Messages whose latency was counted: those processed, less the warm-up."""
    duration: float
    """From the first arrival to the end of the last batch."""
    throughput: float
    """Messages carried per second."""
    latency_mean: float
    latency: dict[str, float]
    """p50, p90, p99, p99.9 and max, from push to processed."""
    split: dict[str, dict[str, float]] = field(default_factory=dict)
    """For each percentile, what the messages about it waited for: `batch`, while an executor was
    free; `executor`, while none was; and `service`."""
    oldest: float
    """The longest that a processed message waited before its batch began."""
    age: float | None = None
    """The age of information: of the newest processed message of each key, averaged over time."""
    batches: int
    batch_mean: float
    batch_max: int
    batch_histogram: dict[int, int] = field(default_factory=dict)
    """How many batches had each size."""
    executors: int = 1
    busy: float
    """Share of the time that the executors were busy."""
    cost: float = 0.0
    """The price of the executors for the whole run, busy or not."""
    replaced: int
    merged: int
    dropped: int
    rejected: int
    expired: int
    failed: int
    """Messages of batches on which the job failed."""
    abandoned: int = 0
    """Messages that were not processed, because their client had stopped waiting."""
    unaccounted: int = 0
    """Messages that the behaviour still held at the end, or discarded without reporting it."""
    peak_depth: int
    """The most messages that were accumulated at once."""
    memory: float
    """An estimate of how much that was: the depth times the mean size of a message."""
    fairness: float
    """Jain's index of the mean latencies of the processed keys: 1 is fair, 1/keys is not."""
    error: str | None = None
    """The first error of the job or the behaviour, if there was one."""
    runs: int = 1
    """How many runs it is the mean of. Counts are means as well."""
    warm_up: float = 0.0
    """Seconds at the start that latencies, batches and busy time leave out."""
    steady: bool | None = None
    """Whether the run reached a steady state; `None` if nobody looked."""
    lag: float | None = None
    """For measurements: how late the generator was at most, as a share of the traffic's length."""
    verdicts: dict[str, str] = field(default_factory=dict)
    """For measurements with goals: `pass`, `fail` or `undecided`."""
    clients: dict[str, float] = field(default_factory=dict)
    """For `clients(...)`: requests, answered, refused, timeouts, retries, gave_up, p50, p99."""
    priorities: dict[float, dict[str, float]] = field(default_factory=dict)
    """The latencies of each priority, and `count`: how many of its messages were processed."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """95 % confidence intervals: from repetitions, or from how sections of one run differ.

    Figures for which there is too little data have none.
    """
    curve: list[tuple[float, float]] = field(default_factory=list)
    """The distribution of the latency: (seconds, share of all messages carried within them).

    It ends at the share that was carried at all. A merged message counts with the one that it was
    merged into.
    """
    depth_series: list[tuple[float, float]] = field(default_factory=list)
    """How many were accumulated, over time: just before each batch left."""
    batch_series: list[tuple[float, float]] = field(default_factory=list)
    """How large the batches were, over time."""
    time_series: list[tuple[float, int, float, float, float]] = field(default_factory=list)
    """(from, arrived, share processed, p50, p99) of the messages that arrived in a stretch."""
    batch_log: list[BatchRecord] = field(default_factory=list)
    """Every batch, if the run was asked to keep them."""

    @property
    def lost(self) -> int:
        """Messages that were pushed and never processed, apart from replaced and merged ones."""
        return (
            self.dropped
            + self.rejected
            + self.expired
            + self.failed
            + self.abandoned
            + self.unaccounted
        )

    @property
    def carried(self) -> float:
        """The share of the messages that were carried."""
        return (self.processed + self.merged) / self.arrived if self.arrived else 1.0

    @property
    def intact(self) -> float:
        """The share of the messages that were processed as themselves, neither merged nor lost."""
        return self.processed / self.arrived if self.arrived else 1.0

    def needed(self, percentile: str) -> int:
        """Return how many messages a percentile needs, or 0 if there are as many."""
        needed = samples_needed(QUANTILES[percentile]) if percentile in QUANTILES else 1
        return 0 if self.observed >= needed else needed

    def within(self, seconds: float) -> float:
        """Return the share of all messages that was carried within this time.

        Lost and replaced messages are misses. To the resolution of the histogram, 0.4 %.
        """
        place = bisect_right(self.curve, seconds * (1 + 1 / 512), key=itemgetter(0))
        return self.curve[place - 1][1] if place else 0.0

    def goodput(self, seconds: float) -> float:
        """Return how many messages per second were carried within this time."""
        return self.within(seconds) * self.arrived / self.duration

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        found = asdict(self)
        found["latency"] = {
            name: None if self.needed(name) else value for name, value in self.latency.items()
        }
        return {**found, "lost": self.lost, "carried": self.carried}


_CLOSE = 0.005  # figures that differ by less are the same


def dominated(results: Sequence[Result]) -> set[str]:
    """Return the policies that another one dominates.

    To dominate is to carry at least as many messages, to process at least as many unmerged, to be
    as good in throughput, p99 and executor time, and better in one of all these. So a policy that
    drops, replaces or merges messages never dominates one that processes each of them.
    """
    return {
        result.policy
        for result in results
        if any(_dominates(other, result) for other in results if other is not result)
    }


def _dominates(one: Result, other: Result) -> bool:
    # Each pair is (how good, how good), the higher the better, and how close counts as the same.
    # Shares of messages are compared exactly: one message lost is a loss.
    criteria = [
        (one.carried, other.carried, 0.0),
        (one.intact, other.intact, 0.0),
        (one.throughput, other.throughput, other.throughput * _CLOSE),
        (-one.latency["p99"], -other.latency["p99"], other.latency["p99"] * _CLOSE),
        (-one.busy, -other.busy, _CLOSE),
    ]
    if not one.processed:
        return False  # a latency of nothing is no latency
    return all(mine >= yours - close for mine, yours, close in criteria) and any(
        mine > yours + close for mine, yours, close in criteria
    )
