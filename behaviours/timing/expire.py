"""`Expire`: messages that are too old are not handed over."""

from __future__ import annotations

from itertools import repeat
from math import inf
from typing import TYPE_CHECKING, Any

from behaviours.arguments import seconds
from behaviours.contract import Fate, Item, Refusal, Tally
from behaviours.order.line import Queue, Stack
from behaviours.timing.ages import Ages
from behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Expire(Wrapper):
    """Messages that are older than `ttl` seconds when they are taken are not handed over.

    They are counted as expired. Until then they are held and counted in `len`, so a batch may
    turn out empty; a `Bounded` around it lets them go when it needs their room. A newer message
    that replaces an older one, or is merged into it, makes it young again.

    A line (`Queue`, `Stack`) keeps the order of arrival, so the ages of its messages stand in a
    list of their own, and finding the dead is a binary search. Around anything else, each
    message is wrapped in an `Item` with its time of arrival.

    >>> from behaviours import Queue
    >>> expire = Expire(Queue(), 5.0)
    >>> _ = expire.ready_at(100.0)
    >>> expire.add("a")
    >>> _ = expire.ready_at(103.0)
    >>> expire.add("b")
    >>> _ = expire.ready_at(106.0)
    >>> expire.take(), expire.tally().expired
    (['b'], 1)
    """

    __slots__ = ("_ages", "_expired", "_now", "_ttl")

    _ages: Ages | None

    def __init__(self, inner: Any, ttl: float) -> None:
        self._ttl = seconds(ttl, "ttl", "Expire(Queue(), 30.0)", zero=False)
        super().__init__(inner, timed=True, stamped=True, expires=True)
        self._stay_patient()
        if self._inner.traits.expires:
            self._refuse(
                f"Expire around {self._inner!r}, which expires messages already: the shorter "
                f"time alone would count; keep one Expire"
            )
        if not self.traits.trackable:
            self._refuse(
                f"Expire must mark each message with its time of arrival, and {self._inner!r} "
                f"takes only bare messages; put Expire around a built-in behaviour, or set "
                f"Traits(trackable=True) and treat Item in your own"
            )
        self._expired = 0
        # Without a clock nothing grows old.
        self._now = inf
        if type(self._inner) in (Queue, Stack):
            self._ages = Ages()
        else:
            self._ages = None
            super().track([])

    def __repr__(self) -> str:
        return f"Expire({self._inner!r}, {self._ttl:g})"

    def add(self, message: Any) -> None:
        """Accumulate one message, marked with the time. O(1) more.

        >>> from behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> expire.add("a")
        >>> expire.take()
        ['a']
        """
        if self._ages is None:
            self._inner.add(_marked(message, self._now))
        else:
            self._inner.add(message)
            self._ages.extend([self._now])

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived now. O(k) more.

        >>> from behaviours import Queue
        >>> Expire(Queue(), 5.0).extend(["a", "b"])
        ()
        """
        now = self._now
        if self._ages is not None:
            self._ages.extend([now] * len(messages))
            return self._inner.extend(messages)
        items = _all_marked(messages, repeat(now))
        return _bare_refusals(self._inner.extend(items))

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. O(1) more for lines, else O(k).

        >>> from behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.extend_at(["a", "b"], [100.0, 103.0])
        >>> _ = expire.ready_at(106.0)
        >>> expire.take()
        ['b']
        """
        if times:
            self._now = times[-1]
        if self._ages is not None:
            self._ages.extend(times)
            return self._inner.extend(messages)
        items = _all_marked(messages, times)
        return _bare_refusals(super().extend_at(items, times))

    def take(self, limit: int | None = None) -> Any:
        """Hand over what is not too old; that may be nothing. O(log n) more for lines, else O(k).

        >>> from behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.ready_at(100.0)
        >>> expire.add("a")
        >>> _ = expire.ready_at(106.0)
        >>> expire.take()
        []
        """
        if self._ages is not None:
            return self._take_line(self._ages, limit)
        batch = super().take(limit)
        if type(batch) is not list:
            return batch
        alive = self._sift(batch)
        # Fill up the places of those that were too old.
        while len(self._inner) and len(alive) < (1 if limit is None else limit):
            more = super().take(None if limit is None else limit - len(alive))
            alive += self._sift(more)
        return alive

    def peek(self) -> Any:
        """Return the first message that is not too old. O(1) more, and O(1) for each that is.

        >>> from behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> expire.add("a")
        >>> expire.peek()
        'a'
        """
        inner = self._inner
        if self._ages is not None:
            if type(inner) is Queue or self._ages.older(self._now - self._ttl) == len(inner):
                self.purge()
            return inner.peek()
        while True:
            item = inner.peek()
            if not self._dead(item):
                return _bare(item)
            self._bury(inner.take(1))

    def drop_oldest(self) -> Any:
        """Forget the oldest message of the inner behaviour and return it. O(1) more.

        >>> from behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.extend(["a", "b"])
        >>> expire.drop_oldest()
        'a'
        """
        dropped = self._inner.drop_oldest()
        if self._ages is not None:
            self._ages.drop_oldest(1)
        return _bare(dropped)

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` oldest messages of the inner behaviour, return them. O(count) more.

        >>> from behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.extend(["a", "b", "c"])
        >>> expire.drop_many(2)
        ['a', 'b']
        """
        dropped = self._inner.drop_many(count)
        if self._ages is not None:
            self._ages.drop_oldest(count)
        return list(map(_bare, dropped))

    def purge(self) -> None:
        """Forget what is too old. Costs what `forget` of the inner behaviour costs.

        >>> from behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.ready_at(100.0)
        >>> expire.add("a")
        >>> _ = expire.ready_at(106.0)
        >>> expire.purge()
        >>> len(expire)
        0
        """
        if self._ages is None:
            self._bury(self._inner.forget(self._dead))
        elif dead := self._ages.older(self._now - self._ttl):
            self._bury(self._inner.drop_many(dead))
            self._ages.drop_oldest(dead)

    def ready_at(self, now: float) -> float:
        """Set the time of the messages that are added next. O(1) more.

        >>> from behaviours import Queue
        >>> Expire(Queue(), 5.0).ready_at(100.0)
        100.0
        """
        self._now = now
        return self._inner.ready_at(now)

    def tally(self) -> Tally:
        """Return what has expired, and what the inner behaviour counts. O(1).

        >>> from behaviours import Queue
        >>> Expire(Queue(), 5.0).tally().expired
        0
        """
        return self._inner.tally() + Tally(expired=self._expired)

    def check(self) -> None:
        """Verify that each message of a line has an age. O(1)."""
        super().check()
        if self._ages is not None:
            assert len(self._ages) == len(self._inner), "messages without ages"  # noqa: S101

    def _take_line(self, ages: Ages, limit: int | None) -> list[Any]:
        inner = self._inner
        newest_first = type(inner) is Stack
        alive = len(inner) - ages.older(self._now - self._ttl)
        if not newest_first or limit is None or limit > alive:
            self.purge()
        if not len(inner):
            return []
        batch: list[Any] = inner.take(limit)
        if newest_first:
            ages.drop_newest(len(batch))
        else:
            ages.drop_oldest(len(batch))
        return batch

    def _dead(self, item: Any) -> bool:
        return type(item) is Item and item.born < self._now - self._ttl

    def _sift(self, batch: list[Any]) -> list[Any]:
        """Return the messages that are alive; bury the others."""
        horizon = self._now - self._ttl
        dead = [item for item in batch if type(item) is Item and item.born < horizon]
        if dead:
            self._bury(dead)
            batch = [item for item in batch if not self._dead(item)]
        return [item.message if type(item) is Item and not item.tickets else item for item in batch]

    def _bury(self, dead: Sequence[Any]) -> None:
        """Count messages that are too old, and report those that have waiting callers."""
        self._expired += len(dead)
        gone = self.gone
        if gone is not None:
            gone += [(item, Fate.EXPIRED) for item in dead if type(item) is Item and item.tickets]


def _marked(message: Any, now: float) -> Item:
    """Return the message as an item with its time of arrival."""
    if type(message) is Item:
        message.born = now
        return message
    return Item(message, (), now)


def _all_marked(messages: list[Any], times: Iterable[float]) -> list[Item]:
    if Item in map(type, messages):
        return list(map(_marked, messages, times))
    return [Item(message, (), now) for message, now in zip(messages, times, strict=False)]


def _bare(item: Any) -> Any:
    """Return the item if it has waiting callers, else the bare message."""
    return item.message if type(item) is Item and not item.tickets else item


def _bare_refusals(refusals: Sequence[Refusal]) -> Sequence[Refusal]:
    return refusals and [(list(map(_bare, some)), error) for some, error in refusals]
