"""`Coalesce`: messages of one key melt into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from behaviours.arguments import function, shown
from behaviours.contract import Item, Tally, unwrap
from behaviours.errors import Malformed
from behaviours.keyed import Keyed

if TYPE_CHECKING:
    from collections.abc import Callable

_EXAMPLE = "Coalesce(key=0, merge=lambda old, new: (old[0], old[1] + new[1]))"
_NOTHING = object()


class Coalesce(Keyed):
    """One message per key: `merge(old, new)` makes one of the held message and the next.

    A key keeps its place in line. If `merge` raises or returns None, the new message is refused
    alone, with `Malformed`. Nothing is displaced by merging: whoever waits for either message
    waits for the merged one, whose age is that of the newer.

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
        key = self._key_of(message)
        old = self._table.get(key, _NOTHING)
        if old is _NOTHING:
            self._table[key] = message
        else:
            self._table[key] = self._melt(old, message)
            self._merged += 1

    def tally(self) -> Tally:
        """Count what was merged and rejected. O(1).

        >>> coalesce = Coalesce(key=str.lower, merge=lambda old, new: old + new)
        >>> _ = coalesce.extend(["a", "A", "b"])
        >>> coalesce.tally().merged
        1
        """
        return Tally(merged=self._merged, rejected=self._rejected)

    def _melt(self, old: Any, new: Any) -> Any:
        """Make one of two; if either is wrapped, so is the result.

        Raises:
            Malformed: `merge` raised, or forgot to return something.

        """
        cause: Exception | None = None
        try:
            merged = self._merge(unwrap(old), unwrap(new))
            why = f"merge={shown(self._merge)} returned None; it must return the merged message"
        except Exception as error:  # noqa: BLE001 - whatever the user's function does
            merged = None
            why = f"merge={shown(self._merge)} raised {error!r}"
            cause = error
        if merged is None:
            self._rejected += 1
            raise Malformed(unwrap(new), why) from cause
        if type(new) is Item:
            before = old.tickets if type(old) is Item else ()
            return Item(merged, before + new.tickets, new.born)
        if type(old) is Item:
            return Item(merged, old.tickets, old.born)
        return merged
