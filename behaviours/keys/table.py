"""`TableUnique`: the newest message per key, in a table outside the Python heap."""

from __future__ import annotations

import pickle
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import choice, key_function, shown
from actorflow.behaviours.behaviour import (
    Behaviour,
    Fate,
    Item,
    Refusal,
    Tally,
    Traits,
    has_key,
    keyless,
    unusable,
    unwrap,
)
from actorflow.behaviours.errors import BadBehaviour, Malformed
from actorflow.behaviours.keys.table_names import OTHER
from actorflow.behaviours.keys.table_rows import Row, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TRAITS = Traits(ordered=True, divisible=True, shrinks=True, trackable=True)
_NEAR = 4_096
"""The number of keys that may be held in memory before the table is used."""
_PROTOCOL = pickle.HIGHEST_PROTOCOL
_PLAIN_KEYS = frozenset({int, str})
_SCALARS = frozenset({int, str, float, bool, bytes, type(None)})
_TUPLE = frozenset({tuple})


class TableUnique(Behaviour):
    """Like `Unique`, but messages are pickled into a private SQLite table: memory stays small.

    Ten million keys cost disk, not ten million Python objects. The table lives in a temporary
    file that is private and vanishes with the behaviour; `database=":memory:"` keeps it in
    memory. The job gets equal copies of the messages, not the objects that were pushed; a
    message that does not survive pickling and unpickling is refused alone, with `Malformed`.

    Keys are compared by value, as `Unique` does, numbers and strings and tuples of them in the
    table, others through their pickled copies. Keys of unlike types that happen to be equal
    are one key only among int, float and bool.

    While there are few keys, messages that cannot change (tuples of numbers and strings) are
    held in a dict, and move to the table when there are more.

    >>> table = TableUnique()
    >>> for message in ("a", 1), ("b", 2), ("a", 3):
    ...     table.add(message)
    >>> table.take()
    [('a', 3), ('b', 2)]
    """

    __slots__ = (
        "_database", "_dropped", "_given", "_key", "_near", "_rejected", "_replaced", "_rows",
        "_tickets",
    )  # fmt: skip

    traits = _TRAITS

    def __init__(self, key: Any = 0, *, database: str = "") -> None:
        super().__init__()
        self._key: Callable[[Any], Any] = key_function(
            key, "TableUnique(key=0) or TableUnique(key=lambda row: row.id)"
        )
        self._given = key
        self._database = choice(database, "database", ("", ":memory:"))
        self._rows = Rows(database)
        self._near: dict[Any, Any] = {}  # empty unless the table is
        self._tickets: dict[int, tuple[Any, ...]] = {}
        self._replaced = self._rejected = self._dropped = 0

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was refused before there was a table
            self._rows.close()

    def __repr__(self) -> str:
        database = f", database={self._database!r}" if self._database else ""
        return f"TableUnique(key={shown(self._given)}{database})"

    def __len__(self) -> int:
        return len(self._rows) or len(self._near)

    def add(self, message: Any) -> None:
        """Put a message in the place of an older one with its key, or last in line. O(log n).

        >>> table = TableUnique(key=str.lower)
        >>> for word in "a", "A":
        ...     table.add(word)
        >>> table.take()
        ['A']
        """
        plain = unwrap(message)
        key = self._key_of(plain)
        if plain is message and type(key) in _PLAIN_KEYS and self._keeps_near([plain]):
            self._put_near([key], [plain])
        else:
            self._spill()
            self._insert(key, message)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Add many messages in one transaction. O(k log n).

        >>> table = TableUnique()
        >>> table.extend([("a", 1), ("b", 2), ("a", 3)])
        ()
        >>> len(table)
        2
        """
        if self.gone is None or Item not in map(type, messages):
            keys = self._plain_keys(messages)
            if keys is not None:
                if self._keeps_near(messages):
                    self._put_near(keys, messages)
                    return ()
                self._spill()
                if not self._tickets and self._put(keys, messages):
                    return ()
        # One of them is special or malformed. Adding a message a second time changes nothing,
        # because the newest wins.
        self._spill()
        refused: list[Refusal] = []
        with self._rows:
            for message in messages:
                try:
                    self._insert(self._key_of(unwrap(message)), message)
                except Malformed as error:
                    refused.append(((message,), error))
        return refused

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has a key. O(1)."""
        return has_key(self._key, message)

    def take(self, limit: int | None = None, free: int = 1) -> list[Any]:
        """Hand over one message per key, or the first `limit` in line. O(k log n).

        >>> table = TableUnique()
        >>> _ = table.extend([("a", 1), ("b", 2), ("a", 3)])
        >>> table.take(1), table.take()
        ([('a', 3)], [('b', 2)])
        """
        near = self._near
        if near:
            if limit is None or limit >= len(near):
                self._near = {}
                return list(near.values())
            return [near.pop(key) for key in list(islice(near, limit))]
        batch: list[Any] = []
        error: BaseException | None = None
        while not batch:
            rows = self._rows.first(limit)
            if not rows:
                if error is None:
                    return batch
                msg = f"{self!r} holds nothing but messages that no longer unpickle"
                raise BadBehaviour(msg) from error
            self._rows.remove_first(rows)
            for row in rows:
                try:
                    batch.append(self._restored(row))
                except Malformed as lost:
                    error = lost
        return batch

    def peek(self) -> Any:
        """Return the first message in line. O(log n).

        >>> table = TableUnique()
        >>> _ = table.extend([("a", 1), ("b", 2)])
        >>> table.peek()
        ('a', 1)
        """
        for message in self._near.values():
            return message
        while rows := self._rows.first(1):
            with suppress(Malformed):
                return self._restored(rows[0], keep=True)
            self._rows.remove(rows[0][0])
        msg = f"peek at an empty {self!r}"
        raise IndexError(msg)

    def drop_oldest(self) -> Any:
        """Forget the message whose key has waited longest, and return it. O(log n).

        >>> table = TableUnique()
        >>> _ = table.extend([("a", 1), ("b", 2), ("a", 3)])
        >>> table.drop_oldest()
        ('a', 3)
        """
        return self.take(1)[0]

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the messages of the `count` keys that have waited longest. O(count log n).

        >>> table = TableUnique()
        >>> _ = table.extend([("a", 1), ("b", 2), ("c", 3)])
        >>> table.drop_many(2)
        [('a', 1), ('b', 2)]
        """
        return self.take(count) if count else ()

    def grows(self, message: Any) -> bool:
        """Return whether the key of `message` is new. O(log n).

        >>> table = TableUnique()
        >>> table.add(("a", 1))
        >>> table.grows(("a", 2)), table.grows(("b", 1))
        (False, True)
        """
        plain, rejected = unwrap(message), self._rejected
        try:
            key = self._key_of(plain)
            if self._near and type(key) in _PLAIN_KEYS:
                return key not in self._near
            self._spill()
            return self._find(key, plain)[1] is None
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
        self._spill()
        forgotten: list[Any] = []
        for row in self._rows.first(None):
            try:
                message = self._restored(row, keep=True)
            except Malformed:
                self._rows.remove(row[0])
                continue
            if dead(message):
                forgotten.append(message)
                self._tickets.pop(row[0], None)
                self._rows.remove(row[0])
        return forgotten

    def withdraw(self, message: Any) -> bool:
        """Forget one message with a waiting caller, if it is held. O(log n).

        >>> table = TableUnique()
        >>> table.track([])
        >>> item = Item(("a", 1), ("ticket",))
        >>> table.add(item)
        >>> table.withdraw(item), len(table)
        (True, 0)
        """
        if type(message) is not Item or not message.tickets:
            return False
        rejected = self._rejected
        try:
            place = self._find(self._key_of(message.message), message.message)[1]
        except Malformed:  # it has never been accepted
            self._rejected = rejected
            return False
        if place is None or self._tickets.get(place) is not message.tickets:
            return False
        del self._tickets[place]
        self._rows.remove(place)
        return True

    def tally(self) -> Tally:
        """Return the counts; `dropped` counts messages that can no longer be unpickled. O(1).

        >>> table = TableUnique()
        >>> _ = table.extend([("a", 1), ("a", 2)])
        >>> table.tally().replaced
        1
        """
        return Tally(replaced=self._replaced, dropped=self._dropped, rejected=self._rejected)

    def check(self) -> None:
        """Verify that the count is that of the table, and that tickets have messages. O(n)."""
        places = {place for place, _, _ in self._rows.first(None)}
        assert len(places) == len(self._rows), "the count differs from the table"  # noqa: S101
        assert self._tickets.keys() <= places, "a ticket without a message"  # noqa: S101
        assert not (self._near and places), "messages in two places"  # noqa: S101

    def _key_of(self, plain: Any) -> Any:
        """Return the key of a message.

        Raises:
            Malformed: there is no key, or one that cannot be a key.

        """
        try:
            key = self._key(plain)
            hash(key)
        except BaseException as error:
            raise self._no_key(plain, error) from error
        return key

    def _no_key(self, plain: Any, error: BaseException) -> Malformed:
        self._rejected += 1
        return keyless(plain, self._given, error)

    def _pickled(self, value: Any, message: Any) -> bytes:
        """Return the pickle of a value that unpickles again.

        Raises:
            Malformed: it does not.

        """
        try:
            return _verified(value)
        except BaseException as error:
            self._rejected += 1
            raise unusable(message, "it cannot be pickled and unpickled:", error) from error

    def _find(self, key: Any, plain: Any) -> tuple[Any, int | None]:
        """Return the name of a key in the table, and its place if it is there.

        Raises:
            Malformed: the key cannot be compared.

        """
        try:
            return self._rows.find(key)
        except BaseException as error:
            raise self._no_key(plain, error) from error

    def _insert(self, key: Any, message: Any) -> None:
        """Put one message into the table, in the place of an older one or last in line."""
        plain = unwrap(message)
        blob = self._pickled(plain, plain)
        name, place = self._find(key, plain)
        born = message.born if type(message) is Item else None
        if place is None:
            pickled = self._pickled(key, plain) if name is OTHER else b""
            place = self._rows.insert(key, name, pickled, blob, born)
        else:
            self._displace(place)
            self._rows.update(place, blob, born)
            self._replaced += 1
        if type(message) is Item and message.tickets:
            self._tickets[place] = message.tickets

    def _plain_keys(self, messages: list[Any]) -> list[Any] | None:
        """Return the keys if the table can compare them as they are."""
        try:
            keys = list(map(self._key, messages))
        except BaseException:  # noqa: BLE001 - one of them is malformed: find out which
            return None
        # There are fewer if the function raised StopIteration.
        right = len(keys) == len(messages) and _PLAIN_KEYS.issuperset(map(type, keys))
        return keys if right else None

    def _keeps_near(self, messages: list[Any]) -> bool:
        """Return whether messages with plain keys can be held in memory."""
        return not self._rows and len(self._near) <= _NEAR and _are_plain(messages)

    def _put_near(self, keys: list[Any], messages: list[Any]) -> None:
        near = self._near
        before = len(near)
        near.update(zip(keys, messages, strict=True))
        self._replaced += len(messages) - (len(near) - before)
        if len(near) > _NEAR:
            self._spill()

    def _spill(self) -> None:
        """Move the messages in memory to the table."""
        near, self._near = self._near, {}
        if near and not self._put(list(near), list(near.values())):
            with self._rows:
                for key, message in near.items():
                    self._insert(key, message)

    def _put(self, keys: list[Any], messages: list[Any]) -> bool:
        """Put many messages with plain keys into the table; False if one of them is unfit."""
        try:
            if _are_plain(messages):
                blobs = [pickle.dumps(message, _PROTOCOL) for message in messages]
            else:
                blobs = [_verified(message) for message in messages]
        except BaseException:  # noqa: BLE001 - one of them is malformed: find out which
            return False
        new, fit = self._rows.put(dict(zip(keys, blobs, strict=True)))
        if fit:
            self._replaced += len(messages) - new
        else:
            # Each of the new ones will be added again, as if it replaced itself.
            self._replaced -= new
        return fit

    def _displace(self, place: int) -> None:
        """Report a message with waiting callers that is about to be replaced."""
        tickets = self._tickets.pop(place, None)
        if tickets and self.gone is not None:
            _, message, born = self._rows.at(place)
            with suppress(BaseException):  # it leaves in any case
                message = pickle.loads(message)  # noqa: S301 - our own table
            self.gone.append((Item(message, tickets, born or 0.0), Fate.REPLACED))

    def _restored(self, row: Row, *, keep: bool = False) -> Any:
        """Return the message of a row; `keep` its tickets if it stays in the table.

        Raises:
            Malformed: it does not unpickle any more, although it did when it was accepted. It
                has been counted as dropped, and the caller removes the row.

        """
        place, blob, born = row
        tickets = self._tickets.get(place, ()) if keep else self._tickets.pop(place, ())
        try:
            message = pickle.loads(blob)  # noqa: S301 - our own table
        except BaseException as error:
            self._dropped += 1
            self._tickets.pop(place, None)
            if tickets and self.gone is not None:
                self.gone.append((Item(blob, tickets), Fate.DROPPED))
            raise unusable(blob, "it no longer unpickles:", error) from error
        return message if born is None else Item(message, tickets, born)


def _verified(value: Any) -> bytes:
    """Return the pickle of a value after unpickling it once."""
    blob = pickle.dumps(value, _PROTOCOL)
    if type(value) not in _SCALARS:
        pickle.loads(blob)  # noqa: S301 - made a moment ago
    return blob


def _are_plain(messages: list[Any]) -> bool:
    """Return whether all messages are, or are tuples of, values that cannot change."""
    kinds = set(map(type, messages))
    if kinds == _TUPLE:
        kinds = set(map(type, chain.from_iterable(messages)))
    return kinds <= _SCALARS
