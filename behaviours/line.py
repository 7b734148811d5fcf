"""Messages in order of arrival, cheap at both ends: what `Queue` and `Stack` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from behaviours.base import Behaviour, Refusal, Traits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TRAITS = Traits(ordered=True, divisible=True, trackable=True)
_SLICE = 8
"""Dropping at least one in so many at once is done by a slice, fewer by turning the line."""


class Line(Behaviour):
    """Two lists: `_new` takes what arrives, `_old` gives away the oldest from its end.

    Appending, adopting a whole list and taking it back whole touch `_new` alone. `_old` appears
    only when the line is taken from at its old end: then messages move over, each of them once
    or, where both ends are in use, a constant number of times on average.
    """

    __slots__ = ("_new", "_old")

    traits = _TRAITS

    _new: list[Any]
    _old: list[Any] | None

    def __init__(self) -> None:
        # Not super().__init__(): an idle worker costs little because its queue does.
        self._claimed = False
        self.gone = None
        self._new = []
        self._old = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def add(self, message: Any) -> None:
        """Append one message. O(1).

        >>> from behaviours import Queue
        >>> queue = Queue()
        >>> queue.add("a")
        >>> len(queue)
        1
        """
        self._new.append(message)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Append many messages; an empty line adopts the list. O(1) then, else O(k).

        >>> from behaviours import Queue
        >>> queue = Queue()
        >>> queue.extend(["a", "b"])
        ()
        >>> len(queue)
        2
        """
        if self._new:
            self._new += messages
        else:
            self._new = messages
        return ()

    def __len__(self) -> int:
        return len(self._new) + len(self._old) if self._old else len(self._new)

    def __iter__(self) -> Iterator[Any]:
        """Give the messages held, oldest first. O(n)."""
        if self._old:
            yield from reversed(self._old)
        yield from self._new

    def drop_oldest(self) -> Any:
        """Forget the oldest message and return it. O(1) on average.

        >>> from behaviours import Queue, Stack
        >>> for line in Queue(), Stack():
        ...     _ = line.extend(["a", "b"])
        ...     print(line.drop_oldest(), line.take())
        a ['b']
        a ['b']
        """
        if not self._old:
            self._turn()
        return self._old.pop()  # type: ignore[union-attr]

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` oldest messages and return them. O(count) on average.

        >>> from behaviours import Queue
        >>> queue = Queue()
        >>> _ = queue.extend(["a", "b", "c"])
        >>> queue.drop_many(2)
        ['a', 'b']
        """
        dropped = self._pop_old(count)
        while self._new and (missing := count - len(dropped)):
            if missing * _SLICE >= len(self._new):
                dropped += self._new[:missing]
                del self._new[:missing]
            else:
                self._turn()
                dropped += self._pop_old(missing)
        return dropped

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the oldest messages as long as they are dead. O(k) on average.

        >>> from behaviours import Queue
        >>> queue = Queue()
        >>> _ = queue.extend([1, 2, 3])
        >>> queue.forget(lambda number: number < 3)
        [1, 2]
        """
        forgotten: list[Any] = []
        while self:
            if not self._old:
                self._turn()
            if not dead(self._old[-1]):  # type: ignore[index]
                break
            forgotten.append(self._old.pop())  # type: ignore[union-attr]
        return forgotten

    def check(self) -> None:
        """Verify that the two lists are apart. O(1)."""
        assert self._old is not self._new, "one list serves both ends"  # noqa: S101

    def _pop_old(self, count: int) -> list[Any]:
        """Give up to `count` messages from the old list, oldest first."""
        old = self._old
        if not old or not count:
            return []
        batch = old[-count:]
        batch.reverse()
        del old[-count:]
        return batch

    def _turn(self) -> None:
        """Make the older half of the new list the old one, which must be empty.

        Half, because a line that is used at both ends would otherwise be turned to and fro.
        """
        half = (len(self._new) + 1) // 2
        self._old = self._new[:half]
        self._old.reverse()
        del self._new[:half]

    def _join(self) -> list[Any]:
        """Give all messages, oldest first, as a list that the line no longer knows. O(n)."""
        new, old = self._new, self._old
        self._new, self._old = [], None
        if old:
            old.reverse()
            old += new
            return old
        return new
