"""`CoDel`: a queue that does not stay long."""

from __future__ import annotations

from itertools import repeat
from math import inf, sqrt
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import seconds
from actorflow.behaviours.behaviour import Fate, Judge, Tally, Verdict
from actorflow.behaviours.order.line import Queue
from actorflow.behaviours.timing.arrival_times import all_marked, bare, bare_refusals, marked
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.behaviours.behaviour import Refusal

_EXAMPLE = "CoDel(Chunk(Queue(), 50), target=0.005, interval=0.1)"


class CoDel(Wrapper):
    """Drops messages when all of them have waited longer than `target` for an `interval`.

    A burst makes a queue that is soon gone, and loses nothing. Where messages come faster than
    they are processed, the queue would stay: then one message is dropped, and the next ones at
    shorter and shorter distances, until a message has waited less than `target`. This is the
    algorithm of RFC 8289, judged once for each message that is about to leave. The last message
    held is never dropped.

    `target` and `interval` are seconds; an interval is about as long as callers take to react.

    >>> from actorflow.behaviours import Chunk, Queue
    >>> requests = CoDel(Chunk(Queue(), 1), target=1.0, interval=5.0)
    >>> _ = requests.extend_at(list("abcdefgh"), [0.0] * 8)
    >>> for now in 0.5, 2.0, 6.0, 7.5:
    ...     _ = requests.ready_at(now)
    ...     print(requests.take(), end=" ")
    ['a'] ['b'] ['c'] ['e']
    >>> requests.tally().dropped
    1
    """

    __slots__ = ("_above_since", "_count", "_dropped", "_interval", "_next", "_now", "_target")

    def __init__(self, inner: Any = Queue, target: float = 0.005, interval: float = 0.1) -> None:
        self._target = seconds(target, "target", _EXAMPLE)
        self._interval = seconds(interval, "interval", _EXAMPLE, zero=False)
        super().__init__(inner, timed=True, stamped=True, may_be_empty=True)
        self._stay_patient()
        given = self._inner.traits
        if not (given.divisible and given.trackable):
            self._refuse(
                f"CoDel must mark each message with its time of arrival, and drop single ones: "
                f"{self._inner!r} hands its messages over as a whole; put CoDel around a Queue, "
                "Priority or Fair, or a Chunk of one"
            )
        self._now = 0.0
        self._above_since: float | None = None
        """Since when no message has left that had waited less than the target."""
        self._next = inf
        """When the next message is dropped, while messages are dropped."""
        self._count = 0
        self._dropped = 0
        super().track([])

    def __repr__(self) -> str:
        return f"CoDel({self._inner!r}, {self._target:g}, {self._interval:g})"

    def add(self, message: Any) -> None:
        """Accumulate one message, marked with the time. O(1) more."""
        self._inner.add(marked(message, self._now))

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived now. O(k) more."""
        return bare_refusals(self._inner.extend(all_marked(messages, repeat(self._now))))

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. O(k) more."""
        if times:
            self._now = times[-1]
        return bare_refusals(super().extend_at(all_marked(messages, times), times))

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over a batch, without the messages that are dropped. O(1) more for each.

        >>> from actorflow.behaviours import Queue
        >>> requests = CoDel(Queue(), 0.005, 0.1)
        >>> requests.add("a")
        >>> requests.take()
        ['a']
        """
        return self.choose(_take_all, limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes of the messages that are not dropped."""
        left = len(self._inner)
        dropped: list[Any] = []

        def keeps(item: Any) -> Verdict:
            nonlocal left
            left -= 1
            if self._is_late(item.born, last=left == 0):
                dropped.append(item)
                return Verdict.DISCARD
            return judge(item)

        batch = self._inner.choose(keeps, limit)
        self._dropped += len(dropped)
        if self.gone is not None:
            self.gone += [(item, Fate.DROPPED) for item in dropped if item.tickets]
        return list(map(bare, batch))

    def peek(self) -> Any:
        """Return the first message of the next batch. O(1), and O(1) for each that is dropped."""
        found: list[Any] = []

        def look(item: Any) -> Verdict:
            found.append(item)
            return Verdict.STOP

        self.choose(look, 1)
        if not found:
            msg = f"peek at {self!r}: nothing may leave now; see ready_at()"
            raise IndexError(msg)
        return bare(found[0])

    def drop_oldest(self) -> Any:
        """Forget the oldest message of the inner behaviour and return it."""
        return bare(self._inner.drop_oldest())

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` oldest messages of the inner behaviour and return them."""
        return list(map(bare, self._inner.drop_many(count)))

    def drop_lowest(self) -> Any:
        """Forget the message that the inner behaviour would hand over last, and return it."""
        return bare(self._inner.drop_lowest())

    def ready_at(self, now: float) -> float:
        """Set the time of the messages that are added next. O(1) more."""
        self._now = now
        return self._inner.ready_at(now)

    def tally(self) -> Tally:
        """Return the counts of the inner behaviour, plus the drops here. O(1).

        >>> from actorflow.behaviours import Queue
        >>> CoDel(Queue(), 0.005, 0.1).tally().dropped
        0
        """
        return self._inner.tally() + Tally(dropped=self._dropped)

    def _is_late(self, born: float, *, last: bool) -> bool:
        """Return whether a message that is about to leave is dropped instead."""
        now = self._now
        if now - born < self._target or last:
            self._above_since, self._next = None, inf
            return False
        if self._above_since is None:
            self._above_since = now
        if now < self._above_since + self._interval:
            return False
        if self._next == inf:  # begin; where it ended a while ago, at the distance of then
            recent = self._count > 2  # noqa: PLR2004 - as in the RFC
            self._count = self._count - 2 if recent else 1
            self._next = now + self._interval / sqrt(self._count)
            return True
        if now < self._next:
            return False
        self._count += 1
        self._next += self._interval / sqrt(self._count)
        return True


def _take_all(_: Any) -> Verdict:
    return Verdict.TAKE
