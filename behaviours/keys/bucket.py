"""`Bucket`: one batch holds messages of one key."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedDict

from actorflow.behaviours.adapt import Base, adapt, adapt_inner, check_copied
from actorflow.behaviours.arguments import key_function, shown
from actorflow.behaviours.behaviour import (
    Behaviour,
    Fate,
    Item,
    Judge,
    Reason,
    Tally,
    has_key,
    keyless,
    lower,
    same,
    unwrap,
)
from actorflow.behaviours.order.fair import Noting
from actorflow.behaviours.order.line import Queue, Stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from actorflow.behaviours.behaviour import MessageOutcome

_EXAMPLE = "Bucket(key=lambda request: request.shape, inner=Chunk(Queue(), 32))"


class _Held:
    """The messages of one key, and the numbers of their arrivals, the oldest first."""

    __slots__ = ("arrivals", "behaviour", "first")

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.arrivals: deque[int] = deque()
        self.first: int | None = None


class Bucket(Behaviour):
    """Each batch has messages of one key: of one shape, model or tenant.

    The bucket with the oldest message goes first. `inner` says how the messages of one key
    accumulate: an empty instance, which is copied for each key, a class or a factory. What it
    limits holds for each key alone, and so does what it learns; where that involves time,
    `Bucket` keeps the bucket of each key that it has seen, and looking for the next batch costs
    O(buckets).

    `key` is a function of the message or the index of an element; by default the first element.
    A message without a usable key is refused alone, with `Malformed`.

    >>> bucket = Bucket(key=0)
    >>> for message in ("a", 1), ("b", 2), ("a", 3):
    ...     bucket.add(message)
    >>> bucket.take(), bucket.take()
    ([('a', 1), ('a', 3)], [('b', 2)])
    """

    __slots__ = (
        "_arrived",
        "_count",
        "_ended",
        "_flushed",
        "_given",
        "_held",
        "_keeps",
        "_key",
        "_last",
        "_lifo",
        "_make",
        "_now",
        "_order",
        "_rejected",
        "_template",
        "traits",
    )  # fmt: skip

    def __init__(self, key: Any = 0, inner: Any = Queue) -> None:
        super().__init__()
        self._key: Callable[[Any], Any] = key_function(key, _EXAMPLE)
        self._given = key
        self._template = adapt_inner(inner)
        plain = isinstance(inner, Behaviour | Base) or not callable(inner)
        self._make: Callable[[], Behaviour] = (
            (lambda: deepcopy(self._template)) if plain else (lambda: adapt(inner))
        )
        if plain:
            check_copied(self._template, "Bucket needs a behaviour for each key")
        given = self._template.traits
        self._keeps = given.timed or given.observes or given.paces
        self._lifo = type(self._template) is Stack
        self.traits = replace(
            given, limits=True, accepts_all=False, saves=False, evicts=False, ranked=False,
            patient=False,
        )  # fmt: skip
        self._held: dict[Any, _Held] = {}
        self._order: SortedDict[int, Any] = SortedDict()
        self._arrived = self._count = self._rejected = 0
        self._now = -inf
        self._flushed = False
        self._last = self._template
        self._ended = Tally()

    def __repr__(self) -> str:
        inner = "" if type(self._template) is Queue else f", inner={self._template!r}"
        return f"Bucket(key={shown(self._given)}{inner})"

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, key by key, if the inner behaviour lists them. O(n)."""
        empty: Callable[[], Iterator[Any]] = lambda: iter(())  # noqa: E731 - shorter
        return chain.from_iterable(
            getattr(each.behaviour, "__iter__", empty)() for each in self._held.values()
        )

    def add(self, message: Any) -> None:
        """Put a message into the bucket of its key. O(log buckets) more than the inner behaviour.

        >>> bucket = Bucket(key=len)
        >>> for word in "a", "bb", "c":
        ...     bucket.add(word)
        >>> bucket.take()
        ['a', 'c']
        """
        key = self._key_of(message)
        held = self._held.get(key) or self._open(key)
        before, evicted = len(held.behaviour), held.behaviour.evicted()
        try:
            held.behaviour.add(message)
        finally:
            grown = len(held.behaviour) - before
            if grown + held.behaviour.evicted() > evicted:
                self._arrived += 1
                held.arrivals.append(self._arrived)
            self._count += grown
            self._settle(key, held)

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has a key, and the inner behaviour can use it."""
        return has_key(self._key, message) and self._template.accepts(message)

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over messages of the key whose message has waited longest. O(log buckets) more.

        >>> from actorflow.behaviours import Chunk
        >>> bucket = Bucket(key=0, inner=Chunk(Queue(), 1))
        >>> _ = bucket.extend([("a", 1), ("b", 2), ("a", 3)])
        >>> bucket.take(), bucket.take(), bucket.take()
        ([('a', 1)], [('b', 2)], [('a', 3)])
        """
        batch: Any = []
        for key in self._next_keys():
            held = self._held[key]
            before = len(held.behaviour)
            behaviour = held.behaviour
            batch = behaviour.take() if limit is None else behaviour.take(limit)
            self._left(key, held, before)
            if type(batch) is not list or batch:
                break
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes of the first bucket in which it takes anything.

        >>> from actorflow.behaviours import Verdict
        >>> bucket = Bucket(key=0)
        >>> _ = bucket.extend([("a", 1), ("b", 2), ("a", 3)])
        >>> bucket.choose(lambda message: Verdict.TAKE, 1)
        [('a', 1)]
        """
        noting = Noting(judge)
        for key in self._next_keys():
            held = self._held[key]
            before = len(held.behaviour)
            batch = held.behaviour.choose(noting, limit)
            self._left(key, held, before)
            if batch or noting.stopped:
                return batch
        return []

    def portion(self) -> int | None:
        """Return how many messages of a bucket may leave, of whichever is next. O(keys).

        A wrapper may discard all messages of the first bucket, so that another one leaves.

        >>> from actorflow.behaviours import Chunk
        >>> bucket = Bucket(key=0, inner=Chunk(Queue(), 8))
        >>> bucket.portion()
        8
        """
        behaviours = [held.behaviour for held in self._held.values()]
        portions = [lower(each.portion(), len(each)) for each in behaviours if len(each)]
        if not portions:
            return self._template.portion()
        return max(each for each in portions if each is not None)

    def padding(self) -> int:
        """Return how many items the last bucket has padded its batch with."""
        return self._last.padding()

    def reason(self) -> Reason:
        """Return why the batch left its bucket."""
        return self._last.reason()

    def peek(self) -> Any:
        """Return the first message of the next batch. O(1) more.

        >>> bucket = Bucket(key=0)
        >>> bucket.add(("a", 1))
        >>> bucket.peek()
        ('a', 1)
        """
        for key in self._next_keys():
            held = self._held[key]
            before = len(held.behaviour)
            try:
                return held.behaviour.peek()
            except IndexError:
                continue
            finally:
                self._left(key, held, before)
        msg = f"peek at an empty {self!r}"
        raise IndexError(msg)

    def drop_oldest(self) -> Any:
        """Forget the message that has waited longest, and return it. O(log buckets) more.

        >>> bucket = Bucket(key=0)
        >>> _ = bucket.extend([("a", 1), ("b", 2)])
        >>> bucket.drop_oldest()
        ('a', 1)
        """
        key = self._order.peekitem(0)[1]
        held = self._held[key]
        dropped = held.behaviour.drop_oldest()
        held.arrivals.popleft()
        self._count -= 1
        self._settle(key, held)
        return dropped

    def withdraw(self, message: Any) -> bool:
        """Forget one message, if it is held. O(messages of its key).

        >>> bucket = Bucket(key=0)
        >>> message = ("a", 1)
        >>> bucket.add(message)
        >>> bucket.withdraw(message), len(bucket)
        (True, 0)
        """
        try:
            key = self._key(unwrap(message))
            held = self._held.get(key)
        except BaseException:  # noqa: BLE001 - it has never been accepted
            return False
        if held is None:
            return False
        listed: Iterator[Any] = iter(getattr(held.behaviour, "__iter__", tuple)())
        place = next((at for at, each in enumerate(listed) if same(each, message)), 0)
        if not held.behaviour.withdraw(message):
            return False
        del held.arrivals[place]
        self._count -= 1
        self._settle(key, held)
        return True

    def grows(self, message: Any) -> bool:
        """Return whether `message` makes the bucket of its key longer. O(1) more.

        >>> Bucket(key=0).grows(("a", 1))
        True
        """
        try:
            held = self._held.get(self._key(unwrap(message)))
        except BaseException:  # noqa: BLE001 - add will refuse it, so it does not grow
            return False
        return (self._template if held is None else held.behaviour).grows(message)

    def ready_at(self, now: float) -> float:
        """Return from when on a bucket may leave. O(buckets) where that involves time.

        >>> from actorflow.behaviours import Linger
        >>> bucket = Bucket(key=0, inner=Linger(Queue(), 2.0, size=8))
        >>> _ = bucket.ready_at(100.0)
        >>> bucket.add(("a", 1))
        >>> bucket.ready_at(100.0)
        102.0
        """
        self._now = now
        ready = self._template.ready_at(now)
        if not self.traits.timed:
            return now
        times = [(each.behaviour.ready_at(now), each.first) for each in self._held.values()]
        return min((at for at, first in times if first is not None), default=ready)

    def until_full(self) -> int | None:
        """Return 1 if buckets wait: a message may complete one, or open one that does not."""
        return 1 if self.traits.timed else None

    def track(self, gone: list[tuple[Item, Fate]]) -> None:
        """Allow messages to come wrapped in `Item`."""
        self.gone = gone
        for each in self._held.values():
            each.behaviour.track(gone)

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the dead messages of each key. O(buckets) more.

        >>> bucket = Bucket(key=0)
        >>> _ = bucket.extend([("a", 1), ("b", 2)])
        >>> bucket.forget(lambda message: message[1] < 2)
        [('a', 1)]
        """
        forgotten: list[Any] = []
        for key, held in list(self._held.items()):
            before = len(held.behaviour)
            forgotten += held.behaviour.forget(dead)
            self._left(key, held, before)
        return forgotten

    def purge(self) -> None:
        """Make each bucket drop its expired messages. O(buckets) more."""
        for key, held in list(self._held.items()):
            before = len(held.behaviour)
            held.behaviour.purge()
            self._left(key, held, before)

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Report the outcome of a batch to its bucket."""
        key, held = self._bucket_of(batch)
        if held is not None:
            before = len(held.behaviour)
            held.behaviour.done(batch, took, outcomes)
            self._left(key, held, before)

    def retry_at(self, batch: Sequence[Any], now: float) -> float:
        """Return when the bucket of a batch allows a retry."""
        held = self._bucket_of(batch)[1]
        return now if held is None else held.behaviour.retry_at(batch, now)

    def flush(self) -> None:
        """Make each bucket stop waiting for more, now and later."""
        self._flushed = True
        for each in self._held.values():
            each.behaviour.flush()

    def tally(self) -> Tally:
        """Return the counts of all buckets. O(buckets), O(1) for `Queue` and `Stack`.

        >>> Bucket(key=0).tally().rejected
        0
        """
        total = Tally(rejected=self._rejected) + self._ended
        if not isinstance(self._template, Queue | Stack):
            for each in self._held.values():
                total += each.behaviour.tally()
        return total

    def depths(self) -> Mapping[Any, int]:
        """Return how many messages of each key are held. O(buckets).

        >>> bucket = Bucket(key=0)
        >>> for message in ("a", 1), ("b", 2), ("a", 3):
        ...     bucket.add(message)
        >>> bucket.depths()
        {'a': 2, 'b': 1}
        """
        held = {key: len(each.behaviour) for key, each in self._held.items()}
        return {key: count for key, count in held.items() if count}

    def check(self) -> None:
        """Verify that each bucket stands at the arrival of its oldest message. O(n)."""
        total = 0
        for key, held in self._held.items():
            held.behaviour.check()
            total += len(held.behaviour)
            assert len(held.arrivals) == len(held.behaviour), "arrivals differ"  # noqa: S101
            first = held.arrivals[0] if held.arrivals else None
            assert held.first == first, "it stands at another arrival"  # noqa: S101
            assert first is None or self._order[first] == key, "out of order"  # noqa: S101
        assert self._count == total, "the count is wrong"  # noqa: S101
        filled = [each for each in self._held.values() if each.arrivals]
        assert len(self._order) == len(filled), "a bucket stands twice"  # noqa: S101

    def _key_of(self, message: Any) -> Any:
        try:
            key = self._key(unwrap(message))
            hash(key)
        except BaseException as error:
            self._rejected += 1
            raise keyless(message, self._given, error) from error
        return key

    def _bucket_of(self, batch: Sequence[Any]) -> tuple[Any, _Held | None]:
        """Return the key of a batch and its bucket, unless a merged message has lost its key."""
        try:
            key = self._key(unwrap(batch[0]))
            return key, self._held.get(key)
        except BaseException:  # noqa: BLE001 - the user's code
            return None, None

    def _open(self, key: Any) -> _Held:
        """Make the bucket of a new key."""
        behaviour = self._make()
        behaviour.ready_at(self._now)
        if self.gone is not None:
            behaviour.track(self.gone)
        if self._flushed:
            behaviour.flush()
        held = self._held[key] = _Held(behaviour)
        return held

    def _next_keys(self) -> Iterator[Any]:
        """Yield the keys that may leave now, that of the oldest message first.

        If none may, because the driver asks too early, yield all.
        """
        order, now = self._order, self._now
        if self.traits.timed:
            waits = [key for key in order.values() if self._held[key].behaviour.ready_at(now) > now]
            if len(waits) < len(order):
                late = set(waits)
                yield from [key for key in order.values() if key not in late]
                return
        place = 0
        while place < len(order):  # a bucket that is left may have another place
            first, key = order.peekitem(place)
            yield key
            if place < len(order) and order.peekitem(place)[0] == first:
                place += 1

    def _left(self, key: Any, held: _Held, before: int) -> None:
        """Account for messages that may have left a bucket."""
        self._last = held.behaviour
        gone = before - len(held.behaviour)
        if gone:
            leave = held.arrivals.pop if self._lifo else held.arrivals.popleft
            for _ in range(gone):
                leave()
            self._count -= gone
        self._settle(key, held)

    def _settle(self, key: Any, held: _Held) -> None:
        """Let a bucket stand at the arrival of its oldest message; close it if it is empty."""
        arrivals = held.arrivals
        while len(arrivals) > len(held.behaviour):
            arrivals.popleft()
        first = arrivals[0] if arrivals else None
        if first != held.first:
            if held.first is not None:
                del self._order[held.first]
            if first is not None:
                self._order[first] = key
            held.first = first
        if first is None and not self._keeps and key in self._held:
            del self._held[key]
            self._ended += held.behaviour.tally()
