"""`Lifo`: the oldest first, and in overload the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import count
from actorflow.behaviours.behaviour import Judge, Verdict
from actorflow.behaviours.order.line import Queue
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLE = "Chunk(Lifo(Queue(), beyond=1_000), 50)"


class Lifo(Wrapper):
    """In order of arrival, and the newest first as long as more than `beyond` messages wait.

    A long queue that is served in order answers everybody too late. Served from its new end it
    answers most callers in time, and the others are late anyway; `Expire` around it lets them go.
    When the backlog is gone, the order is that of arrival again.

    `Lifo` goes around a `Queue`, or what holds one without a limit of its own: limits of a batch
    go around `Lifo`, as in `Chunk(Lifo(Queue(), beyond=1_000), 50)`.

    >>> from actorflow.behaviours import Chunk, Queue
    >>> requests = Chunk(Lifo(Queue(), beyond=3), 2)
    >>> _ = requests.extend(["a", "b", "c", "d", "e"])
    >>> requests.take(), requests.take()
    (['e', 'd'], ['a', 'b'])
    """

    __slots__ = ("_beyond",)

    def __init__(self, inner: Any = Queue, beyond: int = 1_000) -> None:
        self._beyond = count(beyond, "beyond", _EXAMPLE, least=0)
        super().__init__(inner)
        given = self._inner.traits
        if not (given.ordered and given.chooses) or given.limits or given.may_be_empty:
            self._refuse(
                f"Lifo must reach the newest message of {self._inner!r}, and cannot; put it around "
                f"a Queue, and limits and Expire around it, as in {_EXAMPLE}"
            )

    def __repr__(self) -> str:
        return f"Lifo({self._inner!r}, beyond={self._beyond})"

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over the oldest messages, or the newest. O(k) around a queue, else O(n).

        >>> from actorflow.behaviours import Queue
        >>> requests = Lifo(Queue(), beyond=1)
        >>> _ = requests.extend(["a", "b"])
        >>> requests.take()
        ['b', 'a']
        """
        inner = self._inner
        if len(inner) <= self._beyond:
            return super().take(limit, free)
        if type(inner) is Queue:
            return inner.take_newest(limit)
        return self.choose(_take_all, limit)

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes, from the oldest on or from the newest on."""
        inner = self._inner
        if len(inner) <= self._beyond:
            return inner.choose(judge, limit)
        if type(inner) is Queue:
            return inner.choose_newest(judge, limit)
        verdicts: dict[int, Verdict] = {}
        taken: list[Any] = []
        for item in reversed(self._listed()):
            if limit is not None and len(taken) >= limit:
                break
            verdict = judge(item)
            if verdict is Verdict.STOP:
                break
            verdicts[id(item)] = verdict
            if verdict is Verdict.TAKE:
                taken.append(item)
        inner.choose(lambda item: verdicts.get(id(item), Verdict.SKIP))
        return taken

    def peek(self) -> Any:
        """Return the oldest message, or the newest."""
        inner = self._inner
        if len(inner) <= self._beyond:
            return inner.peek()
        return self._listed()[-1]

    def _listed(self) -> Sequence[Any]:
        """Return the messages that the inner behaviour may hand over, in its order. O(n)."""
        found: list[Any] = []

        def look(item: Any) -> Verdict:
            found.append(item)
            return Verdict.SKIP

        self._inner.choose(look)
        return found


def _take_all(_: Any) -> Verdict:
    return Verdict.TAKE
