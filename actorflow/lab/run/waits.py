"""Where latency comes from: waiting for the batch, waiting for an executor, and service.

A message waits *for the batch* while an executor is free and the policy holds the message back;
it waits *for an executor* while none is free. The rest is the call of the job.
"""

from __future__ import annotations

from bisect import bisect_right
from math import fsum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["PARTS", "IdleTime", "LatencySplit"]

PARTS = ("batch", "executor", "service")
"""What a latency is made of."""
_SAMPLE = 8  # messages of a batch that are looked at
_MOST = 8_192  # intervals that are remembered; of older ones the total alone
_BAND = 0.005  # a percentile is explained by the messages this close to it


class IdleTime:
    """For how long an executor has been free, up to any moment.

    >>> idle = IdleTime()
    >>> idle.occupied(2.0)
    >>> idle.freed(5.0)
    >>> idle.occupied(6.0)
    >>> [idle.upto(at) for at in (1.0, 4.0, 5.5, 9.0)]
    [1.0, 2.0, 2.5, 3.0]
    """

    __slots__ = ("_ends", "_since", "_starts", "_sums", "_total")

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._sums: list[float] = []
        self._total = 0.0
        self._since: float | None = 0.0

    def occupied(self, at: float) -> None:
        """Record that no executor is free from now on."""
        if self._since is None:
            return
        if at > self._since:
            self._starts.append(self._since)
            self._ends.append(at)
            self._sums.append(self._total)
            self._total += at - self._since
            if len(self._starts) > _MOST:
                for some in (self._starts, self._ends, self._sums):
                    del some[: _MOST // 2]
        self._since = None

    def freed(self, at: float) -> None:
        """Record that an executor is free from now on."""
        if self._since is None:
            self._since = at

    def upto(self, at: float) -> float:
        """Return for how long one was free before this moment. O(log n)."""
        if self._since is not None and at >= self._since:
            return self._total + at - self._since
        if not self._ends or at >= self._ends[-1]:
            return self._total
        place = bisect_right(self._starts, at) - 1
        if place < 0:
            return min(self._sums[0], at)
        return self._sums[place] + min(at, self._ends[place]) - self._starts[place]


class LatencySplit:
    """What the latencies are made of, by how long they are. A few messages of each batch count."""

    __slots__ = ("_cells", "_step")

    def __init__(self, step: Callable[[float], int]) -> None:
        self._step = step
        self._cells: dict[int, list[float]] = {}

    def add(self, arrivals: Sequence[float], began: float, done: float, idle: IdleTime) -> None:
        """Count a batch. O(1)."""
        size = len(arrivals)
        stride = max(size // _SAMPLE, 1)
        weight = float(stride)
        before = idle.upto(began)
        for arrival in arrivals[::stride]:
            held = before - idle.upto(arrival)
            cell = self._cells.setdefault(self._step(done - arrival), [0.0] * 4)
            cell[0] += weight
            cell[1] += weight * held
            cell[2] += weight * max(began - arrival - held, 0.0)
            cell[3] += weight * (done - began)

    def at(self, share: float, latency: float) -> dict[str, float]:
        """Return what the messages about this percentile waited for; it adds up to `latency`."""
        steps = sorted(self._cells)
        whole = fsum(self._cells[step][0] for step in steps)
        low, high = (share - _BAND) * whole, (share + _BAND) * whole
        seen = 0.0
        sums = [0.0, 0.0, 0.0]
        for step in steps:
            cell = self._cells[step]
            if seen + cell[0] >= low and seen <= high:
                sums = [have + more for have, more in zip(sums, cell[1:], strict=True)]
            seen += cell[0]
        total = fsum(sums)
        scale = latency / total if total else 0.0
        return {name: value * scale for name, value in zip(PARTS, sums, strict=True)}
