"""`Fair`: round robin over keys, or, with weights, deficit round robin."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from actorflow.behaviours.arguments import function, key_function, shown
from actorflow.behaviours.behaviour import (
    Behaviour,
    Item,
    Judge,
    Refusal,
    Tally,
    Traits,
    Verdict,
    has_key,
    keyless,
    unwrap,
)
from actorflow.behaviours.errors import Malformed
from actorflow.behaviours.order.line import Queue
from actorflow.behaviours.weights import ROUNDING, weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_TRAITS = Traits(divisible=True, trackable=True, chooses=True)
_WEIGHED = "Fair(key=0, weight=lambda request: request.tokens)"


class Fair(Behaviour):
    """All messages, one of each key in turn; within a key in order of arrival.

    A noisy customer cannot make the others wait: with `Chunk`, each batch serves every key that
    has something, before any key is served twice.

    With `weight`, a function of the message, keys share the weight instead of the number (deficit
    round robin): a key whose messages are twice as heavy has half as many turns.

    `key` is a function of the message or the index of an element; by default the first element.
    A message without a usable key or weight is refused alone, with `Malformed`.

    >>> fair = Fair()
    >>> for message in ("a", 1), ("a", 2), ("a", 3), ("b", 4):
    ...     fair.add(message)
    >>> fair.take()
    [('a', 1), ('b', 4), ('a', 2), ('a', 3)]
    """

    __slots__ = ("_count", "_given", "_key", "_lines", "_rejected", "_turns")

    traits = _TRAITS

    def __new__(cls, *_: Any, weight: Any = None, **__: Any) -> Self:
        """Make one that weighs messages, if there is a weight: counting them is faster."""
        if weight is None or cls is not Fair:
            return super().__new__(cls)
        return WeighedFair.__new__(WeighedFair)  # type: ignore[return-value]

    def __init__(
        self,
        key: Any = 0,
        *,
        weight: Callable[[Any], float] | None = None,
    ) -> None:
        super().__init__()
        self._key: Callable[[Any], Any] = key_function(
            key, "Fair(key=0) or Fair(key=lambda request: request.customer)"
        )
        self._given = key
        self._lines: dict[Any, Queue] = {}
        self._turns: deque[Any] = deque()
        self._count = 0
        self._rejected = 0

    def __repr__(self) -> str:
        return f"Fair(key={shown(self._given)})"

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, key by key. O(n)."""
        return chain.from_iterable(self._lines.values())

    def add(self, message: Any) -> None:
        """Put a message last in the line of its key. O(1).

        >>> fair = Fair(key=str.lower)
        >>> for word in "a", "A", "b":
        ...     fair.add(word)
        >>> fair.take()
        ['a', 'b', 'A']
        """
        try:
            key = self._key(unwrap(message))
            line = self._lines.get(key)
            if line is None:
                line = self._line(key)
        except BaseException as error:
            self._rejected += 1
            raise keyless(message, self._given, error) from error
        line.add(message)
        self._count += 1

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Add many messages. O(k).

        >>> fair = Fair()
        >>> fair.extend([("a", 1), ("a", 2), ("b", 3)])
        ()
        """
        plain = messages
        if self.gone is not None:
            plain = [item.message if type(item) is Item else item for item in messages]
        groups: dict[Any, list[Any]] = {}
        try:
            for key, message in zip(map(self._key, plain), messages, strict=True):
                group = groups.get(key)
                if group is None:
                    groups[key] = [message]
                else:
                    group.append(message)
            lines = [self._lines.get(key) for key in groups]
        except BaseException:  # noqa: BLE001 - one of them is malformed: find out which
            return super().extend(messages)
        for line, (key, group) in zip(lines, groups.items(), strict=True):
            (self._line(key) if line is None else line).extend(group)
        self._count += len(messages)
        return ()

    def accepts(self, message: Any) -> bool:
        """Return whether `message` has a key. O(1)."""
        return has_key(self._key, message)

    def take(self, limit: int | None = None, free: int = 1) -> list[Any]:
        """Hand over all messages, or the next `limit` turns. O(k).

        >>> fair = Fair()
        >>> _ = fair.extend([("a", 1), ("a", 2), ("a", 3), ("b", 4)])
        >>> fair.take(1), fair.take(2), fair.take()
        ([('a', 1)], [('b', 4), ('a', 2)], [('a', 3)])
        """
        lines, turns = self._lines, self._turns
        if limit is None or limit >= self._count:
            held = [lines[key].take() for key in turns]
            lines.clear()
            turns.clear()
            self._count = 0
            return _deal(held)
        batch: list[Any] = []
        for _ in range(limit):
            key = turns.popleft()
            line = lines[key]
            batch.append(line.drop_oldest())
            if line:
                turns.append(key)
            else:
                del lines[key]
        self._count -= limit
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over the messages that `judge` takes, turn by turn. O(1) for each one judged.

        A message that is discarded costs its key no turn; one that is skipped is judged again
        when its key has another turn.

        >>> from actorflow.behaviours import Verdict
        >>> fair = Fair()
        >>> _ = fair.extend([("a", 1), ("a", 2), ("b", 3)])
        >>> fair.choose(lambda message: Verdict.TAKE, 2)
        [('a', 1), ('b', 3)]
        """
        lines, turns = self._lines, self._turns
        batch: list[Any] = []
        aside: list[Any] = []
        noting = Noting(judge)
        while turns and not noting.stopped and (limit is None or len(batch) < limit):
            key = turns.popleft()
            line = lines[key]
            before = len(line)
            taken = line.choose(noting, 1)
            self._count -= before - len(line)
            batch += taken
            if not line:
                del lines[key]
            elif taken:
                turns.append(key)
            else:  # it was stopped, or all are skipped
                aside.append(key)
        turns.extendleft(reversed(aside))
        return batch

    def withdraw(self, message: Any) -> bool:
        """Forget one message, if it is held. O(messages of its key + keys).

        >>> fair = Fair()
        >>> message = ("a", 1)
        >>> fair.add(message)
        >>> fair.withdraw(message), len(fair)
        (True, 0)
        """
        try:
            key = self._key(unwrap(message))
            line = self._lines.get(key)
        except BaseException:  # noqa: BLE001 - it has never been accepted
            return False
        if line is None or not line.withdraw(message):
            return False
        self._count -= 1
        if not line:
            del self._lines[key]
            self._turns.remove(key)
        return True

    def peek(self) -> Any:
        """Return the message whose turn is next. O(1).

        >>> fair = Fair()
        >>> _ = fair.extend([("a", 1), ("b", 2)])
        >>> fair.peek()
        ('a', 1)
        """
        return self._lines[self._turns[0]].peek()

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the oldest messages of each key while dead. O(k + keys) on average.

        >>> fair = Fair()
        >>> _ = fair.extend([("a", 1), ("b", 2), ("a", 3)])
        >>> fair.forget(lambda message: message[1] < 3)
        [('a', 1), ('b', 2)]
        """
        forgotten: list[Any] = []
        for line in self._lines.values():
            forgotten += line.forget(dead)
        self._lines = {key: line for key, line in self._lines.items() if line}
        self._turns = deque(key for key in self._turns if key in self._lines)
        self._count -= len(forgotten)
        return forgotten

    def tally(self) -> Tally:
        """Return the count of rejected messages. O(1).

        >>> Fair().tally().rejected
        0
        """
        return Tally(rejected=self._rejected)

    def depths(self) -> Mapping[Any, int]:
        """Return how many messages of each key are held. O(keys).

        >>> fair = Fair()
        >>> _ = fair.extend([("a", 1), ("a", 2), ("b", 3)])
        >>> fair.depths()
        {'a': 2, 'b': 1}
        """
        return {key: len(line) for key, line in self._lines.items()}

    def check(self) -> None:
        """Verify that each key that has messages has one turn. O(n)."""
        lines = self._lines
        assert len(self._turns) == len(lines), "a key has no turn, or two"  # noqa: S101
        assert set(self._turns) == set(lines), "a turn without a line"  # noqa: S101
        assert all(lines.values()), "an empty line was kept"  # noqa: S101
        assert self._count == sum(map(len, lines.values())), "the count is wrong"  # noqa: S101

    def _line(self, key: Any) -> Queue:
        """Open a line for a new key, which is served after all others."""
        line = self._lines[key] = Queue()
        self._turns.append(key)
        return line


class Noting:
    """A judge that remembers whether it has said STOP."""

    __slots__ = ("_judge", "stopped")

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.stopped = False

    def __call__(self, item: Any) -> Verdict:
        """Judge one message."""
        verdict = self._judge(item)
        if verdict is Verdict.STOP:
            self.stopped = True
        return verdict


def _deal(lines: list[list[Any]]) -> list[Any]:
    """Return one message of each line in turn until all are empty. O(n), most of it in C.

    As long as no line runs out, whole columns are dealt at once.
    """
    batch: list[Any] = []
    start = 0
    while lines:
        end = min(map(len, lines))
        columns = zip(*[line[start:end] for line in lines], strict=True)
        batch.extend(chain.from_iterable(columns))
        start = end
        lines = [line for line in lines if len(line) > end]
    return batch


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
        self._weight: Callable[[Any], float] = function(weight, "weight", _WEIGHED)
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
                if weight > credit[key] + ROUNDING:
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
            if self._weight_now(first) <= credit + ROUNDING:
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
