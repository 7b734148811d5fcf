"""What a worker can tell about itself: a frozen picture, cheap to take."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WorkerStatistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatistics:
    """A worker at one moment. All counts are since it was spawned.

    `oldest_age` and the latencies are estimates: a plain push is not timed, so the worker looks
    at the clock when it finishes a batch, marks the last message that is there by then, and
    looks again when that one has been processed.
    """

    accepted: int
    """Messages taken in: pushed, and not refused."""
    rejected: int
    """Messages that the behaviour refused: bound reached, or malformed."""
    replaced: int
    """Messages that a newer one with the same key took the place of."""
    dropped: int
    """Messages dropped to make room."""
    expired: int
    """Messages that waited longer than their time to live."""
    discarded: int
    """Messages that were accumulated when the worker ended."""
    processed: int
    """Messages handed to the job in batches that it finished."""
    batches: int
    """Batches handed to the job."""
    batch_sizes: dict[int, int]
    """How many batches had up to 1, 2, 4, 8, ... messages."""
    depth: int
    """Messages that are accumulated now."""
    busy: float
    """Share of the time since the spawn that was spent inside the job."""
    oldest_age: float
    """About how long the oldest accumulated message has waited, in seconds."""
    latency_p50: float | None
    """Half of the sampled messages took at most so long from push to processed, in seconds."""
    latency_p99: float | None
    """99 of 100 of them did."""
    restarts: int = 0
    """How often the executor was started again after a crash."""
    dead_letters: int = 0
    """Messages that could not be processed and were put aside."""
