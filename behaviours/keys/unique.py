"""`Unique`: the newest message per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.behaviours.behaviour import Fate, Item, Refusal, Tally, unwrap
from actorflow.behaviours.keys.keyed import Keyed

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOTHING = object()


class Unique(Keyed):
    """One message per key, the newest. A key that is updated keeps its place in line.

    `key` is a function of the message or the index of an element; by default the first element,
    which is that of a row like `("a", 1)`. Pass a key for everything else: the first element of a
    text is its first character. A message without a usable key is refused alone, with `Malformed`.

    >>> unique = Unique()
    >>> for message in ("a", 1), ("b", 2), ("a", 3):
    ...     unique.add(message)
    >>> unique.take()
    [('a', 3), ('b', 2)]
    """

    __slots__ = ("_replaced",)

    def __init__(self, key: Any = 0) -> None:
        super().__init__(key, "Unique(key=0) or Unique(key=lambda row: row.id)")
        self._replaced = 0

    def add(self, message: Any) -> None:
        """Put a message in the place of an older one with its key, or last in line. O(1).

        >>> unique = Unique(key=str.lower)
        >>> for word in "a", "A":
        ...     unique.add(word)
        >>> unique.take()
        ['A']
        """
        key, old = self._find(message, _NOTHING)
        self._put(key, message)
        if old is not _NOTHING:
            self._replaced += 1
            if type(old) is Item and old.tickets and self.gone is not None:
                self.gone.append((old, Fate.REPLACED))
        if type(message) is Item:
            self._wrapped = True

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Add many messages, in one tight loop. O(k).

        >>> unique = Unique()
        >>> unique.extend([("a", 1), ("b", 2), ("a", 3)])
        ()
        >>> len(unique)
        2
        """
        table = self._table
        before = len(table)
        items = self._items_about(messages)
        gone = [] if self.gone is None else self.gone
        refused: list[Refusal] = []
        pending = iter(messages)
        message: Any = None
        while True:
            try:
                # Measured: these loops beat dict.update(zip(map(key, messages), messages)).
                if items:
                    key = self._key
                    for message in pending:
                        name = key(message.message if type(message) is Item else message)
                        old = table.get(name)
                        table[name] = message
                        if type(old) is Item and old.tickets:
                            gone.append((old, Fate.REPLACED))
                elif isinstance(self._given, int):
                    index = self._given
                    for message in pending:
                        table[message[index]] = message
                else:
                    key = self._key
                    for message in pending:
                        table[key(message)] = message
                break
            except BaseException as error:  # noqa: BLE001 - that message alone; go on behind it
                refused.append(((message,), self._no_key(message, error)))
        self._replaced += len(messages) - len(refused) - (len(table) - before)
        return refused or ()

    def tally(self) -> Tally:
        """Return the counts of replaced and rejected messages. O(1).

        >>> unique = Unique()
        >>> _ = unique.extend([("a", 1), ("a", 2)])
        >>> unique.tally().replaced
        1
        """
        return Tally(replaced=self._replaced, rejected=self._rejected)

    def check(self) -> None:
        """Verify that each message stands under its key. O(n)."""
        super().check()
        for key, message in self._table.items():
            assert self._key(unwrap(message)) == key, f"{message!r} stands under {key!r}"  # noqa: S101
