"""Snapshots: reads all rows of one moment, and imports them into an empty store."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import psycopg

from actorflow.engine.errors import StoreConflict
from actorflow.engine.stores.postgres.schema import COLUMNS, qualified
from actorflow.engine.stores.protocol import ExecutionRow, partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from psycopg import Connection

__all__ = ["fill", "stream"]

_AT_ONCE = 1_000  # rows
_ORDER: dict[str, str] = {
    "executions": "id",
    "messages": "execution, id",
    "timers": "execution, id",
    "tasks": "number",
    "watches": "execution, id",
    "history": "execution, id",
    "dead": "number",
    "tags": "execution, name",
    "keys": "execution, key",
}
_EXTRA: dict[str, tuple[str, ...]] = {
    "executions": ("ended", "partition"),
    "messages": ("partition",),
    "timers": ("partition",),
    "tasks": ("number", "partition"),
    "dead": ("number",),
}
"""Columns that are not in a snapshot."""
_NAMES = {"executions": ", ".join(ExecutionRow._fields)}
"""Columns that are computed."""


def stream(connection: Connection[Any], schema: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield all rows of a transaction that sees one moment."""
    last = connection.execute(qualified("SELECT last_value FROM {s}.ids", schema)).fetchone()
    yield "meta", ("last_id", None if last is None else last[0])
    for table, order in _ORDER.items():
        text = f"SELECT {COLUMNS[table]} FROM {{s}}.{table} ORDER BY {order}"  # noqa: S608 - ours
        with connection.cursor(f"snapshot_{table}", binary=True) as rows:
            rows.itersize = _AT_ONCE
            for row in rows.execute(qualified(text, schema)):
                yield table, row


def fill(
    connection: Connection[Any],
    schema: str,
    partitions: int,
    rows: Iterable[tuple[str, tuple[Any, ...]]],
) -> int:
    """Insert rows, in a transaction of the caller's; return how many.

    Raises:
        StoreConflict: the store is not empty, or a row cannot be stored.

    """
    for table in _ORDER:
        text = f"SELECT 1 FROM {{s}}.{table} LIMIT 1"  # noqa: S608 - ours
        if connection.execute(qualified(text, schema)).fetchone() is not None:
            msg = f"schema {schema!r} is not empty: only an empty store can be filled"
            raise StoreConflict(msg)
    filling = _SnapshotCopier(connection, schema, partitions)
    count = 0
    for table, group in groupby(rows, key=lambda each: each[0]):
        if table == "meta":
            filling.note(row for _, row in group)
        elif table in _ORDER:
            count += filling.copy(table, (row for _, row in group))
    filling.finish()
    return count


class _SnapshotCopier:
    """Converts rows of a snapshot into rows of this store."""

    def __init__(self, connection: Connection[Any], schema: str, partitions: int) -> None:
        self._connection = connection
        self._schema = schema
        self._partitions = partitions
        self._ids: dict[Any, int] = {}
        found = connection.execute(qualified("SELECT last_value FROM {s}.ids", schema)).fetchone()
        self._last: int = 0 if found is None else found[0]

    def note(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Use no id that the other store has used, where it has ids of our sort."""
        for name, value in rows:
            if name == "last_id" and isinstance(value, int):
                self._last = max(self._last, value)

    def copy(self, table: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Insert the rows of one table."""
        columns = ", ".join([_NAMES.get(table, COLUMNS[table]), *_EXTRA.get(table, ())])
        text = f"COPY {{s}}.{table} ({columns}) FROM STDIN"
        count = 0
        try:
            with self._connection.cursor().copy(qualified(text, self._schema)) as copy:
                for row in rows:
                    copy.write_row(self._made[table](self, row))
                    count += 1
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            msg = f"a row of {table} cannot be stored: {' '.join(str(error).split())}"
            raise StoreConflict(msg) from error
        return count

    def finish(self) -> None:
        """Make new ids come after all of these."""
        text = qualified("SELECT setval('{s}.ids', greatest(%s, 1))", self._schema)
        self._connection.execute(text, (self._last,))

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _id(self, given: Any) -> int:
        if isinstance(given, int):
            self._last = max(self._last, given)
            return given
        if given not in self._ids:
            self._ids[given] = self._number()
        return self._ids[given]

    def _partition(self, execution: str) -> int:
        return partition_of(execution, self._partitions)

    def _execution(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        ended = row[10] if row[3] in {"done", "failed", "cancelled"} else None
        return (*row, ended, self._partition(row[0]))

    _made: dict[str, Callable[[_SnapshotCopier, tuple[Any, ...]], tuple[Any, ...]]] = {  # noqa: RUF012
        "executions": _execution,
        "messages": lambda self, row: (self._id(row[0]), *row[1:], self._partition(row[1])),
        "timers": lambda self, row: (*row, self._partition(row[0])),
        "tasks": lambda self, row: (
            *row[:9], bool(row[9]), row[10], self._number(), self._partition(row[1]),
        ),
        "watches": lambda _self, row: row,
        "history": lambda self, row: (self._id(row[0]), *row[1:]),
        "dead": lambda self, row: (self._id(row[0]), *row[1:], self._number()),
        "tags": lambda _self, row: row,
        "keys": lambda self, row: (*row[:2], self._id(row[2]), row[3]),
    }  # fmt: skip
