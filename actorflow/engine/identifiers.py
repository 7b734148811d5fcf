"""Ids that users and kinds choose: text that every store can keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import UnknownExecution
from actorflow.runtime.errors import near
from actorflow.runtime.worker.tickets import check_timeout

if TYPE_CHECKING:
    from actorflow.engine.stores.protocol import Store

__all__ = ["MAX_LENGTH", "check_id", "check_task_id", "unknown_execution"]

MAX_LENGTH = 1_000
"""Characters of an id, at most."""

_IN_EXECUTION = 100  # characters that kinds add to the id of an execution for that of a task


def check_task_id(value: Any) -> str:
    """Return the id of a task, which begins with that of its execution and may be longer."""
    return check_id(value, "a task", MAX_LENGTH + _IN_EXECUTION)


def check_id(value: Any, what: str, most: int = MAX_LENGTH) -> str:
    """Return an id that can be stored.

    >>> check_id(42, "an execution")
    Traceback (most recent call last):
    ...
    TypeError: the id of an execution must be text, not 42: write '42'

    Raises:
        TypeError: it is not text.
        ValueError: it is empty, too long, or has characters that cannot be stored.

    """
    if type(value) is not str:
        msg = f"the id of {what} must be text, not {value!r:.80}: write {str(value)!r:.80}"
        raise TypeError(msg)
    if not value or len(value) > most:
        msg = f"the id of {what} must have 1 to {most} characters, not {len(value)}"
        raise ValueError(msg)
    if not value.isprintable():
        msg = f"the id of {what}, {value!r:.80}, has characters that cannot be printed"
        raise ValueError(msg)
    return value


def check_wait(execution: Any, timeout: Any) -> None:
    """Validate what `engine.wait` is called with.

    Raises:
        TypeError, ValueError: the id of the execution is none.
        BadOption: `timeout` is no number.

    """
    check_id(execution, "an execution")
    if timeout is not None:
        check_timeout(timeout)


def unknown_execution(store: Store, execution: str) -> UnknownExecution:
    """Return the error that names an execution which is not there."""
    names = [row.id for row in store.listing(limit=1_000).rows]
    msg = f"there is no execution {execution!r}{near(execution, names)}"
    return UnknownExecution(msg)
