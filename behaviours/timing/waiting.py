"""What `Linger`, `Debounce` and `Adaptive` share: they hold a batch back in the hope of more."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.behaviour import Behaviour, Reason, lower
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.behaviours.behaviour import Refusal


class Waiting(Wrapper):
    """Remembers the time, whether the wait was called off, and why the last batch left."""

    __slots__ = ("_flushed", "_now", "_reason")

    def __init__(self, inner: Any, **changed: bool) -> None:
        super().__init__(inner, timed=True, patient=False, **changed)
        self._now = -inf
        self._flushed = False
        self._reason: Reason | None = None

    def reason(self) -> Reason:
        """Return why the batch left: for a reason of its own, or that of the inner behaviour."""
        return self._reason or self._inner.reason()

    def _why(self, due: float, over: Reason) -> Reason | None:
        """Return why a batch that had to wait until `due` leaves now: `over` if that has passed."""
        if due == -inf:
            return None
        if due <= self._now:
            return over
        return Reason.FLUSH if self._flushed else None

    def until_full(self) -> int | None:
        """Return after how many messages the wait could end early, here or inside."""
        return lower(self._missing(), super().until_full())

    def _missing(self) -> int | None:
        """Return how many more messages end this wait, if any number does."""
        return None

    def flush(self) -> None:
        """Stop waiting, now and later. O(1)."""
        self._flushed = True
        super().flush()


class WaitingFromFirst(Waiting):
    """Holds a batch back until `_due`, `_wait` seconds after its first message arrived."""

    __slots__ = ("_due", "_starts", "_wait")

    def __init__(self, inner: Any, wait: float, **changed: bool) -> None:
        super().__init__(inner, first_stamped=True, **changed)
        self._wait = wait
        self._due = -inf
        self._starts = Starts() if self.traits.evicts else None
        if self._starts is not None:
            self.traits = replace(self.traits, stamped=True)

    def add(self, message: Any) -> None:
        """Accumulate one message; the first one starts the wait. O(1) more.

        >>> from actorflow.behaviours import Linger, Queue
        >>> linger = Linger(Queue(), 2.0)
        >>> _ = linger.ready_at(100.0)
        >>> linger.add("a")
        >>> linger.ready_at(100.0)
        102.0
        """
        if self._starts is not None:
            self._count(lambda: self._inner.add(message))
            return
        first = not len(self._inner)
        self._inner.add(message)
        if first:
            self._due = self._now + self._wait

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived now. O(1) more.

        >>> from actorflow.behaviours import Linger, Queue
        >>> Linger(Queue(), 2.0).extend(["a", "b"])
        ()
        """
        if depends_on_times(self._inner):
            return Behaviour.extend(self, messages)
        if self._starts is not None:
            refusals: Sequence[Refusal] = self._count(lambda: self._inner.extend(messages))
            return refusals
        first = not len(self._inner)
        refused = self._inner.extend(messages)
        if first:
            self._due = self._now + self._wait
        return refused

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages; the time of the first counts. O(1) more.

        >>> from actorflow.behaviours import Linger, Queue
        >>> linger = Linger(Queue(), 2.0)
        >>> _ = linger.extend_at(["a", "b"], [100.0, 101.0])
        >>> linger.ready_at(101.0)
        102.0
        """
        if self._starts is not None or depends_on_times(self._inner):
            return Behaviour.extend_at(self, messages, times)
        if len(self._inner):
            return super().extend_at(messages, times)
        came = Arrivals(self._inner, messages, times)
        refused = super().extend_at(messages, times)
        if span := came.accepted(refused):
            self._due = span[0] + self._wait
        return refused

    def _count(self, arrive: Callable[[], Any]) -> Any:
        """Let messages arrive now; they may evict the oldest ones."""
        inner, starts = self._inner, self._starts
        assert starts is not None  # noqa: S101 - the caller has looked
        held, evicted = len(inner), inner.evicted()
        result = arrive()
        gone = inner.evicted() - evicted
        starts.moved(self._now, len(inner) - held + gone, gone)
        starts.keep(len(inner))
        self._due = starts.first() + self._wait
        return result

    def _leave(self) -> None:
        """Record that a batch has left, and that the rest has waited already."""
        self._due = -inf
        if self._starts is not None:
            self._starts.leave(len(self._inner))


class Starts:
    """Since when each message waits, the oldest first, where the oldest may be dropped.

    >>> starts = Starts()
    >>> starts.moved(1.0, 2, 0)
    >>> starts.moved(3.0, 2, 3)
    >>> starts.first()
    3.0
    """

    __slots__ = ("_count", "_runs")

    def __init__(self) -> None:
        self._runs: deque[tuple[float, int]] = deque()
        self._count = 0

    def moved(self, now: float, came: int, gone: int) -> None:
        """Record that messages came now, and then the first of all were dropped."""
        if came > 0:
            self._runs.append((now, came))
            self._count += came
        self.keep(self._count - gone)

    def keep(self, count: int) -> None:
        """Forget the first messages until so many are left."""
        while self._count > count:
            start, some = self._runs.popleft()
            rest = min(self._count - count, some)
            self._count -= rest
            if some > rest:
                self._runs.appendleft((start, some - rest))

    def leave(self, rest: int) -> None:
        """Record that the rest has waited already."""
        self._runs.clear()
        self._count = 0
        self.moved(-inf, rest, 0)

    def first(self) -> float:
        """Return since when the first message waits; `-inf` if it has waited already."""
        return self._runs[0][0] if self._runs else -inf


def depends_on_times(inner: Behaviour) -> bool:
    """Return whether a message may be refused or not by the times of those before it.

    Even a refused message may make room, and then the next message is the first. So they are
    added one by one.

    >>> from actorflow.behaviours import Bounded, Expire, Queue
    >>> depends_on_times(Bounded(Expire(Queue(), 5.0), 2)), depends_on_times(Bounded(Queue(), 2))
    (True, False)
    """
    return inner.traits.stamped and not inner.traits.accepts_all


class Arrivals:
    """When messages came, as it was before a behaviour kept their lists and changed them.

    >>> from actorflow.behaviours import Bounded, Queue
    >>> came = Arrivals(Bounded(Queue(), 2), ["a", "b", "c", "d"], [1.0, 2.0, 3.0, 4.0])
    >>> came.accepted(())
    (1.0, 4.0)
    >>> came.accepted([(["a"], ValueError()), (["d"], ValueError())])
    (2.0, 3.0)
    """

    __slots__ = ("_messages", "_span", "_times")

    def __init__(self, inner: Behaviour, messages: list[Any], times: list[float]) -> None:
        self._span = (times[0], times[-1]) if messages else None
        refuses = not inner.traits.accepts_all
        self._messages = messages.copy() if refuses else messages
        self._times = times.copy() if refuses else times

    def accepted(self, refusals: Sequence[Refusal]) -> tuple[float, float] | None:
        """Return when the first and the last message came that were not refused.

        Where one object comes several times and only some of them are refused, these are the last:
        a behaviour that has become full stays so.
        """
        if not refusals:
            return self._span
        messages = self._messages
        refused = Counter(id(message) for some, _ in refusals for message in some)
        came = Counter(map(id, messages))
        places = [at for at, each in enumerate(messages) if came[id(each)] > refused[id(each)]]
        if not places:
            return None
        last = len(messages) - 1
        while refused[id(messages[last])]:
            refused[id(messages[last])] -= 1
            last -= 1
        return self._times[places[0]], self._times[last]
