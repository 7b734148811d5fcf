"""`PerKey`: a limited number of batches per key in flight."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import count, key_function, shown
from actorflow.behaviours.behaviour import (
    Judge,
    MessageOutcome,
    Refusal,
    Tally,
    Verdict,
    has_key,
    keyless,
    unwrap,
)
from actorflow.behaviours.errors import Malformed
from actorflow.behaviours.order.line import Queue
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_EXAMPLE = "PerKey(Chunk(Queue(), 10), key=lambda order: order.customer, limit=1)"
_COUNTED = 10_000  # messages that `depths` looks at, at most


class PerKey(Wrapper):
    """At most `limit` batches with a key are in flight; the order within a key is kept.

    With `concurrency=n` several batches are processed at once. A message whose key is in as many
    of them as allowed stays where it is until the worker reports (`done`) that one has ended; a
    batch that is retried has not. Messages of other keys overtake it. Looking past such messages
    costs O(1) for each, each time a batch is taken.

    When the executor crashes or is killed, its batches have ended, although a thread may go on with
    the job of one for a while, because nothing can stop it.

    `key` is a function of the message or the index of an element; by default the first element.
    A message without a usable key is refused alone, with `Malformed`.

    >>> from actorflow.behaviours import Chunk, MessageOutcome, Queue
    >>> orders = PerKey(Chunk(Queue(), 1), key=0)
    >>> _ = orders.extend([("a", 1), ("a", 2), ("b", 3)])
    >>> first, second = orders.take(), orders.take()
    >>> first, second
    ([('a', 1)], [('b', 3)])
    >>> orders.ready_at(0.0)
    inf
    >>> orders.done(first, 0.1, [MessageOutcome.PROCESSED])
    >>> orders.take()
    [('a', 2)]
    """

    __slots__ = ("_flying", "_given", "_key", "_limit", "_now", "_rejected", "_stuck")

    def __init__(self, inner: Any = Queue, key: Any = 0, limit: int = 1) -> None:
        self._key: Callable[[Any], Any] = key_function(key, _EXAMPLE)
        self._given = key
        self._limit = count(limit, "limit", _EXAMPLE)
        super().__init__(
            inner, observes=True, timed=True, limits=True, may_be_empty=True,
            accepts_all=False, patient=False,
        )  # fmt: skip
        given = self._inner.traits
        if not (given.divisible and given.chooses):
            self._refuse(
                f"PerKey must leave out messages whose key is in flight, and {self._inner!r} "
                "cannot skip a message; put PerKey around a Queue, Stack, Unique, Priority or Fair"
            )
        if given.may_be_empty and not given.expires:
            self._refuse(
                f"PerKey cannot know when {self._inner!r} lets a message go; put PerKey inside, "
                "as in Rate(PerKey(Queue(), key=0), 10)"
            )
        self.traits = replace(self.traits, first_stamped=given.first_stamped)
        self._flying: dict[Any, list[list[int]]] = {}
        """For each key, the messages of each batch in flight, by identity."""
        self._stuck = False
        self._now = -inf
        self._rejected = 0

    def __repr__(self) -> str:
        limit = "" if self._limit == 1 else f", limit={self._limit}"
        return f"PerKey({self._inner!r}, key={shown(self._given)}{limit})"

    def add(self, message: Any) -> None:
        """Accumulate one message. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> orders = PerKey(Queue(), key=0)
        >>> orders.add(("a", 1))
        >>> len(orders)
        1
        """
        key = self._key_of(message)
        first = not len(self._inner)
        self._inner.add(message)
        self._arrived([key], first=first)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages. O(k) more.

        >>> from actorflow.behaviours import Queue
        >>> [(refused, reason)] = PerKey(Queue(), key=0).extend([("a", 1), 5])
        >>> refused
        (5,)
        """
        refused: list[Refusal] = []
        good = [message for message in messages if self._has_key(message, refused)]
        first, keys = not len(self._inner), list(map(self._key_now, good))
        refused += self._inner.extend(good)
        self._arrived(keys, first=first)
        return refused or ()

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. O(k) more.

        >>> from actorflow.behaviours import Expire, Queue
        >>> PerKey(Expire(Queue(), 5.0), key=0).extend_at([("a", 1)], [1.0])
        ()
        """
        refused: list[Refusal] = []
        pairs = [
            (message, time)
            for message, time in zip(messages, times, strict=True)
            if self._has_key(message, refused)
        ]
        first, keys = not len(self._inner), [self._key_now(one) for one, _ in pairs]
        refused += super().extend_at([one for one, _ in pairs], [time for _, time in pairs])
        self._arrived(keys, first=first)
        return refused or ()

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has a key, and the inner behaviour can use it."""
        return has_key(self._key, message) and super().accepts(message)

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over messages of keys that may have another batch. O(1) for each one looked at.

        >>> from actorflow.behaviours import Queue
        >>> orders = PerKey(Queue(), key=0)
        >>> _ = orders.extend([("a", 1), ("a", 2)])
        >>> orders.take()
        [('a', 1), ('a', 2)]
        """
        return self.choose(_take_all, limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes of the keys that may have another batch."""
        batch = self._choose(judge, limit)
        flying: dict[Any, list[int]] = {}
        for item in batch:
            flying.setdefault(self._key_now(item), []).append(id(unwrap(item)))
        for key, names in flying.items():
            self._flying.setdefault(key, []).append(names)
        self._look()
        return batch

    def _look(self) -> None:
        """Record whether no message may leave before a batch has ended."""
        found: list[Any] = []
        self._stuck = False
        if self._flying and len(self._inner):
            self._choose(_first(found), None)
            # If time changes what leaves, it is the inner behaviour that knows when.
            self._stuck = not found and self._inner.ready_at(self._now) <= self._now

    def peek(self) -> Any:
        """Return the first message that may leave. O(1) for each one looked at.

        >>> from actorflow.behaviours import Queue
        >>> orders = PerKey(Queue(), key=0)
        >>> orders.add(("a", 1))
        >>> orders.peek()
        ('a', 1)
        """
        found: list[Any] = []
        self._choose(_first(found), None)
        if not found:
            msg = f"peek at {self!r}: nothing may leave now; see ready_at()"
            raise IndexError(msg)
        return found[0]

    def ready_at(self, now: float) -> float:
        """Return `inf` as long as the keys of all messages are in flight. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> PerKey(Queue(), key=0).ready_at(7.0)
        7.0
        """
        self._now = now
        inner = self._inner.ready_at(now)
        return inf if self._stuck and self._flying and len(self._inner) else inner

    def until_full(self) -> int | None:
        """Return 1 while all keys are in flight, else the answer of the inner behaviour."""
        return 1 if self._stuck else super().until_full()

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Allow another batch for the keys of a batch that has ended. O(batch)."""
        self._inner.done(batch, took, outcomes)
        ended = False
        for message, outcome in zip(batch, outcomes, strict=True):
            if outcome == MessageOutcome.RETRIED:
                continue
            key = self._key_now(message)
            flying = self._flying.get(key)
            if flying is None:
                continue
            name = id(unwrap(message))
            found = next((names for names in flying if name in names), flying[0])
            found.remove(name if name in found else found[0])
            if not found:
                flying.remove(found)
                ended = True
                if not flying:
                    del self._flying[key]
        if ended:
            self._look()

    def tally(self) -> Tally:
        """Return the messages without a key as rejected, and what the inner counts. O(1).

        >>> from actorflow.behaviours import Queue
        >>> PerKey(Queue(), key=0).tally().rejected
        0
        """
        return self._inner.tally() + Tally(rejected=self._rejected)

    def depths(self) -> Mapping[Any, int]:
        """Count the messages of each key, among 10,000 messages if more are held.

        It needs an inner behaviour that lists its messages, as all built-in ones in memory do.

        >>> from actorflow.behaviours import Queue
        >>> orders = PerKey(Queue(), key=0)
        >>> _ = orders.extend([("a", 1), ("a", 2), ("b", 3)])
        >>> orders.depths() == {"a": 2, "b": 1}
        True
        """
        return Counter(map(self._key_now, islice(self, _COUNTED)))

    def _choose(self, judge: Judge, limit: int | None) -> list[Any]:
        passed: set[Any] = set()

        def free(item: Any) -> Verdict:
            key = self._key_now(item)
            if key in passed or self._is_full(key):
                return Verdict.SKIP
            verdict = judge(item)
            if verdict is Verdict.SKIP:
                passed.add(key)  # later messages of this key must not overtake it
            return verdict

        return self._inner.choose(free, limit)

    def _arrived(self, keys: list[Any], *, first: bool) -> None:
        """Record whether one of the messages that have arrived may leave."""
        if self._flying and (first or self._stuck):
            self._stuck = all(map(self._is_full, keys))

    def _key_now(self, item: Any) -> Any:
        """Return the key again; a message that has lost it since it came has the key `None`."""
        try:
            key = self._key(unwrap(item))
            hash(key)
        except BaseException:  # noqa: BLE001 - a merged message may be of another shape
            return None
        return key

    def _is_full(self, key: Any) -> bool:
        return len(self._flying.get(key, ())) >= self._limit

    def _has_key(self, message: Any, refused: list[Refusal]) -> bool:
        try:
            self._key_of(message)
        except Malformed as error:
            refused.append(((message,), error))
            return False
        return True

    def _key_of(self, message: Any) -> Any:
        try:
            key = self._key(unwrap(message))
            hash(key)
        except BaseException as error:
            self._rejected += 1
            raise keyless(message, self._given, error) from error
        return key


def _take_all(_: Any) -> Verdict:
    return Verdict.TAKE


def _first(found: list[Any]) -> Judge:
    """Return a judge that notes the first message that it sees, and stops."""

    def look(item: Any) -> Verdict:
        found.append(item)
        return Verdict.STOP

    return look
