"""`Stack`: newest first."""

from __future__ import annotations

from typing import Any

from behaviours.line import Line


class Stack(Line):
    """All messages, the newest first; for work where late answers are worth little.

    >>> stack = Stack()
    >>> for message in "abc":
    ...     stack.add(message)
    >>> stack.take()
    ['c', 'b', 'a']
    """

    __slots__ = ()

    def take(self, limit: int | None = None) -> list[Any]:
        """Hand over all messages, or the `limit` newest. O(k) for k messages, on average.

        >>> stack = Stack()
        >>> _ = stack.extend(["a", "b", "c"])
        >>> stack.take(2), stack.take()
        (['c', 'b'], ['a'])
        """
        if limit is None or limit >= len(self):
            batch = self._join()
        else:
            if limit > len(self._new):
                self._new = self._join()
            new = self._new or []
            batch = new[-limit:]
            del new[-limit:]
        batch.reverse()
        return batch

    def peek(self) -> Any:
        """Return the newest message. O(1).

        >>> stack = Stack()
        >>> _ = stack.extend(["a", "b"])
        >>> stack.peek()
        'b'
        """
        if self._new:
            return self._new[-1]
        if self._old:
            return self._old[0]
        msg = "peek at an empty stack"
        raise IndexError(msg)
