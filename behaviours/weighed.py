"""Weights of the messages held: what `Bounded`, `Linger` and `Fair` share that weigh them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import function, shown
from actorflow.behaviours.behaviour import Behaviour, Refusal, unusable, unwrap
from actorflow.behaviours.bounded import Bounded
from actorflow.behaviours.errors import BadBehaviour, Full, Malformed, TooLarge, WouldBlock, brief

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.behaviours.behaviour import Judge, Tally

__all__ = ["Scale", "WeighedBounded", "weigh"]

_ROUNDING = 1e-9


def weigh(weight: Callable[[Any], float], message: Any) -> float:
    """Return the weight of a message, wrapped or not.

    Raises:
        Malformed: it has none.

    >>> weigh(len, "abc")
    3.0
    """
    try:
        found = weight(unwrap(message))
        usable = 0 <= found < inf
    except BaseException as error:
        raise unusable(message, f"no weight={shown(weight)}:", error) from error
    if not usable:
        why = f"the weight must be a finite number, zero or more, not {brief(found)}"
        raise unusable(message, why)
    return float(found)


class Scale:
    """The weight of all that a behaviour holds.

    Where messages only come and leave in sight, it is kept up to date; where a behaviour may
    replace, merge or drop them, it is added up again when it is needed: O(n) after such a change.
    """

    __slots__ = ("_held", "_inner", "_sum", "_tally", "weight")

    def __init__(self, inner: Behaviour, weight: Any, example: str) -> None:
        self.weight: Callable[[Any], float] = function(weight, "weight", example)
        self._inner = inner
        self._sum = 0.0
        self._held = 0
        self._tally: Tally | None = inner.tally()
        if not hasattr(inner, "__iter__"):
            msg = f"{inner!r} does not list its messages, so they cannot be weighed; use a Queue"
            raise BadBehaviour(msg)

    def of(self, message: Any) -> float:
        """Return the weight of a message that was accepted; 0 if it has lost it since then."""
        try:
            return weigh(self.weight, message)
        except Malformed:  # a merged message may be of another shape
            return 0.0

    def came(self, weight: float) -> None:
        """Record a message that was added."""
        self._sum += weight
        self._held += 1

    def left(self, messages: Sequence[Any]) -> None:
        """Record messages that have left."""
        self._sum -= sum(map(self.of, messages))
        self._held -= len(messages)

    def total(self) -> float:
        """Return the weight of all held messages. O(1), or O(n) after an unobserved change."""
        inner, tally = self._inner, self._inner.tally()
        held = len(inner)
        if held != self._held or not held or tally != self._tally:
            self._sum = sum(map(self.of, inner))  # type: ignore[call-overload]
            self._held, self._tally = held, tally
        return self._sum


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
        fits = scale.total() + weight <= self._size + _ROUNDING or not self._overflows(message)
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
            if self._scale.total() + self._scale.of(message) <= self._size + _ROUNDING:
                return False
        return self._needs_room(message)

    def _trim(self) -> None:
        """Drop messages until the rest fits."""
        inner, scale = self._inner, self._scale
        while len(inner) and scale.total() > self._size + _ROUNDING:
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
