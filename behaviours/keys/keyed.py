"""One message per key, keys in the order in which they came: `Unique` and `Coalesce`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import key_function, shown
from actorflow.behaviours.behaviour import (
    Behaviour,
    Item,
    Judge,
    Traits,
    Verdict,
    has_key,
    keyless,
    same,
    unwrap,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_TRAITS = Traits(ordered=True, divisible=True, shrinks=True, trackable=True, chooses=True)


class Keyed(Behaviour):
    """A dict from key to message; a key that is there keeps its place in line.

    Finding the first entry of a dict is slow once many before it were deleted. So when keys are
    taken in parts, `_order` holds a copy of the keys, oldest at the end, and they leave from
    there; keys that come later wait in the dict for the next copy.
    """

    __slots__ = ("_given", "_key", "_order", "_rejected", "_table", "_turned", "_wrapped")

    traits = _TRAITS

    _order: list[Any] | None

    def __init__(self, key: Any, example: str) -> None:
        super().__init__()
        self._key: Callable[[Any], Any] = key_function(key, example)
        self._given = key
        self._table: dict[Any, Any] = {}
        self._order = None
        self._turned = 0
        self._rejected = 0
        self._wrapped = False  # whether a message in the table may be an Item

    def __repr__(self) -> str:
        return f"{type(self).__name__}(key={shown(self._given)})"

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, in line. O(n)."""
        return iter(self._table.values())

    def grows(self, message: Any) -> bool:
        """Return whether the key of `message` is new. O(1).

        >>> from actorflow.behaviours import Unique
        >>> unique = Unique()
        >>> unique.add(("a", 1))
        >>> unique.grows(("a", 2)), unique.grows(("b", 1))
        (False, True)
        """
        try:
            return self._key(unwrap(message)) not in self._table
        except BaseException:  # noqa: BLE001 - add will refuse it, so it does not grow
            return False

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has a key. O(1)."""
        return has_key(self._key, message)

    def take(self, limit: int | None = None, free: int = 1) -> list[Any]:
        """Hand over one message per key, or the first `limit` in line. O(k) on average.

        >>> from actorflow.behaviours import Unique
        >>> unique = Unique()
        >>> _ = unique.extend([("a", 1), ("b", 2), ("a", 3)])
        >>> unique.take(1), unique.take()
        ([('a', 3)], [('b', 2)])
        """
        if limit is None or limit >= len(self._table):
            batch = list(self._table.values())
            self._table = {}
            self._order = None
            self._turned = 0
            self._wrapped = False
            return batch
        keys = self._leave(limit)
        return list(map(self._table.pop, keys))

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over the messages that `judge` takes. O(1) on average for each one judged.

        >>> from actorflow.behaviours import Unique, Verdict
        >>> unique = Unique()
        >>> _ = unique.extend([("a", 1), ("b", 2), ("a", 3)])
        >>> unique.choose(lambda message: Verdict.TAKE, 1)
        [('a', 3)]
        """
        batch: list[Any] = []
        skipped: list[Any] = []
        while len(self._table) > len(skipped) and (limit is None or len(batch) < limit):
            if self._order:
                line = self._order
            else:
                line = self._line()
                del line[len(line) - len(skipped) :]
            key = line[-1]
            item = self._table[key]
            verdict = judge(item)
            if verdict is Verdict.STOP:
                break
            line.pop()
            if verdict is Verdict.SKIP:
                skipped.append(key)
                continue
            del self._table[key]
            if verdict is Verdict.TAKE:
                batch.append(item)
        if skipped:
            skipped.reverse()
            self._order = [*(self._order or ()), *skipped]
        return batch

    def withdraw(self, message: Any) -> bool:
        """Forget one message, if it is held and has not been merged with another. O(n).

        >>> from actorflow.behaviours import Unique
        >>> unique = Unique()
        >>> message = ("a", 1)
        >>> unique.add(message)
        >>> unique.withdraw(message), len(unique)
        (True, 0)
        """
        try:
            key = self._key(unwrap(message))
            held = self._table.get(key)
        except BaseException:  # noqa: BLE001 - it has never been accepted
            return False
        if held is None or not same(held, message):
            return False
        del self._table[key]
        self._order = None
        return True

    def peek(self) -> Any:
        """Return the first message in line. O(1) on average.

        >>> from actorflow.behaviours import Unique
        >>> unique = Unique()
        >>> _ = unique.extend([("a", 1), ("b", 2)])
        >>> unique.peek()
        ('a', 1)
        """
        if not self._table:
            msg = f"peek at an empty {self!r}"
            raise IndexError(msg)
        key = self._line()[-1]
        return self._table[key]

    def drop_oldest(self) -> Any:
        """Forget the message whose key has waited longest, and return it. O(1) on average.

        >>> from actorflow.behaviours import Unique
        >>> unique = Unique()
        >>> _ = unique.extend([("a", 1), ("b", 2), ("a", 3)])
        >>> unique.drop_oldest()
        ('a', 3)
        """
        key = self._line().pop()
        return self._table.pop(key)

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the messages of the `count` keys that have waited longest. O(count) on average.

        >>> from actorflow.behaviours import Unique
        >>> unique = Unique()
        >>> _ = unique.extend([("a", 1), ("b", 2), ("c", 3)])
        >>> unique.drop_many(2)
        [('a', 1), ('b', 2)]
        """
        return self.take(count) if count else ()

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the dead messages. O(n): a replaced message keeps its place but is younger.

        >>> from actorflow.behaviours import Unique
        >>> unique = Unique()
        >>> _ = unique.extend([("a", 1), ("b", 2)])
        >>> unique.forget(lambda message: message[1] < 2)
        [('a', 1)]
        """
        forgotten = [message for message in self._table.values() if dead(message)]
        if forgotten:
            alive = {key: value for key, value in self._table.items() if not dead(value)}
            self._table = alive
            self._order = None
        return forgotten

    def depths(self) -> Mapping[Any, int]:
        """Return 1 for each key that is held. O(keys)."""
        return dict.fromkeys(self._table, 1)

    def check(self) -> None:
        """Verify that the copied keys stand in line. O(n)."""
        if self._order:
            line = list(islice(self._table, len(self._order)))
            assert line == self._order[::-1], "the copied keys differ from the line"  # noqa: S101

    def _line(self) -> list[Any]:
        """Return the copy of the keys, oldest at the end, never empty unless the table is.

        May replace the table by a new one.
        """
        if not self._order:
            if self._turned > len(self._table):
                # More was deleted before these keys than there are: close the gap.
                self._table = dict(self._table)
            self._order = list(self._table)
            self._order.reverse()
            self._turned = len(self._order)
        return self._order

    def _leave(self, count: int) -> list[Any]:
        """Return the first `count` keys, which the caller deletes from the table."""
        line = self._line()
        keys = line[-count:]
        keys.reverse()
        del line[-count:]
        if len(keys) < count:
            # The copy ends here; keys added since it was made follow it in the table.
            keys += islice(self._table, len(keys), count)
            self._order = None
        return keys

    def _items_about(self, messages: list[Any]) -> bool:
        """Return whether a message in the table or in the list may be an `Item`."""
        if self.gone is None:
            return False
        if not self._wrapped:
            self._wrapped = Item in map(type, messages)
        return self._wrapped

    def _find(self, message: Any, missing: Any) -> tuple[Any, Any]:
        """Return the key of a message, and the value held under that key.

        Raises:
            Malformed: the key function raised, or returned something that cannot be a key.

        """
        try:
            key = self._key(unwrap(message))
            return key, self._table.get(key, missing)
        except BaseException as error:
            raise self._no_key(message, error) from error

    def _put(self, key: Any, message: Any) -> None:
        try:
            self._table[key] = message
        except BaseException as error:  # its == raised, after all
            raise self._no_key(message, error) from error

    def _no_key(self, message: Any, error: BaseException) -> Exception:
        self._rejected += 1
        return keyless(message, self._given, error)
