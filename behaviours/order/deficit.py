"""The `Fair` that weighs messages: deficit round robin over keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import function, shown
from actorflow.behaviours.behaviour import Behaviour, Judge, Refusal, Verdict
from actorflow.behaviours.errors import Malformed
from actorflow.behaviours.order.fair import Fair, Noting
from actorflow.behaviours.weighed import weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["WeighedFair"]

_EXAMPLE = "Fair(key=0, weight=lambda request: request.tokens)"
_ROUNDING = 1e-9


class WeighedFair(Fair):
    """Keys in turn, where each turn is worth the same weight. Made by `Fair(..., weight=)`.

    A turn adds the heaviest weight seen so far to the credit of a key, so each turn hands over at
    least one message. The rest of the credit is kept for the next turn, as long as the key has
    messages. If a batch ends during a turn, the turn continues in the next batch.

    >>> fair = Fair(key=0, weight=lambda message: message[1])
    >>> _ = fair.extend([("a", 4), ("a", 4), ("b", 1), ("b", 1), ("b", 1), ("b", 1), ("b", 1)])
    >>> fair.take(5)
    [('a', 4), ('b', 1), ('b', 1), ('b', 1), ('b', 1)]
    """

    __slots__ = ("_credit", "_heaviest", "_open", "_weight")

    def __init__(self, key: Any = 0, *, weight: Callable[[Any], float] | None = None) -> None:
        super().__init__(key)
        self._weight: Callable[[Any], float] = function(weight, "weight", _EXAMPLE)
        self._heaviest = 0.0
        self._credit: dict[Any, float] = {}
        self._open: Any = None
        """A tuple with the key whose turn has begun, else `None`."""

    def __repr__(self) -> str:
        return f"Fair(key={shown(self._given)}, weight={shown(self._weight)})"

    def add(self, message: Any) -> None:
        """Put a message last in the line of its key. O(1)."""
        try:
            weight = weigh(self._weight, message)
        except Malformed:
            self._rejected += 1
            raise
        super().add(message)
        self._heaviest = max(self._heaviest, weight)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Add many messages, as `add` would one after the other. O(k)."""
        return Behaviour.extend(self, messages)

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has a key and a weight. O(1)."""
        try:
            weigh(self._weight, message)
        except Malformed:
            return False
        return super().accepts(message)

    def take(self, limit: int | None = None, free: int = 1) -> list[Any]:
        """Hand over all messages, or the next `limit`. O(k)."""
        return self.choose(_take_all, limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over the messages that `judge` takes, turn by turn. O(1) for each one judged."""
        lines, turns, credit = self._lines, self._turns, self._credit
        batch: list[Any] = []
        aside: list[Any] = []
        noting = Noting(judge)
        while turns and not noting.stopped and (limit is None or len(batch) < limit):
            key = turns.popleft()
            line = lines[key]
            if self._open != (key,):
                credit[key] = credit.get(key, 0.0) + self._heaviest
                self._open = (key,)
            before = len(line)
            exhausted = False

            def allowed(item: Any, key: Any = key) -> Verdict:
                nonlocal exhausted
                weight = self._weight_now(item)
                if weight > credit[key] + _ROUNDING:
                    exhausted = True
                    return Verdict.STOP
                verdict = noting(item)
                if verdict is Verdict.TAKE:
                    credit[key] -= weight
                return verdict

            batch += line.choose(allowed, None if limit is None else limit - len(batch))
            self._count -= before - len(line)
            if not line:
                del lines[key]
                credit.pop(key, None)
                self._open = None
            elif exhausted:
                turns.append(key)
                self._open = None
            elif len(batch) == limit or noting.stopped:
                aside.append(key)  # its turn goes on
            else:  # all that is left is skipped
                aside.append(key)
                self._open = None
                credit[key] = min(credit[key], self._heaviest)
        turns.extendleft(reversed(aside))
        return batch

    def peek(self) -> Any:
        """Return the message whose turn is next. O(keys)."""
        for key in self._turns:
            credit = self._credit.get(key, 0.0)
            credit += 0.0 if self._open == (key,) else self._heaviest
            first = self._lines[key].peek()
            if self._weight_now(first) <= credit + _ROUNDING:
                return first
        return super().peek()

    def _weight_now(self, item: Any) -> float:
        """Return the weight of a message that has been accepted."""
        try:
            return min(weigh(self._weight, item), self._heaviest)
        except Malformed:  # a merged message may be of another shape
            return self._heaviest


def _take_all(_: Any) -> Verdict:
    return Verdict.TAKE
