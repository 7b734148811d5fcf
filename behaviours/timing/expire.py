"""`Expire`: messages that are too old are not handed over."""

from __future__ import annotations

from itertools import repeat
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import seconds
from actorflow.behaviours.behaviour import (
    Fate,
    Item,
    Judge,
    Refusal,
    Tally,
    Verdict,
)
from actorflow.behaviours.order.line import Queue, Stack
from actorflow.behaviours.timing.arrival_times import Ages, all_marked, bare, bare_refusals, marked
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence


class Expire(Wrapper):
    """Messages that are older than `ttl` seconds when they are taken are not handed over.

    They are counted as expired. Until then they are held and counted in `len`, so a batch may
    turn out empty; a `Bounded` around it lets them go when it needs their room. A newer message
    that replaces an older one, or is merged into it, makes it young again.

    A line (`Queue`, `Stack`) keeps the order of arrival, so the ages of its messages stand in a
    list of their own, and finding the dead is a binary search. Around anything else, each
    message is wrapped in an `Item` with its time of arrival.

    >>> from actorflow.behaviours import Queue
    >>> expire = Expire(Queue(), 5.0)
    >>> _ = expire.ready_at(100.0)
    >>> expire.add("a")
    >>> _ = expire.ready_at(103.0)
    >>> expire.add("b")
    >>> _ = expire.ready_at(106.0)
    >>> expire.take(), expire.tally().expired
    (['b'], 1)
    """

    __slots__ = ("_ages", "_expired", "_now", "_oldest", "_ttl")

    _ages: Ages | None

    def __init__(self, inner: Any, ttl: float) -> None:
        self._ttl = seconds(ttl, "ttl", "Expire(Queue(), 30.0)", zero=False)
        super().__init__(inner, timed=True, stamped=True, expires=True, may_be_empty=True)
        self._stay_patient()
        if self._inner.traits.expires:
            self._refuse(
                f"Expire around {self._inner!r}, which expires messages already: the shorter "
                f"time alone would count; keep one Expire"
            )
        if self._inner.traits.pads:
            self._refuse(
                f"Expire takes messages out one by one, and {self._inner!r} hands over batches of "
                "fixed sizes; put PadTo outside, as in PadTo(Expire(Queue(), 5.0), [8, 16], fill)"
            )
        if not self.traits.trackable:
            self._refuse(
                f"Expire must mark each message with its time of arrival, and {self._inner!r} "
                f"takes only bare messages; put Expire around a built-in behaviour, or set "
                f"Traits(trackable=True) and treat Item in your own"
            )
        self._expired = 0
        self._oldest = inf  # no message arrived before that
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

        >>> from actorflow.behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> expire.add("a")
        >>> expire.take()
        ['a']
        """
        if self._ages is None:
            self._oldest = min(self._oldest, self._now)
            self._inner.add(marked(message, self._now))
        else:
            self._inner.add(message)
            self._ages.extend([self._now])

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived now. O(k) more.

        >>> from actorflow.behaviours import Queue
        >>> Expire(Queue(), 5.0).extend(["a", "b"])
        ()
        """
        now = self._now
        if self._ages is not None:
            self._ages.extend([now] * len(messages))
            return self._inner.extend(messages)
        self._oldest = min(self._oldest, now)
        items = all_marked(messages, repeat(now))
        return bare_refusals(self._inner.extend(items))

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. O(1) more for lines, else O(k).

        >>> from actorflow.behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.extend_at(["a", "b"], [100.0, 103.0])
        >>> _ = expire.ready_at(106.0)
        >>> expire.take()
        ['b']
        """
        if times:
            self._now = times[-1]
            self._oldest = min(self._oldest, times[0])
        if self._ages is not None:
            self._ages.extend(times)
            return self._inner.extend(messages)
        items = all_marked(messages, times)
        return bare_refusals(super().extend_at(items, times))

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Return messages that are not too old, maybe none. O(log n) more for lines, else O(k).

        >>> from actorflow.behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.ready_at(100.0)
        >>> expire.add("a")
        >>> _ = expire.ready_at(106.0)
        >>> expire.take()
        []
        """
        if self._ages is not None:
            return self._take_line(self._ages, limit)
        inner = self._inner
        if limit is not None or inner.traits.limits:
            return self.choose(_take_all, limit)
        if self._oldest < self._now - self._ttl:
            self.purge()
        while len(inner):
            batch = super().take(None, free)
            if type(batch) is not list:
                return batch
            if alive := self._sift(batch):
                return alive
        return []

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Return the messages that `judge` takes, of the ones not too old. O(1) for each judged.

        >>> from actorflow.behaviours import Queue, Verdict
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.extend(["a", "b"])
        >>> expire.choose(lambda message: Verdict.TAKE, 1)
        ['a']
        """
        if self._ages is not None:
            return self._choose_line(self._ages, judge, limit)
        dead: list[Any] = []

        def alive(item: Any) -> Verdict:
            if self._dead(item):
                dead.append(item)
                return Verdict.DISCARD
            return judge(item)

        batch = self._inner.choose(alive, limit)
        self._bury(dead)
        return list(map(bare, batch))

    def withdraw(self, message: Any) -> bool:
        """Forget one message, if it is held. O(n).

        >>> from actorflow.behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> expire.add("a")
        >>> expire.withdraw("a"), len(expire)
        (True, 0)
        """
        inner = self._inner
        if self._ages is None or not isinstance(inner, Queue | Stack):
            return inner.withdraw(message)
        place = inner.remove(message)
        if place is not None:
            self._ages.drop_at([place])
        return place is not None

    def peek(self) -> Any:
        """Return the first message that is not too old. O(1) more, and O(1) for each that is.

        >>> from actorflow.behaviours import Queue
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
        self.choose(_stop)  # drop the expired messages in front of the first live one
        if not len(inner):
            msg = f"peek at {self!r}, in which nothing is alive"
            raise IndexError(msg)
        return bare(inner.peek())

    def drop_oldest(self) -> Any:
        """Forget the oldest message of the inner behaviour and return it. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.extend(["a", "b"])
        >>> expire.drop_oldest()
        'a'
        """
        dropped = self._inner.drop_oldest()
        if self._ages is not None:
            self._ages.drop_oldest(1)
        return bare(dropped)

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` oldest messages of the inner behaviour, return them. O(count) more.

        >>> from actorflow.behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.extend(["a", "b", "c"])
        >>> expire.drop_many(2)
        ['a', 'b']
        """
        dropped = self._inner.drop_many(count)
        if self._ages is not None:
            self._ages.drop_oldest(count)
        return list(map(bare, dropped))

    def drop_lowest(self) -> Any:
        """Forget the message that the inner behaviour would hand over last, and return it."""
        return bare(self._inner.drop_lowest())

    def purge(self) -> None:
        """Drop all messages that are too old, at the cost of `forget` of the inner behaviour.

        >>> from actorflow.behaviours import Queue
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
            self._oldest = self._now - self._ttl
        elif dead := self._ages.older(self._now - self._ttl):
            self._bury(self._inner.drop_many(dead))
            self._ages.drop_oldest(dead)

    def ready_at(self, now: float) -> float:
        """Set the time of the messages that are added next. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> Expire(Queue(), 5.0).ready_at(100.0)
        100.0
        """
        self._now = now
        return self._inner.ready_at(now)

    def tally(self) -> Tally:
        """Return the counts of the inner behaviour, plus the messages expired here. O(1).

        >>> from actorflow.behaviours import Queue
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

    def _choose_line(self, ages: Ages, judge: Judge, limit: int | None) -> list[Any]:
        inner = self._inner
        newest_first = type(inner) is Stack
        dead = ages.older(self._now - self._ttl)
        held = len(inner)
        judged = -1
        gone: list[int] = []
        buried: list[Any] = []

        def alive(item: Any) -> Verdict:
            nonlocal judged
            judged += 1
            place = held - 1 - judged if newest_first else judged
            if place < dead:
                buried.append(item)
                verdict = Verdict.DISCARD
            else:
                verdict = judge(item)
            if verdict is Verdict.TAKE or verdict is Verdict.DISCARD:
                gone.append(place)
            return verdict

        batch = inner.choose(alive, limit)
        if newest_first:
            gone.reverse()
        if gone and gone[-1] == len(gone) - 1:
            ages.drop_oldest(len(gone))
        elif gone and gone[0] == held - len(gone):
            ages.drop_newest(len(gone))
        else:
            ages.drop_at(gone)
        self._bury(buried)
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
        """Count expired messages, and report the ones that have waiting callers."""
        self._expired += len(dead)
        gone = self.gone
        if gone is not None:
            gone += [(item, Fate.EXPIRED) for item in dead if type(item) is Item and item.tickets]


def _take_all(_: Any) -> Verdict:
    return Verdict.TAKE


def _stop(_: Any) -> Verdict:
    return Verdict.STOP
