"""The change that an outcome amounts to: pure functions from what a kind returns to rows."""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import kind_of
from actorflow.engine import bodies
from actorflow.engine.envelopes import ChildEnded, ChildResumed, encode_failure, pack
from actorflow.engine.ids import check_id, check_task_id
from actorflow.engine.kind import ENDED, Addition, Outcome, Status
from actorflow.engine.stores.protocol import (
    Change,
    NewDead,
    NewExecution,
    NewMessage,
    TaskRow,
    TimerRow,
    WatchRow,
)

if TYPE_CHECKING:
    from actorflow.engine.executions.loaded import LoadedExecution
    from actorflow.engine.kind import NewTask, RefusedMessage, SetTimer

__all__ = ["AlreadyThere", "RunRaised", "add_context", "change_of", "message_to_parent"]


class RunRaised(Exception):
    """What a run raised, kept apart from the errors that the runtime raises itself.

    Code of a user may raise anything, also the errors by which the runtime says that a message was
    dropped or a worker stopped.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(kind_of(cause))
        self.cause = cause


class AlreadyThere(Exception):
    """An execution of the id that was to be created exists."""


def change_of(live: LoadedExecution, outcome: Outcome) -> Change:
    """Return the one change that an outcome amounts to.

    Raises:
        TypeError, NotStorable: an id or a body cannot be stored.

    """
    encode = bodies.encode
    name, kind = live.id, live.kind
    state = kind.encode(outcome.state)
    change = Change(
        name,
        kind=kind.name,
        expected=live.revision,
        state=state.data if isinstance(state, Addition) else state,
        appends=isinstance(state, Addition),
        version=getattr(kind, "version", 1),
        status=outcome.status if type(outcome.status) is Status else Status(outcome.status),
        result=None if outcome.result is None else encode(outcome.result),
        error=None if outcome.error is None else encode_failure(outcome.error),
        dead=[_letter(name, each) for each in outcome.refused] if outcome.refused else (),
    )
    # Only what there is gets a list of its own: thousands of these may wait for one commit.
    if outcome.messages or outcome.children or outcome.cancelled_children:
        _add_messages(live, outcome, change)
    if outcome.timers:
        change.timers = [
            TimerRow(name, check_id(timer.id, "a timer"), _moment(timer), encode(timer.body))
            for timer in outcome.timers
        ]
    if outcome.tasks:
        change.tasks = [_task_row(name, task) for task in outcome.tasks]
    if outcome.watches:
        change.watches = [
            WatchRow(name, check_id(watch.id, "a watch"), kind.name, encode(watch.body))
            for watch in outcome.watches
        ]
    change.withdrawn_tasks = outcome.withdrawn_tasks
    if outcome.cancelled_timers or outcome.cancelled_tasks or outcome.cancelled_watches:
        _add_cancellations(name, outcome, change)
    if outcome.tags is not None:
        change.tags = outcome.tags
    if outcome.history:
        change.history = [encode(entry) for entry in outcome.history]
    if change.status in ENDED:
        change.clear = True
        change.timers, change.tasks, change.watches = (), (), ()
    if live.parent is not None:
        change.messages = [*change.messages, *_to_parent(live, live.parent, outcome)]
    return change


def _letter(execution: str, refused: RefusedMessage) -> NewDead:
    return NewDead(None, execution, "message", bodies.encode(refused.body), refused.error)


def add_context(change: Change) -> None:
    """Let everything that a run emits carry the context of the current span."""
    carry = bodies.with_context
    change.messages = [
        each if each.type == "cancel" else each._replace(body=carry(each.body))
        for each in change.messages
    ]
    change.tasks = [each._replace(body=carry(each.body)) for each in change.tasks]
    change.timers = [each._replace(body=carry(each.body)) for each in change.timers]


def _to_parent(live: LoadedExecution, parent: str, outcome: Outcome) -> list[NewMessage]:
    """Return what a parent has to know of its child: that it has ended, is stuck, or goes on."""
    if outcome.status != Status.ACTIVE:
        return [message_to_parent(parent, live.id, outcome.status, outcome.result, outcome.error)]
    if live.status == Status.STUCK and live.failure is None:
        return [NewMessage(parent, *pack(ChildResumed(None, 0.0, live.id)))]
    return []


def _moment(timer: SetTimer) -> float:
    if not _is_moment(timer.at):
        msg = f"timer {timer.id!r} has at={timer.at!r:.40}: give a moment, as in context.now + 60"
        raise ValueError(msg)
    return float(timer.at)


def _task_row(execution: str, task: NewTask) -> TaskRow:
    if not _is_moment(task.due):
        raise _misfit(task, "due", "context.now")
    if task.timeout is not None and not _is_span(task.timeout):
        raise _misfit(task, "timeout", "60.0, or None")
    if task.retries is not None and not _is_count(task.retries):
        raise _misfit(task, "retries", "3, or None")
    if not isinstance(task.priority, int):
        raise _misfit(task, "priority", "0")
    return TaskRow(
        check_task_id(task.id),
        execution,
        check_id(task.tasker, "a tasker"),
        bodies.encode(task.body),
        0,
        float(task.due),
        task.timeout,
        task.retries,
        task.priority,
        task.tell_start,
    )


def _misfit(task: NewTask, name: str, example: str) -> ValueError:
    value = getattr(task, name)
    return ValueError(f"task {task.id!r} has {name}={value!r:.40}: give a number, as in {example}")


def _is_moment(value: Any) -> bool:
    return isinstance(value, (int, float)) and isfinite(value)


def _is_span(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 < value < inf


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _add_cancellations(name: str, outcome: Outcome, change: Change) -> None:
    change.cancelled_timers = [
        (name, check_id(timer, "a timer")) for timer in outcome.cancelled_timers
    ]
    change.finished_tasks = [check_id(task, "a task") for task in outcome.cancelled_tasks]
    change.cancelled_watches = [
        (name, check_id(watch, "a watch")) for watch in outcome.cancelled_watches
    ]


def _add_messages(live: LoadedExecution, outcome: Outcome, change: Change) -> None:
    encode = bodies.encode
    change.messages = [
        *(
            NewMessage(check_id(out.to, "an execution"), "message", encode(out.body), out.key)
            for out in outcome.messages
        ),
        *(
            NewMessage(check_id(child.id, "a child"), "message", encode(child.body))
            for child in outcome.children
        ),
        *(
            NewMessage(check_id(child, "a child"), "cancel", b"\xc0")
            for child in outcome.cancelled_children
        ),
    ]
    change.creates = [
        *(
            NewExecution(out.to, check_id(out.kind, "a kind"))
            for out in outcome.messages
            if out.kind is not None
        ),
        *(
            NewExecution(child.id, check_id(child.kind, "a kind"), live.id)
            for child in outcome.children
        ),
    ]


def message_to_parent(
    parent: str, child: str, status: str, result: Any = None, error: Any = None
) -> NewMessage:
    """Return the message by which a parent learns that a child has ended or is stuck."""
    return NewMessage(parent, *pack(ChildEnded(None, 0.0, child, str(status), result, error)))
