"""`Bounded`: a limited number of messages."""

from __future__ import annotations

from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, Any, Self

from actorflow.behaviours.arguments import choice, count, number, shown
from actorflow.behaviours.behaviour import Behaviour, Fate, Item, Refusal, Tally, unusable, unwrap
from actorflow.behaviours.errors import BadBehaviour, Full, Malformed, TooLarge, WouldBlock
from actorflow.behaviours.weights import ROUNDING, Scale, weigh
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.behaviours.behaviour import Judge

_CHOICES = ("drop_lowest", "reject", "drop_oldest", "drop_newest", "block")
_REFUSING = ("reject", "block")
_MAKING_ROOM = ("drop_oldest", "drop_lowest")
_EXAMPLE = "Bounded(Queue(), 1_000, when_full='reject')"
_WEIGHED = "Bounded(Queue(), 1_000_000, weight=len)"
_SLICE = 1_024
"""Messages are added in slices of at least this many before the excess is dropped."""
_FEW = 32
"""With less room than this, messages that may replace others are added one by one."""


class Bounded(Wrapper):
    """At most `size` messages wait; `when_full` says what happens to the next one.

    - `"reject"`: it is refused with `Full`;
    - `"drop_oldest"`: it is accepted, and the message that has waited longest is dropped;
    - `"drop_newest"`: it is dropped itself, without an error;
    - `"drop_lowest"`: it is accepted, and the message that would leave last is dropped, which may
      be itself: that of the lowest priority (around `Priority`), the heaviest (`Shortest`);
    - `"block"`: the pusher is asked to wait (`WouldBlock`; a worker does that for you).

    With `weight`, a function of the message, the weights of the waiting messages add up to at most
    `size`; a message that exceeds it by itself is refused with `TooLarge`.

    The batch that the job is working on does not count. A message that only replaces another
    one is always accepted.

    >>> from actorflow.behaviours import Queue, Unique
    >>> newest = Bounded(Queue(), 2, when_full="drop_oldest")
    >>> for message in "abc":
    ...     newest.add(message)
    >>> newest.take()
    ['b', 'c']
    >>> Bounded(Unique(key=0), 1_000, when_full="drop_oldest")
    Bounded(Unique(key=0), 1000, when_full='drop_oldest')
    """

    __slots__ = ("_dropped", "_rejected", "_size", "_when_full")

    def __new__(cls, *_: Any, weight: Any = None, **__: Any) -> Self:
        """Make one that weighs messages, if there is a weight: counting them is faster."""
        if weight is None or cls is not Bounded:
            return super().__new__(cls)
        return WeighedBounded.__new__(WeighedBounded)  # type: ignore[return-value]

    def __init__(
        self,
        inner: Any,
        size: float,
        when_full: str = "reject",
        *,
        weight: Callable[[Any], float] | None = None,
    ) -> None:
        self._size: Any = (
            count(size, "size", _EXAMPLE)
            if weight is None
            else number(size, "size", _WEIGHED, above=0)
        )
        self._when_full = choice(when_full, "when_full", _CHOICES)
        changed = {"blocks": True} if when_full == "block" else {}
        if weight is not None:
            changed["accepts_all"] = False
        if when_full == "drop_oldest":
            changed["evicts"] = True
        if when_full in _REFUSING:
            changed["accepts_all"] = False
        super().__init__(inner, bounded=True, **changed)
        if when_full == "drop_oldest" and not self.traits.ordered:
            self._refuse(
                f"Bounded(..., when_full='drop_oldest') needs to know the oldest message, and "
                f"{self._inner!r} keeps no order of arrival; use when_full='reject', "
                f"'drop_newest' or 'block', or bound a Queue, Stack or Unique"
            )
        if when_full == "drop_lowest" and not self.traits.ranked:
            self._refuse(
                f"Bounded(..., when_full='drop_lowest') needs to know the lowest message, and "
                f"{self._inner!r} has no priorities; bound a Priority or Shortest"
            )
        self._dropped = 0
        self._rejected = 0

    def __repr__(self) -> str:
        return f"Bounded({self._inner!r}, {self._size}, when_full={self._when_full!r})"

    def add(self, message: Any) -> None:
        """Accumulate one message if there is room, else do what `when_full` says. O(1) more.

        >>> from actorflow.behaviours import Full, Queue
        >>> bounded = Bounded(Queue(), 1)
        >>> bounded.add("a")
        >>> try:
        ...     bounded.add("b")
        ... except Full as error:
        ...     print(error)
        full: 1 messages are waiting and the bound is 1; push later, ...
        """
        inner = self._inner
        if len(inner) < self._size or not self._overflows(message):
            inner.add(message)
        elif self._when_full in _MAKING_ROOM:
            # Added first: if it is malformed, nothing was dropped for it.
            inner.add(message)
            self._trim()
        elif self._when_full == "drop_newest":
            self._drop((message,))
        elif self._when_full == "block":
            raise WouldBlock(self._size)
        else:
            self._rejected += 1
            raise Full(self._size)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages. If they fit, nothing is looked at singly. O(k).

        >>> from actorflow.behaviours import Queue
        >>> bounded = Bounded(Queue(), 2)
        >>> [(refused, reason)] = bounded.extend(["a", "b", "c", "d"])
        >>> refused, bounded.take()
        (['c', 'd'], ['a', 'b'])
        """
        if len(messages) <= self._size - len(self._inner):
            return self._inner.extend(messages)
        traits = self._inner.traits
        simple = traits.accepts_all and not (traits.shrinks or traits.bounded or traits.timed)
        if simple and self._when_full == "drop_oldest":
            return self._keep_newest(messages)
        return self._fill(messages)

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. If they fit, O(1) more.

        >>> from actorflow.behaviours import Expire, Queue
        >>> bounded = Bounded(Expire(Queue(), 5.0), 2, when_full="drop_oldest")
        >>> _ = bounded.extend_at(["a", "b", "c"], [1.0, 2.0, 3.0])
        >>> bounded.take()
        ['b', 'c']
        """
        room = self._size - len(self._inner)
        if len(messages) <= room:
            return super().extend_at(messages, times)
        traits = self._inner.traits
        if traits.shrinks or traits.bounded or traits.expires or not traits.accepts_all:
            # What happens to one of them depends on the others and on their times.
            return Behaviour.extend_at(self, messages, times)
        if self._when_full in _MAKING_ROOM:
            super().extend_at(messages, times)
            self._trim()
            return ()
        room = max(room, 0)
        super().extend_at(messages[:room], times[:room])
        refused: list[Refusal] = []
        self._turn_away(messages[room:], refused)
        return refused

    def tally(self) -> Tally:
        """Return the counts of the inner behaviour, plus the drops and rejections here. O(1).

        >>> from actorflow.behaviours import Queue
        >>> bounded = Bounded(Queue(), 2, when_full="drop_newest")
        >>> _ = bounded.extend(["a", "b", "c"])
        >>> bounded.tally().dropped
        1
        """
        return self._inner.tally() + Tally(dropped=self._dropped, rejected=self._rejected)

    def evicted(self) -> int:
        """Return how many messages were dropped to make room, here or inside. O(1)."""
        own = self._dropped if self._when_full == "drop_oldest" else 0
        return self._inner.evicted() + own

    def _overflows(self, message: Any) -> bool:
        """Return whether there is no room for a message although it would need some."""
        inner, traits = self._inner, self.traits
        if traits.expires:
            inner.purge()
            if len(inner) < self._size:
                return False
        return self._needs_room(message)

    def _needs_room(self, message: Any) -> bool:
        """Return whether a message would be accepted, and make the behaviour longer."""
        inner = self._inner
        return inner.accepts(message) and (not inner.traits.shrinks or inner.grows(message))

    def _keep_newest(self, messages: list[Any]) -> Sequence[Refusal]:
        """Add the messages that will not be dropped again, where each takes one place."""
        inner, size = self._inner, self._size
        over = len(messages) - size
        if over >= 0:
            self._drop(inner.drop_many(len(inner)))
            self._drop(messages[:over])
            return inner.extend(messages[over:])
        self._drop(inner.drop_many(len(inner) + over))
        return inner.extend(messages)

    def _pass_through(self, messages: list[Any], refused: list[Refusal]) -> None:
        """Add all, slice by slice, dropping the oldest in between."""
        step = max(self._size, _SLICE)
        for start in range(0, len(messages), step):
            refused += self._inner.extend(messages[start : start + step])
            self._trim()

    def _fill(self, messages: list[Any]) -> Sequence[Refusal]:
        """Add what there is room for, and treat the rest as `when_full` says."""
        inner, size, traits = self._inner, self._size, self._inner.traits
        # It may stay as long as it is, although messages are added.
        shrinks = traits.shrinks or traits.bounded
        refused: list[Refusal] = []
        full: list[Any] = []
        purged = not traits.expires
        start, end = 0, len(messages)
        while start < end:
            room = size - len(inner)
            if room <= 0 and not purged:
                # Once is enough: within one call no time goes by.
                inner.purge()
                purged = True
            elif room > 0 and not (shrinks and purged and room < _FEW):
                refused += inner.extend(messages[start : start + room])
                start += room
            elif shrinks:
                self._add_singly(messages[start : start + _SLICE], refused, full)
                start += _SLICE
            elif self._when_full in _MAKING_ROOM:
                self._pass_through(messages[start:], refused)
                break
            else:
                full = messages[start:]
                break
        if full and not traits.accepts_all:
            usable = list(map(inner.accepts, full))
            if not all(usable):
                refused += inner.extend(list(compress(full, map(not_, usable))))
                full = list(compress(full, usable))
        if full:
            self._turn_away(full, refused)
        return refused

    def _add_singly(self, messages: list[Any], refused: list[Refusal], full: list[Any]) -> None:
        """Add messages, some of which may replace others; append to `full` what does not fit."""
        inner, size = self._inner, self._size
        keep_new = self._when_full in _MAKING_ROOM
        for message in messages:
            try:
                if keep_new:
                    inner.add(message)
                    if len(inner) > size:
                        self._trim()
                elif len(inner) < size or not self._needs_room(message):
                    inner.add(message)
                else:
                    full.append(message)
            except Exception as error:  # noqa: BLE001 - a refusal concerns this message alone
                refused.append(((message,), error))
            except BaseException as error:  # noqa: BLE001 - raised by the user's code, not by ours
                refused.append(((message,), unusable(message, "add raised", error)))

    def _turn_away(self, messages: list[Any], refused: list[Refusal]) -> None:
        if self._when_full == "drop_newest":
            self._drop(messages)
        elif self._when_full == "block":
            refused.append((messages, WouldBlock(self._size)))
        else:
            self._rejected += len(messages)
            refused.append((messages, Full(self._size)))

    def _trim(self) -> None:
        """Drop the oldest messages until the rest fits."""
        inner = self._inner
        excess = len(inner) - self._size
        if self._when_full == "drop_lowest":
            self._drop([inner.drop_lowest() for _ in range(excess)])
            return
        while excess > 0:
            if excess == 1:
                self._drop((inner.drop_oldest(),))
                return
            self._drop(inner.drop_many(excess))
            before, excess = excess, len(inner) - self._size
            if excess >= before:
                msg = f"drop_oldest of {inner!r} does not make it shorter; it must forget a message"
                raise BadBehaviour(msg)

    def _drop(self, messages: Sequence[Any]) -> None:
        """Count dropped messages, and report the ones that have waiting callers."""
        self._dropped += len(messages)
        gone = self.gone
        if gone is not None:
            gone += [
                (message, Fate.DROPPED)
                for message in messages
                if type(message) is Item and message.tickets
            ]


