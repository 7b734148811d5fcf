"""Validation that all stores share: the durability, and the ids of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import BadOption, near

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.engine.stores.protocol import Change

__all__ = ["check_durability", "validate_ids"]

_DURABILITY = ("full", "normal", "off")


def check_durability(durability: Any) -> None:
    """Validate `durability`.

    Raises:
        BadOption: the value is unknown.

    """
    if durability not in _DURABILITY:
        msg = f"durability={durability!r:.40} is not a setting{near(str(durability), _DURABILITY)}"
        raise BadOption(msg)


def validate_ids(changes: Sequence[Change]) -> None:
    """Refuse ids that are not text, before anything is written. O(rows).

    A store would convert or never find them: 7 and "7" would be one execution, or two.

    Raises:
        TypeError: one is not; the message says which and where.

    """
    for change in changes:
        execution: object = change.execution
        if not isinstance(execution, str):
            _refuse("the execution of a change", execution)
        if change.messages:
            _validate_messages(change.messages)
        if change.creates:
            for new in change.creates:
                _require("an execution to be created", (new.id, new.kind))
                if new.parent is not None:
                    _require("the parent of an execution", (new.parent,))
        if change.timers or change.cancelled_timers or change.fired_timers:
            _validate_timers(change)
        if change.tasks or change.finished_tasks or change.task_results or change.retried:
            _validate_tasks(change)
        if change.watches or change.cancelled_watches or change.dead or change.tags:
            _validate_rest(change)


def _validate_messages(messages: Iterable[tuple[Any, str, bytes, Any]]) -> None:
    for execution, _, _, key in messages:
        if not isinstance(execution, str):
            _refuse("the execution of a message", execution)
        if key is not None and not isinstance(key, str):
            _refuse("the key of a message", key)


def _validate_timers(change: Change) -> None:
    for timer in change.timers:
        _require("a timer", (timer.execution, timer.id))
    for cancelled in change.cancelled_timers:
        _require("a cancelled timer", cancelled)
    for timer, message in change.fired_timers:
        _require("a timer that fired", (timer.execution, timer.id))
        _validate_messages((message,))


def _validate_tasks(change: Change) -> None:
    for task in change.tasks:
        _require("a task", (task.id, task.execution, task.tasker))
    _require("a finished task", change.finished_tasks)
    for retried in change.retried:
        _require("a retried task", (retried.id,))
    for answer in change.task_results:
        _require("the task of an answer", (answer.task,))
        _validate_messages((answer.message,))


def _validate_rest(change: Change) -> None:
    for watch in change.watches:
        _require("a watch", (watch.execution, watch.id, watch.kind))
    for cancelled in change.cancelled_watches:
        _require("a cancelled watch", cancelled)
    for dead in change.dead:
        _require("the execution of a dead letter", (dead.execution,))
    for tag in (change.tags or {}).items():
        _require("a tag", tag)


def _require(what: str, ids: Iterable[Any]) -> None:
    for each in ids:
        if not isinstance(each, str):
            _refuse(what, each)


def _refuse(what: str, given: object) -> None:
    msg = f"{what} is named by {given!r:.100}, which is {type(given).__name__}: ids are str"
    raise TypeError(msg)
