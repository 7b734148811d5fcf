"""What a run found out about one policy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["QUANTILES", "Result"]

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
"""The percentiles that every result has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One policy under one traffic. Times in seconds."""

    policy: str
    mode: str
    """`simulate` or `measure`."""
    seed: int
    arrived: int
    processed: int
    duration: float
    """From the first arrival to the end of the last batch."""
    throughput: float
    """Messages settled per second: processed, or replaced by or merged into one that was."""
    latency_mean: float
    latency: dict[str, float]
    """p50, p90, p99, p99.9 and max, from push to processed."""
    oldest: float
    """The longest that any message waited before its batch began."""
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
    peak_depth: int
    """The most messages that were accumulated at once."""
    memory: float
    """About how much that was: the depth times the mean size of a message."""
    fairness: float
    """Jain's index of the mean latencies of the keys: 1 is fair, 1/keys is not."""
    priorities: dict[float, dict[str, float]] = field(default_factory=dict)
    """The latencies of each priority, with how many messages had it."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """For repeated measurements: 95 % confidence intervals."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    """The cumulative distribution of the latency."""
    depth_series: list[tuple[float, float]] = field(default_factory=list)
    """How many were accumulated, over time: just before each batch left."""
    batch_series: list[tuple[float, float]] = field(default_factory=list)
    """How large the batches were, over time."""

    @property
    def lost(self) -> int:
        """Messages that were pushed and will never be processed, replaced ones aside."""
        return self.dropped + self.rejected + self.expired + self.failed

    def as_dict(self) -> dict[str, Any]:
        """Give it as plain data, for JSON."""
        return {**asdict(self), "lost": self.lost}
