"""Imports the rows of a snapshot into an empty store, also if they have ids of another type."""

from __future__ import annotations

from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from actorflow.engine.stores.sqlite.schema import ORDER, insert

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from actorflow.engine.stores.sqlite.writer import SqliteWriter

__all__ = ["fill"]

_AT_ONCE = 1_000  # rows


def fill(writer: SqliteWriter, rows: Iterable[tuple[str, tuple[Any, ...]]]) -> int:
    """Insert rows as one transaction; return how many. O(n), page by page."""
    filling = _RowConverter(writer)
    count = 0
    with writer.transaction() as connection:
        for table, group in groupby(rows, key=lambda each: each[0]):
            made = filling.made(table, group)
            while some := list(islice(made, _AT_ONCE)):
                insert(connection, table, some)
                count += len(some)
    return count


class _RowConverter:
    """Converts rows of a snapshot into rows of this store."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer
        self._ids: dict[Any, int] = {}

    def made(self, table: str, group: Iterator[tuple[str, tuple[Any, ...]]]) -> Iterator[Any]:
        for _, row in group:
            if table in {"messages", "history"}:
                yield self._id(row[0]), *row[1:]
            elif table == "dead":
                yield self._writer.number(), self._id(row[0]), *row[1:]
            elif table == "tasks":
                yield self._writer.number(), *row
            elif table == "keys":
                yield *row[:2], self._id(row[2]), row[3]
            elif table in ORDER:
                yield row
            elif row[0] == "last_id":
                self._id(row[1])

    def _id(self, given: Any) -> int:
        if isinstance(given, int):
            self._writer.skip(given)
            return given
        if given not in self._ids:
            self._ids[given] = self._writer.number()
        return self._ids[given]
