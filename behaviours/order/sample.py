"""`Sample`: a random sample of what arrives."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import count
from actorflow.behaviours.behaviour import Behaviour, Fate, Item, Judge, Tally, Traits
from actorflow.behaviours.order.line import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TRAITS = Traits(
    ordered=True, divisible=True, shrinks=True, bounded=True, accepts_all=True, trackable=True,
    chooses=True,
)  # fmt: skip


class Sample(Behaviour):
    """A random sample of at most `size` messages: each arrival has the same chance to be in it.

    While the executor is busy, `Bounded` would keep the first or the last messages; this keeps a
    fair sample of all of them, in order of arrival (reservoir sampling). The others are dropped.
    For telemetry, logs and other data that is only counted and averaged. The sample begins anew
    with each batch. Equal traffic gives equal samples, unless you pass another `seed`.

    >>> sample = Sample(3)
    >>> _ = sample.extend(list(range(100)))
    >>> sample.take()
    [28, 45, 53]
    >>> sample.tally().dropped
    97
    """

    __slots__ = ("_arrived", "_dropped", "_held", "_random", "_seed", "_size")

    traits = _TRAITS

    def __init__(self, size: int, seed: int = 0) -> None:
        super().__init__()
        self._size = count(size, "size", "Sample(100)")
        self._seed = count(seed, "seed", "Sample(100, seed=1)", least=0)
        self._random = Random(self._seed)  # noqa: S311 - not for secrets
        self._held = Queue()
        self._arrived = 0
        self._dropped = 0

    def __repr__(self) -> str:
        return f"Sample({self._size}{f', seed={self._seed}' if self._seed else ''})"

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, oldest first. O(n)."""
        return iter(self._held)

    def add(self, message: Any) -> None:
        """Keep one message, perhaps in the place of another. O(1); O(size) if it takes a place.

        >>> sample = Sample(2)
        >>> sample.add("a")
        >>> sample.take()
        ['a']
        """
        self._arrived += 1
        if len(self._held) >= self._size:
            place = self._random.randrange(self._arrived)
            if place >= self._size:
                self._drop(message)
                return
            self._drop(self._held.pop_at(place))
        self._held.add(message)

    def grows(self, message: Any) -> bool:
        """Return whether there is room. O(1)."""
        return len(self._held) < self._size

    def take(self, limit: int | None = None, free: int = 1) -> list[Any]:
        """Hand over the sample, or its `limit` oldest messages. O(k).

        >>> sample = Sample(2)
        >>> _ = sample.extend(["a", "b"])
        >>> sample.take(1), sample.take()
        (['a'], ['b'])
        """
        batch = self._held.take(limit)
        self._arrived = len(self._held)
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes of the sample, oldest first. O(1) for each one judged."""
        batch = self._held.choose(judge, limit)
        self._arrived = len(self._held)
        return batch

    def peek(self) -> Any:
        """Return the oldest message. O(1) on average."""
        return self._held.peek()

    def drop_oldest(self) -> Any:
        """Forget the oldest message and return it. O(1) on average."""
        return self._held.drop_oldest()

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` oldest messages and return them. O(count) on average."""
        return self._held.drop_many(count)

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the oldest messages while they are dead. O(k) on average."""
        return self._held.forget(dead)

    def withdraw(self, message: Any) -> bool:
        """Forget one message, if it is held. O(n)."""
        return self._held.withdraw(message)

    def tally(self) -> Tally:
        """Return how many messages were dropped. O(1)."""
        return Tally(dropped=self._dropped)

    def check(self) -> None:
        """Verify the size. O(1)."""
        assert len(self._held) <= self._size, "the sample is too large"  # noqa: S101

    def _drop(self, message: Any) -> None:
        self._dropped += 1
        if self.gone is not None and type(message) is Item and message.tickets:
            self.gone.append((message, Fate.DROPPED))
