"""`Shortest`: the cheapest message first."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import function, number, shown
from actorflow.behaviours.behaviour import Traits, same, unusable, unwrap
from actorflow.behaviours.errors import brief
from actorflow.behaviours.order.priority import Priority

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.behaviours.behaviour import Refusal

_EXAMPLE = "Shortest(weight=lambda request: request.tokens, ageing=10.0)"
_TRAITS = Traits(
    divisible=True, trackable=True, chooses=True, ranked=True,
    timed=True, stamped=True, patient=True,
)  # fmt: skip


class Shortest(Priority):
    """All messages, the lightest first: the mean wait is the shortest there can be.

    `weight` says how much work a message is. So that heavy messages do not starve, each gets
    lighter by `ageing` per second that it waits. As all of them do, their order never changes:
    a message of weight `w` goes before all that come more than `w / ageing` seconds later. Among
    equals the first to arrive goes first. A message without a weight is refused alone.

    With `Chunk`, each batch has the lightest messages.

    >>> jobs = Shortest(weight=len, ageing=1.0)
    >>> _ = jobs.ready_at(100.0)
    >>> _ = jobs.extend(["aaaa", "bb", "ccc"])
    >>> _ = jobs.ready_at(103.0)
    >>> jobs.add("dd")
    >>> jobs.take()
    ['bb', 'ccc', 'aaaa', 'dd']
    """

    __slots__ = ("_ageing", "_now", "_weight")

    traits = _TRAITS

    def __init__(self, weight: Callable[[Any], float], ageing: float = 0.0) -> None:
        self._weight = function(weight, "weight", _EXAMPLE)
        self._ageing = float(number(ageing, "ageing", _EXAMPLE, least=0))
        self._now = 0.0
        super().__init__(key=self._weight)

    def __repr__(self) -> str:
        ageing = f", ageing={self._ageing:g}" if self._ageing else ""
        return f"Shortest({shown(self._weight)}{ageing})"

    def extend(self, messages: list[Any]) -> Sequence[Refusal]:
        """Accumulate many messages that arrived now. O(k).

        >>> jobs = Shortest(weight=len)
        >>> [(refused, reason)] = jobs.extend(["a", 5])
        >>> refused
        (5,)
        """
        refused: list[Refusal] = []
        for message in messages:
            try:
                self.add(message)
            except Exception as error:  # noqa: BLE001 - a refusal concerns this message alone
                refused.append(((message,), error))
        return refused

    def ready_at(self, now: float) -> float:
        """Set the time of the messages that are added next. O(1).

        >>> Shortest(weight=len).ready_at(7.0)
        7.0
        """
        self._now = now
        return now

    def until_full(self) -> int | None:
        """Return `None`: nothing is held back."""
        return None

    def withdraw(self, message: Any) -> bool:
        """Forget one message, if it is held. O(n).

        >>> jobs = Shortest(weight=len)
        >>> jobs.add("a")
        >>> jobs.withdraw("a"), len(jobs)
        (True, 0)
        """
        order = self._settle()
        for rank, line in self._lines.items():
            found = next((held for held in line if same(held, message)), None)
            if found is None:
                continue
            self._settled -= 1
            if len(line) == 1:
                del self._lines[rank]
                order.remove(rank)
            elif isinstance(line, list):
                line[:] = [held for held in line if held is not found]
            else:
                line.withdraw(found)
            return True
        return False

    def _rank(self, message: Any) -> float:
        """Return by how much a message is lighter than one without weight that came at 0."""
        try:
            weight = self._weight(unwrap(message))
            usable = 0 <= weight < inf
        except BaseException as error:
            self._rejected += 1
            raise unusable(message, f"no weight={shown(self._weight)}:", error) from error
        if not usable:
            self._rejected += 1
            why = f"the weight must be a finite number, zero or more, not {brief(weight)}"
            raise unusable(message, why)
        return -(float(weight) + self._ageing * self._now)
