"""`Priority`: the most urgent first."""

from __future__ import annotations

from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedList

from actorflow.behaviours.arguments import key_function, shown
from actorflow.behaviours.behaviour import (
    Behaviour,
    Item,
    Judge,
    Refusal,
    Tally,
    Traits,
    unusable,
    unwrap,
)
from actorflow.behaviours.errors import Malformed, brief
from actorflow.behaviours.order.fair import Noting
from actorflow.behaviours.order.line import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TRAITS = Traits(divisible=True, trackable=True, chooses=True, ranked=True)
_PLAIN = {int, float}


class Priority(Behaviour):
    """All messages, higher priority first, in order of arrival among equals.

    `key` returns the priority, a real number: a function of the message or the index of an
    element; by default the first element. A message without one is refused alone.

    >>> priority = Priority()
    >>> for message in (1, "b"), (2, "c"), (1, "d"), (3, "e"):
    ...     priority.add(message)
    >>> priority.take()
    [(3, 'e'), (2, 'c'), (1, 'b'), (1, 'd')]

    What arrives is kept as it comes, beside its priority. If all of it leaves at once, one
    stable sort is enough; if it leaves in parts, there is one line per priority, and the
    priorities are kept in order.
    """

    __slots__ = ("_fresh", "_given", "_key", "_lines", "_order", "_ranks", "_rejected", "_settled")

    traits = _TRAITS

    def __init__(self, key: Any = 0) -> None:
        super().__init__()
        self._key: Callable[[Any], Any] = key_function(
            key, "Priority(key=0) or Priority(key=lambda job: job.urgency)"
        )
        self._given = key
        self._fresh: list[Any] = []
        self._ranks: list[Any] = []
        self._lines: dict[Any, list[Any] | Queue] = {}
        self._order: SortedList[Any] | None = None
        self._settled = 0
        self._rejected = 0

    def __repr__(self) -> str:
        return f"Priority(key={shown(self._given)})"

    def __len__(self) -> int:
        return len(self._fresh) + self._settled

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, in no particular order. O(n)."""
        for line in self._lines.values():
            yield from line
        yield from self._fresh

    def add(self, message: Any) -> None:
        """Accumulate one message. O(1); its share of the sorting comes when it is taken.

        >>> priority = Priority(key=len)
        >>> for word in "a", "ccc", "bb":
        ...     priority.add(word)
        >>> priority.take()
        ['ccc', 'bb', 'a']
        """
        rank = self._rank(message)
        self._fresh.append(message)
        self._ranks.append(rank)

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages. O(k), most of it in C.

        >>> priority = Priority()
        >>> [(refused, reason)] = priority.extend([(1, "a"), ("soon", "b"), (2, "c")])
        >>> refused
        (('soon', 'b'),)
        """
        ranks = self._all_ranks(messages)
        if ranks is None:
            return super().extend(messages)
        if self._fresh:
            self._fresh += messages
            self._ranks += ranks
        else:
            self._fresh = messages
            self._ranks = ranks
        return ()

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has a priority. O(1)."""
        rejected = self._rejected
        try:
            self._rank(message)
        except Malformed:
            self._rejected = rejected
            return False
        return True

    def take(self, limit: int | None = None, free: int = 1) -> list[Any]:
        """Hand over all messages, or the `limit` most urgent. O(k log n) for k messages.

        >>> priority = Priority()
        >>> _ = priority.extend([(1, "a"), (2, "b"), (1, "c")])
        >>> priority.take(2), priority.take()
        ([(2, 'b'), (1, 'a')], [(1, 'c')])
        """
        if limit is None or limit >= len(self):
            limit = len(self)
            if not self._settled:
                return self._sort()
        order = self._settle()
        lines = self._lines
        self._settled -= limit
        batch: list[Any] = []
        while limit > 0:
            rank = order.pop()
            line = lines.pop(rank)
            if len(line) > limit:
                line = lines[rank] = _queue(line)
                order.add(rank)
                line = line.take(limit)
            limit -= len(line)
            batch += line
        return batch

    def peek(self) -> Any:
        """Return the most urgent message. O(log n) on average.

        >>> priority = Priority()
        >>> _ = priority.extend([(1, "a"), (2, "b")])
        >>> priority.peek()
        (2, 'b')
        """
        order = self._settle()
        if not order:
            msg = f"peek at an empty {self!r}"
            raise IndexError(msg)
        return next(iter(self._lines[order[-1]]))

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over the messages that `judge` takes, most urgent first. O(log n) for each one.

        >>> from actorflow.behaviours import Verdict
        >>> priority = Priority()
        >>> _ = priority.extend([(1, "a"), (2, "b"), (1, "c")])
        >>> priority.choose(lambda message: Verdict.TAKE, 2)
        [(2, 'b'), (1, 'a')]
        """
        order = self._settle()
        batch: list[Any] = []
        noting = Noting(judge)
        at = len(order) - 1
        while at >= 0 and not noting.stopped and (limit is None or len(batch) < limit):
            rank = order[at]
            line = self._lines[rank] = _queue(self._lines[rank])
            before = len(line)
            batch += line.choose(noting, None if limit is None else limit - len(batch))
            self._settled -= before - len(line)
            if not line:
                del self._lines[rank]
                del order[at]
            at -= 1
        return batch

    def withdraw(self, message: Any) -> bool:
        """Forget one message, if it is held. O(messages of its priority + log n).

        >>> priority = Priority()
        >>> message = (1, "a")
        >>> priority.add(message)
        >>> priority.withdraw(message), len(priority)
        (True, 0)
        """
        order = self._settle()
        rejected = self._rejected
        try:
            rank = self._rank(message)
        except Malformed:  # it has never been accepted
            self._rejected = rejected
            return False
        if rank not in self._lines:
            return False
        line = self._lines[rank] = _queue(self._lines[rank])
        if not line.withdraw(message):
            return False
        self._settled -= 1
        if not line:
            del self._lines[rank]
            order.remove(rank)
        return True

    def drop_lowest(self) -> Any:
        """Forget the newest message of the lowest priority, and return it. O(log n) on average.

        >>> priority = Priority()
        >>> _ = priority.extend([(1, "a"), (2, "b"), (1, "c")])
        >>> priority.drop_lowest()
        (1, 'c')
        """
        order = self._settle()
        rank = order[0]
        line = self._lines[rank] = _queue(self._lines[rank])
        self._settled -= 1
        [dropped] = line.take_newest(1)
        if not line:
            del self._lines[rank]
            del order[0]
        return dropped

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the oldest messages of each priority while dead. O(k + priorities) on average.

        >>> priority = Priority()
        >>> _ = priority.extend([(1, "a"), (2, "b"), (1, "c")])
        >>> priority.forget(lambda message: message[1] < "c")
        [(1, 'a'), (2, 'b')]
        """
        order = self._settle()
        forgotten: list[Any] = []
        for rank in list(self._lines):
            line = self._lines[rank] = _queue(self._lines[rank])
            forgotten += line.forget(dead)
            if not line:
                del self._lines[rank]
                order.remove(rank)
        self._settled -= len(forgotten)
        return forgotten

    def tally(self) -> Tally:
        """Return the count of rejected messages. O(1).

        >>> Priority().tally().rejected
        0
        """
        return Tally(rejected=self._rejected)

    def check(self) -> None:
        """Verify that every message has its priority and every queue a message. O(n)."""
        lines = self._lines
        assert len(self._fresh) == len(self._ranks), "messages without priorities"  # noqa: S101
        assert all(map(len, lines.values())), "an empty line was kept"  # noqa: S101
        assert self._settled == sum(map(len, lines.values())), "the count is wrong"  # noqa: S101
        assert list(self._order or ()) == sorted(lines), "the priorities are out of order"  # noqa: S101

    def _sort(self) -> list[Any]:
        """Return the new messages, sorted. Only for when no others are held."""
        batch, ranks = self._fresh, self._ranks
        self._fresh, self._ranks = [], []
        # The sort asks for the key of each element once, in order: next(iterator, element) takes
        # it from the list, without calling the user's function a second time.
        batch.sort(key=partial(next, iter(ranks)), reverse=True)
        return batch

    def _settle(self) -> SortedList[Any]:
        """Move new messages into the lines of their priorities; return the sorted priorities."""
        order = self._order
        if order is None:
            order = self._order = SortedList()
        if not self._fresh:
            return order
        groups: dict[Any, list[Any]] = {}
        for rank, message in zip(self._ranks, self._fresh, strict=True):
            try:
                groups[rank].append(message)
            except KeyError:
                groups[rank] = [message]
        lines = self._lines
        for rank in groups.keys() & lines.keys():
            lines[rank].extend(groups.pop(rank))
        lines.update(groups)
        order.update(groups)
        self._settled += len(self._fresh)
        self._fresh, self._ranks = [], []
        return order

    def _rank(self, message: Any) -> Any:
        """Return the priority of one message as a plain number, which always compares.

        Raises:
            Malformed: the priority is missing or not a real number.

        """
        try:
            rank = self._key(unwrap(message))
            plain: Any = int if isinstance(rank, int) else float
            if isinstance(rank, Real) and rank == rank:  # noqa: PLR0124 - NaN is not itself
                return plain(rank)
        except BaseException as error:
            self._rejected += 1
            raise unusable(message, f"no priority key={shown(self._given)}:", error) from error
        self._rejected += 1
        raise unusable(message, f"the priority must be a real number, not {brief(rank)}")

    def _all_ranks(self, messages: list[Any]) -> list[Any] | None:
        """Return the priorities of many messages, or None if they must be looked at singly."""
        plain = messages
        if self.gone is not None:
            plain = [item.message if type(item) is Item else item for item in messages]
        try:
            ranks = list(map(self._key, plain))
            kinds = set(map(type, ranks))
            # There are fewer if the function raised StopIteration.
            if not kinds <= _PLAIN or len(ranks) < len(messages):
                return None
            if float in kinds:
                # A single NaN makes the sum NaN. So may two infinities; then the slow way decides.
                total = sum(ranks)
                if total != total:  # noqa: PLR0124
                    return None
        except BaseException:  # noqa: BLE001 - one of them is malformed: find out which
            return None
        return ranks


def _queue(line: list[Any] | Queue) -> Queue:
    """Return a line as a queue: only one that leaves in parts needs to be one."""
    if isinstance(line, Queue):
        return line
    queue = Queue()
    queue.extend(line)
    return queue
