"""`Limit`: as many batches in flight as the job can take without becoming slower."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from actorflow.behaviours.arguments import choice, count, number
from actorflow.runtime.errors import BadOption

__all__ = ["Limit", "Limiter"]

_EXAMPLE = 'Limit(2, 64, "gradient")'
_MOST = 100_000
_SHARE = 0.5  # how much of a new limit counts
_LEAST_MEASURED = 8  # batches whose mean time counts, at least
_MEASURE_EVERY = 500  # batches from one baseline to the next
_LOWEST = 0.5  # the limit shrinks at most to this share at once
_RISE = 1.1  # a baseline that other batches may have made longer is at most so much above the last


@dataclass(frozen=True, slots=True)
class Limit:
    """Adapt `concurrency` to the latency of the job: between `least` and `most` batches in flight.

    The limit grows while a batch takes about as long as it does with little else in flight, and
    shrinks when batches take longer: then they wait for each other inside the job, in a database
    or behind a connection, and more of them gain nothing. Every 500 batches it is halved for a few
    batches, to measure that baseline anew. Batches should be of about the same size; a `Chunk`
    keeps them so. `worker.statistics().concurrency` is the present limit.

    Args:
        least: the smallest limit, with which it begins.
        most: the largest one.
        by: how it adapts. There is one way, "gradient".
        tolerance: how much longer than the baseline a batch may take, 1.0 or more.

    """

    least: int
    most: int
    by: str = "gradient"
    tolerance: float = 1.2

    def __post_init__(self) -> None:
        """Validate the numbers."""
        count(self.least, "least", _EXAMPLE, error=BadOption)
        count(self.most, "most", _EXAMPLE, least=self.least, most=_MOST, error=BadOption)
        choice(self.by, "by", ("gradient",), error=BadOption)
        number(self.tolerance, "tolerance", _EXAMPLE, least=1.0, error=BadOption)

    def start(self) -> Limiter:
        """Return the limiter of one worker."""
        return Limiter(self)


class Limiter:
    """Learns the limit of one worker. Used under the lock of its pair.

    It goes in rounds of about as many batches as are in flight, because what a new limit does is
    seen only in batches that begin after it. The mean time of a round is compared with a baseline:
    that of a round with half the limit. Where the job has a capacity, the limit settles where
    batches take a little longer than the baseline times the tolerance, which keeps the job busy.
    """

    __slots__ = (
        "_baseline", "_count", "_given", "_is_measuring", "_since", "_size", "_skip", "_sum",
        "parked",
    )  # fmt: skip

    def __init__(self, given: Limit) -> None:
        self._given = given
        self._size = float(given.least)
        self._baseline: float | None = None
        self._is_measuring = True
        self._since = 0
        self._skip = 0
        self._sum = 0.0
        self._count = 0
        self.parked: list[Any] = []
        """Slots that get no work, because the limit is lower than the number of slots."""

    @property
    def limit(self) -> int:
        """How many batches may be in flight now."""
        if self._is_measuring:
            return max(int(self._size / 2), self._given.least)
        return int(self._size)

    def finished(self, took: float, active: int, free: list[Any] | None) -> None:
        """Learn from a batch that was processed, and park or release slots."""
        self.note(took, active)
        if free is not None:
            self.balance(free, active)

    def note(self, took: float, active: int) -> None:
        """Learn from a batch that took so long, when `active` batches were in flight."""
        if self._skip > 0:  # it has begun before the limit was changed
            self._skip -= 1
            return
        self._sum += took
        self._count += 1
        self._since += 1
        if self._count < max(_LEAST_MEASURED, self.limit):
            return
        mean = self._sum / self._count
        self._sum, self._count, self._skip = 0.0, 0, active
        if self._is_measuring:
            self._set_baseline(mean)
        elif self._since >= _MEASURE_EVERY:
            self._is_measuring = True
        elif 2 * active >= self._size:  # else too few are in flight to say anything
            self._adapt(mean)

    def _set_baseline(self, mean: float) -> None:
        if self._baseline is not None and self.limit > self._given.least:
            mean = min(mean, _RISE * self._baseline)
        self._baseline = mean
        self._is_measuring = False
        self._since = 0

    def _adapt(self, mean: float) -> None:
        """Change the limit after a round."""
        expected = (self._baseline or mean) * self._given.tolerance
        gradient = max(_LOWEST, min(1.0, expected / max(mean, 1e-9)))
        wanted = self._size * gradient + math.sqrt(self._size)
        size = self._size + _SHARE * (wanted - self._size)
        self._size = min(max(size, float(self._given.least)), float(self._given.most))

    def balance(self, free: list[Any], active: int) -> None:
        """Park free slots, or release parked ones, so that as many are in use as the limit says."""
        wanted = max(self.limit - active, 0)
        while len(free) > wanted:
            self.parked.append(free.pop())
        while len(free) < wanted and self.parked:
            free.append(self.parked.pop())

    def reset(self, free: list[Any]) -> None:
        """Begin with all slots free, after the executor was cut off."""
        self.parked.clear()
        self.balance(free, 0)
