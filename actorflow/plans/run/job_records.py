"""The records of all jobs of a run, from the dispatcher and the measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.plans.job_record import JobRecord, JobStatus
from actorflow.plans.scheduler import Role, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actorflow.plans.run.dispatcher import Dispatcher

__all__ = ["records_of"]

_STATUS = {
    State.WAITING: JobStatus.WAITING,
    State.READY: JobStatus.READY,
    State.OUT: JobStatus.RUNNING,
    State.DONE: JobStatus.DONE,
    State.FAILED: JobStatus.FAILED,
    State.SKIPPED: JobStatus.SKIPPED,
}


def records_of(
    dispatcher: Dispatcher, details: Callable[[int], Mapping[str, Any]]
) -> Sequence[JobRecord]:
    """Return one record for each job, by number. Costs some microseconds for each.

    `details` returns the other fields of the record of a job: times, worker, error, output.
    """
    before = _upstream(dispatcher)
    names = [dispatcher.name(job) for job in range(len(before))]
    known = [dict(details(job)) for job in range(len(before))]
    ends = [each.get("ended") for each in known]
    for job in dispatcher.gathering():  # it was over when the last job of its map was
        known[job] |= {"started": None, "worker": None}
        known[job]["ended"] = ends[job] = _last(dispatcher.parts(job), ends)
    return [
        _record(
            dispatcher, job, before[job], names, {**known[job], "ready": _last(before[job], ends)}
        )
        for job in range(len(before))
    ]


def _upstream(dispatcher: Dispatcher) -> list[list[int]]:
    scheduler = dispatcher.scheduler
    before: list[list[int]] = [[] for _ in range(scheduler.graph.count)]
    for first, second in scheduler.graph.edges():
        before[second].append(first)
    for job in range(scheduler.graph.count):
        origin = scheduler.origin(job)
        if origin is not None:  # it has waited for what its map has waited for
            before[job] = [each for each in before[origin[0]] if scheduler.origin(each) is None]
    return [list(dict.fromkeys(each)) for each in before]


def _last(before: Sequence[int], ends: Sequence[float | None]) -> float:
    """Return when the last of some jobs had ended; 0 for none."""
    return max((end for job in before if (end := ends[job]) is not None), default=0.0)


def _record(
    dispatcher: Dispatcher,
    job: int,
    before: Sequence[int],
    names: Sequence[str],
    details: dict[str, Any],
) -> JobRecord:
    scheduler = dispatcher.scheduler
    state = scheduler.state(job)
    status = JobStatus.CACHED if job in dispatcher.cached else _STATUS[state]
    ran = status in (JobStatus.DONE, JobStatus.RUNNING) and scheduler.role(job) is Role.CALL
    value = dispatcher.values.get(job)
    if state is not State.FAILED:
        details |= {"error": "", "traceback": ""}
    return JobRecord(
        name=names[job],
        status=status,
        upstream=tuple(names[each] for each in before),
        attempts=scheduler.attempts(job) + ran,
        crashes=scheduler.crashes(job),
        reason=_reason(dispatcher, job, state, names),
        size=0 if value is None else value.size,
        **details,
    )


def _reason(dispatcher: Dispatcher, job: int, state: State, names: Sequence[str]) -> str:
    if state is not State.SKIPPED:
        return dispatcher.reasons.get(job, "")
    blamed = dispatcher.scheduler.blamed.get(job)
    return "the plan stopped before" if blamed is None else f"job {names[blamed]!r} failed"
