"""Weights of messages: what `Bounded`, `Linger` and `Fair` share that weigh them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import function, shown
from actorflow.behaviours.behaviour import unusable, unwrap
from actorflow.behaviours.errors import BadBehaviour, Malformed, brief

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.behaviours.behaviour import Behaviour, Tally

__all__ = ["ROUNDING", "Scale", "weigh"]

ROUNDING = 1e-9
"""Sums of weights may differ by so much from what they should be."""


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
