"""Writes changes in a transaction of the user, who commits it or rolls it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import tuple_row

from actorflow.engine.errors import StoreRefused
from actorflow.engine.stores.postgres.arrays import register_arrays
from actorflow.engine.stores.postgres.connections import explain
from actorflow.engine.stores.postgres.notices import notices_of
from actorflow.engine.stores.postgres.schema import COLUMNS, qualified
from actorflow.engine.stores.postgres.writing.commit_plan import plan_changes
from actorflow.engine.stores.postgres.writing.locked_rows import read_locked_rows
from actorflow.engine.stores.postgres.writing.rows import with_columns
from actorflow.engine.stores.postgres.writing.statements import STORING, statements
from actorflow.engine.stores.postgres.writing.writer import is_to_be_repeated
from actorflow.engine.stores.protocol import ExecutionRow
from actorflow.engine.stores.validation import validate_ids
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.stores.postgres.connections import PostgresAddress
    from actorflow.engine.stores.postgres.writing.commit_plan import CommitPlan
    from actorflow.engine.stores.protocol import Change

__all__ = ["commit_within", "execution_within"]

_TRIES = 20
_EVERYBODY = "-"  # the sender of notices that also the engine which wrote them has to hear


def _checked(connection: Any) -> psycopg.Connection[Any]:
    if not isinstance(connection, psycopg.Connection):
        msg = f"connection={connection!r:.80} is not a psycopg.Connection: give your own"
        raise BadOption(msg)
    register_arrays(connection)
    return connection


def commit_within(
    connection: Any, address: PostgresAddress, partitions: int, changes: Sequence[Change]
) -> None:
    """Write changes in the transaction of a connection. Notices are sent with its commit.

    Raises:
        BadOption: it is not a psycopg connection.
        StoreRefused: it cannot be written; the transaction of the user can go on.

    """
    found = _checked(connection)
    validate_ids(changes)
    schema = address.schema
    if not found.autocommit:
        found.execute(b"SELECT 1")  # begins their transaction: ours must not be the outermost
    for _ in range(_TRIES):
        try:
            with found.transaction():  # a savepoint, where a transaction is open
                locked = read_locked_rows(found, schema, changes, partitions)
                plan = plan_changes(changes, locked, partitions)
                ids = _write(found, schema, plan, partitions)
                for notice in notices_of(plan, _EVERYBODY, partitions, ()):
                    found.execute(b"SELECT pg_notify(%s, %s)", (schema, notice))
        except psycopg.Error as error:
            if not is_to_be_repeated(error):
                raise explain(error, address) from error
        else:
            plan.settle(ids)
            return
    msg = f"{address.shown}: others were faster {_TRIES} times; nothing was changed"
    raise StoreRefused(msg)


def _write(
    connection: psycopg.Connection[Any], schema: str, plan: CommitPlan, partitions: int
) -> list[Any]:
    """Run the statements of a plan; return the ids of its messages."""
    ids: list[Any] = []
    for text, values in statements(plan, partitions, None, fill=with_columns):
        cursor = connection.cursor(row_factory=tuple_row)
        cursor.execute(qualified(text, schema), values, binary=True)
        if text in STORING:
            ids = [row[0] for row in cursor]
    return ids


def execution_within(
    connection: Any, address: PostgresAddress, execution: str
) -> ExecutionRow | None:
    """Return an execution as a transaction sees it."""
    text = f"SELECT {COLUMNS['executions']} FROM {{s}}.executions WHERE id = %s"  # noqa: S608 - ours
    cursor = _checked(connection).cursor(row_factory=tuple_row, binary=True)
    try:
        row = cursor.execute(qualified(text, address.schema), (execution,)).fetchone()
    except psycopg.Error as error:
        raise explain(error, address) from error
    return None if row is None else ExecutionRow._make(row)
