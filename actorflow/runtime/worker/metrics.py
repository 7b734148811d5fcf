"""What a worker says about itself: counts that add up, and times that are estimated fairly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actorflow.runtime.worker.pair.accumulator import Accumulator
    from behaviours.base import Reason

__all__ = ["Backlog", "Timing", "WorkerStatistics", "statistics"]

_KEPT = 256  # batches whose times are kept
_WIDTH = 5  # entries for each of them: its size, and four moments
_LENGTH = _KEPT * _WIDTH
_GROUPS = 64  # messages of a backlog that arrived between two batches count as a group
_POINTS = 8  # places within a batch at which its messages are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatistics:
    """A worker at one moment. All counts are since it was spawned.

    They add up at every moment: `accepted = processed + failed + replaced + merged + dropped +
    expired + dead_lettered + held + in_flight`.

    Times are estimates, because a plain push is not timed. The worker knows when it was woken and
    when it emptied its inbox; messages are taken to have arrived evenly between two such moments.
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
    dead_lettered: int
    """Messages that became dead letters."""
    held: int
    """Messages that are accumulated now."""
    in_flight: int
    """Messages in the hands of the job now."""
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


class Timing:
    """What a pair measures, batch by batch. Changed under the pair's lock."""

    __slots__ = ("_oldest", "_samples", "_sizes", "busy", "reasons")

    def __init__(self) -> None:
        self.busy = 0.0
        self.reasons: dict[Reason, int] = {}
        """Batches by why they left, apart from those that left because the executor was idle."""
        self._sizes: dict[int, int] = {}
        # A ring in a flat list, five entries for each batch: an empty deque takes 600 bytes, and
        # a tuple for each batch would make the garbage collector walk all that was kept.
        self._samples: list[float] = []
        self._oldest = 0

    def finished(
        self, number: int, size: int, span: tuple[float, float, float], end: float
    ) -> None:
        """Note a batch that was processed. After the first few, every eighth one is sampled."""
        low, high, begun = span
        self.busy += end - begun
        sizes = self._sizes
        bits = (size - 1).bit_length() if size > 1 else 0
        sizes[bits] = sizes.get(bits, 0) + 1
        if number < _KEPT or not number & 7:
            samples = self._samples  # changed by one C call: `quantiles` takes no lock
            if len(samples) < _LENGTH:
                samples.extend((size, low, high, begun, end))
            else:
                at = self._oldest
                samples[at : at + _WIDTH] = (size, low, high, begun, end)
                self._oldest = (at + _WIDTH) % _LENGTH

    def count_reason(self, reason: Reason) -> None:
        """Note why a batch left."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def sizes(self) -> dict[int, int]:
        """Return how many batches had up to 1, 2, 4, ... messages."""
        return {1 << bits: count for bits, count in sorted(self._sizes.items())}

    def quantiles(self) -> tuple[float | None, ...]:
        """Return p50 and p99 of latency, wait and service, by message."""
        waits: list[tuple[float, float]] = []
        latencies: list[tuple[float, float]] = []
        services: list[tuple[float, float]] = []
        flat = iter(self._samples[:])
        for size, low, high, begun, end in zip(flat, flat, flat, flat, flat, strict=True):
            points = _POINTS if high > low else 1  # a single one may have come at any moment
            weight = size / points
            services.append((end - begun, size))
            for point in range(points):
                arrived = high - (high - low) * (point + 0.5) / points
                waits.append((max(begun - arrived, 0.0), weight))
                latencies.append((end - arrived, weight))
        return (*_quantiles(latencies), *_quantiles(waits), *_quantiles(services))


class Backlog:
    """When the messages arrived that small batches have left behind, in the order of arrival."""

    __slots__ = ("_arrivals", "_held")

    def __init__(self) -> None:
        self._arrivals: list[tuple[int, float, float]] = []  # how many, between two moments
        self._held = 0

    def span(self, size: int, rest: int, low: float, high: float) -> tuple[float, float]:
        """Return between which moments the messages of a batch arrived. O(1) amortised.

        Args:
            size: how many they are.
            rest: how many are left.
            low: when the batch before was taken.
            high: when the last of those that came since then can have arrived.

        """
        fresh = size + rest - self._held
        self._held = rest
        if fresh > 0:
            self._arrivals.append((fresh, low, high))
        begin = end = None
        while self._arrivals and size > 0:
            count, low, high = self._arrivals.pop(0)
            begin = low if begin is None else begin
            end = low + (high - low) * min(size / count, 1.0)
            if count > size:
                self._arrivals.insert(0, (count - size, end, high))
            size -= count
        if len(self._arrivals) > _GROUPS:
            self._merge()
        return (low if begin is None else begin), (high if end is None else end)

    def _merge(self) -> None:
        """Make one group of each two."""
        groups = self._arrivals
        odd = groups[len(groups) & ~1 :]
        pairs = zip(groups[::2], groups[1::2], strict=False)
        self._arrivals = [(m + n, low, high) for (m, low, _), (n, _, high) in pairs] + odd


def _quantiles(weighted: list[tuple[float, float]]) -> tuple[float | None, float | None]:
    if not weighted:
        return None, None
    weighted.sort()
    total = sum(weight for _, weight in weighted)
    return _at(weighted, 0.5 * total), _at(weighted, 0.99 * total)


def _at(weighted: Iterable[tuple[float, float]], rank: float) -> float:
    last = seen = 0.0
    for value, weight in weighted:
        last = value
        seen += weight
        if seen >= rank:
            break
    return last


def statistics(pair: Accumulator) -> WorkerStatistics:
    """Return a picture of a pair. O(1), without stopping the job."""
    now = pair.settings.clock.now()
    core, life = pair.core, pair.life
    pair._refuse_own_functions()
    with pair.lock:
        ahead = pair._ahead()  # first: messages may arrive meanwhile, but none leaves
        counts = core.counts()
        timing = pair._timing
        since = max(pair._since, core.oldest_at) if len(core.behaviour) else pair._since
        batches, restarts = core.batches, life.restarts
        books = (core.processed, core.failed, core.dead_lettered, core.in_flight)
        reasons = dict(timing.reasons) if timing is not None else {}
    processed, failed, dead_lettered, in_flight = books
    held = counts.held - ahead
    by_reason = {reason.value: count for reason, count in reasons.items()}
    idle = batches + bool(ahead) - sum(reasons.values())
    if idle > 0:
        by_reason["idle"] = idle
    times = (None,) * 6 if timing is None else timing.quantiles()
    return WorkerStatistics(
        accepted=counts.accepted,
        rejected=counts.rejected,
        processed=processed,
        failed=failed,
        replaced=counts.replaced,
        merged=counts.merged,
        dropped=counts.dropped,
        expired=counts.expired,
        dead_lettered=dead_lettered,
        held=held,
        in_flight=in_flight + ahead,
        batches=batches + bool(ahead),
        batch_sizes={} if timing is None else timing.sizes(),
        reasons=by_reason,
        busy=(0.0 if timing is None else timing.busy) / max(now - pair._spawned, 1e-9),
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
