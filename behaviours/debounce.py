"""`Debounce`: when it has gone quiet."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from behaviours.arguments import seconds
from behaviours.errors import BadBehaviour
from behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from behaviours.base import Refusal

_EXAMPLE = "Debounce(Queue(), 0.2, at_most=2.0)"


class Debounce(Wrapper):
    """A batch leaves after `quiet` seconds without arrival, `at_most` seconds after its first.

    What a partial take leaves behind (`Chunk`) has waited already: it is due at once.

    >>> from behaviours import Queue
    >>> debounce = Debounce(Queue(), 2.0, at_most=3.0)
    >>> _ = debounce.ready_at(100.0)
    >>> debounce.add("a")
    >>> debounce.ready_at(101.5)
    102.0
    >>> debounce.add("b")
    >>> debounce.ready_at(101.5)
    103.0
    """

    __slots__ = ("_at_most", "_due", "_flushed", "_latest", "_left", "_now", "_quiet")

    def __init__(self, inner: Any, quiet: float, at_most: float | None = None) -> None:
        self._quiet = seconds(quiet, "quiet", _EXAMPLE)
        self._at_most = inf if at_most is None else seconds(at_most, "at_most", _EXAMPLE)
        if self._at_most < self._quiet:
            msg = (
                f"at_most={at_most!r} is shorter than quiet={quiet!r}, so it would always win; "
                f"use Linger(..., {at_most!r}) for that, or a longer at_most, as in {_EXAMPLE}"
            )
            raise BadBehaviour(msg)
        super().__init__(inner, timed=True, stamped=True)
        self._now = -inf
        self._due = self._latest = -inf
        self._left = False
        self._flushed = False

    def __repr__(self) -> str:
        at_most = "" if self._at_most == inf else f", at_most={self._at_most:g}"
        return f"Debounce({self._inner!r}, {self._quiet:g}{at_most})"

    def add(self, message: Any) -> None:
        """Accumulate one message; the wait for quiet starts again. O(1) more.

        >>> from behaviours import Queue
        >>> debounce = Debounce(Queue(), 2.0)
        >>> for now in 100.0, 101.0:
        ...     _ = debounce.ready_at(now)
        ...     debounce.add("a")
        >>> debounce.ready_at(101.0)
        103.0
        """
        first = not len(self._inner)
        self._inner.add(message)
        self._arrived(first=first)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived now. O(1) more.

        >>> from behaviours import Queue
        >>> Debounce(Queue(), 2.0).extend(["a", "b"])
        ()
        """
        first = not len(self._inner)
        refused = self._inner.extend(messages)
        if sum(len(some) for some, _ in refused) < len(messages):
            self._arrived(first=first)
        return refused

    def take(self, limit: int | None = None) -> Any:
        """Hand over a batch; what it leaves behind is due at once. O(1) more.

        >>> from behaviours import Queue
        >>> debounce = Debounce(Queue(), 2.0)
        >>> debounce.add("a")
        >>> debounce.take()
        ['a']
        """
        batch = super().take(limit)
        self._left = True
        return batch

    def ready_at(self, now: float) -> float:
        """Say when the batch leaves if nothing more arrives. O(1) more.

        >>> from behaviours import Queue
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

    def flush(self) -> None:
        """Wait no longer, now and later. O(1)."""
        self._flushed = True
        super().flush()

    def _arrived(self, *, first: bool) -> None:
        self._due = self._now + self._quiet
        if first:
            self._latest = self._now + self._at_most
            self._left = False
