"""Connections that read pages of rows while another thread commits. Thread-safe."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import StoreRefused
from actorflow.engine.stores.protocol import MessageRow, Page
from actorflow.engine.stores.sqlite.schema import COLUMNS, SELECTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actorflow.engine.stores.sqlite.file import StoreFile

__all__ = ["SqliteReaders"]

_IDLE = 32  # connections that are kept for the next who reads: opening one costs ten reads

_MESSAGES = f"SELECT {COLUMNS['messages']} FROM messages"  # noqa: S608 - ours
_REST_OF_ONE = f"{_MESSAGES} WHERE execution = ? AND id > ? ORDER BY id LIMIT ?"
_OF_OTHERS = f"{_MESSAGES} WHERE execution > ? ORDER BY execution, id LIMIT ?"
_OF_OTHERS_OF_KIND = """
WITH RECURSIVE waiting (name) AS (
  SELECT (SELECT min(execution) FROM messages WHERE execution > ?)
  UNION ALL
  SELECT (SELECT min(execution) FROM messages WHERE execution > name)
  FROM waiting WHERE name IS NOT NULL
)
SELECT m.id, m.execution, m.type, m.body, m.at, m.attempts
FROM waiting
CROSS JOIN executions AS e ON e.id = waiting.name AND e.kind = ?
CROSS JOIN messages AS m ON m.execution = waiting.name
LIMIT ?
"""
"""Goes from one execution that has messages to the next, and past those of other kinds."""


class SqliteReaders:
    """The reading side of one file."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._unusable: str | None = f"{file.path} is closed"

    def open(self) -> None:
        """Begin. Whether the file can be read shows here."""
        connection = self._file.connect(self._file.reading)
        self._idle.append(connection)
        self._file.refuse_strangers(connection)
        self._unusable = None

    def close(self) -> None:
        """Close all connections; those in use when they come back."""
        with self._lock:
            if self._unusable is None:
                self._unusable = f"{self._file.path} is closed"
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def disown(self, reason: str) -> list[sqlite3.Connection]:
        """Refuse all reads in a forked child; return the connections that must not be closed."""
        self._lock = threading.Lock()
        self._unusable = reason
        idle, self._idle = self._idle, []
        return idle

    def require_open(self) -> None:
        """Raise `StoreRefused` if this is closed."""
        if self._unusable is not None:
            raise StoreRefused(self._unusable)

    def read(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a statement that has a limit of its own."""
        with self._lock:
            self.require_open()
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = self._file.connect(self._file.reading)
            return connection.execute(text, values).fetchall()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._file.explain(error) from error
        finally:
            if connection is not None:
                self._put_back(connection)

    def _put_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if self._unusable is None and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def page(
        self,
        table: str,
        make: type[Any],
        filters: Mapping[str, Any],
        order: str,
        limit: int,
        *,
        extra: str = "",
        source: str = "",
        index: str = "",
        cursor: Callable[[Any], Any] = lambda row: row[0],
    ) -> Page[Any]:
        """Return some rows, as objects of `make`.

        Args:
            table: which.
            make: their class; its fields are the columns.
            filters: conditions, with a value or a tuple of values each; those with `None` do not
                count.
            order: of the rows.
            limit: how many, at most.
            extra: one more column, for the cursor only.
            source: what to read from, if not only the table.
            index: the one to be used.
            cursor: returns what the next page begins after, from the last row of this one.

        """
        values: list[Any] = []
        conditions = []
        for condition, value in filters.items():
            if value is not None:
                conditions.append(condition)
                values += value if isinstance(value, tuple) else (value,)
        text = f"SELECT {SELECTED[table]}{', ' + extra if extra else ''} FROM {source or table}"  # noqa: S608
        if index:
            text += f" INDEXED BY {index}"
        if conditions:
            text += f" WHERE {' AND '.join(conditions)}"
        if order:
            text += f" ORDER BY {order}"
        found = self.read(f"{text} LIMIT ?", (*values, limit + 1))
        more = cursor(found[limit - 1]) if len(found) > limit > 0 else None
        if extra:
            return Page([make._make(row[:-1]) for row in found[:limit]], more)
        return Page([make._make(row) for row in found[:limit]], more)

    def pending(
        self, kind: str | None, after: tuple[str, int] | None, limit: int
    ) -> Page[MessageRow]:
        """Return messages to all executions, or to those of a kind.

        In two steps: an execution with many messages is not read from its beginning for each page.
        """
        found = [] if after is None else self.read(_REST_OF_ONE, (*after, limit + 1))
        left = limit + 1 - len(found)
        if left:
            text = _OF_OTHERS if kind is None else _OF_OTHERS_OF_KIND
            if after is None:
                text = text.replace("execution > ?", "execution >= ?")
            values = () if kind is None else (kind,)
            found += self.read(text, ("" if after is None else after[0], *values, left))
        more = (found[limit - 1][1], found[limit - 1][0]) if len(found) > limit else None
        return Page([MessageRow._make(row) for row in found[:limit]], more)
