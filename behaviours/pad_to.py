"""`PadTo`: batches of fixed sizes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import choice, count
from actorflow.behaviours.behaviour import MessageOutcome, lower
from actorflow.behaviours.errors import BadBehaviour, brief
from actorflow.behaviours.order.line import Queue
from actorflow.behaviours.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLE = "PadTo(Queue(), sizes=[1, 2, 4, 8], fill=None, round='up')"
_ROUNDS = ("up", "down", "cheapest")
_FORGET = 0.9
"""How much the calls of one size count when the next one is observed."""


class PadTo(Wrapper):
    """Each batch has one of these sizes: a compiled model runs only batches of known sizes.

    - `round="up"`: the batch has all messages that the largest size allows, and is filled up to
      the next size with `fill`;
    - `round="down"`: the batch has as many messages as the largest size that they fill; the rest
      stays. It is filled up only if there are fewer than the smallest size;
    - `round="cheapest"`: the cheaper of the two for each message, by how long calls of each size
      have taken. A size that has not been called yet is taken to cost in proportion.

    If the behaviour inside hands over fewer messages than it is asked for, because they have other
    keys or exceed a rate, there is more to fill up; so put `PadTo` inside a `Bucket`.

    Items that fill up the batch stand at its end. They are not messages: they are not counted, and
    the job's answers to them are discarded. `PadTo` must be the outermost behaviour that
    determines the size of a batch.

    >>> from actorflow.behaviours import Queue
    >>> padded = PadTo(Queue(), sizes=[1, 4], fill="-")
    >>> _ = padded.extend(["a", "b", "c", "d", "e", "f"])
    >>> padded.take(), padded.take()
    (['a', 'b', 'c', 'd'], ['e', 'f', '-', '-'])
    >>> padded.padding()
    2
    """

    __slots__ = ("_fill", "_padding", "_round", "_sizes", "_times")

    def __init__(
        self,
        inner: Any = Queue,
        sizes: Sequence[int] = (1, 2, 4, 8, 16, 32),
        fill: Any = None,
        round: str = "up",  # noqa: A002 - the word for it
    ) -> None:
        try:
            given = list(sizes)
        except TypeError:
            given = []
        if not given:
            msg = f"sizes={brief(sizes)}: sizes must be the sizes of a batch, as in {_EXAMPLE}"
            raise BadBehaviour(msg)
        self._sizes = sorted({count(size, "sizes", _EXAMPLE) for size in given})
        self._round = choice(round, "round", _ROUNDS)
        self._fill = fill
        self._padding = 0
        self._times: dict[int, float] = {}
        changed = {"observes": True} if round == "cheapest" else {}
        super().__init__(inner, limits=True, pads=True, **changed)
        if not self.traits.divisible:
            self._refuse(
                f"PadTo cannot take a part of {self._inner!r}, which hands its messages over as a "
                "whole; pad a Queue, Stack, Unique, Priority, Fair or Bucket"
            )
        if self._inner.traits.pads:
            self._refuse(f"PadTo around {self._inner!r} would pad twice; keep one PadTo")
        self.traits = replace(self.traits, divisible=False, chooses=False)

    def __repr__(self) -> str:
        text = f"PadTo({self._inner!r}, sizes={self._sizes}"
        text += "" if self._fill is None else f", fill={brief(self._fill)}"
        return text + (")" if self._round == "up" else f", round={self._round!r})")

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over a batch of one of the sizes. O(log sizes + fill) more.

        >>> from actorflow.behaviours import Queue
        >>> padded = PadTo(Queue(), sizes=[2, 4], round="down")
        >>> _ = padded.extend(["a", "b", "c"])
        >>> padded.take(), padded.take()
        (['a', 'b'], ['c', None])
        """
        held = len(self._inner)
        most = lower(held, self._inner.portion())
        batch: list[Any] = self._inner.take(self._size(held if most is None else most))
        self._padding = 0
        if batch:
            self._padding = self._padded(len(batch)) - len(batch)
            batch += [self._fill] * self._padding
        return batch

    def choose(self, judge: Any, limit: int | None = None) -> list[Any]:
        """Refuse to be taken in parts: then the batch would have another size."""
        msg = f"{self!r} hands over batches of fixed sizes, so it cannot be taken in parts"
        raise BadBehaviour(msg)

    def portion(self) -> int | None:
        """Return how many messages the next batch may hold. O(1).

        >>> from actorflow.behaviours import Queue
        >>> PadTo(Queue(), sizes=[2, 4]).portion()
        4
        """
        return lower(self._sizes[-1], self._inner.portion())

    def padding(self) -> int:
        """Return how many items the last batch was filled up with."""
        return self._padding

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Learn how long a call of this size takes. O(1) more."""
        self._inner.done(batch, took, outcomes)
        if batch and MessageOutcome.PROCESSED in outcomes:
            size = self._padded(len(batch))
            known = self._times.get(size, took)
            self._times[size] = _FORGET * known + (1 - _FORGET) * took

    def _size(self, held: int) -> int:
        """Return how many messages to take of so many."""
        sizes = self._sizes
        if held >= sizes[-1]:
            return sizes[-1]
        down = sizes[max(bisect_right(sizes, held) - 1, 0)]
        if self._round == "up" or down > held:
            return held
        if self._round == "down":
            return down
        up = sizes[bisect_left(sizes, held)]
        return held if self._cost(up) / held <= self._cost(down) / down else down

    def _padded(self, length: int) -> int:
        """Return the size of a batch with so many messages."""
        at = bisect_left(self._sizes, length)
        return self._sizes[at] if at < len(self._sizes) else length

    def _cost(self, size: int) -> float:
        """Return how long a call takes, in proportion to the nearest size that is known."""
        if not self._times:
            return float(size)
        nearest = min(self._times, key=lambda known: abs(known - size))
        return self._times[nearest] * size / nearest
