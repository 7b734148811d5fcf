"""`Expire`: too late is never."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from behaviours.arguments import seconds
from behaviours.base import Fate, Item, Refusal, Tally
from behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Expire(Wrapper):
    """Messages that are older than `ttl` seconds when they are taken are not handed over.

    They are counted as expired. Until then they are held and counted in `len`, so a batch may
    turn out empty; a `Bounded` around it lets them go when it needs their room. A newer message
    that replaces an older one, or is merged into it, makes it young again.

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

    __slots__ = ("_expired", "_now", "_ttl")

    def __init__(self, inner: Any, ttl: float) -> None:
        self._ttl = seconds(ttl, "ttl", "Expire(Queue(), 30.0)", zero=False)
        super().__init__(inner, timed=True, stamped=True, expires=True)
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
        self._inner.add(self._marked(message))

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived now. O(k) more.

        >>> from behaviours import Queue
        >>> Expire(Queue(), 5.0).extend(["a", "b"])
        ()
        """
        now = self._now
        items = [
            self._marked(message) if type(message) is Item else Item(message, (), now)
            for message in messages
        ]
        refused = self._inner.extend(items)
        return refused and [([_bare(item) for item in some], error) for some, error in refused]

    def take(self, limit: int | None = None) -> Any:
        """Hand over what is not too old; that may be nothing. O(k) more.

        >>> from behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.ready_at(100.0)
        >>> expire.add("a")
        >>> _ = expire.ready_at(106.0)
        >>> expire.take()
        []
        """
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
        return _bare(self._inner.drop_oldest())

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` oldest messages of the inner behaviour, return them. O(count) more.

        >>> from behaviours import Queue
        >>> expire = Expire(Queue(), 5.0)
        >>> _ = expire.extend(["a", "b", "c"])
        >>> expire.drop_many(2)
        ['a', 'b']
        """
        return [_bare(item) for item in self._inner.drop_many(count)]

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
        self._bury(self._inner.forget(self._dead))

    def ready_at(self, now: float) -> float:
        """Tell the time; messages that are added next are of that time. O(1) more.

        >>> from behaviours import Queue
        >>> Expire(Queue(), 5.0).ready_at(100.0)
        100.0
        """
        self._now = now
        return self._inner.ready_at(now)

    def tally(self) -> Tally:
        """Count what has expired, and what the inner behaviour counts. O(1).

        >>> from behaviours import Queue
        >>> Expire(Queue(), 5.0).tally().expired
        0
        """
        return self._inner.tally() + Tally(expired=self._expired)

    def _marked(self, message: Any) -> Item:
        if type(message) is Item:
            message.born = self._now
            return message
        return Item(message, (), self._now)

    def _dead(self, item: Any) -> bool:
        return type(item) is Item and item.born < self._now - self._ttl

    def _sift(self, batch: list[Any]) -> list[Any]:
        """Give those that are alive; bury the others."""
        horizon = self._now - self._ttl
        dead = [item for item in batch if type(item) is Item and item.born < horizon]
        if dead:
            self._bury(dead)
            batch = [item for item in batch if not self._dead(item)]
        return [item.message if type(item) is Item and not item.tickets else item for item in batch]

    def _bury(self, items: Iterable[Item]) -> None:
        """Count messages that are too old, and report who waits for them."""
        for item in items:
            self._expired += 1
            if item.tickets and self.gone is not None:
                self.gone.append((item, Fate.EXPIRED))


def _bare(item: Any) -> Any:
    """Give the item if somebody waits for it, else the bare message."""
    return item.message if type(item) is Item and not item.tickets else item
