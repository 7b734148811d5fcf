"""`Dedup`: each message once, although it is sent twice."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import key_function, seconds, shown
from actorflow.behaviours.behaviour import (
    Behaviour,
    Fate,
    Item,
    Judge,
    MessageOutcome,
    Tally,
    Verdict,
    has_key,
    keyless,
    unwrap,
)
from actorflow.behaviours.order.line import Queue
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.behaviours.behaviour import Refusal

_EXAMPLE = "Dedup(Queue(), within=300.0, key=lambda order: order.id)"
_LOST = (MessageOutcome.FAILED, MessageOutcome.ABANDONED)


class Dedup(Wrapper):
    """Messages that were sent again are dropped, as long as the first one is known.

    It is known while it is held, and for `within` seconds after it was handed over. If the job
    fails on it for good, it is forgotten, so that it can be sent again. Duplicates are counted as
    dropped, and callers that wait for one get `Duplicate`.

    `key` returns what two equal messages have in common: a function of the message or the index
    of an element; by default the message itself. A message without a usable key is refused alone,
    with `Malformed`. In the engine the window is committed with each batch, so it survives
    restarts; then keys must be plain data.

    >>> from actorflow.behaviours import Queue
    >>> orders = Dedup(Queue(), within=60.0, key=0)
    >>> _ = orders.ready_at(100.0)
    >>> _ = orders.extend([("a", 1), ("b", 2), ("a", 1)])
    >>> orders.take()
    [('a', 1), ('b', 2)]
    >>> _ = orders.ready_at(130.0)
    >>> orders.add(("a", 1))
    >>> len(orders), orders.tally().dropped
    (0, 2)
    """

    __slots__ = ("_ahead", "_dropped", "_given", "_held", "_key", "_now", "_rejected", "_seen",
                 "_within")  # fmt: skip

    def __init__(self, inner: Any = Queue, within: float = 300.0, *, key: Any = None) -> None:
        self._within = seconds(within, "within", _EXAMPLE, zero=False)
        self._given = key
        self._key: Callable[[Any], Any] = _itself if key is None else key_function(key, _EXAMPLE)
        super().__init__(
            inner, timed=True, stamped=True, shrinks=True, observes=True, saves=True,
            accepts_all=False,
        )  # fmt: skip
        self._stay_patient()
        given = self._inner.traits
        if given.shrinks or given.bounded or given.may_be_empty or not given.trackable:
            self._refuse(
                f"Dedup must know which messages are held, and {self._inner!r} may lose some; put "
                "Dedup inside, as in Bounded(Dedup(Queue(), within=60.0), 1_000)"
            )
        self._held: set[Any] = set()
        self._seen: OrderedDict[Any, float] = OrderedDict()
        """When each key was handed over, the earliest first."""
        self._ahead: list[tuple[Any, float]] = []
        self._now = 0.0
        self._dropped = self._rejected = 0

    def __repr__(self) -> str:
        key = "" if self._key is _itself else f", key={shown(self._given)}"
        return f"Dedup({self._inner!r}, within={self._within:g}{key})"

    def add(self, message: Any) -> None:
        """Accumulate a message that is new; drop one that is known. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> once = Dedup(Queue(), within=60.0)
        >>> once.add("a")
        >>> once.add("a")
        >>> once.take()
        ['a']
        """
        try:
            key = self._key(unwrap(message))
            known = key in self._held or self._is_seen(key)
        except BaseException as error:
            self._rejected += 1
            raise keyless(message, self._given, error) from error
        if known:
            self._dropped += 1
            if type(message) is Item and message.tickets and self.gone is not None:
                self.gone.append((message, Fate.DUPLICATE))
            return
        self._inner.add(message)
        self._held.add(key)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages, as `add` would one after the other. O(k) more."""
        return Behaviour.extend(self, messages)

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. O(k) more."""
        return Behaviour.extend_at(self, messages, times)

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has a key, and the inner behaviour can use it."""
        return has_key(self._key, message) and super().accepts(message)

    def grows(self, message: Any) -> bool:
        """Return whether `message` is new. O(1)."""
        try:
            key = self._key(unwrap(message))
            return key not in self._held and not self._is_seen(key)
        except BaseException:  # noqa: BLE001 - add will refuse it, so it does not grow
            return False

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over a batch, and remember its keys. O(batch) more."""
        batch = super().take(limit, free)
        for message in batch if type(batch) is list else [batch]:
            self._remember(message)
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes, and remember its keys. O(batch) more."""
        discarded: list[Any] = []

        def note(item: Any) -> Verdict:
            verdict = judge(item)
            if verdict is Verdict.DISCARD:
                discarded.append(item)
            return verdict

        batch = self._inner.choose(note, limit)
        self._forget(discarded)
        for message in batch:
            self._remember(message)
        return batch

    def drop_oldest(self) -> Any:
        """Forget the oldest message of the inner behaviour, with its key, and return it."""
        dropped = self._inner.drop_oldest()
        self._forget((dropped,))
        return dropped

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` oldest messages, with their keys, and return them."""
        dropped = self._inner.drop_many(count)
        self._forget(dropped)
        return dropped

    def drop_lowest(self) -> Any:
        """Forget the message that would leave last, with its key, and return it."""
        dropped = self._inner.drop_lowest()
        self._forget((dropped,))
        return dropped

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the dead messages, with their keys, and return them."""
        forgotten = self._inner.forget(dead)
        self._forget(forgotten)
        return forgotten

    def withdraw(self, message: Any) -> bool:
        """Forget one message, with its key, if it is held."""
        found = self._inner.withdraw(message)
        if found:
            self._forget((message,))
        return found

    def ready_at(self, now: float) -> float:
        """Set the time by which keys are remembered. O(1) more."""
        self._now = now
        if self._ahead:
            self._seen.update((key, now - age) for key, age in self._ahead)
            self._ahead = []
        return self._inner.ready_at(now)

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Forget the keys of messages that have failed, so that they can be sent again."""
        self._inner.done(batch, took, outcomes)
        for message, outcome in zip(batch, outcomes, strict=True):
            if outcome in _LOST:
                self._seen.pop(self._key_now(message), None)

    def tally(self) -> Tally:
        """Return the duplicates as dropped, and what the inner behaviour counts. O(1).

        >>> from actorflow.behaviours import Queue
        >>> Dedup(Queue(), within=60.0).tally().dropped
        0
        """
        own = Tally(dropped=self._dropped, rejected=self._rejected)
        return self._inner.tally() + own

    def check(self) -> None:
        """Verify that each message held has its key. O(n)."""
        super().check()
        assert len(self._held) == len(self._inner), "keys differ from messages"  # noqa: S101

    def _save(self) -> Any:
        """Return how long ago each key was handed over; those of held messages come again."""
        self._is_seen(None)
        return [[key, self._now - at] for key, at in self._seen.items()]

    def _load(self, state: Any) -> None:
        self._ahead = [(_hashable(key), float(age)) for key, age in state]

    def _is_seen(self, key: Any) -> bool:
        """Return whether a key was handed over a short while ago. O(1) on average."""
        seen, horizon = self._seen, self._now - self._within
        while seen:
            first = next(iter(seen))
            if seen[first] > horizon:
                break
            del seen[first]
        return key in seen

    def _remember(self, message: Any) -> None:
        key = self._key_now(message)
        self._held.discard(key)
        self._seen[key] = self._now
        self._seen.move_to_end(key)

    def _forget(self, messages: Sequence[Any]) -> None:
        for message in messages:
            self._held.discard(self._key_now(message))

    def _key_now(self, message: Any) -> Any:
        """Return the key of a message that has been accepted."""
        return self._key(unwrap(message))


def _itself(message: Any) -> Any:
    return message


def _hashable(key: Any) -> Any:
    """Return a key as it was before JSON made lists of tuples."""
    return tuple(map(_hashable, key)) if isinstance(key, list) else key
