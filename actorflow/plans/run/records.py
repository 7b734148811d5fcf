"""The records of all jobs of a run, from its desk and what else is known of each job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.plans.master import Role, State
from actorflow.plans.record import JobRecord, JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actorflow.plans.run.desk import Desk

__all__ = ["records_of"]

_STATUS = {
    State.WAITING: JobStatus.WAITING,
    State.READY: JobStatus.READY,
    State.OUT: JobStatus.RUNNING,
    State.DONE: JobStatus.DONE,
    State.FAILED: JobStatus.FAILED,
    State.SKIPPED: JobStatus.SKIPPED,
}


def records_of(desk: Desk, details: Callable[[int], Mapping[str, Any]]) -> Sequence[JobRecord]:
    """Return one record for each job, by number. Costs some microseconds for each.

    `details` returns the other fields of the record of a job: times, worker, error, output.
    """
    before = _upstream(desk)
    names = [desk.name(job) for job in range(len(before))]
    known = [dict(details(job)) for job in range(len(before))]
    ends = [each.get("ended") for each in known]
    for job in desk.gathering():  # it was over when the last job of its map was
        known[job] |= {"started": None, "worker": None}
        known[job]["ended"] = ends[job] = _last(desk.parts(job), ends)
    return [
        _record(desk, job, before[job], names, {**known[job], "ready": _last(before[job], ends)})
        for job in range(len(before))
    ]


def _upstream(desk: Desk) -> list[list[int]]:
    master = desk.master
    before: list[list[int]] = [[] for _ in range(master.graph.count)]
    for first, second in master.graph.edges():
        before[second].append(first)
    for job in range(master.graph.count):
        origin = master.origin(job)
        if origin is not None:  # it has waited for what its map has waited for
            before[job] = [each for each in before[origin[0]] if master.origin(each) is None]
    return [list(dict.fromkeys(each)) for each in before]


def _last(before: Sequence[int], ends: Sequence[float | None]) -> float:
    """Return when the last of some jobs had ended; 0 for none."""
    return max((end for job in before if (end := ends[job]) is not None), default=0.0)


def _record(
    desk: Desk, job: int, before: Sequence[int], names: Sequence[str], details: dict[str, Any]
) -> JobRecord:
    master = desk.master
    state = master.state(job)
    status = JobStatus.CACHED if job in desk.cached else _STATUS[state]
    ran = status in (JobStatus.DONE, JobStatus.RUNNING) and master.role(job) is Role.CALL
    value = desk.values.get(job)
    if state is not State.FAILED:
        details |= {"error": "", "traceback": ""}
    return JobRecord(
        name=names[job],
        status=status,
        upstream=tuple(names[each] for each in before),
        attempts=master.attempts(job) + ran,
        crashes=master.crashes(job),
        reason=_reason(desk, job, state, names),
        size=0 if value is None else value.size,
        **details,
    )


def _reason(desk: Desk, job: int, state: State, names: Sequence[str]) -> str:
    if state is not State.SKIPPED:
        return desk.reasons.get(job, "")
    blamed = desk.master.blamed.get(job)
    return "the plan stopped before" if blamed is None else f"job {names[blamed]!r} failed"
