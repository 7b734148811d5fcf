"""The graph of a plan: which job comes before which. Pure: numbers only, no jobs and no names.

Jobs are numbered from 0. The edges known at the beginning lie in two flat arrays, so that a million
jobs take a few megabytes; edges of jobs that a map adds while the plan runs stand beside.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from operator import ge
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Graph"]

_NONE = array("i")


class Graph:
    """Jobs and the edges between them.

    Args:
        count: of jobs.
        sources: for each edge, the job that comes first.
        targets: for each edge, the job that waits for it.

    An edge that is given twice counts twice, on both ends. Building it costs O(jobs + edges).

    >>> graph = Graph(3, [0, 0], [1, 2])
    >>> list(graph.after(0)), graph.keys()
    ([1, 2], array('i', [0, 1, 1]))
    """

    __slots__ = ("_added", "_before", "_first", "_sources", "_targets", "count")

    def __init__(self, count: int, sources: Sequence[int], targets: Sequence[int]) -> None:
        self.count = count
        """How many jobs there are, those included that were added later."""
        self._sources = sources
        self._targets = targets
        self._first, self._before = _sorted_by(count, sources, targets)
        self._added: dict[int, int] = {}

    def after(self, job: int) -> Sequence[int]:
        """Return the jobs directly after one."""
        if job >= len(self._first) - 1:
            return (self._added[job],) if job in self._added else _NONE
        return self._before[self._first[job] : self._first[job + 1]]

    def keys(self) -> array[int]:
        """Return the number of jobs directly before each one."""
        keys = array("i", bytes(4 * self.count))
        for target in self._targets:
            keys[target] += 1
        for target in self._added.values():
            keys[target] += 1
        return keys

    def add(self, count: int, before: int) -> range:
        """Add jobs that come before an existing one and after none; return their numbers."""
        new = range(self.count, self.count + count)
        self._added.update(dict.fromkeys(new, before))
        self.count += count
        return new

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield every edge as (job, job after it)."""
        yield from zip(self._sources, self._targets, strict=True)
        yield from self._added.items()

    def cycle(self) -> list[int] | None:
        """Return the jobs of one cycle in order, the first again at the end; `None` without one.

        Costs next to nothing if every edge leads to a higher number, else O(jobs + edges).

        >>> Graph(3, [0, 1, 2], [1, 2, 1]).cycle()
        [1, 2, 1]
        """
        if not any(map(ge, self._sources, self._targets)):
            return None
        keys = self.keys()
        free = [job for job in range(self.count) if not keys[job]]
        while free:
            for job in self.after(free.pop()):
                keys[job] -= 1
                if not keys[job]:
                    free.append(job)
        return self._cycle_among({job for job in range(self.count) if keys[job]})

    def _cycle_among(self, stuck: set[int]) -> list[int] | None:
        """Walk backwards: each stuck job has another stuck job before it."""
        if not stuck:
            return None
        inside = ((first, job) for first in sorted(stuck) for job in self.after(first))
        before = {job: first for first, job in inside if job in stuck}
        job, path, seen = min(stuck), [], set[int]()
        while job not in seen:
            seen.add(job)
            path.append(job)
            job = before[job]
        walked = path[path.index(job) :]
        walked.append(job)
        walked.reverse()
        low = walked.index(min(walked))
        return [*walked[low:-1], *walked[:low], walked[low]]


def _sorted_by(
    count: int, sources: Sequence[int], targets: Sequence[int]
) -> tuple[array[int], array[int]]:
    """Return where the edges of each source begin, and their targets, in the order given."""
    sizes = [0] * (count + 1)
    for source in sources:
        sizes[source + 1] += 1
    first = array("i", accumulate(sizes))
    place = first[:]
    after = array("i", bytes(4 * len(targets)))
    for source, target in zip(sources, targets, strict=True):
        after[place[source]] = target
        place[source] += 1
    return first, after
