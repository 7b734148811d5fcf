"""When each job was handed out, begun and over, in flat arrays: 24 bytes for each job."""

from __future__ import annotations

from array import array
from math import isnan, nan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Timings"]


class Timings:
    """Moments of jobs by number, in seconds since the run began; not a number if it never came."""

    __slots__ = ("ended", "queued", "started")

    def __init__(self, count: int) -> None:
        self.queued = array("d", [nan]) * count
        self.started = array("d", [nan]) * count
        self.ended = array("d", [nan]) * count

    def grow(self, count: int) -> None:
        """Make room for jobs that a map has added."""
        missing = array("d", [nan]) * (count - len(self.ended))
        for column in (self.queued, self.started, self.ended):
            column.extend(missing)

    def of(self, job: int) -> Sequence[float | None]:
        """Return when a job was queued, started and ended."""
        found = (self.queued[job], self.started[job], self.ended[job])
        return [None if isnan(each) else each for each in found]
