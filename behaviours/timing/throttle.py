"""`Throttle`: a limited rate of batches."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import seconds
from actorflow.behaviours.behaviour import Judge, Reason
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence


class Throttle(Wrapper):
    """At most one batch every `every` seconds, counted from the start of the last call.

    What arrives meanwhile accumulates. After a longer pause the next batch leaves at once.

    >>> from actorflow.behaviours import Queue
    >>> throttle = Throttle(Queue(), 2.0)
    >>> throttle.ready_at(100.0)
    100.0
    >>> throttle.add("a")
    >>> throttle.take()
    ['a']
    >>> throttle.add("b")
    >>> throttle.ready_at(100.5)
    102.0
    """

    __slots__ = ("_every", "_held_back", "_last", "_now", "_reason")

    def __init__(self, inner: Any, every: float) -> None:
        self._every = seconds(every, "every", "Throttle(Queue(), 0.5)")
        super().__init__(inner, timed=True, paces=True)
        self._now = self._last = -inf
        self._held_back = False
        self._reason: Reason | None = None

    def __repr__(self) -> str:
        return f"Throttle({self._inner!r}, {self._every:g})"

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over a batch; the next one may leave `every` seconds from now. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> throttle = Throttle(Queue, 2.0)
        >>> throttle.add("a")
        >>> throttle.take()
        ['a']
        """
        batch = super().take(limit, free)
        self._left(batch)
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes; the next batch may leave `every` seconds from now."""
        batch = super().choose(judge, limit)
        if batch:
            self._left(batch)
        return batch

    def _left(self, batch: Any) -> None:
        if batch or not (self.traits.expires or self.traits.may_be_empty):
            self._last = self._now
            self._reason = Reason.TIME if self._held_back else None
            self._held_back = False

    def reason(self) -> Reason:
        """Return TIME if the batch was held back here, else the inner behaviour's reason."""
        return self._reason or self._inner.reason()

    def retry_at(self, batch: Sequence[Any], now: float) -> float:
        """Return when `every` seconds have passed since the last call. O(1) more."""
        self._last = max(self._inner.retry_at(batch, now), self._last + self._every, now)
        return self._last

    def ready_at(self, now: float) -> float:
        """Return from when on a batch may leave: `every` seconds after the last. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> Throttle(Queue, 2.0).ready_at(7.0)
        7.0
        """
        self._now = now
        inner = self._inner.ready_at(now)
        due = self._last + self._every
        if due > now and due > inner and len(self._inner):
            self._held_back = True
        return max(inner, due)
