"""`Chunk`: large backlogs in small batches."""

from __future__ import annotations

from itertools import compress
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import choice, count, function, number, shown
from actorflow.behaviours.behaviour import (
    Judge,
    Reason,
    Refusal,
    Tally,
    Verdict,
    lower,
    unusable,
    unwrap,
)
from actorflow.behaviours.errors import BadBehaviour, Rejected, TooLarge, brief
from actorflow.behaviours.order.line import Queue
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EXAMPLE = "Chunk(Queue(), 100), Chunk(Queue(), 1_000_000, weight=len) or Chunk(..., cost=padded)"
_OVERSIZE = ("alone", "reject")


class Chunk(Wrapper):
    """At most `size` messages per batch; the rest stays, and is still sorted and replaced.

    With `weight`, a function of the message, the weights of a batch add up to at most `size`.
    With `cost`, a function of the cost so far and the message, the cost of a batch is at most
    `size`: `cost` starts with 0 and returns a number, or a tuple that begins with that number.
    A message that exceeds the limit by itself runs alone, or is refused with `TooLarge` if
    `oversize="reject"`.

    >>> from actorflow.behaviours import Queue
    >>> chunk = Chunk(Queue(), 2)
    >>> _ = chunk.extend(["a", "b", "c"])
    >>> chunk.take(), chunk.take()
    (['a', 'b'], ['c'])
    """

    __slots__ = ("_cost", "_oversize", "_reason", "_rejected", "_size", "_weight")

    def __init__(
        self,
        inner: Any,
        size: float,
        weight: Callable[[Any], float] | None = None,
        *,
        cost: Callable[[Any, Any], Any] | None = None,
        oversize: str = "alone",
    ) -> None:
        if weight is not None and cost is not None:
            msg = f"weight= and cost= both measure a batch; pass one of them, as in {_EXAMPLE}"
            raise BadBehaviour(msg)
        if weight is None and cost is None:
            self._size: float = count(size, "size", _EXAMPLE)
        else:
            self._size = number(size, "size", _EXAMPLE, above=0)
        self._weight = None if weight is None else function(weight, "weight", _EXAMPLE)
        self._cost = self._add_weight if weight is not None else cost
        if cost is not None:
            function(cost, "cost", _EXAMPLE)
        self._oversize = choice(oversize, "oversize", _OVERSIZE)
        self._rejected = 0
        self._reason: Reason | None = None
        super().__init__(
            inner, limits=True, **({} if self._cost is None else {"accepts_all": False})
        )
        if not self.traits.divisible:
            self._refuse(
                f"Chunk cannot take a part of {self._inner!r}, which hands its messages over as "
                f"a whole; chunk a Queue, Stack, Unique, Priority or Fair, or limit the batch in "
                f"take of your own behaviour"
            )

    def __repr__(self) -> str:
        return f"Chunk({self._inner!r}, {self._size}{self._measure()})"

    def add(self, message: Any) -> None:
        """Accumulate one message. With a weight or a cost, O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> chunk = Chunk(Queue(), 10, weight=len)
        >>> chunk.add("abc")
        """
        if self._cost is not None:
            self._check_cost(message)
        self._inner.add(message)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages. With a weight or a cost, O(k) more.

        >>> from actorflow.behaviours import Queue
        >>> chunk = Chunk(Queue(), 10, weight=len)
        >>> [(refused, reason)] = chunk.extend(["abc", 5])
        >>> refused
        (5,)
        """
        if self._cost is None:
            return self._inner.extend(messages)
        refused: list[Refusal] = []
        good = [message for message in messages if self._has_cost(message, refused)]
        refused += self._inner.extend(good)
        return refused

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived at these times. With a weight, O(k) more.

        >>> from actorflow.behaviours import Expire, Queue
        >>> Chunk(Expire(Queue(), 5.0), 10).extend_at(["a", "b"], [1.0, 2.0])
        ()
        """
        if self._cost is None:
            return super().extend_at(messages, times)
        refused: list[Refusal] = []
        good = [self._has_cost(message, refused) for message in messages]
        refused += super().extend_at(list(compress(messages, good)), list(compress(times, good)))
        return refused

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has an allowed weight or cost. O(1) more."""
        rejected = self._rejected
        try:
            if self._cost is not None:
                self._check_cost(message)
        except Rejected:
            self._rejected = rejected
            return False
        return super().accepts(message)

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over the next part. Costs what that part costs the inner behaviour.

        >>> from actorflow.behaviours import Queue
        >>> chunk = Chunk(Queue(), 4, weight=len)
        >>> _ = chunk.extend(["ab", "cd", "e", "too heavy", "f"])
        >>> chunk.take(), chunk.take(), chunk.take(), chunk.take()
        (['ab', 'cd'], ['e'], ['too heavy'], ['f'])
        """
        if self._cost is not None:
            return self.choose(_take_all, limit)
        size = int(self._size)
        batch = super().take(size if limit is None else min(size, limit), free)
        self._reason = Reason.SIZE if len(batch) == size else None
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over the next part of what `judge` takes.

        >>> from actorflow.behaviours import Queue, Verdict
        >>> def padded(so_far, text):
        ...     _, count, longest = so_far or (0, 0, 0)
        ...     count, longest = count + 1, max(longest, len(text))
        ...     return count * longest, count, longest
        >>> chunk = Chunk(Queue(), 6, cost=padded)
        >>> _ = chunk.extend(["a", "bcd", "e", "f"])
        >>> chunk.choose(lambda message: Verdict.TAKE)
        ['a', 'bcd']
        """
        if self._cost is None:
            size = int(self._size)
            batch = self._inner.choose(judge, lower(size, limit))
            self._reason = Reason.SIZE if len(batch) == size else None
            return batch
        so_far: Any = 0
        taken = full = False

        def measure(item: Any) -> Verdict:
            nonlocal so_far, taken, full
            verdict = judge(item)
            if verdict is not Verdict.TAKE:
                return verdict
            after = self._cost_now(so_far, unwrap(item))
            if taken and _total(after) > self._size:
                full = True
                return Verdict.STOP
            so_far, taken = after, True
            return Verdict.TAKE

        batch = self._inner.choose(measure, limit)
        self._reason = Reason.WEIGHT if full or _total(so_far) >= self._size else None
        return batch

    def portion(self) -> int | None:
        """Return how many messages a batch may hold here or inside. O(1).

        >>> from actorflow.behaviours import Queue
        >>> Chunk(Queue(), 2).portion(), Chunk(Queue(), 2, weight=len).portion()
        (2, None)
        """
        return lower(None if self._cost is not None else int(self._size), self._inner.portion())

    def reason(self) -> Reason:
        """Return SIZE or WEIGHT for a batch that is full, else the inner behaviour's reason."""
        return self._reason or self._inner.reason()

    def tally(self) -> Tally:
        """Return the messages without a weight as rejected, and what the inner counts. O(1).

        >>> from actorflow.behaviours import Queue
        >>> Chunk(Queue(), 10).tally().rejected
        0
        """
        return self._inner.tally() + Tally(rejected=self._rejected)

    @property
    def cuts_a_line(self) -> bool:
        """Whether it cuts a plain `Queue` by number, so that a batch can be cut from a list.

        >>> from actorflow.behaviours import Queue, Unique
        >>> Chunk(Queue(), 2).cuts_a_line, Chunk(Unique(), 2).cuts_a_line
        (True, False)
        """
        return type(self._inner) is Queue and self._cost is None

    def _measure(self) -> str:
        """Return the argument that selects the measure, as the `repr` shows it."""
        if self._weight is not None:
            text = f", weight={shown(self._weight)}"
        else:
            text = "" if self._cost is None else f", cost={shown(self._cost)}"
        return text if self._oversize == "alone" else f"{text}, oversize={self._oversize!r}"

    def _has_cost(self, message: Any, refused: list[Refusal]) -> bool:
        """Return whether a message can be measured, and record the refusal if not."""
        try:
            self._check_cost(message)
        except Rejected as error:
            refused.append(((message,), error))
            return False
        return True

    def _check_cost(self, message: Any) -> None:
        """Measure a message alone.

        Raises:
            Malformed: the function raised, or returned something that is not a cost.
            TooLarge: it exceeds the limit, and such messages are refused.

        """
        try:
            alone = _total(self._cost(0, unwrap(message)))  # type: ignore[misc]
            usable = alone >= 0
        except BaseException as error:
            self._rejected += 1
            raise unusable(message, f"no {self._measure()[2:]}:", error) from error
        if usable and (alone <= self._size or self._oversize == "alone"):
            return
        self._rejected += 1
        if usable:
            raise TooLarge(unwrap(message), alone, self._size)
        what = "cost" if self._weight is None else "weight"
        raise unusable(message, f"the {what} must be a number, zero or more, not {brief(alone)}")

    def _add_weight(self, so_far: float, message: Any) -> float:
        return so_far + self._weight(message)  # type: ignore[no-any-return,misc]

    def _cost_now(self, so_far: Any, message: Any) -> Any:
        """Measure again; a message whose weight or cost has been lost since then runs alone."""
        try:
            after = self._cost(so_far, message)  # type: ignore[misc]
        except BaseException:  # noqa: BLE001 - a merged message may be of another shape
            return inf
        else:
            return after if _total(after) >= _total(so_far) else inf


def _take_all(_: Any) -> Verdict:
    return Verdict.TAKE


def _total(cost: Any) -> float:
    """Return the number in a cost, which may be a tuple of it and the state to continue from."""
    return float(cost[0] if type(cost) is tuple else cost)
