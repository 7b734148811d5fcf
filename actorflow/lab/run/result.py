"""What a run found out about one policy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from actorflow.runtime.errors import ActorflowError

__all__ = ["QUANTILES", "Result", "RunFailed"]

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
"""The percentiles that every result has."""


class RunFailed(ActorflowError):
    """Not one message was processed because of an error, which is the `__cause__`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one policy did with one traffic. Times in seconds.

    A message is *carried* if it was processed, or merged into one that was. What was replaced was
    not carried, and neither was what was lost. Latencies are those of the processed messages.
    """

    policy: str
    mode: str
    """`simulate` or `measure`."""
    seed: int
    arrived: int
    processed: int
    duration: float
    """From the first arrival to the end of the last batch."""
    throughput: float
    """Messages carried per second."""
    latency_mean: float
    latency: dict[str, float]
    """p50, p90, p99, p99.9 and max, from push to processed."""
    oldest: float
    """The longest that a processed message waited before its batch began."""
    batches: int
    batch_mean: float
    batch_max: int
    busy: float
    """Share of the time that the executor was busy."""
    replaced: int
    merged: int
    dropped: int
    rejected: int
    expired: int
    failed: int
    """Messages of batches on which the job failed."""
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
    priorities: dict[float, dict[str, float]] = field(default_factory=dict)
    """The latencies of each priority, and `count`: how many of its messages were processed."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """For repeated measurements: 95 % confidence intervals."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    """The distribution of the latency: (seconds, share of all messages carried within them).

    It ends at the share that was carried at all. A merged message counts with the one that it was
    merged into.
    """
    depth_series: list[tuple[float, float]] = field(default_factory=list)
    """How many were accumulated, over time: just before each batch left."""
    batch_series: list[tuple[float, float]] = field(default_factory=list)
    """How large the batches were, over time."""

    @property
    def lost(self) -> int:
        """Messages that were pushed and never processed, apart from replaced and merged ones."""
        return self.dropped + self.rejected + self.expired + self.failed + self.unaccounted

    @property
    def carried(self) -> float:
        """The share of the messages that were carried."""
        return (self.processed + self.merged) / self.arrived if self.arrived else 1.0

    @property
    def intact(self) -> float:
        """The share of the messages that were processed as themselves, neither merged nor lost."""
        return self.processed / self.arrived if self.arrived else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {**asdict(self), "lost": self.lost, "carried": self.carried}
