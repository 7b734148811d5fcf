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
    StepState,
    StepStatus,
    StepType,
)
from actorflow.workflows.service.names import DISPATCHED, kind_name, step_id, timer_id
from actorflow.workflows.service.received_messages import GO_ON, event_body, start_body

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.workflows.instance.instance import Instance

__all__ = ["outcome_of", "task_body", "unanswerable"]

_encode = Encoder().encode


def task_body(step: str, given: Any) -> dict[str, Any]:
    """Return what a tasker gets."""
    return {"step": step, "input": given}


def outcome_of(
    instance: Instance,
    sent: Sequence[m.Outgoing],
    tells_start: Callable[[StepStatus], bool],
    hand_out: Callable[[Instance], NewTask] | None = None,
    earlier: Sequence[tuple[Instance, Sequence[m.Outgoing]]] = (),
) -> Outcome:
    """Return all of an outcome but its state and its history.

    Args:
        instance: as it is now.
        sent: what it has sent.
        tells_start: whether the instance wants to know when a task starts.
        hand_out: makes the task by which its decisions are taken, if they are taken elsewhere.
        earlier: runs of the instance that are over now, and what they have sent.

    """
    outcome = Outcome(state=None)
    timers: dict[str, float | None] = {}
    for over, what in earlier:
        _send(over, what, tells_start, timers, outcome)
        _leave(over, timers, outcome)
    _send(instance, sent, tells_start, timers, outcome)
    if instance.state.ended:
        _end(instance, outcome)
    else:
        _stay(instance, timers, outcome)
        _decide(instance, sent, hand_out, outcome)
    return outcome


def _send(
    instance: Instance,
    sent: Sequence[m.Outgoing],
    tells_start: Callable[[StepStatus], bool],
    timers: dict[str, float | None],
    outcome: Outcome,
) -> None:
    for each in sent:
        match each:
            case m.StepJob():
                _begin(instance, each, tells_start, outcome)
            case m.CancelStep():
                _stop(instance, each, outcome)
            case m.Send() | m.StartOther():
                outcome.messages.append(_message(each))
            case m.SetStepTimer(at=at):
                timers[timer_id(each)] = at
            case m.ClearTimer():
                timers[timer_id(each)] = None
            case m.Ended():
                _note_end(each, outcome)


def _message(sent: m.Send | m.StartOther) -> Outgoing:
    """Return what another execution gets."""
    if isinstance(sent, m.Send):
        return Outgoing(sent.to, event_body(sent.name, sent.data))
    return Outgoing(sent.id, start_body(sent.properties), kind_name(sent.workflow))


def _note_end(end: m.Ended, outcome: Outcome) -> None:
    if end.error is not None:
        outcome.status, outcome.result = Status.FAILED, end.error["data"]
        outcome.error = Failure("Failed", end.error["message"], end.error["stacktrace"])
    elif end.killed or end.cancelled:
        outcome.status = Status.CANCELLED
    else:
        outcome.status, outcome.result = Status.DONE, end.output


def _leave(instance: Instance, timers: dict[str, float | None], outcome: Outcome) -> None:
    """Stop what the end of an execution stops: tasks and timers. Children may go on."""
    state = instance.state
    for status in state.statuses:
        if status.status is StepState.SCHEDULED and not _outlives(status):
            _stop(instance, _cancel_of(status), outcome)
    cleared = [m.ClearTimer(wait.step) for wait in state.waits]
    cleared += [m.ClearTimer(timeout.step, timeout=True) for timeout in state.timeouts]
    timers.update(dict.fromkeys(map(timer_id, cleared)))


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
    """Leave nothing behind: the engine removes timers and tasks, but children may go on.

    After a failure those go on that were only dispatched.
    """
    outcome.tasks, outcome.cancelled_tasks = [], []
    for status in instance.state.statuses:
        # A task in a lane ends as other tasks do.
        in_lane = status.lane is not None and not status.dispatched
        if in_lane and status.status is StepState.SCHEDULED:
            _stop(instance, _cancel_of(status), outcome)
    mode = instance.state.decision_mode
    # After a cancel that the code has seen, the instance itself has stopped its tasks and children.
    cancel = instance.state.cancellation
    left = cancel.steps if cancel is not None and cancel.children == "leave" else ()
    if mode in (DecisionMode.GIVEN_UP, DecisionMode.KILLED):
        for status in instance.state.statuses:
            if mode is DecisionMode.GIVEN_UP and status.dispatched:
                continue
            if status.step in left:
                continue
            if status.status is StepState.SCHEDULED and _outlives(status):
                _stop(instance, _cancel_of(status), outcome)


