"""`Queue` and `Stack`: a line of messages in order of arrival, cheap at both ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

from actorflow.behaviours.behaviour import Behaviour, Judge, Refusal, Traits, Verdict, same
from actorflow.behaviours.errors import BadBehaviour, brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TRAITS = Traits(ordered=True, divisible=True, accepts_all=True, trackable=True, chooses=True)
_SLICE = 8
"""Dropping at least one message in this many is done by a slice, fewer by turning the line."""
_EMPTY: tuple[()] = ()


class Line(Behaviour):
    """Two lists: messages arrive at the end of `_new`, and the oldest leave from that of `_old`.

    Appending, adopting a whole list and taking it back whole touch `_new` alone. `_old` appears
    only when the line is taken from at its old end: then messages move over, each of them once
    or, where both ends are in use, a constant number of times on average.

    An empty line owns no list: most workers of a large population are idle.
    """

    __slots__ = ("_new", "_old")

    traits = _TRAITS

    _new: list[Any] | tuple[()]
    _old: list[Any] | None

    def __init__(self, *given: Never, **options: Never) -> None:
        if given or options:
            raise self._takes_nothing(given, options)
        # Not super().__init__(), because the cost of spawning a worker matters.
        self._claimed = False
        self.gone = self._old = None
        self._new = _EMPTY

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def add(self, message: Any) -> None:
        """Append one message. O(1).

        >>> from actorflow.behaviours import Queue
        >>> queue = Queue()
        >>> queue.add("a")
        >>> len(queue)
        1
        """
        if self._new:
            self._new.append(message)
        else:
            self._new = [message]

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Append many messages; an empty line adopts the list. O(1) then, else O(k).

        >>> from actorflow.behaviours import Queue
        >>> queue = Queue()
        >>> queue.extend(["a", "b"])
        ()
        >>> len(queue)
        2
        """
        if self._new:
            self._new += messages
        else:
            self._new = messages
        return ()

    def __len__(self) -> int:
        return len(self._new) + len(self._old) if self._old else len(self._new)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, oldest first. O(n)."""
        if self._old:
            yield from reversed(self._old)
        yield from self._new

    def drop_oldest(self) -> Any:
        """Forget the oldest message and return it. O(1) on average.

        >>> from actorflow.behaviours import Queue, Stack
        >>> for line in Queue(), Stack():
        ...     _ = line.extend(["a", "b"])
        ...     print(line.drop_oldest(), line.take())
        a ['b']
        a ['b']
        """
        if not self._old:
            self._turn()
        return self._old.pop()  # type: ignore[union-attr]

    def drop_many(self, count: int) -> Sequence[Any]:
        """Forget the `count` oldest messages and return them. O(count) on average.

        >>> from actorflow.behaviours import Queue
        >>> queue = Queue()
        >>> _ = queue.extend(["a", "b", "c"])
        >>> queue.drop_many(2)
        ['a', 'b']
        """
        dropped = self._pop_old(count)
        while (new := self._new) and (missing := count - len(dropped)):
            if missing * _SLICE >= len(new):
                dropped += new[:missing]
                del new[:missing]
            else:
                self._turn()
                dropped += self._pop_old(missing)
        return dropped

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the oldest messages while they are dead. O(k) on average.

        >>> from actorflow.behaviours import Queue
        >>> queue = Queue()
        >>> _ = queue.extend([1, 2, 3])
        >>> queue.forget(lambda number: number < 3)
        [1, 2]
        """
        forgotten: list[Any] = []
        while self:
            if not self._old:
                self._turn()
            if not dead(self._old[-1]):  # type: ignore[index]
                break
            forgotten.append(self._old.pop())  # type: ignore[union-attr]
        return forgotten

    def withdraw(self, message: Any) -> bool:
        """Forget one message, if it is held. O(n).

        >>> from actorflow.behaviours import Queue
        >>> queue = Queue()
        >>> _ = queue.extend(["a", "b"])
        >>> queue.withdraw("a"), queue.withdraw("a"), queue.take()
        (True, False, ['b'])
        """
        return self.remove(message) is not None

    def remove(self, message: Any) -> int | None:
        """Forget one message and return how many older ones are held, or `None`. O(n)."""
        old = self._old or []
        for at, held in enumerate(reversed(old)):
            if same(held, message):
                del old[len(old) - 1 - at]
                return at
        for at, held in enumerate(self._new):
            if same(held, message):
                del self._new[at]  # type: ignore[union-attr] # not empty, so a list
                return len(old) + at
        return None

    def take_newest(self, limit: int | None = None) -> list[Any]:
        """Hand over all messages, or the `limit` newest, newest first. O(k) on average.

        >>> from actorflow.behaviours import Queue
        >>> queue = Queue()
        >>> _ = queue.extend(["a", "b", "c"])
        >>> queue.take_newest(2)
        ['c', 'b']
        """
        if limit is None or limit >= len(self):
            batch = self._join()
        else:
            if limit > len(self._new):
                self._new = self._join()
            new = self._new or []
            batch = new[-limit:]
            del new[-limit:]
        batch.reverse()
        return batch

    def choose_newest(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over the messages that `judge` takes, newest first. O(1) for each one judged."""
        batch: list[Any] = []
        skipped: list[Any] = []
        while self._old or self._new:
            if limit is not None and len(batch) >= limit:
                break
            if not self._new:
                self._new = self._join()
            new: list[Any] = self._new
            item = new[-1]
            verdict = judge(item)
            if verdict is Verdict.STOP:
                break
            new.pop()
            if verdict is Verdict.TAKE:
                batch.append(item)
            elif verdict is Verdict.SKIP:
                skipped.append(item)
        if skipped:
            skipped.reverse()
            self._new = [*self._new, *skipped]
        return batch

    def pop_at(self, place: int) -> Any:
        """Forget the message that so many older ones precede, and return it. O(n).

        >>> from actorflow.behaviours import Queue
        >>> queue = Queue()
        >>> _ = queue.extend(["a", "b", "c"])
        >>> queue.pop_at(1)
        'b'
        """
        old = self._old or []
        if place < len(old):
            return old.pop(len(old) - 1 - place)
        return self._new.pop(place - len(old))  # type: ignore[union-attr]

    def check(self) -> None:
        """Verify that the two lists are distinct. O(1)."""
        assert self._old is not self._new, "one list serves both ends"  # noqa: S101

    def _takes_nothing(self, given: tuple[Any, ...], options: dict[str, Any]) -> BadBehaviour:
        """Return the refusal of arguments, which names the likely wish."""
        name = type(self).__name__
        values = [*given, *options.values()]
        words = [*map(brief, given), *(f"{key}={brief(each)}" for key, each in options.items())]
        size = values[0] if type(values[0]) is int and values[0] > 0 else "1_000"
        return BadBehaviour(
            f"{name}({', '.join(words)}): {name} takes no arguments and holds any number of "
            f"messages; to limit them write Bounded({name}(), {size})"
        )

    def _pop_old(self, count: int) -> list[Any]:
        """Remove and return up to `count` messages from the old list, oldest first."""
        old = self._old
        if not old or not count:
            return []
        batch = old[-count:]
        batch.reverse()
        del old[-count:]
        return batch

    def _turn(self) -> None:
        """Move the older half of the new list to the old one, which must be empty.

        Half, because a line that is used at both ends would otherwise be turned back and forth.
        """
        new = self._new or []
        half = (len(new) + 1) // 2
        self._old = new[:half]
        self._old.reverse()
        del new[:half]

    def _join(self) -> list[Any]:
        """Remove and return all messages, oldest first. O(n)."""
        new, old = self._new, self._old
        self._new, self._old = _EMPTY, None
        if old:
            old.reverse()
            old += new
            return old
        return new or []


class Queue(Line):
    """All messages in order of arrival. The default of a worker.

    >>> queue = Queue()
    >>> for message in "abc":
    ...     queue.add(message)
    >>> queue.take()
    ['a', 'b', 'c']
    """

    __slots__ = ()

    def take(self, limit: int | None = None, free: int = 1) -> list[Any]:
        """Hand over all messages, or the `limit` oldest. O(1) for all, else O(limit) on average.

        >>> queue = Queue()
        >>> _ = queue.extend(["a", "b", "c"])
        >>> queue.take(2), queue.take()
        (['a', 'b'], ['c'])
        """
        if limit is None or limit >= len(self):
            if self._old is None:
                batch = self._new
                self._new = ()
                return batch or []
            return self._join()
        batch = self._pop_old(limit)
        if len(batch) < limit:
            self._turn()
            batch += self._pop_old(limit - len(batch))
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over the messages that `judge` takes, oldest first. O(1) for each one judged.

        >>> from actorflow.behaviours import Verdict
        >>> queue = Queue()
        >>> _ = queue.extend([1, 2, 3, 4])
        >>> queue.choose(lambda number: Verdict.SKIP if number % 2 else Verdict.TAKE, 1)
        [2]
        >>> queue.take()
        [1, 3, 4]
        """
        batch: list[Any] = []
        skipped: list[Any] = []
        while self._old or self._new:
            if limit is not None and len(batch) >= limit:
                break
            if not self._old:
                self._turn()
            old: list[Any] = self._old  # type: ignore[assignment]
            item = old[-1]
            verdict = judge(item)
            if verdict is Verdict.STOP:
                break
            old.pop()
            if verdict is Verdict.TAKE:
                batch.append(item)
            elif verdict is Verdict.SKIP:
                skipped.append(item)
        if skipped:
            skipped.reverse()
            if self._old:
                self._old += skipped
            else:
                self._old = skipped
        return batch

    def peek(self) -> Any:
        """Return the oldest message. O(1).

        >>> queue = Queue()
        >>> _ = queue.extend(["a", "b"])
        >>> queue.peek()
        'a'
        """
        return self._old[-1] if self._old else self._new[0]  # type: ignore[misc]

    def _turn(self) -> None:
        # A queue is never taken from at its new end, so it may turn as a whole.
        self._old = old = self._new or []
        self._new = ()
        old.reverse()


class Stack(Line):
    """All messages, the newest first; for work where late answers are worth little.

    >>> stack = Stack()
    >>> for message in "abc":
    ...     stack.add(message)
    >>> stack.take()
    ['c', 'b', 'a']
    """

    __slots__ = ()

    def take(self, limit: int | None = None, free: int = 1) -> list[Any]:
        """Hand over all messages, or the `limit` newest. O(k) for k messages, on average.

        >>> stack = Stack()
        >>> _ = stack.extend(["a", "b", "c"])
        >>> stack.take(2), stack.take()
        (['c', 'b'], ['a'])
        """
        return self.take_newest(limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over the messages that `judge` takes, newest first. O(1) for each one judged.

        >>> from actorflow.behaviours import Verdict
        >>> stack = Stack()
        >>> _ = stack.extend([1, 2, 3, 4])
        >>> stack.choose(lambda number: Verdict.SKIP if number % 2 else Verdict.TAKE, 1)
        [4]
        """
        return self.choose_newest(judge, limit)

    def peek(self) -> Any:
        """Return the newest message. O(1).

        >>> stack = Stack()
        >>> _ = stack.extend(["a", "b"])
        >>> stack.peek()
        'b'
        """
        if self._new:
            return self._new[-1]
        if self._old:
            return self._old[0]
        msg = "peek at an empty stack"
        raise IndexError(msg)
