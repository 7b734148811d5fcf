"""`Chunk`: large backlogs in small batches."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from behaviours.arguments import amount, count, function, shown
from behaviours.base import Refusal, Tally, unwrap
from behaviours.errors import Malformed
from behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EXAMPLE = "Chunk(Queue(), 100) or Chunk(Queue(), 1_000_000, weight=len)"


class Chunk(Wrapper):
    """At most `size` messages per batch; the rest stays and goes on being sorted and replaced.

    With `weight`, a function of the message, the weights of a batch add up to at most `size`; a
    message that is heavier than that by itself travels alone.

    >>> from behaviours import Queue
    >>> chunk = Chunk(Queue(), 2)
    >>> _ = chunk.extend(["a", "b", "c"])
    >>> chunk.take(), chunk.take()
    (['a', 'b'], ['c'])
    """

    __slots__ = ("_rejected", "_size", "_weight")

    def __init__(
        self, inner: Any, size: float, weight: Callable[[Any], float] | None = None
    ) -> None:
        if weight is None:
            self._size: float = count(size, "size", _EXAMPLE)
        else:
            self._size = amount(size, "size", _EXAMPLE)
            weight = function(weight, "weight", _EXAMPLE)
        self._weight = weight
        self._rejected = 0
        super().__init__(inner)
        if not self.traits.divisible:
            self._refuse(
                f"Chunk cannot take a part of {self._inner!r}, which hands its messages over as "
                f"a whole; chunk a Queue, Stack, Unique, Priority or Fair, or limit the batch in "
                f"take of your own behaviour"
            )

    def __repr__(self) -> str:
        weight = "" if self._weight is None else f", weight={shown(self._weight)}"
        return f"Chunk({self._inner!r}, {self._size}{weight})"

    def add(self, message: Any) -> None:
        """Accumulate one message. With a weight, O(1) more.

        >>> from behaviours import Queue
        >>> chunk = Chunk(Queue(), 10, weight=len)
        >>> chunk.add("abc")
        """
        if self._weight is not None:
            self._weigh(message)
        self._inner.add(message)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages. With a weight, O(k) more.

        >>> from behaviours import Queue
        >>> chunk = Chunk(Queue(), 10, weight=len)
        >>> [(refused, reason)] = chunk.extend(["abc", 5])
        >>> refused
        (5,)
        """
        if self._weight is None:
            return self._inner.extend(messages)
        refused: list[Refusal] = []
        good: list[Any] = []
        for message in messages:
            try:
                self._weigh(message)
            except Malformed as error:
                refused.append(((message,), error))
            else:
                good.append(message)
        refused += self._inner.extend(good)
        return refused

    def take(self, limit: int | None = None) -> Any:
        """Hand over the next part. Costs what that part costs the inner behaviour.

        >>> from behaviours import Queue
        >>> chunk = Chunk(Queue(), 4, weight=len)
        >>> _ = chunk.extend(["ab", "cd", "e", "too heavy", "f"])
        >>> chunk.take(), chunk.take(), chunk.take(), chunk.take()
        (['ab', 'cd'], ['e'], ['too heavy'], ['f'])
        """
        if self._weight is not None:
            return self._take_weighed(limit)
        size = int(self._size)
        return self._inner.take(size if limit is None else min(size, limit))

    def tally(self) -> Tally:
        """Count messages without a weight as rejected, and what the inner counts. O(1).

        >>> from behaviours import Queue
        >>> Chunk(Queue(), 10).tally().rejected
        0
        """
        return self._inner.tally() + Tally(rejected=self._rejected)

    def _weigh(self, message: Any) -> float:
        """Give the weight of a message.

        Raises:
            Malformed: the function raised, or gave something that is not a weight.

        """
        message = unwrap(message)
        cause: Exception | None = None
        try:
            weight: float = self._weight(message)  # type: ignore[misc]
            if weight >= 0:
                return weight
            why = f"the weight must be a number, zero or more, not {weight!r:.100}"
        except Exception as error:  # noqa: BLE001 - whatever the user's function does
            why = f"no weight={shown(self._weight)}: {error!r}"
            cause = error
        self._rejected += 1
        raise Malformed(message, why) from cause

    def _take_weighed(self, limit: int | None) -> list[Any]:
        inner = self._inner
        batch: list[Any] = []
        total = 0.0
        while len(inner) and (limit is None or len(batch) < limit):
            try:
                message = unwrap(inner.peek())
            except IndexError:  # all that was left had grown too old
                break
            total += self._weight_now(message)
            if batch and total > self._size:
                break
            batch += inner.take(1)
        return batch

    def _weight_now(self, message: Any) -> float:
        """Weigh again a message that had a weight when it came; one that lost it goes alone."""
        try:
            weight: float = self._weight(message)  # type: ignore[misc]
        except Exception:  # noqa: BLE001 - a merged message may be of another shape
            return inf
        return weight
