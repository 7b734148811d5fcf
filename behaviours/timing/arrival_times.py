"""Times of arrival: beside a line of messages (`Ages`), or inside items that wrap them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.behaviour import Item

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.behaviours.behaviour import Refusal

__all__ = ["Ages", "all_marked", "bare", "bare_refusals", "marked"]


class Ages:
    """Times that never decrease, taken away at both ends. O(1) on average, except `older`.

    >>> ages = Ages()
    >>> ages.extend([1.0, 2.0, 2.0, 5.0])
    >>> ages.older(2.0), ages.older(3.0)
    (1, 3)
    >>> ages.drop_oldest(2)
    >>> ages.drop_newest(1)
    >>> len(ages), ages.older(3.0)
    (1, 1)
    """

    __slots__ = ("_start", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._times) - self._start

    def extend(self, times: list[float]) -> None:
        """Append times; if there were none, keep the list itself."""
        if self._times:
            self._times += times
        else:
            self._times = times

    def older(self, horizon: float) -> int:
        """Return how many times lie before `horizon`. O(log n)."""
        return bisect_left(self._times, horizon, self._start) - self._start

    def drop_oldest(self, count: int) -> None:
        """Forget the first `count` times."""
        self._start += count
        if self._start >= len(self._times):
            self._times = []
            self._start = 0
        elif self._start * 2 > len(self._times):
            del self._times[: self._start]
            self._start = 0

    def drop_at(self, places: Sequence[int]) -> None:
        """Forget the times at these places, which are in order; 0 is the oldest. O(n)."""
        for place in reversed(places):
            del self._times[self._start + place]

    def oldest(self) -> float:
        """Return the first time."""
        return self._times[self._start]

    def drop_newest(self, count: int) -> None:
        """Forget the last `count` times."""
        if count >= len(self):
            self._times = []
            self._start = 0
        elif count:
            del self._times[-count:]


def marked(message: Any, now: float) -> Item:
    """Return the message as an item with its time of arrival."""
    if type(message) is Item:
        message.born = now
        return message
    return Item(message, (), now)


def all_marked(messages: list[Any], times: Iterable[float]) -> list[Item]:
    """Return messages as items with their times of arrival."""
    if Item in map(type, messages):
        return list(map(marked, messages, times))
    return [Item(message, (), now) for message, now in zip(messages, times, strict=False)]


def bare(item: Any) -> Any:
    """Return the item if it has waiting callers, else the bare message."""
    return item.message if type(item) is Item and not item.tickets else item


def bare_refusals(refusals: Sequence[Refusal]) -> Sequence[Refusal]:
    """Return refusals of the messages as they were passed."""
    return refusals and [(list(map(bare, some)), error) for some, error in refusals]