def _stay(instance: Instance, timers: dict[str, float | None], outcome: Outcome) -> None:
    for name, moment in timers.items():
        if moment is None:
            outcome.cancelled_timers.append(name)
        else:
            outcome.timers.append(SetTimer(name, moment))
    outcome.error = _failure(instance)
    if outcome.error is not None:
        outcome.status = Status.STUCK


def _outlives(status: StepStatus) -> bool:
    """Return whether a step may go on when the run of the instance is over."""
    return status.type is StepType.FLOW or status.dispatched


def _cancel_of(status: StepStatus) -> m.CancelStep:
    return m.CancelStep(status.step, status.type, status.attempt, status.apart)


def _begin(
    instance: Instance,
    job: m.StepJob,
    tells_start: Callable[[StepStatus], bool],
    outcome: Outcome,
) -> None:
    status = instance.status(job.step)
    assert status is not None  # noqa: S101 - it was just scheduled
    name = _step_id(instance, job)
    if status.status is StepState.CANCELLED:
        return  # in this very run
    if job.type is StepType.FLOW:
        properties = {} if job.input is None else job.input
        outcome.children.append(NewChild(name, kind_name(job.name), start_body(properties)))
    elif status.apart:
        body = {"tasker": job.name, **task_body(job.step, job.input)}
        if status.lane is not None:
            body |= {"lane": status.lane, "tells": tells_start(status)}
        outcome.children.append(NewChild(name, DISPATCHED, body))
    else:
        data = _encode(task_body(job.step, job.input))  # the input is known to be plain data
        outcome.tasks.append(NewTask(name, job.name, Raw(data), tell_start=tells_start(status)))


def _step_id(instance: Instance, of: m.StepJob | m.CancelStep) -> str:
    return step_id(instance.state.id, of.step, of.attempt, instance.state.run)


def _stop(instance: Instance, cancel: m.CancelStep, outcome: Outcome) -> None:
    name = _step_id(instance, cancel)
    if any(task.id == name for task in outcome.tasks):
        outcome.tasks = [task for task in outcome.tasks if task.id != name]
    elif any(child.id == name for child in outcome.children):
        outcome.children = [child for child in outcome.children if child.id != name]
    elif cancel.type is StepType.TASK and not cancel.apart:
        outcome.cancelled_tasks.append(name)
    elif cancel.type is not StepType.WAIT:
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
    """Return why the branch of an event is blocked until an operator acts, or `None`."""
    state = instance.state
    for key, branch in enumerate(state.branches):
        if branch.event_id == event:
            failed = instance.stuck_on(key)
            return None if failed is None else _failure_of(state, failed)
    return None


def _failure_of(state: InstanceState, failed: StepStatus) -> Failure:
    """Return what to say of an instance that waits for a step that has failed."""
    error = failed.error or {}
    if failed.status is StepState.SCHEDULED:
        child = step_id(state.id, failed.step, failed.attempt, state.run)
        return Failure(
            str(error.get("name", "")),
            f"the sub-workflow {failed.name} ({child}) failed: {error.get('message', '')}; this "
            "workflow waits for it: resume it after a fix, or execute it with raises=True",
            str(error.get("stacktrace", "")),
        )
    return Failure(
        str(error.get("name", "")),
        f"the {failed.type} {failed.name} ({failed.step}) failed: {error.get('message', '')}; the "
        "workflow waits for it: retry it, or execute it with raises=True",
        str(error.get("stacktrace", "")),
    )
