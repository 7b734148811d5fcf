"""`Queue`: in order of arrival."""

from __future__ import annotations

from typing import Any

from behaviours.line import Line


class Queue(Line):
    """All messages in order of arrival. The default of a worker.

    >>> queue = Queue()
    >>> for message in "abc":
    ...     queue.add(message)
    >>> queue.take()
    ['a', 'b', 'c']
    """

    __slots__ = ()

    def take(self, limit: int | None = None) -> list[Any]:
        """Hand over all messages, or the `limit` oldest. O(1) for all, else O(limit) on average.

        >>> queue = Queue()
        >>> _ = queue.extend(["a", "b", "c"])
        >>> queue.take(2), queue.take()
        (['a', 'b'], ['c'])
        """
        if limit is None or limit >= len(self):
            if self._old is None:
                batch = self._new
                self._new = ()
                return batch or []
            return self._join()
        batch = self._pop_old(limit)
        if len(batch) < limit:
            self._turn()
            batch += self._pop_old(limit - len(batch))
        return batch

    def peek(self) -> Any:
        """Return the oldest message. O(1).

        >>> queue = Queue()
        >>> _ = queue.extend(["a", "b"])
        >>> queue.peek()
        'a'
        """
        return self._old[-1] if self._old else self._new[0]  # type: ignore[misc]

    def _turn(self) -> None:
        # A queue is never taken from at its new end, so it may turn as a whole.
        self._old = old = self._new or []
        self._new = ()
        old.reverse()
