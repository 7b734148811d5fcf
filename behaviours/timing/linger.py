"""`Linger`: wait a little for more."""

from __future__ import annotations

from math import inf
from typing import Any

from behaviours.arguments import count, seconds
from behaviours.contract import Reason
from behaviours.timing.waiting import WaitingFromFirst

_EXAMPLE = "Linger(Queue(), 0.05, size=500)"


class Linger(WaitingFromFirst):
    """A batch leaves `wait` seconds after its first message, or as soon as it has `size`.

    What a partial take leaves behind (`Chunk`) has waited already: it is due at once.

    >>> from behaviours import Queue
    >>> linger = Linger(Queue(), 2.0, size=3)
    >>> _ = linger.ready_at(100.0)
    >>> linger.add("a")
    >>> linger.ready_at(101.0)
    102.0
    >>> _ = linger.extend(["b", "c"])
    >>> linger.ready_at(101.0)
    101.0
    """

    __slots__ = ("_size",)

    def __init__(self, inner: Any, wait: float, size: int | None = None) -> None:
        wait = seconds(wait, "wait", _EXAMPLE)
        self._size = None if size is None else count(size, "size", _EXAMPLE)
        super().__init__(inner, wait)

    def __repr__(self) -> str:
        size = "" if self._size is None else f", size={self._size}"
        return f"Linger({self._inner!r}, {self._wait:g}{size})"

    def take(self, limit: int | None = None) -> Any:
        """Hand over a batch; what it leaves behind is due at once. O(1) more.

        >>> from behaviours import Chunk, Queue
        >>> linger = Linger(Chunk(Queue(), 1), 2.0)
        >>> _ = linger.ready_at(100.0)
        >>> _ = linger.extend(["a", "b"])
        >>> linger.ready_at(102.0), linger.take(), linger.ready_at(102.0)
        (102.0, ['a'], 102.0)
        """
        if self._size is not None and len(self._inner) >= self._size:
            self._reason = Reason.SIZE
        else:
            self._reason = self._why(self._due, Reason.TIME)
        batch = super().take(limit)
        self._due = -inf
        return batch

    def ready_at(self, now: float) -> float:
        """Return when the batch leaves: when the wait is over or the size reached. O(1) more.

        >>> from behaviours import Queue
        >>> Linger(Queue(), 2.0).ready_at(100.0)
        inf
        """
        self._now = now
        ready = self._inner.ready_at(now)
        held = len(self._inner)
        if not held:
            return inf
        if self._flushed or (self._size is not None and held >= self._size):
            return ready
        return max(ready, self._due)

    def _missing(self) -> int | None:
        if self._size is None or self._flushed:
            return None
        missing = self._size - len(self._inner)
        return missing if missing > 0 else None
