"""`Rate`: a limited rate of messages, for each key if there are keys."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import flag, function, key_function, number, shown
from actorflow.behaviours.behaviour import (
    Behaviour,
    Judge,
    MessageOutcome,
    Reason,
    Refusal,
    Tally,
    Verdict,
    unusable,
    unwrap,
)
from actorflow.behaviours.errors import Malformed, brief
from actorflow.behaviours.order.lifo import Lifo
from actorflow.behaviours.order.line import Queue
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EXAMPLE = "Rate(Queue(), 100, burst=20, key=lambda request: request.customer)"
_ROUNDING = 1e-9
_MANY = 1_024
"""With more keys than this, keys that have regained all their credit are forgotten."""


class Rate(Wrapper):
    """At most `per_second` messages a second leave, and up to `burst` at once after a pause.

    Nothing is lost: what exceeds the rate waits. With `key` each key has a rate of its own, and
    waiting messages are overtaken by other keys; within a key the order is kept. With `weight`
    a message counts as much as it weighs; one that weighs more than `burst` leaves after a pause
    that is long enough for it. With `refund=True` the cost of messages that failed is returned.

    This is the generic cell rate algorithm: one time is kept for each key. Looking past messages
    that wait costs O(1) for each, when a batch is taken.

    >>> from actorflow.behaviours import Queue
    >>> rate = Rate(Queue(), 4, burst=2)
    >>> _ = rate.ready_at(100.0)
    >>> _ = rate.extend(["a", "b", "c"])
    >>> rate.take()
    ['a', 'b']
    >>> rate.ready_at(100.0)
    100.25
    >>> _ = rate.ready_at(100.25)
    >>> rate.take()
    ['c']
    """

    __slots__ = (
        "_ahead", "_burst", "_each", "_full_at", "_given", "_held_back", "_in_line", "_key",
        "_many", "_next", "_now", "_refund", "_rejected", "_waiting", "_weight",
    )  # fmt: skip

    def __init__(
        self,
        inner: Any = Queue,
        per_second: float = 1.0,
        *,
        burst: float = 1,
        key: Any = None,
        weight: Callable[[Any], float] | None = None,
        refund: bool = False,
    ) -> None:
        self._each = 1.0 / number(per_second, "per_second", _EXAMPLE, above=0)
        self._burst = float(number(burst, "burst", _EXAMPLE, above=0))
        self._given = key
        self._key: Callable[[Any], Any] | None = (
            None if key is None else key_function(key, _EXAMPLE)
        )
        self._weight = None if weight is None else function(weight, "weight", _EXAMPLE)
        self._refund = flag(refund, "refund", _EXAMPLE)
        plain = key is None and weight is None
        changed = {"observes": True} if refund else {}
        changed |= {} if plain else {"accepts_all": False}
        super().__init__(
            inner,
            timed=True,
            limits=True,
            may_be_empty=True,
            saves=True,
            paces=True,
            patient=False,
            **changed,
        )
        given = self._inner.traits
        if not given.divisible or (key is not None and not given.chooses):
            self._refuse(
                f"Rate must leave messages behind, and {self._inner!r} cannot skip a message; put "
                "Rate around a Queue, Stack, Unique, Priority or Fair"
            )
        if given.may_be_empty and not given.expires and key is not None:
            self._refuse(
                f"Rate with a key cannot know when {self._inner!r} lets a message go; use one "
                "Rate, or a key in the inner one alone"
            )
        self._full_at: dict[Any, float] = {}
        """When a key has regained all its credit."""
        self._many = _MANY
        self._now = 0.0
        self._next = -inf
        """From when on a message may leave, as far as known."""
        self._waiting: set[Any] = set()
        """Keys of messages that have to wait, as far as known."""
        self._in_line = weight is None or _keeps_order(self._inner)
        self._held_back = False
        self._rejected = 0
        self._ahead: list[tuple[Any, float]] = []

    def __repr__(self) -> str:
        text = f"Rate({self._inner!r}, {round(1 / self._each, 9):g}"
        text += "" if self._burst == 1 else f", burst={self._burst:g}"
        text += "" if self._key is None else f", key={shown(self._given)}"
        text += "" if self._weight is None else f", weight={shown(self._weight)}"
        return text + (", refund=True)" if self._refund else ")")

    def add(self, message: Any) -> None:
        """Accumulate one message. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> rate = Rate(Queue(), 10, weight=len)
        >>> rate.add("abc")
        """
        self._check_use(message)
        first = not len(self._inner)
        self._inner.add(message)
        self._arrived([message], first=first)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages. O(k) more with a key or a weight, else O(1).

        >>> from actorflow.behaviours import Queue
        >>> [(refused, reason)] = Rate(Queue(), 10, weight=len).extend(["abc", 5])
        >>> refused
        (5,)
        """
        refused: list[Refusal] = []
        good = messages
        if self._key is not None or self._weight is not None:
            good = [message for message in messages if self._is_usable(message, refused)]
        first, came = not len(self._inner), list(good)  # the list may be kept, and change
        refused += self._inner.extend(good)
        self._arrived(came, first=first)
        return refused or ()

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. O(k) more with a key or weight.

        >>> from actorflow.behaviours import Expire, Queue
        >>> Rate(Expire(Queue(), 5.0), 10).extend_at(["a", "b"], [1.0, 2.0])
        ()
        """
        refused: list[Refusal] = []
        if self._key is not None or self._weight is not None:
            pairs = [
                (message, time)
                for message, time in zip(messages, times, strict=True)
                if self._is_usable(message, refused)
            ]
            messages, times = [one for one, _ in pairs], [time for _, time in pairs]
        first, came = not len(self._inner), list(messages)
        refused += super().extend_at(messages, times)
        self._arrived(came, first=first)
        return refused or ()

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has a key and a weight. O(1) more."""
        rejected = self._rejected
        try:
            self._check_use(message)
        except Malformed:
            self._rejected = rejected
            return False
        return super().accepts(message)

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over what the rate allows. O(1) for each message looked at.

        >>> from actorflow.behaviours import Queue
        >>> rate = Rate(Queue(), 1, key=0)
        >>> _ = rate.extend([("a", 1), ("a", 2), ("b", 3)])
        >>> rate.take()
        [('a', 1), ('b', 3)]
        """
        return self.choose(_take_all, limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes, as far as the rate allows."""
        held_back = self._next > -inf
        asked = False

        def note(item: Any) -> Verdict:
            nonlocal asked
            asked = True
            return judge(item)

        batch, later = self._choose(judge if limit is None else note, limit)
        if not batch and not asked and limit is not None:
            # The inner behaviour may look at other messages first for a batch of another size.
            batch, later = self._choose(_at_most(limit, judge), None)
        if len(self._inner) and (self._key is not None or not later or not self._in_line):
            later = self._next_leaves()
        self._next = later or -inf
        self._held_back = bool(batch) and (held_back or bool(later))
        if len(self._full_at) > self._many:
            self._full_at = {k: t for k, t in self._full_at.items() if t > self._now}
            self._many = max(_MANY, 2 * len(self._full_at))
        return batch

    def reason(self) -> Reason:
        """Return TIME if the rate held messages back, else the inner behaviour's reason."""
        return Reason.TIME if self._held_back else self._inner.reason()

    def peek(self) -> Any:
        """Return the first message that may leave. O(1) for each one looked at.

        >>> from actorflow.behaviours import Queue
        >>> rate = Rate(Queue(), 10)
        >>> rate.add("a")
        >>> rate.peek()
        'a'
        """
        found: list[Any] = []

        self._choose(_first(found), None)
        if not found:
            msg = f"peek at {self!r}: nothing may leave now; see ready_at()"
            raise IndexError(msg)
        return found[0]

    def ready_at(self, now: float) -> float:
        """Return from when on the rate allows another message. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> Rate(Queue(), 10).ready_at(7.0)
        7.0
        """
        self._now = now
        if self._ahead:
            self._full_at.update((key, now + ahead) for key, ahead in self._ahead)
            self._ahead = []
        inner = self._inner.ready_at(now)
        return max(inner, self._next) if len(self._inner) and self._next > now else inner

    def until_full(self) -> int | None:
        """Return 1 with a key, as the next message may be one of another key."""
        return 1 if self._key is not None or self._weight is not None else super().until_full()

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Return the cost of messages that failed, with `refund=True`. O(batch)."""
        self._inner.done(batch, took, outcomes)
        if not self._refund:
            return
        refunded = False
        for message, outcome in zip(batch, outcomes, strict=True):
            if outcome == MessageOutcome.FAILED:
                key, weight = self._use(message)
                if key in self._full_at:
                    self._full_at[key] -= weight * self._each
                    refunded = True
        if refunded and len(self._inner) and self._next > -inf:
            self._next = self._next_leaves() or -inf

    def retry_at(self, batch: Sequence[Any], now: float) -> float:
        """Charge a retry, and return from when on the rate allows it. O(batch).

        >>> from actorflow.behaviours import Queue
        >>> rate = Rate(Queue(), 2)
        >>> rate.add("a")
        >>> rate.retry_at(rate.take(), 0.0)
        0.5
        """
        allowed = self._inner.retry_at(batch, now)
        for message in batch:
            key, weight = self._use(message)
            full_at = max(self._full_at.get(key, now), now) + weight * self._each
            self._full_at[key] = full_at
            allowed = max(allowed, full_at - max(self._burst, weight) * self._each)
        if self._next > -inf and len(self._inner):
            self._next = self._next_leaves() or -inf
        return allowed

    def tally(self) -> Tally:
        """Return the messages without a key or weight as rejected, and what the inner counts.

        >>> from actorflow.behaviours import Queue
        >>> Rate(Queue(), 10).tally().rejected
        0
        """
        return self._inner.tally() + Tally(rejected=self._rejected)

    def _save(self) -> Any:
        """Return how far each key is from all its credit; clocks differ between processes."""
        now = self._now
        return [[key, at - now] for key, at in self._full_at.items() if at > now]

    def _load(self, state: Any) -> None:
        self._ahead = [(_hashable(key), float(ahead)) for key, ahead in state]

    def _next_leaves(self) -> float:
        """Return when the first of the messages held may leave; 0 if that is now."""
        found: list[Any] = []
        later = self._choose(_first(found), None)[1]
        return 0.0 if found else later

    def _choose(self, judge: Judge, limit: int | None) -> tuple[list[Any], float]:
        """Return a batch, and when the first message that has to wait may leave, or 0."""
        now, keyed = self._now, self._key is not None
        passed = self._waiting = set()
        later = inf

        def allowed(item: Any) -> Verdict:
            nonlocal later
            key, weight = self._use(item)
            if key in passed:
                return Verdict.SKIP
            full_at = max(self._full_at.get(key, now), now) + weight * self._each
            start = full_at - max(self._burst, weight) * self._each
            if start > now + _ROUNDING:
                passed.add(key)
                later = min(later, start)
                return Verdict.SKIP if keyed else Verdict.STOP
            verdict = judge(item)
            if verdict is Verdict.TAKE:
                self._full_at[key] = full_at
            elif verdict is Verdict.SKIP:
                passed.add(key)  # later messages of this key must not overtake it
            return verdict

        batch = self._inner.choose(allowed, limit)
        return batch, 0.0 if later == inf else later

    def _arrived(self, messages: list[Any], *, first: bool) -> None:
        """Record from when on one of the new messages may leave."""
        if self._key is None and not self._in_line:  # a new one may have become the first
            self._next = self._next_leaves() or -inf
            return
        if self._next == -inf and not first:
            return
        earliest = inf if first else self._next
        if first:
            self._waiting = set()
        if self._key is None:
            messages = messages[:1] if first else []
        for message in messages:
            key, weight = self._use(message)
            if key in self._waiting and self._in_line:  # behind another one of its key
                continue
            self._waiting.add(key)
            full_at = max(self._full_at.get(key, self._now), self._now) + weight * self._each
            earliest = min(earliest, full_at - max(self._burst, weight) * self._each)
        self._next = earliest if earliest > self._now + _ROUNDING else -inf

    def _use(self, item: Any) -> tuple[Any, float]:
        """Return the key and the weight of a message that has been accepted."""
        message = unwrap(item)
        try:
            key = None if self._key is None else self._key(message)
            hash(key)
            return key, 1.0 if self._weight is None else max(float(self._weight(message)), 0.0)
        except BaseException:  # noqa: BLE001 - a merged message may be of another shape
            return None, 1.0

    def _is_usable(self, message: Any, refused: list[Refusal]) -> bool:
        try:
            self._check_use(message)
        except Malformed as error:
            refused.append(((message,), error))
            return False
        return True

    def _check_use(self, message: Any) -> None:
        """Refuse a message without a key or a weight."""
        weight: Any = 1.0
        what = f"no key={shown(self._given)}:"
        try:
            if self._key is not None:
                hash(self._key(unwrap(message)))
            if self._weight is not None:
                what = f"no weight={shown(self._weight)}:"
                weight = self._weight(unwrap(message))
            usable = 0 <= weight < inf
        except BaseException as error:
            self._rejected += 1
            raise unusable(message, what, error) from error
        if not usable:
            self._rejected += 1
            why = f"the weight must be a finite number, zero or more, not {brief(weight)}"
            raise unusable(message, why)


def _take_all(_: Any) -> Verdict:
    return Verdict.TAKE


def _keeps_order(behaviour: Behaviour) -> bool:
    """Return whether a message that arrives later also leaves later."""
    while isinstance(behaviour, Wrapper):
        if isinstance(behaviour, Lifo):
            return False
        behaviour = behaviour.inner
    return isinstance(behaviour, Queue)


def _at_most(limit: int, judge: Judge) -> Judge:
    """Return a judge that stops when `judge` has taken so many messages."""
    left = limit

    def judge_some(item: Any) -> Verdict:
        nonlocal left
        if not left:
            return Verdict.STOP
        verdict = judge(item)
        left -= verdict is Verdict.TAKE
        return verdict

    return judge_some


def _first(found: list[Any]) -> Judge:
    """Return a judge that notes the first message that it sees, and stops."""

    def look(item: Any) -> Verdict:
        found.append(item)
        return Verdict.STOP

    return look


def _hashable(key: Any) -> Any:
    """Return a key as it was before JSON made lists of tuples."""
    return tuple(map(_hashable, key)) if isinstance(key, list) else key
