"""The critical path: the chain of jobs that no number of workers could make shorter."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.plans.job_record import JobRecord

__all__ = ["CriticalPath", "critical_path"]


class CriticalPath(NamedTuple):
    """A chain of jobs, each directly before the next."""

    names: tuple[str, ...]
    seconds: float
    """How long they ran, all together."""


def critical_path(records: Sequence[JobRecord]) -> CriticalPath:
    """Return the chain of jobs that took the longest. Costs a look at every edge.

    Jobs that were not run take no time; a chain begins and ends with one that was.
    """
    places = {record.name: place for place, record in enumerate(records)}
    before = [[places[name] for name in record.upstream if name in places] for record in records]
    best = [0.0] * len(records)  # of the chains that end with a job, the longest
    previous = [-1] * len(records)
    for at in _in_order(before):
        for each in before[at]:
            if best[each] > best[at]:
                best[at], previous[at] = best[each], each
        best[at] += records[at].seconds
    end = max(range(len(records)), key=best.__getitem__, default=-1)
    if end < 0 or not best[end]:
        return CriticalPath((), 0.0)
    chain = []
    at = end
    while at >= 0:
        chain.append(at)
        at = previous[at]
    while not records[chain[0]].seconds:  # it ended with jobs that were not run
        del chain[0]
    return CriticalPath(tuple(records[each].name for each in reversed(chain)), best[end])


def _in_order(before: Sequence[Sequence[int]]) -> list[int]:
    """Return all places, each after those before it."""
    missing = [len(each) for each in before]
    after: list[list[int]] = [[] for _ in before]
    for at, earlier in enumerate(before):
        for each in earlier:
            after[each].append(at)
    order = [at for at, count in enumerate(missing) if not count]
    for at in order:
        for each in after[at]:
            missing[each] -= 1
            if not missing[each]:
                order.append(each)
    return order
