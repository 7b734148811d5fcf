"""Who did what when: the bars of each worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.plans.record import JobRecord

__all__ = ["Lane", "busy_seconds", "lanes", "span"]


class Lane(NamedTuple):
    """One worker, and what it ran, in order."""

    worker: str
    jobs: tuple[JobRecord, ...]


def lanes(records: Iterable[JobRecord]) -> list[Lane]:
    """Return the workers in the order of their names, each with the last attempts it ran."""
    found: dict[str, list[JobRecord]] = {}
    for record in records:
        if record.worker is not None and record.started is not None and record.ended is not None:
            found.setdefault(record.worker, []).append(record)
    return [
        Lane(worker, tuple(sorted(found[worker], key=_start)))
        for worker in sorted(found, key=lambda name: (len(name), name))
    ]


def _start(record: JobRecord) -> float:
    return record.started or 0.0


def busy_seconds(records: Iterable[JobRecord]) -> float:
    """Return how long jobs ran, all together."""
    return sum(record.seconds for record in records)


def span(records: Sequence[JobRecord]) -> float:
    """Return when the last job had ended, in seconds since the run began."""
    return max((record.ended for record in records if record.ended is not None), default=0.0)
