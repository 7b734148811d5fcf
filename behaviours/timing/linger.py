"""`Linger`: wait a little for more."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import count, number, seconds, shown
from actorflow.behaviours.behaviour import Judge, Reason, lower
from actorflow.behaviours.chunk import Chunk
from actorflow.behaviours.timing.waiting import WaitingFromFirst
from actorflow.behaviours.weights import Scale

if TYPE_CHECKING:
    from collections.abc import Callable

_EXAMPLE = "Linger(Queue(), 0.05, size=500)"
_WEIGHED = "Linger(Queue(), 0.05, size=1_000_000, weight=len)"


class Linger(WaitingFromFirst):
    """A batch leaves `wait` seconds after its first message, or as soon as it has `size`.

    A batch has at most `size` messages, unless the inner behaviour hands over as a whole. What a
    batch leaves behind has waited already: it is due at once. With `weight`, a function of the
    message, `size` is not a number of messages but what their weights add up to; a message that
    exceeds it by itself leaves alone.

    >>> from actorflow.behaviours import Queue
    >>> linger = Linger(Queue(), 2.0, size=3)
    >>> _ = linger.ready_at(100.0)
    >>> linger.add("a")
    >>> linger.ready_at(101.0)
    102.0
    >>> _ = linger.extend(["b", "c"])
    >>> linger.ready_at(101.0)
    101.0
    """

    __slots__ = ("_full_at", "_scale", "_size")

    def __init__(
        self,
        inner: Any,
        wait: float,
        size: float | None = None,
        *,
        weight: Callable[[Any], float] | None = None,
    ) -> None:
        wait = seconds(wait, "wait", _EXAMPLE)
        self._scale: Scale | None = None
        self._full_at: float | None = None
        """What the weights of a batch add up to at most."""
        self._size = None
        if weight is not None:
            self._full_at = float(number(size, "size", _WEIGHED, above=0))
            inner = Chunk(inner, self._full_at, weight=weight)
        elif size is not None:
            self._size = count(size, "size", _EXAMPLE)
        super().__init__(inner, wait)
        if weight is not None:
            self._scale = Scale(self._inner, weight, _WEIGHED)
        if self._most() is not None:
            self.traits = replace(self.traits, limits=True)

    def __repr__(self) -> str:
        if self._scale is not None:
            held, weight = self._inner.inner, shown(self._scale.weight)  # type: ignore[attr-defined]
            return f"Linger({held!r}, {self._wait:g}, size={self._full_at:g}, weight={weight})"
        size = "" if self._size is None else f", size={self._size}"
        return f"Linger({self._inner!r}, {self._wait:g}{size})"

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over a batch; what it leaves behind is due at once. O(1) more.

        >>> from actorflow.behaviours import Chunk, Queue
        >>> linger = Linger(Chunk(Queue(), 1), 2.0)
        >>> _ = linger.ready_at(100.0)
        >>> _ = linger.extend(["a", "b"])
        >>> linger.ready_at(102.0), linger.take(), linger.ready_at(102.0)
        (102.0, ['a'], 102.0)
        """
        self._note_reason()
        batch = super().take(lower(limit, self._most()), free)
        self._leave()
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes; what it leaves behind is due at once."""
        self._note_reason()
        batch = super().choose(judge, lower(limit, self._most()))
        if batch:  # a wrapper may only have looked
            self._leave()
        return batch

    def portion(self) -> int | None:
        """Return `size`, or a lower limit of the inner behaviour. O(1).

        >>> from actorflow.behaviours import Queue
        >>> Linger(Queue(), 2.0, size=3).portion()
        3
        """
        return lower(self._most(), self._inner.portion())

    def _most(self) -> int | None:
        """Return `size`, if the inner behaviour can be taken in parts."""
        return self._size if self.traits.divisible else None

    def _note_reason(self) -> None:
        if self._is_full(len(self._inner)):
            self._reason = Reason.SIZE if self._scale is None else Reason.WEIGHT
        else:
            self._reason = self._why(self._due, Reason.TIME)

    def ready_at(self, now: float) -> float:
        """Return when the batch leaves: when the wait is over or the size reached. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> Linger(Queue(), 2.0).ready_at(100.0)
        inf
        """
        self._now = now
        ready = self._inner.ready_at(now)
        held = len(self._inner)
        if not held:
            return inf
        if self._flushed or self._is_full(held):
            return ready
        return max(ready, self._due)

    def _is_full(self, held: int) -> bool:
        if self._scale is not None:
            return self._scale.total() >= self._full_at  # type: ignore[operator]
        return self._size is not None and held >= self._size

    def _missing(self) -> int | None:
        if self._scale is not None and not self._flushed:
            return 1
        if self._size is None or self._flushed:
            return None
        missing = self._size - len(self._inner)
        return missing if missing > 0 else None
