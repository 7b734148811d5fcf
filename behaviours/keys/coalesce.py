"""`Coalesce`: messages of one key are merged into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import function, shown
from actorflow.behaviours.behaviour import Item, Refusal, Tally, unusable, unwrap
from actorflow.behaviours.keys.keyed import Keyed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EXAMPLE = "Coalesce(key=0, merge=lambda old, new: (old[0], old[1] + new[1]))"
_NOTHING = object()


class Coalesce(Keyed):
    """One message per key: `merge(old, new)` makes one of the held message and the next.

    A key keeps its place in line. If `merge` raises or returns None, the new message is refused
    alone, with `Malformed`. Nothing is displaced by merging: a caller that waits for either
    message waits for the merged one, whose age is that of the newer.

    >>> coalesce = Coalesce(key=0, merge=lambda old, new: (old[0], old[1] + new[1]))
    >>> for message in ("a", 1), ("b", 2), ("a", 3):
    ...     coalesce.add(message)
    >>> coalesce.take()
    [('a', 4), ('b', 2)]
    """

    __slots__ = ("_merge", "_merged")

    def __init__(self, key: Any, merge: Callable[[Any, Any], Any]) -> None:
        super().__init__(key, _EXAMPLE)
        self._merge = function(merge, "merge", _EXAMPLE)
        self._merged = 0

    def __repr__(self) -> str:
        return f"Coalesce(key={shown(self._given)}, merge={shown(self._merge)})"

    def add(self, message: Any) -> None:
        """Merge a message into the one with its key, or put it last in line. O(1) + `merge`.

        >>> coalesce = Coalesce(key=str.lower, merge=lambda old, new: old + new)
        >>> for word in "a", "A":
        ...     coalesce.add(word)
        >>> coalesce.take()
        ['aA']
        """
        key, old = self._find(message, _NOTHING)
        if old is _NOTHING:
            self._put(key, message)
        else:
            merged = self._merge_items(old, message)
            self._put(key, merged)
            self._merged += 1
        if type(message) is Item:
            self._wrapped = True

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Merge many messages, in one tight loop. O(k) + `merge`.

        >>> coalesce = Coalesce(key=0, merge=lambda old, new: (old[0], old[1] + new[1]))
        >>> coalesce.extend([("a", 1), ("b", 2), ("a", 3)])
        ()
        >>> coalesce.take()
        [('a', 4), ('b', 2)]
        """
        if self._items_about(messages):
            return super().extend(messages)
        table, key_of, merge = self._table, self._key, self._merge
        held = table.get
        refused: list[Refusal] = []
        pending = iter(messages)
        before = len(table)
        message: Any = None
        while True:
            try:
                for message in pending:
                    key = key_of(message)
                    old = held(key, _NOTHING)
                    if old is _NOTHING:
                        table[key] = message
                        continue
                    try:
                        merged = merge(old, message)
                    except BaseException as error:  # noqa: BLE001 - see below
                        refused.append(((message,), self._no_merge(message, error)))
                        continue
                    if merged is None:
                        refused.append(((message,), self._no_merge(message)))
                    else:
                        table[key] = merged
                break
            except BaseException as error:  # noqa: BLE001 - that message alone; go on behind it
                refused.append(((message,), self._no_key(message, error)))
        self._merged += len(messages) - len(refused) - (len(table) - before)
        return refused or ()

    def tally(self) -> Tally:
        """Return the counts of merged and rejected messages. O(1).

        >>> coalesce = Coalesce(key=str.lower, merge=lambda old, new: old + new)
        >>> _ = coalesce.extend(["a", "A", "b"])
        >>> coalesce.tally().merged
        1
        """
        return Tally(merged=self._merged, rejected=self._rejected)

    def _merge_items(self, old: Any, new: Any) -> Any:
        """Return one message made of two; if either is wrapped, so is the result.

        Raises:
            Malformed: `merge` raised, or forgot to return something.

        """
        try:
            merged = self._merge(unwrap(old), unwrap(new))
        except BaseException as error:
            raise self._no_merge(new, error) from error
        if merged is None:
            raise self._no_merge(new)
        if type(new) is Item:
            before = old.tickets if type(old) is Item else ()
            return Item(merged, before + new.tickets, new.born)
        if type(old) is Item:
            return Item(merged, old.tickets, old.born)
        return merged

    def _no_merge(self, message: Any, error: BaseException | None = None) -> Exception:
        self._rejected += 1
        merge = f"merge={shown(self._merge)}"
        if error is None:
            return unusable(message, f"{merge} returned None; it must return the merged message")
        return unusable(message, f"{merge} raised", error)
