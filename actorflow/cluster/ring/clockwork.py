"""Clockworkers: which members watch a timer, evenly spaced round the ring from its executor."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["clock_offsets", "clock_rank"]


def clock_offsets(cycle_length: int, clock_count: int) -> list[int]:
    """Return the places of the clockworkers in a ring, counted from the executor.

    >>> clock_offsets(7, 3), clock_offsets(3, 5), clock_offsets(1, 1)
    ([0, 2, 4], [0, 1, 2], [0])
    """
    return sorted({cycle_length * number // clock_count for number in range(clock_count)})


def clock_rank(name: str, executor: str, ring: Sequence[str], clock_count: int) -> int | None:
    """Return a member's place among the clockworkers of an executor; `None` if it is none of them.

    The executor itself has rank 0. One that is not in the ring is counted from where it would be.

    >>> ring = ["a", "b", "c", "d", "e", "f", "g"]
    >>> [clock_rank(name, "b", ring, 3) for name in ring]
    [None, 0, None, 1, None, 2, None]
    """
    if name not in ring:
        return None
    length = len(ring)
    offset = (bisect_left(ring, name) - bisect_left(ring, executor)) % length
    offsets = clock_offsets(length, clock_count)
    return offsets.index(offset) if offset in offsets else None
