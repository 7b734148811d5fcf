"""`TableUnique`: the newest message per key, in a table outside the Python heap."""

from __future__ import annotations

import pickle
import warnings
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from behaviours.arguments import choice, key_function, shown
from behaviours.contract import Behaviour, Fate, Item, Refusal, Tally, Traits, unwrap
from behaviours.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_TRAITS = Traits(ordered=True, divisible=True, shrinks=True, trackable=True)
_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16384;
CREATE TABLE held (
    place INTEGER PRIMARY KEY,
    key UNIQUE,            -- NULL for keys that SQLite cannot compare as Python does
    hash INTEGER,          -- these are found by hash,
    pickled BLOB,          -- and told apart in Python
    message BLOB NOT NULL,
    born REAL              -- of a message that came as an Item
);
CREATE INDEX by_hash ON held (hash) WHERE hash IS NOT NULL;
"""
_PUT = """
INSERT INTO held (place, key, message) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET message = excluded.message, born = NULL
"""
_WIDE = 2**63
"""Integers from here on do not fit in a column."""
_OTHER = object()
_PROTOCOL = pickle.HIGHEST_PROTOCOL


class TableUnique(Behaviour):
    """As `Unique`, but messages are pickled into a private SQLite table: memory stays small.

    Ten million keys cost disk, not ten million Python objects. The table lives in a temporary
    file that is nobody else's and vanishes with the behaviour; `database=":memory:"` keeps it
    in memory. The job gets equal copies of the messages, not the objects that were pushed; a
    message that cannot be pickled is refused alone, with `Malformed`.

    Keys are compared by value, as `Unique` does, numbers and strings and tuples of them in the
    table, others through their pickled copies. Keys of unlike types that happen to be equal
    are one key only among int, float and bool.

    >>> table = TableUnique()
    >>> for message in ("a", 1), ("b", 2), ("a", 3):
    ...     table.add(message)
    >>> table.take()
    [('a', 3), ('b', 2)]
    """

    __slots__ = (
        "_count", "_database", "_dropped", "_given", "_key", "_place", "_rejected", "_replaced",
        "_table", "_tickets",
    )  # fmt: skip

    traits = _TRAITS

    def __init__(self, key: Any = 0, *, database: str = "") -> None:
        super().__init__()
        self._key: Callable[[Any], Any] = key_function(
            key, "TableUnique(key=0) or TableUnique(key=lambda row: row.id)"
        )
        self._given = key
        self._database = choice(database, "database", ("", ":memory:"))
        # The owner calls from one thread at a time, not always the same.
        import sqlite3  # noqa: PLC0415 - slow to load, and few need this behaviour

        self._table = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
        self._table.executescript(_SCHEMA)
        self._count = 0
        self._place = 0
        self._tickets: dict[int, tuple[Any, ...]] = {}
        self._replaced = self._rejected = self._dropped = 0

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was refused before there was a table
            self._table.close()

    def __repr__(self) -> str:
        database = f", database={self._database!r}" if self._database else ""
        return f"TableUnique(key={shown(self._given)}{database})"

    def __len__(self) -> int:
        return self._count

    def add(self, message: Any) -> None:
        """Put a message in the place of an older one with its key, or last in line. O(log n).

        >>> table = TableUnique(key=str.lower)
        >>> for word in "a", "A":
        ...     table.add(word)
        >>> table.take()
        ['A']
        """
        plain = unwrap(message)
        key, name = self._names(plain)
        blob = self._pickled(plain, plain)
        born = message.born if type(message) is Item else None
        place = self._find(key, name)
        if place is None:
            self._place = place = self._place + 1
            row: tuple[Any, ...] = (place, name, None, None, blob, born)
            if name is _OTHER:
                row = (place, None, hash(key), self._pickled(key, plain), blob, born)
            self._table.execute("INSERT INTO held VALUES (?, ?, ?, ?, ?, ?)", row)
            self._count += 1
        else:
            self._displace(place)
            self._table.execute(
                "UPDATE held SET message = ?, born = ? WHERE place = ?", (blob, born, place)
            )
            self._replaced += 1
        if type(message) is Item and message.tickets:
            self._tickets[place] = message.tickets

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Add many messages in one transaction. O(k log n).

        >>> table = TableUnique()
        >>> table.extend([("a", 1), ("b", 2), ("a", 3)])
        ()
        >>> len(table)
        2
        """
        self._table.execute("BEGIN")
        try:
            if not self._tickets and (self.gone is None or Item not in map(type, messages)):
                keys = self._plain_keys(messages)
                if keys is not None and self._put(keys, messages):
                    return ()
            # One of them is special or malformed. Adding again those that are in already
            # changes nothing: the newest wins.
            return super().extend(messages)
        finally:
            self._table.execute("COMMIT")

    def take(self, limit: int | None = None) -> list[Any]:
        """Hand over one message per key, or the first `limit` in line. O(k log n).

        >>> table = TableUnique()
        >>> _ = table.extend([("a", 1), ("b", 2), ("a", 3)])
        >>> table.take(1), table.take()
        ([('a', 3)], [('b', 2)])
        """
        rows = self._rows(limit)
        if len(rows) == self._count:
            self._table.execute("DELETE FROM held")
        elif rows:
            self._table.execute("DELETE FROM held WHERE place <= ?", (rows[-1][0],))
        self._count -= len(rows)
        return self._restored(rows)

    def peek(self) -> Any:
        """Return the first message in line. O(log n).

        >>> table = TableUnique()
        >>> _ = table.extend([("a", 1), ("b", 2)])
        >>> table.peek()
        ('a', 1)
        """
        for place, blob, born in self._rows(1):
            message = pickle.loads(blob)  # noqa: S301 - our own table
            tickets = self._tickets.get(place, ())
            return message if born is None else Item(message, tickets, born)
        msg = f"peek at an empty {self!r}"
        raise IndexError(msg)

    def drop_oldest(self) -> Any:
        """Forget the message whose key has waited longest, and return it. O(log n).

        >>> table = TableUnique()
        >>> _ = table.extend([("a", 1), ("b", 2), ("a", 3)])
        >>> table.drop_oldest()
        ('a', 3)
        """
        dropped = self.take(1)
        return dropped[0] if dropped else None

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the messages of the `count` keys that have waited longest. O(count log n).

        >>> table = TableUnique()
        >>> _ = table.extend([("a", 1), ("b", 2), ("c", 3)])
        >>> table.drop_many(2)
        [('a', 1), ('b', 2)]
        """
        return self.take(count)

    def grows(self, message: Any) -> bool:
        """Whether the key of `message` is new. O(log n).

        >>> table = TableUnique()
        >>> table.add(("a", 1))
        >>> table.grows(("a", 2)), table.grows(("b", 1))
        (False, True)
        """
        rejected = self._rejected
        try:
            return self._find(*self._names(unwrap(message))) is None
        except Malformed:
            self._rejected = rejected
            return False

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the dead messages. O(n).

        >>> table = TableUnique()
        >>> _ = table.extend([("a", 1), ("b", 2)])
        >>> table.forget(lambda message: message[1] < 2)
        [('a', 1)]
        """
        forgotten: list[Any] = []
        for row in self._rows(None):
            for message in self._restored([row], keep=True):
                if dead(message):
                    forgotten.append(message)
                    self._tickets.pop(row[0], None)
                    self._table.execute("DELETE FROM held WHERE place = ?", (row[0],))
        self._count -= len(forgotten)
        return forgotten

    def tally(self) -> Tally:
        """Count what was replaced and rejected; dropped is what could not be unpickled. O(1).

        >>> table = TableUnique()
        >>> _ = table.extend([("a", 1), ("a", 2)])
        >>> table.tally().replaced
        1
        """
        return Tally(replaced=self._replaced, dropped=self._dropped, rejected=self._rejected)

    def check(self) -> None:
        """Verify that the count is that of the table, and that tickets have messages. O(n)."""
        places = {place for (place,) in self._table.execute("SELECT place FROM held")}
        assert len(places) == self._count, "the count differs from the table"  # noqa: S101
        assert self._tickets.keys() <= places, "a ticket without a message"  # noqa: S101

    def _names(self, plain: Any) -> tuple[Any, Any]:
        """Give the key of a message and its name in the table, or `_OTHER`.

        Raises:
            Malformed: there is no key, or one that cannot be a key.

        """
        try:
            key = self._key(plain)
            hash(key)
            name = _name(key)
        except Exception as error:
            self._rejected += 1
            raise Malformed(plain, f"no key={shown(self._given)}: {error!r}") from error
        return key, name

    def _pickled(self, value: Any, message: Any) -> bytes:
        try:
            return pickle.dumps(value, _PROTOCOL)
        except Exception as error:
            self._rejected += 1
            raise Malformed(message, f"it cannot be pickled: {error!r}") from error

    def _find(self, key: Any, name: Any) -> int | None:
        """Give the place of a key."""
        if name is not _OTHER:
            found = self._table.execute("SELECT place FROM held WHERE key = ?", (name,)).fetchone()
            return None if found is None else found[0]
        query = "SELECT place, pickled FROM held WHERE hash = ?"
        for place, pickled in self._table.execute(query, (hash(key),)).fetchall():
            if pickle.loads(pickled) == key:  # noqa: S301 - our own table
                return place  # type: ignore[no-any-return]
        return None

    def _plain_keys(self, messages: list[Any]) -> list[Any] | None:
        """Give the keys if the table can compare them as they are."""
        try:
            keys = list(map(self._key, messages))
        except Exception:  # noqa: BLE001 - one of them is malformed: find out which
            return None
        return keys if set(map(type, keys)) in ({int}, {str}) else None

    def _put(self, keys: list[Any], messages: list[Any]) -> bool:
        """Put many messages with plain keys; False if one of them is unfit."""
        start = self._place
        self._place += len(messages)
        blobs = (pickle.dumps(message, _PROTOCOL) for message in messages)
        fit = True
        try:
            self._table.executemany(_PUT, zip(count(start + 1), keys, blobs))
        except Exception:  # noqa: BLE001 - too wide a number, a lone surrogate, no pickle
            fit = False
        query = "SELECT count(*) FROM held WHERE place > ?"
        new: int = self._table.execute(query, (start,)).fetchone()[0]
        self._count += new
        if fit:
            self._replaced += len(messages) - new
        else:
            # Each of the new ones will be added again, as if it replaced itself.
            self._replaced -= new
        return fit

    def _displace(self, place: int) -> None:
        """Report who waits for the message that is about to be replaced."""
        tickets = self._tickets.pop(place, None)
        if tickets and self.gone is not None:
            query = "SELECT message, born FROM held WHERE place = ?"
            blob, born = self._table.execute(query, (place,)).fetchone()
            message = pickle.loads(blob)  # noqa: S301 - our own table
            self.gone.append((Item(message, tickets, born), Fate.REPLACED))

    def _rows(self, limit: int | None) -> list[tuple[int, bytes, float | None]]:
        query = "SELECT place, message, born FROM held ORDER BY place LIMIT ?"
        return self._table.execute(query, (-1 if limit is None else limit,)).fetchall()

    def _restored(
        self, rows: Iterable[tuple[int, bytes, float | None]], *, keep: bool = False
    ) -> list[Any]:
        """Give the messages of rows that are no longer in the table."""
        batch: list[Any] = []
        for place, blob, born in rows:
            tickets = self._tickets.get(place, ()) if keep else self._tickets.pop(place, ())
            try:
                message = pickle.loads(blob)  # noqa: S301 - our own table
            except Exception as error:  # noqa: BLE001 - whatever its class does
                self._lose(blob, tickets, error)
                continue
            batch.append(message if born is None else Item(message, tickets, born))
        return batch

    def _lose(self, blob: bytes, tickets: tuple[Any, ...], error: Exception) -> None:
        """Give up a message that was pickled but cannot be unpickled."""
        self._dropped += 1
        if tickets and self.gone is not None:
            self.gone.append((Item(blob, tickets), Fate.DROPPED))
        warnings.warn(
            f"{self!r} drops a message that cannot be unpickled: {error!r}",
            RuntimeWarning,
            stacklevel=4,
        )


