"""`Debounce`: wait until no more messages arrive."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import seconds
from actorflow.behaviours.behaviour import Behaviour, Judge, Reason
from actorflow.behaviours.errors import BadBehaviour, brief
from actorflow.behaviours.timing.waiting import Arrivals, Waiting, depends_on_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.behaviours.behaviour import Refusal

_EXAMPLE = "Debounce(Queue(), 0.2, at_most=2.0)"


class Debounce(Waiting):
    """A batch leaves after `quiet` seconds without arrival, `at_most` seconds after its first.

    What a partial take leaves behind (`Chunk`) has waited already: it is due at once.

    >>> from actorflow.behaviours import Queue
    >>> debounce = Debounce(Queue(), 2.0, at_most=3.0)
    >>> _ = debounce.ready_at(100.0)
    >>> debounce.add("a")
    >>> debounce.ready_at(101.5)
    102.0
    >>> debounce.add("b")
    >>> debounce.ready_at(101.5)
    103.0
    """

    __slots__ = ("_at_most", "_due", "_latest", "_left", "_quiet")

    def __init__(self, inner: Any, quiet: float, at_most: float | None = None) -> None:
        self._quiet = seconds(quiet, "quiet", _EXAMPLE)
        self._at_most = inf if at_most is None else seconds(at_most, "at_most", _EXAMPLE)
        if self._at_most < self._quiet:
            most = brief(at_most)
            msg = (
                f"at_most={most} is shorter than quiet={brief(quiet)}, so it would always win; "
                f"use Linger(..., {most}) for that, or a longer at_most, as in {_EXAMPLE}"
            )
            raise BadBehaviour(msg)
        super().__init__(inner, stamped=True)
        self._stay_patient()
        self._due = self._latest = -inf
        self._left = False

    def __repr__(self) -> str:
        at_most = "" if self._at_most == inf else f", at_most={self._at_most:g}"
        return f"Debounce({self._inner!r}, {self._quiet:g}{at_most})"

    def add(self, message: Any) -> None:
        """Accumulate one message; the wait for quiet starts again. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> debounce = Debounce(Queue(), 2.0)
        >>> for now in 100.0, 101.0:
        ...     _ = debounce.ready_at(now)
        ...     debounce.add("a")
        >>> debounce.ready_at(101.0)
        103.0
        """
        first = not len(self._inner)
        self._inner.add(message)
        self._arrived(self._now if first else None, self._now)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived now. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> Debounce(Queue(), 2.0).extend(["a", "b"])
        ()
        """
        if depends_on_times(self._inner):
            return Behaviour.extend(self, messages)
        first, came = not len(self._inner), len(messages)  # the list may be kept, and change
        refused = self._inner.extend(messages)
        if sum(len(some) for some, _ in refused) < came:
            self._arrived(self._now if first else None, self._now)
        return refused

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages; the times of the first and the last count. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> debounce = Debounce(Queue(), 2.0)
        >>> _ = debounce.extend_at(["a", "b"], [100.0, 101.0])
        >>> debounce.ready_at(101.0)
        103.0
        """
        if depends_on_times(self._inner):
            return Behaviour.extend_at(self, messages, times)
        first = not len(self._inner)
        came = Arrivals(self._inner, messages, times)
        refused = super().extend_at(messages, times)
        if span := came.accepted(refused):
            self._arrived(span[0] if first else None, span[1])
        return refused

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over a batch; what it leaves behind is due at once. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> debounce = Debounce(Queue(), 2.0)
        >>> debounce.add("a")
        >>> debounce.take()
        ['a']
        """
        self._leave()
        return super().take(limit, free)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes; what it leaves behind is due at once."""
        batch = super().choose(judge, limit)
        if batch:  # a wrapper may only have looked
            self._leave()
        return batch

    def _leave(self) -> None:
        """Record why a batch leaves."""
        if self._left:
            self._reason = None
        elif self._due <= self._latest:
            self._reason = self._why(self._due, Reason.TIME)
        else:
            self._reason = self._why(self._latest, Reason.DEADLINE)
        self._left = True

    def ready_at(self, now: float) -> float:
        """Return when the batch leaves if nothing more arrives. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> Debounce(Queue(), 2.0).ready_at(100.0)
        inf
        """
        self._now = now
        ready = self._inner.ready_at(now)
        if not len(self._inner):
            return inf
        if self._left or self._flushed:
            return ready
        return max(ready, min(self._due, self._latest))

    def _arrived(self, first: float | None, last: float) -> None:
        """Start the wait for quiet again, and with the first message also that for `at_most`."""
        self._due = last + self._quiet
        if first is not None:
            self._latest = first + self._at_most
            self._left = False
