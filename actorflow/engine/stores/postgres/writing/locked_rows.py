"""Reads the rows that changes look at, and locks them until the transaction ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from psycopg.rows import tuple_row

from actorflow.engine.stores.postgres.arrays import Longs, Texts, column_list
from actorflow.engine.stores.postgres.schema import qualified
from actorflow.engine.stores.postgres.writing.commit_plan import LockedRows
from actorflow.engine.stores.protocol import DeadRow, DuplicateKey, partition_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import Connection

    from actorflow.engine.stores.protocol import Change

__all__ = ["read_locked_rows"]

# In an order of their own, so that two who lock the same rows wait for each other at most.
_EPOCHS = """
SELECT number, epoch FROM {s}.epochs WHERE number = ANY(%s) ORDER BY number FOR SHARE
"""
_EXECUTIONS = """
SELECT id, kind, revision FROM {s}.executions WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE
"""
_KEYS = """
SELECT k.execution, k.key, k.message, k.at FROM {s}.keys AS k
JOIN unnest(%s, %s) AS v (execution, key) ON k.execution = v.execution AND k.key = v.key
"""
_TIMERS = """
SELECT t.execution, t.id, t.due FROM {s}.timers AS t
JOIN unnest(%s, %s, %s) AS v (partition, execution, id)
  ON t.partition = v.partition AND t.execution = v.execution AND t.id = v.id
ORDER BY t.execution, t.id FOR UPDATE OF t
"""
_TASKS = "SELECT id, execution FROM {s}.tasks WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
_DEAD = """
SELECT id, execution, type, body, error, at FROM {s}.dead WHERE id = ANY(%s)
ORDER BY id FOR UPDATE
"""


class _Read(Protocol):
    def __call__(self, text: str, *values: Any) -> list[Any]: ...


def read_locked_rows(
    connection: Connection[Any], schema: str, changes: Sequence[Change], partitions: int
) -> LockedRows:
    """Return the stored rows that changes look at. In a transaction."""
    locked = LockedRows()

    def read(text: str, *values: Any) -> list[Any]:
        cursor = connection.cursor(row_factory=tuple_row)
        return cursor.execute(qualified(text, schema), values, binary=True).fetchall()

    _read_executions(locked, read, changes, partitions)
    _read_messages(locked, read, changes)
    timers = sorted(
        {(row.execution, row.id) for change in changes for row, _ in change.fired_timers}
    )
    if timers:
        rows = [(partition_of(name, partitions), name, id_) for name, id_ in timers]
        for execution, id_, due in read(_TIMERS, *column_list(rows, Longs, Texts, Texts)):
            locked.timers[execution, id_] = due
    tasks = {row.id for change in changes for row in (*change.tasks, *change.retried)}
    tasks |= {answer.task for change in changes for answer in change.task_results}
    if tasks:
        locked.tasks.update(read(_TASKS, Texts(sorted(tasks))))
    return locked


def _read_executions(
    locked: LockedRows, read: _Read, changes: Sequence[Change], partitions: int
) -> None:
    owned = {partition_of(c.execution, partitions) for c in changes if c.epoch is not None}
    if owned:
        locked.epochs.update(read(_EPOCHS, Longs(sorted(owned))))
    names = {new.id for change in changes for new in change.creates}
    names |= {change.execution for change in changes if change.expected is not None}
    if names:
        for id_, kind, revision in read(_EXECUTIONS, Texts(sorted(names))):
            locked.executions[id_] = kind, revision


def _read_messages(locked: LockedRows, read: _Read, changes: Sequence[Change]) -> None:
    messages = [message for change in changes for message in _all_messages(change)]
    keys = sorted({(each.execution, each.key) for each in messages if each.key is not None})
    if keys:
        for execution, key, message, at in read(_KEYS, *column_list(keys, Texts, Texts)):
            locked.keys[execution, key] = DuplicateKey(message, at)
    letters = {id_ for change in changes for id_ in change.requeued_letters}
    if letters:
        found = read(_DEAD, Longs(sorted(letters)))
        locked.dead.update((row[0], DeadRow._make(row)) for row in found)


def _all_messages(change: Change) -> list[Any]:
    return [
        *change.messages,
        *(message for _, message in change.fired_timers),
        *(answer.message for answer in change.task_results),
    ]
