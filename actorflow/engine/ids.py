"""Ids that users and kinds choose: text that every store can keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from actorflow.engine.errors import BadId, StoreRefused, UnknownExecution
from actorflow.runtime.errors import near
from actorflow.runtime.tickets import check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import ExecutionRow, Store

__all__ = ["MAX_LENGTH", "check_id", "check_task_id", "execution_row", "read", "unknown_execution"]

MAX_LENGTH = 1_000
"""Characters of an id, at most."""

T = TypeVar("T")

_IN_EXECUTION = 100  # characters that kinds add to the id of an execution for that of a task


def check_task_id(value: Any) -> str:
    """Return the id of a task, which begins with that of its execution and may be longer."""
    return check_id(value, "a task", MAX_LENGTH + _IN_EXECUTION)


def check_id(value: Any, what: str, most: int = MAX_LENGTH) -> str:
    """Return an id that can be stored.

    >>> check_id(42, "an execution")
    Traceback (most recent call last):
    ...
    actorflow.engine.errors.BadId: the id of an execution must be text, not 42: write '42'

    Raises:
        BadId: it is not text, is empty or too long, or has characters that cannot be stored.

    """
    if type(value) is not str:
        msg = f"the id of {what} must be text, not {value!r:.80}: write {str(value)!r:.80}"
        raise BadId(msg)
    if not value or len(value) > most:
        msg = f"the id of {what} must have 1 to {most} characters, not {len(value)}"
        raise BadId(msg)
    if not value.isprintable():
        msg = f"the id of {what}, {value!r:.80}, has characters that cannot be printed"
        raise BadId(msg)
    return value


def check_wait(execution: Any, timeout: Any) -> None:
    """Validate what `engine.wait` is called with.

    Raises:
        BadId: `execution` is not the id of an execution.
        BadOption: `timeout` is not a number.

    """
    check_id(execution, "an execution")
    if timeout is not None:
        check_timeout(timeout)


def unknown_execution(store: Store, execution: str) -> UnknownExecution:
    """Return the error that names an execution which does not exist."""
    names = [row.id for row in store.listing(limit=1_000).rows]
    msg = f"there is no execution {execution!r}{near(execution, names)}"
    return UnknownExecution(msg)


def read(state: EngineState, look: Callable[..., T], *args: Any, **options: Any) -> T:
    """Return what a call of the store returns.

    Raises:
        EngineClosed: instead of `StoreRefused`, if the engine was closed meanwhile.

    """
    try:
        return look(*args, **options)
    except StoreRefused:
        state.require_open()
        raise


def execution_row(store: Store, state: EngineState, execution: str) -> ExecutionRow:
    """Return an execution as it is stored.

    Raises:
        UnknownExecution: it does not exist.
        EngineClosed: the engine was closed meanwhile.

    """
    row = read(state, store.execution, check_id(execution, "an execution"))
    if row is None:
        raise read(state, unknown_execution, store, execution)
    return row
