"""`Chunk`: large backlogs in small batches."""

from __future__ import annotations

from itertools import compress
from math import inf
from typing import TYPE_CHECKING, Any

from behaviours.arguments import count, function, number, shown
from behaviours.contract import Reason, Refusal, Tally, unusable, unwrap
from behaviours.errors import Malformed, brief
from behaviours.order.line import Queue
from behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EXAMPLE = "Chunk(Queue(), 100) or Chunk(Queue(), 1_000_000, weight=len)"


class Chunk(Wrapper):
    """At most `size` messages per batch; the rest stays, and is still sorted and replaced.

    With `weight`, a function of the message, the weights of a batch add up to at most `size`; a
    message that is heavier than that by itself travels alone.

    >>> from behaviours import Queue
    >>> chunk = Chunk(Queue(), 2)
    >>> _ = chunk.extend(["a", "b", "c"])
    >>> chunk.take(), chunk.take()
    (['a', 'b'], ['c'])
    """

    __slots__ = ("_reason", "_rejected", "_size", "_weight")

    def __init__(
        self, inner: Any, size: float, weight: Callable[[Any], float] | None = None
    ) -> None:
        if weight is None:
            self._size: float = count(size, "size", _EXAMPLE)
        else:
            self._size = number(size, "size", _EXAMPLE, above=0)
            weight = function(weight, "weight", _EXAMPLE)
        self._weight = weight
        self._rejected = 0
        self._reason: Reason | None = None
        super().__init__(inner, **({} if weight is None else {"accepts_all": False}))
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
        good = [message for message in messages if self._has_weight(message, refused)]
        refused += self._inner.extend(good)
        return refused

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. With a weight, O(k) more.

        >>> from behaviours import Expire, Queue
        >>> Chunk(Expire(Queue(), 5.0), 10).extend_at(["a", "b"], [1.0, 2.0])
        ()
        """
        if self._weight is None:
            return super().extend_at(messages, times)
        refused: list[Refusal] = []
        good = [self._has_weight(message, refused) for message in messages]
        refused += super().extend_at(list(compress(messages, good)), list(compress(times, good)))
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
        batch = self._inner.take(size if limit is None else min(size, limit))
        self._reason = Reason.SIZE if len(batch) == size else None
        return batch

    def reason(self) -> Reason:
        """Return SIZE or WEIGHT for a batch that is full, else the inner behaviour's reason."""
        return self._reason or self._inner.reason()

    def tally(self) -> Tally:
        """Return the messages without a weight as rejected, and what the inner counts. O(1).

        >>> from behaviours import Queue
        >>> Chunk(Queue(), 10).tally().rejected
        0
        """
        return self._inner.tally() + Tally(rejected=self._rejected)

    @property
    def portion(self) -> int | None:
        """How many messages of a plain `Queue` make a batch; `None` for any other inner behaviour.

        >>> from behaviours import Queue, Unique
        >>> Chunk(Queue(), 2).portion, Chunk(Unique(), 2).portion
        (2, None)
        """
        if type(self._inner) is not Queue or self._weight is not None:
            return None
        return int(self._size)

    def _has_weight(self, message: Any, refused: list[Refusal]) -> bool:
        """Return whether a message has a weight, and record the refusal if not."""
        try:
            self._weigh(message)
        except Malformed as error:
            refused.append(((message,), error))
            return False
        return True

    def _weigh(self, message: Any) -> float:
        """Return the weight of a message.

        Raises:
            Malformed: the function raised, or returned something that is not a weight.

        """
        try:
            weight: float = self._weight(unwrap(message))  # type: ignore[misc]
            if weight >= 0:
                return float(weight)
        except BaseException as error:
            self._rejected += 1
            raise unusable(message, f"no weight={shown(self._weight)}:", error) from error
        self._rejected += 1
        raise unusable(message, f"the weight must be a number, zero or more, not {brief(weight)}")

    def _take_weighed(self, limit: int | None) -> list[Any]:
        inner = self._inner
        batch: list[Any] = []
        total = 0.0
        self._reason = None
        while len(inner) and (limit is None or len(batch) < limit):
            try:
                message = unwrap(inner.peek())
            except IndexError:  # all that was left had grown too old
                break
            total += self._weight_now(message)
            if batch and total > self._size:
                break
            batch += inner.take(1)
        if total >= self._size:
            self._reason = Reason.WEIGHT
        return batch

    def _weight_now(self, message: Any) -> float:
        """Weigh a message again; one that has lost its weight since it came travels alone."""
        try:
            weight: float = self._weight(message)  # type: ignore[misc]
            return float(weight) if weight >= 0 else inf
        except BaseException:  # noqa: BLE001 - a merged message may be of another shape
            return inf