def _name(key: Any) -> Any:
    """Give a value that SQLite compares as Python compares the key, or `_OTHER`."""
    if key is None:
        return b"n"
    kind = type(key)
    for base, name in _NAMES:
        if _is_plain(kind, base):
            return name(key)
    return _OTHER


def _is_plain(kind: type, base: type) -> bool:
    """Whether objects of this kind compare as those of the built-in type do."""
    if kind is base:
        return True
    same = kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__
    return issubclass(kind, base) and same


def _text(text: str) -> str | bytes:
    """Give the text itself; if it has lone surrogates, which are not text for SQLite, bytes."""
    text = str.__str__(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return b"s" + text.encode("utf-8", "surrogatepass")
    return text


def _whole(number: int) -> int | bytes:
    number = int(number)
    return number if -_WIDE <= number < _WIDE else b"i%d" % number


def _real(number: float) -> float | bytes:
    if number != number:  # noqa: PLR0124 - NaN is not itself
        msg = "NaN equals nothing, not even itself"
        raise ValueError(msg)
    return _whole(int(number)) if number.is_integer() else float(number)


def _tuple(key: tuple[Any, ...]) -> Any:
    names = [_name(element) for element in key]
    return _OTHER if _OTHER in names else b"t" + repr(names).encode()


_NAMES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, _text),
    (int, _whole),  # bool, too
    (float, _real),
    (bytes, lambda key: b"b" + key),
    (tuple, _tuple),
)
