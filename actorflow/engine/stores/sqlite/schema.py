"""Tables and statements of the SQLite store, the seals of its rows, and the order of writing."""

from __future__ import annotations

import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.engine.stores.protocol import (
    DeadRow,
    ExecutionRow,
    HistoryRow,
    MessageRow,
    TaskRow,
    TimerRow,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from actorflow.engine.stores.protocol import Change

__all__ = [
    "CHUNK", "CREATE", "TABLES", "insert", "seal", "seal_created", "seal_execution",
    "seal_known", "segments", "select_text", "spans",
]  # fmt: skip

TABLES: dict[str, tuple[type[Any], str, str]] = {
    "executions": (ExecutionRow, "id, kind, revision, status, state, created, updated", "id"),
    "messages": (MessageRow, "id, execution, body, at", "id"),
    "timers": (TimerRow, "execution, id, due, body", "due, execution, id"),
    "tasks": (TaskRow, "id, execution, tasker, body, attempts, due", "id"),
    "history": (HistoryRow, "number, execution, at, body", "number"),
    "dead": (DeadRow, "id, execution, body, error, at", "id"),
}
_INSERT = {
    table: (
        f"INSERT OR REPLACE INTO {table} ({columns}, seal)"  # noqa: S608 - names of our own
        f" VALUES ({'?, ' * (columns.count(',') + 1)}?)"
    )
    for table, (_, columns, _) in TABLES.items()
}
CREATE = _INSERT["executions"].replace("REPLACE", "IGNORE")
CHUNK = 64  # rows that one statement reads or inserts

_pack = msgspec.msgpack.Encoder().encode


def seal(row: Sequence[Any]) -> int:
    """Make the checksum of a row."""
    return zlib.crc32(_pack(row))


def seal_execution(row: Sequence[Any]) -> int:
    """Make the checksum of an execution: of all that an update knows, and above it of `created`."""
    return seal_created(row[5]) | seal_known(row)


def seal_known(row: Sequence[Any]) -> int:
    """Make the lower half of it, of all but `created`: the whole of it in version 1."""
    return zlib.crc32(_pack((*row[:5], row[6])))


def seal_created(created: float) -> int:
    """Make the upper half of it, which stays as it is when the state changes."""
    return (zlib.crc32(_pack(created)) & 0x7FFF_FFFF) << 32


@cache
def select_text(count: int) -> str:
    """Give the statement that reads so many executions."""
    columns = TABLES["executions"][1]
    return f"SELECT {columns} FROM executions WHERE id IN ({', '.join('?' * count)})"  # noqa: S608


@cache
def _insert_text(table: str, count: int) -> str:
    head, values = _INSERT[table].split(" VALUES ")
    return f"{head} VALUES {', '.join([values] * count)}"


def insert(connection: sqlite3.Connection, table: str, rows: list[Any]) -> None:
    """Insert rows, many with each statement: each gives up the interpreter lock once."""
    for at in range(0, len(rows), CHUNK):
        chunk = rows[at : at + CHUNK]
        values = [value for row in chunk for value in (*row, zlib.crc32(_pack(row)))]
        connection.execute(_insert_text(table, len(chunk)), values)


def segments(changes: list[Change], last: int) -> Iterator[list[Change]]:
    """Split changes so that, in each part, rows may be removed first and added after.

    `last` is the last number of a message before these changes.
    """
    segment: list[Change] = []
    added: set[Any] = set()
    buries = ahead = False
    for change in changes:
        if segment and (
            change.clear
            or (added and not added.isdisjoint(_removed(change)))
            or (buries and change.messages)
            or (change.consumed and (ahead or max(change.consumed) > last))
        ):
            yield segment
            segment, added, buries, ahead = [], set(), False, False
        segment.append(change)
        buries = buries or bool(change.dead)
        ahead = ahead or bool(change.ahead)
        added.update(_added(change))
    if segment:
        yield segment


def _added(change: Change) -> Iterator[Any]:
    """Give what identifies the timers, tasks and dead letters that a change adds."""
    yield from ((row.execution, row.id) for row in change.timers)
    yield from (row.id for row in change.tasks)
    yield from (row.id for row in change.dead)


def _removed(change: Change) -> Iterator[Any]:
    yield from change.cancelled_timers
    yield from change.finished_tasks
    yield from change.buried


def spans(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Give runs of consecutive numbers: one DELETE for each, however many messages it holds."""
    first = last = None
    for number in sorted(numbers):
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = number
    if first is not None and last is not None:
        yield first, last