class WeighedBounded(Bounded):
    """A `Bounded` that limits the weight of what it holds. Made by `Bounded(..., weight=)`.

    >>> from actorflow.behaviours import Queue
    >>> texts = Bounded(Queue(), 5, when_full="drop_oldest", weight=len)
    >>> _ = texts.extend(["abc", "de", "f"])
    >>> texts.take()
    ['de', 'f']
    """

    __slots__ = ("_scale",)

    def __init__(
        self,
        inner: Any,
        size: float,
        when_full: str = "reject",
        *,
        weight: Callable[[Any], float] | None = None,
    ) -> None:
        super().__init__(inner, size, when_full, weight=weight)
        try:
            self._scale = Scale(self._inner, weight, "Bounded(Queue(), 1_000_000, weight=len)")
        except BadBehaviour as error:
            self._refuse(str(error))

    def __repr__(self) -> str:
        weight = shown(self._scale.weight)
        return (
            f"Bounded({self._inner!r}, {self._size:g}, when_full={self._when_full!r}, "
            f"weight={weight})"
        )

    def add(self, message: Any) -> None:
        """Accumulate one message if there is room, else do what `when_full` says."""
        weight = self._weight_of(message)
        inner, scale = self._inner, self._scale
        fits = scale.total() + weight <= self._size + ROUNDING or not self._overflows(message)
        if fits or self._when_full in ("drop_oldest", "drop_lowest"):
            inner.add(message)
            scale.came(weight)
            self._trim()
        elif self._when_full == "drop_newest":
            self._drop((message,))
        elif self._when_full == "block":
            raise WouldBlock(self._size)
        else:
            self._rejected += 1
            raise Full(self._size)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages, as `add` would one after the other. O(k) more."""
        return Behaviour.extend(self, messages)

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. O(k) more."""
        return Behaviour.extend_at(self, messages, times)

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has a weight that is allowed, and can be used."""
        try:
            return weigh(self._scale.weight, message) <= self._size and super().accepts(message)
        except Malformed:
            return False

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over a batch of the inner behaviour. O(batch) more."""
        batch = super().take(limit, free)
        if type(batch) is list:
            self._scale.left(batch)
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes of the inner behaviour. O(batch) more."""
        batch = super().choose(judge, limit)
        self._scale.left(batch)
        return batch

    def _overflows(self, message: Any) -> bool:
        if self.traits.expires:
            self._inner.purge()
            if self._scale.total() + self._scale.of(message) <= self._size + ROUNDING:
                return False
        return self._needs_room(message)

    def _trim(self) -> None:
        """Drop messages until the rest fits."""
        inner, scale = self._inner, self._scale
        while len(inner) and scale.total() > self._size + ROUNDING:
            if self._when_full == "drop_oldest":
                dropped = inner.drop_oldest()
            elif self._when_full == "drop_lowest":
                dropped = inner.drop_lowest()
            else:  # a message has replaced a lighter one, and such a message is always accepted
                return
            scale.left((dropped,))
            self._drop((dropped,))

    def _weight_of(self, message: Any) -> float:
        try:
            weight = weigh(self._scale.weight, message)
        except Malformed:
            self._rejected += 1
            raise
        if weight > self._size:
            self._rejected += 1
            raise TooLarge(unwrap(message), weight, self._size)
        return weight
