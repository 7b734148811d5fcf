"""What an instance sends, as an outcome for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.msgpack import Encoder

from actorflow.engine.kind import Failure, NewChild, NewTask, Outcome, Outgoing, SetTimer, Status
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.state import (
    BROKEN_MODES,
    DecisionMode,
    InstanceState,
    WorkState,
    WorkStatus,
    WorkType,
)
from actorflow.workflows.service.incoming import GO_ON, start_body
from actorflow.workflows.service.names import DISPATCHED, kind_name, timer_id, work_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.workflows.instance.instance import Instance

__all__ = ["outcome_of", "task_body", "unanswerable"]

_encode = Encoder().encode


def task_body(work: str, given: Any) -> dict[str, Any]:
    """Return what a tasker gets."""
    return {"work": work, "input": given}


def outcome_of(
    instance: Instance,
    sent: Sequence[m.Outgoing],
    tells_start: Callable[[WorkStatus], bool],
    hand_out: Callable[[Instance], NewTask] | None = None,
) -> Outcome:
    """Return all of an outcome but its state and its history.

    Args:
        instance: as it is now.
        sent: what it has sent in this run.
        tells_start: whether the instance wants to know when a task starts.
        hand_out: makes the task by which its decisions are taken, if they are taken elsewhere.

    """
    outcome = Outcome(state=None)
    timers: dict[str, float | None] = {}
    for each in sent:
        match each:
            case m.WorkJob():
                _begin(instance, each, tells_start, outcome)
            case m.CancelWork():
                _stop(instance, each, outcome)
            case m.SetTimer(at=at):
                timers[timer_id(each)] = at
            case m.ClearTimer():
                timers[timer_id(each)] = None
            case m.Ended(output=output):
                outcome.status = Status.CANCELLED if each.killed else Status.DONE
                outcome.result = None if each.killed else output
    if instance.state.ended:
        _end(instance, outcome)
    else:
        _stay(instance, timers, outcome)
        _decide(instance, sent, hand_out, outcome)
    return outcome


def _decide(
    instance: Instance,
    sent: Sequence[m.Outgoing],
    hand_out: Callable[[Instance], NewTask] | None,
    outcome: Outcome,
) -> None:
    """Schedule the ongoing decision: elsewhere, or in the next run."""
    state = instance.state
    if not state.decision_ongoing:
        return
    if hand_out is None:
        outcome.messages.append(Outgoing(state.id, GO_ON))
    elif any(isinstance(each, m.DecisionJob) and each.uuid == state.decision_uuid for each in sent):
        outcome.tasks.append(hand_out(instance))


def _end(instance: Instance, outcome: Outcome) -> None:
    """Leave nothing behind: the engine removes timers and tasks, but children go on."""
    outcome.tasks, outcome.cancelled_tasks = [], []
    if instance.state.decision_mode is DecisionMode.KILLED:
        for status in instance.state.statuses:
            if status.status is WorkState.SCHEDULED and _is_child(status):
                _stop(instance, _cancel_of(status), outcome)


def _stay(instance: Instance, timers: dict[str, float | None], outcome: Outcome) -> None:
    for name, moment in timers.items():
        if moment is None:
            outcome.cancelled_timers.append(name)
        else:
            outcome.timers.append(SetTimer(name, moment))
    outcome.error = _failure(instance)
    if outcome.error is not None:
        outcome.status = Status.FAILED


def _is_child(status: WorkStatus) -> bool:
    """Return whether an execution of its own does a work."""
    return status.type is WorkType.FLOW or status.dispatched


def _cancel_of(status: WorkStatus) -> m.CancelWork:
    return m.CancelWork(status.work, status.type, status.attempt, status.dispatched)


def _begin(
    instance: Instance,
    job: m.WorkJob,
    tells_start: Callable[[WorkStatus], bool],
    outcome: Outcome,
) -> None:
    status = instance.status(job.work)
    assert status is not None  # noqa: S101 - it was just scheduled
    name = work_id(instance.state.id, job.work, job.attempt)
    if status.status is WorkState.CANCELLED:
        return  # in this very run
    if job.type is WorkType.FLOW:
        properties = {} if job.input is None else job.input
        outcome.children.append(NewChild(name, kind_name(job.name), start_body(properties)))
    elif status.dispatched:
        body = {"tasker": job.name, **task_body(job.work, job.input)}
        outcome.children.append(NewChild(name, DISPATCHED, body))
    else:
        data = _encode(task_body(job.work, job.input))  # the input is known to be plain data
        outcome.tasks.append(NewTask(name, job.name, Raw(data), tell_start=tells_start(status)))


def _stop(instance: Instance, cancel: m.CancelWork, outcome: Outcome) -> None:
    name = work_id(instance.state.id, cancel.work, cancel.attempt)
    if any(task.id == name for task in outcome.tasks):
        outcome.tasks = [task for task in outcome.tasks if task.id != name]
    elif any(child.id == name for child in outcome.children):
        outcome.children = [child for child in outcome.children if child.id != name]
    elif cancel.type is WorkType.TASK and not cancel.dispatched:
        outcome.cancelled_tasks.append(name)
    elif cancel.type is not WorkType.WAIT:
        outcome.cancelled_children.append(name)


def _failure(instance: Instance) -> Failure | None:
    """Return why an instance needs attention, if it does."""
    state = instance.state
    if state.decision_mode in BROKEN_MODES:
        error = state.error or {}
        return Failure(
            str(error.get("name", state.decision_mode)),
            str(error.get("message", "")),
            str(error.get("stacktrace", "")),
        )
    failed = instance.stuck_on()
    if failed is None or state.decision_mode is not DecisionMode.RUN:
        return None
    return _failure_of(state, failed)


def unanswerable(instance: Instance, event: str) -> Failure | None:
    """Return why the branch of an event cannot go on until somebody acts, if that is so."""
    state = instance.state
    for key, branch in enumerate(state.branches):
        if branch.event_id == event:
            failed = instance.stuck_on(key)
            return None if failed is None else _failure_of(state, failed)
    return None


def _failure_of(state: InstanceState, failed: WorkStatus) -> Failure:
    """Return what to say of an instance that waits for a work that has failed."""
    error = failed.error or {}
    if failed.status is WorkState.SCHEDULED:
        child = work_id(state.id, failed.work, failed.attempt)
        return Failure(
            str(error.get("name", "")),
            f"the sub-workflow {failed.name} ({child}) failed: {error.get('message', '')}; this "
            "workflow waits for it: resume it after a fix, or execute it with raises=True",
            str(error.get("stacktrace", "")),
        )
    return Failure(
        str(error.get("name", "")),
        f"the {failed.type} {failed.name} ({failed.work}) failed: {error.get('message', '')}; the "
        "workflow waits for it: retry it, or execute it with raises=True",
        str(error.get("stacktrace", "")),
    )
