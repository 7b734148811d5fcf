"""Writes the states of executions: the first one, another whole one, or a part to be added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.failpoints import FAILPOINTS, failpoint
from actorflow.engine.stores.sqlite.schema import (
    APPEND,
    APPEND_ACTIVE,
    CREATE,
    CREATE_OR_UPDATE,
    KEEP_ACTIVE,
    MOVE_STATE,
    UPDATE,
    UPDATE_PARTS,
)

if TYPE_CHECKING:
    import sqlite3

    from actorflow.engine.stores.protocol import Change, NewExecution

__all__ = ["create", "update"]


def create(
    connection: sqlite3.Connection, change: Change, new: NewExecution, *, only: bool
) -> bool:
    """Write the first state; return whether the execution had none, and with `only` was not there.

    The execution is created if it has to be.
    """
    at = float(change.at)
    row = (
        new.id, new.kind, 1, change.status, change.state, change.version, change.result,
        change.error, new.parent, at, at,
    )  # fmt: skip
    change.revision = 1
    return bool(connection.execute(CREATE if only else CREATE_OR_UPDATE, row).rowcount)


def update(connection: sqlite3.Connection, change: Change) -> bool:
    """Write a state that follows another; return whether it is still at that revision."""
    assert change.expected is not None  # noqa: S101 - or there is no state to write
    change.revision = change.expected + 1
    return _append(connection, change) if change.appends else _replace(connection, change)


def _replace(connection: sqlite3.Connection, change: Change) -> bool:
    execute = connection.execute
    state = (
        change.revision, change.state, change.version, change.result, change.error,
        float(change.at),
    )  # fmt: skip
    where = change.execution, change.expected
    if change.status == "active" and execute(KEEP_ACTIVE, (*state, *where)).rowcount:
        return True
    if execute(UPDATE, (*state, change.status, *where)).rowcount:
        return True
    if not connection.in_transaction:  # it was to be written by a single statement
        execute("BEGIN IMMEDIATE")
    if not execute(UPDATE_PARTS, (*state, change.status, *where)).rowcount:
        return False
    if FAILPOINTS:
        failpoint("commit.parts")
    execute("DELETE FROM parts WHERE execution = ?", where[:1])
    return True


def _append(connection: sqlite3.Connection, change: Change) -> bool:
    execute = connection.execute
    state: tuple[Any, ...] = (
        change.revision, change.version, change.result, change.error, float(change.at),
    )  # fmt: skip
    where = change.execution, change.expected
    done = 0
    if change.status == "active":
        done = execute(APPEND_ACTIVE, (*state, *where)).rowcount
    if not done:
        execute(MOVE_STATE, where)
        if FAILPOINTS:
            failpoint("commit.parts")
        done = execute(APPEND, (*state, change.status, *where)).rowcount
    if done:
        part = (change.execution, change.revision, change.state)
        execute("INSERT INTO parts VALUES (?, ?, ?)", part)
    return bool(done)
