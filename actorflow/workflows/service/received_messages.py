"""What arrives at an execution, as what its instance receives."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct

from actorflow.engine.envelopes import (
    ChildEnded,
    ChildResumed,
    Message,
    TaskEnded,
    TaskStarted,
    TimerFired,
)
from actorflow.engine.kind import Status
from actorflow.workflows.agent.wire import read_answer
from actorflow.workflows.errors import MessageRefused
from actorflow.workflows.inbox import SentEvent
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.state import StepState, StepType, encode
from actorflow.workflows.service import names
from actorflow.workflows.service.names import decision_of, is_decision, read_step_id
from actorflow.workflows.wait import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.envelopes import Failure
    from actorflow.workflows.instance.instance import Instance
    from actorflow.workflows.instance.state import InstanceState

__all__ = [
    "GO_ON",
    "ReceivedBatch",
    "Start",
    "check_message",
    "control_body",
    "event_body",
    "event_of",
    "fork_body",
    "read_batch",
    "start_body",
]

GO_ON = {"do": "go on"}
"""A message to itself: a decision is left to be taken."""

_CONTROLS: dict[str, Callable[[float], m.Received]] = {
    "begin": m.Begin,
    "pause": m.Pause,
    "resume": m.Resume,
    "kill": m.Kill,
    "cancel": m.CancelAll,
}
_EVENT_FIELDS = frozenset(("event", "data", "id", "asks", "room"))
_ON_WORKS = ("retry", "cancel", "rewind")


def start_body(
    properties: dict[str, Any],
    *,
    inbox: bool = False,
    tags: dict[str, str] | None = None,
    lane: dict[str, Any] | None = None,
    due: float | None = None,
) -> dict[str, Any]:
    """Return the first message to an execution.

    Args:
        properties: the first ones.
        inbox: whether it has a behaviour of its own in front of its events.
        tags: what it can be found by.
        lane: which lets it begin: `to` whom, when it is `due`, the message `body` is sent.
        due: when it begins, or enters its lane; at once, if not given.

    """
    start: dict[str, Any] = {"properties": properties}
    if lane is not None:
        start["lane"] = lane
    if due is not None:
        start["due"] = due
    if tags:
        start["tags"] = tags
    if inbox:
        start["inbox"] = True
    return {"start": start}


def fork_body(
    of: str, step: str, state: InstanceState, tags: dict[str, Any], *, inbox: bool = False
) -> dict[str, Any]:
    """Return the first message to an execution that goes on from the past of another."""
    fork = {"of": of, "step": step, "state": encode(state)}
    return {"start": {**start_body({}, inbox=inbox, tags=tags)["start"], "fork": fork}}


def event_body(
    name: str, data: Any, asked: str | None = None, *, asks: bool = False
) -> dict[str, Any]:
    """Return the message for an event.

    Args:
        name: of the event.
        data: of the event.
        asked: names the answer.
        asks: whether a caller waits for that, who also hears of a refusal.

    """
    body = {"event": name, "data": data}
    if asked is not None:
        body["id"] = asked
    if asks:
        body["asks"] = True
    return body


def control_body(verb: str, step: str | None = None) -> dict[str, Any]:
    """Return the message that steers an instance."""
    return {"do": verb} if step is None else {"do": verb, "step": step}


def event_of(envelope: Any) -> SentEvent | None:
    """Return the event that an envelope is, if it is one."""
    if type(envelope) is not Message or type(envelope.body) is not dict:
        return None
    body = envelope.body
    if type(body.get("event")) is not str:
        return None
    return SentEvent(
        body["event"],
        body.get("data"),
        envelope.at,
        body.get("id"),
        asks=body.get("asks") is True,
    )


class Start(Struct):
    """How an instance begins."""

    at: float
    properties: dict[str, Any]
    inbox: bool = False
    tags: dict[str, Any] = {}
    lane: dict[str, Any] | None = None
    due: float | None = None
    fork: dict[str, Any] | None = None
    """The instance that it was forked from (`of`), the `step` before which, and its `state`."""


class ReceivedBatch(Struct):
    """A batch, read."""

    start: Start | None = None
    received: list[m.Received] = []
    notes: list[dict[str, Any]] = []
    """For the history."""
    due: bool = False
    """Whether the moment has come at which it is to begin."""
    bounded: list[tuple[int, m.EventSent]] = []
    """Events that may be refused because too many are kept, with their places in the batch."""


def read_batch(instance: Instance | None, batch: Sequence[Any], now: float) -> ReceivedBatch:
    """Return what an instance receives.

    Args:
        instance: `None` if it has not begun.
        batch: envelopes, and events from an inbox.
        now: when an event happened that an inbox has made of others.

    Raises:
        MessageRefused: one of them is not a message to a workflow.

    """
    found = ReceivedBatch()
    through_inbox = False
    run = 0 if instance is None else instance.state.run
    for place, each in enumerate(batch):
        if run and _is_of_earlier_run(each, run):
            continue
        _read(instance, each, now, found)
        if type(each) is Message and type(each.body) is dict and "room" in each.body:
            _bound(found, place, each.body["room"])
        through_inbox = through_inbox or isinstance(each, Event)
    if through_inbox:
        found.received = _in_order(found.received)
    return found


def _bound(found: ReceivedBatch, place: int, room: Any) -> None:
    """Let the last event that was read be refused if too many are kept."""
    last = found.received[-1] if found.received else None
    if isinstance(last, m.EventSent) and type(room) is int:
        found.received[-1] = bounded = msgspec.structs.replace(last, room=room)
        found.bounded.append((place, bounded))


def _in_order(received: list[m.Received]) -> list[m.Received]:
    """Return messages from an inbox by time; events stay in the order of the inbox.

    A behaviour may have held events back, or changed their order.
    """
    latest = -inf
    ordered: list[m.Received] = []
    for each in received:
        if isinstance(each, m.EventSent):
            latest = max(latest, each.at)
            ordered.append(msgspec.structs.replace(each, at=latest))
        else:
            ordered.append(each)
    return sorted(ordered, key=lambda each: each.at)


def _read(instance: Instance | None, each: Any, now: float, found: ReceivedBatch) -> None:
    if type(each) is TaskEnded and not is_decision(each.task):  # as most are
        found.received.append(_task_ended(each))
        return
    match each:
        case Event():
            found.received.append(_event(each, now))
        case Message():
            _message(instance, each, found)
        case TimerFired(timer=names.START_TIMER):
            found.due = True
        case TimerFired():
            found.received.append(_fired(each))
        case TaskStarted():
            step, attempt, _ = read_step_id(each.task)
            found.received.append(m.Started(each.at, step, attempt))
        case TaskEnded():
            found.received.append(_decided(each))
        case ChildEnded():
            _child(instance, each, found)
        case ChildResumed():
            step, attempt, _ = read_step_id(each.child)
            found.received.append(m.Stalled(each.at, step, None, attempt))
            found.notes.append({"type": "child resumed", "at": each.at, "step": step})
        case _:
            raise MessageRefused(f"{each!r:.100} refused: an inbox must hand over events")


def _is_of_earlier_run(each: Any, run: int) -> bool:
    """Return whether it is about a task or child that an earlier run has begun."""
    if isinstance(each, (TaskStarted, TaskEnded)):
        return not is_decision(each.task) and read_step_id(each.task).run != run
    return isinstance(each, (ChildEnded, ChildResumed)) and read_step_id(each.child).run != run


def _fired(fired: TimerFired) -> m.Received:
    if fired.timer.startswith("timeout:"):
        return m.TimedOut(fired.due, fired.timer.removeprefix("timeout:"))
    return m.Tick(max(fired.at, fired.due))


def _decided(ended: TaskEnded) -> m.Received:
    """Return the end of a decision that was taken elsewhere."""
    uuid = decision_of(ended.task)
    if ended.ok:
        return read_answer(ended.value, uuid, ended.at)
    error = {"kind": "failed", "stacktrace": "", **_error(ended.error, ended.outcome)}
    return m.DecisionBroken(ended.at, uuid, modified=False, error=error)


def _task_ended(ended: TaskEnded) -> m.Received:
    step, attempt, _ = read_step_id(ended.task)
    if ended.ok:
        return m.Succeeded(ended.at, step, ended.value, attempt)
    return m.StepHasFailed(ended.at, step, _error(ended.error, ended.outcome), attempt)


def _event(event: Event, now: float) -> m.EventSent:
    if isinstance(event, SentEvent):
        asked = UNSET if event.asked is None else event.asked
        at = now if event.at is None else event.at
        return m.EventSent(
            at, event.name, event.data, asked, event.interrupts, event.undoes, event.asks
        )
    return m.EventSent(now, event.name, event.data)


def check_message(body: Any) -> None:
    """Refuse a body that is not a message to a workflow.

    Raises:
        MessageRefused: it is not one.

    """
    if type(body) is dict:
        event = body.get("event")
        if type(body.get("start")) is dict:
            return
        if type(event) is str and event:
            more = body.keys() - _EVENT_FIELDS
            if not more:
                return
            raise MessageRefused(
                f"{body!r:.100} refused: the data of an event belongs into 'data', not beside it: "
                f"{{'event': {event!r}, 'data': {{{min(more)!r}: ...}}}}"
            )
        verb = body.get("do")
        if type(verb) is str and (verb in _CONTROLS or verb in _ON_WORKS or verb == GO_ON["do"]):
            return
        if verb == "started" and type(body.get("step")) is str:
            return
        if verb == "discard" and type(body.get("number")) is int:
            return
    raise MessageRefused(
        f"{body!r:.100} refused: a message to a workflow is an event or a verb, such as "
        "{'event': 'paid', 'data': {}}; use the methods of its handle"
    )


def _message(instance: Instance | None, message: Message, found: ReceivedBatch) -> None:
    event = event_of(message)
    body = message.body
    verb = body.get("do") if type(body) is dict else None
    if event is not None:
        found.received.append(_event(event, message.at))
    elif type(body) is dict and type(body.get("start")) is dict:
        if instance is None and found.start is None:
            given = body["start"]
            found.start = Start(
                message.at,
                given["properties"],
                inbox=bool(given.get("inbox")),
                tags=given.get("tags", {}),
                lane=given.get("lane"),
                due=given.get("due"),
                fork=given.get("fork"),
            )
    elif verb in _CONTROLS and not (verb == "cancel" and "step" in body):
        found.received.append(_CONTROLS[verb](message.at))
        found.notes.append({"type": verb, "at": message.at})
    elif verb == "started" and type(body.get("step")) is str:
        step, attempt, _ = read_step_id(body["step"])
        found.received.append(m.Started(message.at, step, attempt))
    elif verb == "discard" and type(body.get("number")) is int:
        found.received.append(m.Discard(message.at, body["number"]))
        found.notes.append({"type": verb, "at": message.at, "number": body["number"]})
    elif verb in _ON_WORKS:
        _on_steps(instance, verb, body.get("step"), message.at, found)
    else:
        check_message(body)


def _on_steps(
    instance: Instance | None, verb: str, step: Any, at: float, found: ReceivedBatch
) -> None:
    statuses = [] if instance is None else instance.state.statuses
    if verb == "retry":
        steps = [
            status.step
            for status in statuses
            if status.status is StepState.FAILED and step in (None, status.step)
        ]
        found.received += [m.RetryStep(at, each) for each in steps]
    elif verb == "rewind":
        steps = [status.step for status in statuses if status.step == step]
        found.received += [m.Rewind(at, each) for each in steps]
    else:
        steps = [
            status.step
            for status in statuses
            if status.status is StepState.SCHEDULED and status.step == step
        ]
        found.received += [m.StopStep(at, each) for each in steps]
    found.notes.append({"type": verb, "at": at, "steps": steps})


def _child(instance: Instance | None, ended: ChildEnded, found: ReceivedBatch) -> None:
    step, attempt, _ = read_step_id(ended.child)
    status = None if instance is None else instance.status(step)
    if ended.status == Status.FAILED:
        error = _error(ended.error, ended.status)
        if status is not None and status.type is StepType.FLOW:
            error |= {"name": "WorkflowFailed", "data": ended.result}
        found.received.append(m.StepHasFailed(ended.at, step, error, attempt))
    elif ended.status == Status.DONE:
        found.received.append(m.Succeeded(ended.at, step, ended.result, attempt))
    elif ended.status == Status.STUCK and status is not None and status.type is StepType.FLOW:
        error = _error(ended.error, ended.status)
        found.received.append(m.Stalled(ended.at, step, error, attempt))
        found.notes.append({"type": "child stuck", "at": ended.at, "step": step})
    else:
        error = _error(ended.error, ended.status)
        found.received.append(m.StepHasFailed(ended.at, step, error, attempt))


def _error(error: Failure | None, outcome: str) -> dict[str, Any]:
    if error is None:
        if outcome == "cancelled":
            return {"name": "Cancelled", "message": "it was cancelled"}
        return {"name": outcome, "message": ""}
    described: dict[str, Any] = {"name": error.type, "message": error.message}
    if error.traceback:
        described["stacktrace"] = error.traceback
    if error.code is not None:
        described["code"] = error.code
    return described
