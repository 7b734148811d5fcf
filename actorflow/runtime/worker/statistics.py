"""What a worker says about itself: counts that add up, and times that are estimated fairly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.accumulator import Accumulator

__all__ = ["WorkerStatistics", "statistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatistics:
    """A worker at one moment. All counts are since it was spawned.

    They add up at every moment: `accepted = processed + failed + replaced + merged + dropped +
    expired + abandoned + dead_lettered + held + in_flight`.

    Times are estimates, because a plain push is not timed. The worker knows when it was woken and
    when it emptied its inbox; messages are taken to have arrived evenly between two such moments.
    Where the behaviour lets messages overtake each other in batches that it limits (`Stack` in a
    `Chunk`), or lets them expire, latency and wait are those of a sample: of the first 16 messages
    and then of about one in eight, the last 1,024 that were processed.
    """

    accepted: int
    """Messages taken in: pushed, and not refused."""
    rejected: int
    """Messages that the behaviour refused: bound reached, or malformed."""
    processed: int
    """Messages handed to the job in batches that it finished."""
    failed: int
    """Messages in batches that the job failed, or that were cut off."""
    replaced: int
    """Messages that a newer one with the same key took the place of."""
    merged: int
    """Messages that were merged into another one."""
    dropped: int
    """Messages dropped to make room, or because the worker ended before their turn."""
    expired: int
    """Messages that waited longer than their time to live."""
    abandoned: int
    """Messages that were withdrawn, because the callers of `ask` had given up."""
    dead_lettered: int
    """Messages that became dead letters."""
    held: int
    """Messages that are accumulated now."""
    in_flight: int
    """Messages in the hands of the job now."""
    concurrency: int
    """How many batches may be in flight now. It changes where `concurrency` is a `Limit`."""
    batches: int
    """Batches handed to the job."""
    batch_sizes: dict[int, int]
    """How many finished batches had up to 1, 2, 4, 8, ... messages."""
    reasons: dict[str, int]
    """How many batches left for which reason: `idle`, `size`, `time`, ..."""
    busy: float
    """Share of the time since the spawn that was spent inside the job."""
    oldest_age: float
    """About how long the oldest accumulated message has waited, in seconds."""
    latency_p50: float | None
    """Half of the messages took at most so long from push to the end of their batch, in seconds."""
    latency_p99: float | None
    """99 of 100 of them did."""
    wait_p50: float | None
    """The same, from push to the beginning of the batch."""
    wait_p99: float | None
    service_p50: float | None
    """The same, from the beginning of the batch to its end."""
    service_p99: float | None
    restarts: int
    """How often the executor was started again after a crash."""
    dead_letters: int
    """Dead letters that there are now."""


def statistics(pair: Accumulator) -> WorkerStatistics:
    """Return a picture of a pair, without stopping the job. O(1), unless callers have given up."""
    now = pair.settings.clock.now()
    core, life = pair.core, pair.lifecycle
    pair.refuse_own_functions()
    pair.withdraw_abandoned()
    with pair.lock:
        ahead = pair.ahead()  # first: messages may arrive meanwhile, but none leaves
        counts = core.counts()
        timing = pair.timing
        since = (
            max(pair.waiting_since, core.oldest_at) if len(core.behaviour) else pair.waiting_since
        )
        batches, restarts = core.batches, life.restarts
        totals = (core.processed, core.failed, core.dead_lettered, core.in_flight)
        reasons = dict(timing.reasons) if timing is not None else {}
        limiter = pair.limiter
        concurrency = pair.settings.concurrency if limiter is None else limiter.limit
    processed, failed, dead_lettered, in_flight = totals
    held = counts.held - ahead
    by_reason = {reason.value: count for reason, count in reasons.items()}
    idle = batches + bool(ahead) - sum(reasons.values())
    if idle > 0:
        by_reason["idle"] = idle
    times = (None,) * 6 if timing is None else timing.quantiles(core.sampler)
    return WorkerStatistics(
        accepted=counts.accepted,
        rejected=counts.rejected,
        processed=processed,
        failed=failed,
        replaced=counts.replaced,
        merged=counts.merged,
        dropped=counts.dropped,
        expired=counts.expired,
        abandoned=counts.abandoned,
        dead_lettered=dead_lettered,
        held=held,
        in_flight=in_flight + ahead,
        concurrency=concurrency,
        batches=batches + bool(ahead),
        batch_sizes={} if timing is None else timing.sizes(),
        reasons=by_reason,
        busy=(0.0 if timing is None else timing.busy) / max(now - pair.spawned, 1e-9),
        oldest_age=max(now - since, 0.0) if held else 0.0,
        latency_p50=times[0],
        latency_p99=times[1],
        wait_p50=times[2],
        wait_p99=times[3],
        service_p50=times[4],
        service_p99=times[5],
        restarts=restarts,
        dead_letters=life.dead_letter_count,
    )
