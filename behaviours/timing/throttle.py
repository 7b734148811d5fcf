"""`Throttle`: a limited rate of batches."""

from __future__ import annotations

from math import inf
from typing import Any

from behaviours.arguments import seconds
from behaviours.contract import Reason
from behaviours.wrapper import Wrapper


class Throttle(Wrapper):
    """At most one batch every `every` seconds, counted from the start of the last call.

    What arrives meanwhile accumulates. After a longer pause the next batch leaves at once.

    >>> from behaviours import Queue
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
        super().__init__(inner, timed=True)
        self._now = self._last = -inf
        self._held_back = False
        self._reason: Reason | None = None

    def __repr__(self) -> str:
        return f"Throttle({self._inner!r}, {self._every:g})"

    def take(self, limit: int | None = None) -> Any:
        """Hand over a batch; the next one may leave `every` seconds from now. O(1) more.

        >>> from behaviours import Queue
        >>> throttle = Throttle(Queue, 2.0)
        >>> throttle.add("a")
        >>> throttle.take()
        ['a']
        """
        batch = super().take(limit)
        if batch or not self.traits.expires:
            self._last = self._now
            self._reason = Reason.TIME if self._held_back else None
            self._held_back = False
        return batch

    def reason(self) -> Reason:
        """Return TIME if the batch was held back here, else the inner behaviour's reason."""
        return self._reason or self._inner.reason()

    def ready_at(self, now: float) -> float:
        """Return from when on a batch may leave: `every` seconds after the last. O(1) more.

        >>> from behaviours import Queue
        >>> Throttle(Queue, 2.0).ready_at(7.0)
        7.0
        """
        self._now = now
        inner = self._inner.ready_at(now)
        due = self._last + self._every
        if due > now and due > inner and len(self._inner):
            self._held_back = True
        return max(inner, due)
