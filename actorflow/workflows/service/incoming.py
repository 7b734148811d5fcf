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
from actorflow.workflows.agent.answers import read_answer
from actorflow.workflows.errors import MessageRefused
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.state import WorkState, WorkType, encode
from actorflow.workflows.interrupt import SentEvent
from actorflow.workflows.service.names import decision_of, is_decision, work_and_attempt
from actorflow.workflows.wait import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.envelopes import Failure
    from actorflow.workflows.instance.instance import Instance
    from actorflow.workflows.instance.state import InstanceState

__all__ = [
    "GO_ON",
    "Incoming",
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
    "pause": m.Pause,
    "resume": m.Resume,
    "kill": m.Kill,
}
_ON_WORKS = ("retry", "cancel", "rewind")


def start_body(
    properties: dict[str, Any], *, inbox: bool = False, tags: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the first message to an execution."""
    start: dict[str, Any] = {"properties": properties}
    if tags:
        start["tags"] = tags
    if inbox:
        start["inbox"] = True
    return {"start": start}


def fork_body(
    of: str, work: str, state: InstanceState, tags: dict[str, Any], *, inbox: bool = False
) -> dict[str, Any]:
    """Return the first message to an execution that goes on from the past of another."""
    fork = {"of": of, "work": work, "state": encode(state)}
    return {"start": {**start_body({}, inbox=inbox, tags=tags)["start"], "fork": fork}}


def event_body(name: str, data: Any, asked: str | None = None) -> dict[str, Any]:
    """Return the message that an event is; `asked` names the answer that somebody waits for."""
    body = {"event": name, "data": data}
    if asked is not None:
        body["id"] = asked
    return body


def control_body(verb: str, work: str | None = None) -> dict[str, Any]:
    """Return the message that steers an instance."""
    return {"do": verb} if work is None else {"do": verb, "work": work}


def event_of(envelope: Any) -> SentEvent | None:
    """Return the event that an envelope is, if it is one."""
    if type(envelope) is not Message or type(envelope.body) is not dict:
        return None
    body = envelope.body
    if type(body.get("event")) is not str:
        return None
    return SentEvent(body["event"], body.get("data"), envelope.at, body.get("id"))


class Start(Struct):
    """How an instance begins."""

    at: float
    properties: dict[str, Any]
    inbox: bool = False
    tags: dict[str, Any] = {}
    fork: dict[str, Any] | None = None
    """Of which instance it is a fork (`of`), before which `work`, and its `state`."""


class Incoming(Struct):
    """A batch, read."""

    start: Start | None = None
    received: list[m.Received] = []
    notes: list[dict[str, Any]] = []
    """For the history."""


def read_batch(
    execution: str, instance: Instance | None, batch: Sequence[Any], now: float
) -> Incoming:
    """Return what an instance receives.

    Args:
        execution: its id.
        instance: `None` if it has not begun.
        batch: envelopes, and events from an inbox.
        now: when an event happened that an inbox has made of others.

    Raises:
        MessageRefused: one of them is no message to a workflow.

    """
    found = Incoming()
    through_inbox = False
    for each in batch:
        _read(execution, instance, each, now, found)
        through_inbox = through_inbox or isinstance(each, Event)
    if through_inbox:
        found.received = _in_order(found.received)
    return found


def _in_order(received: list[m.Received]) -> list[m.Received]:
    """Return what came through an inbox, by time; events in the order that the inbox gives them.

    A behaviour may have held events back, or changed their order.
    """
    latest = -inf
    ordered: list[m.Received] = []
    for each in received:
        if isinstance(each, m.Event):
            latest = max(latest, each.at)
            ordered.append(msgspec.structs.replace(each, at=latest))
        else:
            ordered.append(each)
    return sorted(ordered, key=lambda each: each.at)


def _read(
    execution: str, instance: Instance | None, each: Any, now: float, found: Incoming
) -> None:
    if type(each) is TaskEnded and not is_decision(each.task):  # as most are
        found.received.append(_task_ended(execution, each))
        return
    match each:
        case Event():
            found.received.append(_event(each, now))
        case Message():
            _message(instance, each, found)
        case TimerFired():
            found.received.append(_fired(each))
        case TaskStarted():
            work, attempt = work_and_attempt(execution, each.task)
            found.received.append(m.Started(each.at, work, attempt))
        case TaskEnded():
            found.received.append(_decided(each))
        case ChildEnded():
            _child(execution, instance, each, found)
        case ChildResumed():
            work, attempt = work_and_attempt(execution, each.child)
            found.received.append(m.Stalled(each.at, work, None, attempt))
            found.notes.append({"type": "child resumed", "at": each.at, "work": work})
        case _:
            raise MessageRefused(f"{each!r:.100} refused: an inbox must hand over events")


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


def _task_ended(execution: str, ended: TaskEnded) -> m.Received:
    work, attempt = work_and_attempt(execution, ended.task)
    if ended.ok:
        return m.Succeeded(ended.at, work, ended.value, attempt)
    return m.Failed(ended.at, work, _error(ended.error, ended.outcome), attempt)


def _event(event: Event, now: float) -> m.Event:
    if isinstance(event, SentEvent):
        asked = UNSET if event.asked is None else event.asked
        at = now if event.at is None else event.at
        return m.Event(at, event.name, event.data, asked, event.interrupts)
    return m.Event(now, event.name, event.data)


def check_message(body: Any) -> None:
    """Refuse what can be no message to a workflow.

    Raises:
        MessageRefused: it is none.

    """
    if type(body) is dict:
        event = body.get("event")
        if (type(event) is str and event) or type(body.get("start")) is dict:
            return
        verb = body.get("do")
        if type(verb) is str and (verb in _CONTROLS or verb in _ON_WORKS or verb == GO_ON["do"]):
            return
    raise MessageRefused(
        f"{body!r:.100} refused: a message to a workflow is an event or a verb, such as "
        "{'event': 'paid', 'data': {}}; use the methods of its handle"
    )


def _message(instance: Instance | None, message: Message, found: Incoming) -> None:
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
                fork=given.get("fork"),
            )
    elif verb in _CONTROLS:
        found.received.append(_CONTROLS[verb](message.at))
        found.notes.append({"type": verb, "at": message.at})
    elif verb in _ON_WORKS:
        _on_works(instance, verb, body.get("work"), message.at, found)
    else:
        check_message(body)


def _on_works(instance: Instance | None, verb: str, work: Any, at: float, found: Incoming) -> None:
    statuses = [] if instance is None else instance.state.statuses
    if verb == "retry":
        works = [
            status.work
            for status in statuses
            if status.status is WorkState.FAILED and work in (None, status.work)
        ]
        found.received += [m.Retry(at, each) for each in works]
    elif verb == "rewind":
        works = [status.work for status in statuses if status.work == work]
        found.received += [m.Rewind(at, each) for each in works]
    else:
        works = [
            status.work
            for status in statuses
            if status.status is WorkState.SCHEDULED and status.work == work
        ]
        found.received += [m.Cancel(at, each) for each in works]
    found.notes.append({"type": verb, "at": at, "works": works})


def _child(execution: str, instance: Instance | None, ended: ChildEnded, found: Incoming) -> None:
    work, attempt = work_and_attempt(execution, ended.child)
    status = None if instance is None else instance.status(work)
    if ended.status == "done":
        found.received.append(m.Succeeded(ended.at, work, ended.result, attempt))
    elif ended.status == "failed" and status is not None and status.type is WorkType.FLOW:
        error = _error(ended.error, ended.status)
        found.received.append(m.Stalled(ended.at, work, error, attempt))
        found.notes.append({"type": "child failed", "at": ended.at, "work": work})
    else:
        error = _error(ended.error, ended.status)
        found.received.append(m.Failed(ended.at, work, error, attempt))


def _error(error: Failure | None, outcome: str) -> dict[str, Any]:
    if error is None:
        return {"name": "Cancelled" if outcome == "cancelled" else outcome, "message": ""}
    described: dict[str, Any] = {"name": error.type, "message": error.message}
    if error.traceback:
        described["stacktrace"] = error.traceback
    if error.code is not None:
        described["code"] = error.code
    return described
