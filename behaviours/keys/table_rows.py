"""The private SQLite table of `TableUnique`: pickled messages in line, found by their keys."""

from __future__ import annotations

import pickle
from itertools import count
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.keys.table_names import OTHER, name_of

if TYPE_CHECKING:
    from types import TracebackType

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16384;
CREATE TABLE held (
    place INTEGER PRIMARY KEY,
    key UNIQUE,            -- NULL for keys that SQLite cannot compare as Python does
    hash INTEGER,          -- these are found by hash,
    pickled BLOB,          -- and compared in Python
    message BLOB NOT NULL,
    born REAL              -- of a message that came as an Item
);
CREATE INDEX by_hash ON held (hash) WHERE hash IS NOT NULL;
"""
_PUT = """
INSERT INTO held (place, key, message) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET message = excluded.message, born = NULL
"""

Row = tuple[int, bytes, float | None]
"""The place in line, the pickled message, and when it arrived, if that matters."""


class Rows:
    """Rows in order of their places. A `with` block around several changes makes them fast.

    >>> rows = Rows("")
    >>> rows.insert("a", rows.find("a")[0], b"", b"message", None)
    1
    >>> len(rows), rows.find("a"), rows.find("b"), rows.first(1)
    (1, ('a', 1), ('b', None), [(1, b'message', None)])
    """

    __slots__ = ("_connection", "_count", "_place")

    def __init__(self, database: str) -> None:
        import sqlite3  # noqa: PLC0415 - slow to load, and few need this behaviour

        # The owner calls from one thread at a time, not always the same.
        self._connection = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
        self._connection.executescript(_SCHEMA)
        self._count = 0
        self._place = 0

    def __len__(self) -> int:
        return self._count

    def __enter__(self) -> None:
        self._connection.execute("BEGIN")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Each statement is whole in itself, so there is nothing to roll back.
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Drop the table, and the file behind it."""
        self._connection.close()

    def find(self, key: Any) -> tuple[Any, int | None]:
        """Return the name of a key in the table, and its place if it is there. O(log n).

        Raises whatever comparing the key raises.
        """
        name = name_of(key)
        if name is not OTHER:
            query = "SELECT place FROM held WHERE key = ?"
            found = self._connection.execute(query, (name,)).fetchone()
            return name, None if found is None else found[0]
        query = "SELECT place, pickled FROM held WHERE hash = ?"
        for place, pickled in self._connection.execute(query, (hash(key),)).fetchall():
            if pickle.loads(pickled) == key:  # noqa: S301 - our own table
                return name, place
        return name, None

    def insert(
        self, key: Any, name: Any, pickled: bytes, message: bytes, born: float | None
    ) -> int:
        """Append a row for a key that is not in the table, and return its place.

        `pickled` is the key for one whose name is `OTHER`.
        """
        place = self._place + 1
        row: tuple[Any, ...] = (place, name, None, None, message, born)
        if name is OTHER:
            row = (place, None, hash(key), pickled, message, born)
        self._connection.execute("INSERT INTO held VALUES (?, ?, ?, ?, ?, ?)", row)
        self._place = place
        self._count += 1
        return place

    def update(self, place: int, message: bytes, born: float | None) -> None:
        """Replace the message in a row."""
        update = "UPDATE held SET message = ?, born = ? WHERE place = ?"
        self._connection.execute(update, (message, born, place))

    def put(self, messages: dict[Any, bytes]) -> tuple[int, bool]:
        """Insert or update a row for each of many keys, all of them `int` or `str`. O(k log n).

        Returns:
            how many keys were new, and whether all could be put: an integer may be too wide for
            SQLite, or a string may have lone surrogates. Some are in the table then.

        """
        start = self._place
        self._place += len(messages)
        fit = True
        with self:
            try:
                rows = zip(count(start + 1), messages, messages.values(), strict=False)
                self._connection.executemany(_PUT, rows)
            except Exception:  # noqa: BLE001 - see above
                fit = False
        query = "SELECT count(*) FROM held WHERE place > ?"
        new: int = self._connection.execute(query, (start,)).fetchone()[0]
        self._count += new
        return new, fit

    def first(self, limit: int | None) -> list[Row]:
        """Return the first rows, or all. O(k)."""
        query = "SELECT place, message, born FROM held ORDER BY place LIMIT ?"
        return self._connection.execute(query, (-1 if limit is None else limit,)).fetchall()

    def at(self, place: int) -> Row:
        """Return the row at a place. O(log n)."""
        query = "SELECT place, message, born FROM held WHERE place = ?"
        row: Row = self._connection.execute(query, (place,)).fetchone()
        return row

    def remove(self, place: int) -> None:
        """Delete the row at a place. O(log n)."""
        self._connection.execute("DELETE FROM held WHERE place = ?", (place,))
        self._count -= 1

    def remove_first(self, rows: list[Row]) -> None:
        """Delete the rows that `first` returned. O(k log n)."""
        if len(rows) == self._count:
            self._connection.execute("DELETE FROM held")
        elif rows:
            self._connection.execute("DELETE FROM held WHERE place <= ?", (rows[-1][0],))
        self._count -= len(rows)
