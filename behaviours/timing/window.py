"""`Window`: one batch for each period of time."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from math import floor, inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.adapt import Base, adapt, adapt_inner, check_copied, release
from actorflow.behaviours.arguments import seconds
from actorflow.behaviours.behaviour import Behaviour, Fate, Item, Judge, Reason, Tally, lower
from actorflow.behaviours.errors import BadBehaviour
from actorflow.behaviours.order.fair import Noting
from actorflow.behaviours.order.line import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_EXAMPLE = "Window(60.0) or Window(1.0, inner=Unique(key=0))"


class Window(Behaviour):
    """Each batch has the messages of one period: of one minute, of one frame.

    Periods begin at the multiples of `period` on the clock of the driver. A batch leaves when its
    period is over, in the order of the periods, however late: messages of two periods never share
    a batch. `inner` says how the messages of one period accumulate: an empty instance, which is
    copied for each period, a class or a factory; it must not have a time of its own.

    >>> window = Window(10.0)
    >>> _ = window.extend_at(["a", "b", "c"], [101.0, 109.0, 112.0])
    >>> window.ready_at(112.0)
    112.0
    >>> window.take(), window.ready_at(112.0)
    (['a', 'b'], 120.0)
    """

    __slots__ = ("_ended", "_flushed", "_make", "_now", "_period", "_template", "_windows",
                 "traits")  # fmt: skip

    def __init__(self, period: float, inner: Any = Queue) -> None:
        super().__init__()
        self._period = seconds(period, "period", _EXAMPLE, zero=False)
        self._template = adapt_inner(inner)
        plain = isinstance(inner, Behaviour | Base) or not callable(inner)
        self._make: Callable[[], Behaviour] = (
            (lambda: deepcopy(self._template)) if plain else (lambda: adapt(inner))
        )
        if plain:
            check_copied(self._template, "Window needs a behaviour for each period")
        given = self._template.traits
        if given.pads:
            release(self._template)
            msg = (
                f"Window puts messages into a behaviour for each period, and {self._template!r} "
                "adds some of its own; put PadTo around it, as in PadTo(Window(1.0), [8, 16], fill)"
            )
            raise BadBehaviour(msg)
        if given.timed or given.blocks or given.observes:
            release(self._template)
            msg = (
                f"Window gives each period a behaviour of its own, and {self._template!r} has a "
                "time or a memory that must go on; put it around, as in Expire(Window(1.0), 60.0)"
            )
            raise BadBehaviour(msg)
        self.traits = replace(
            given, timed=True, stamped=True, limits=True, patient=True,
            evicts=False, saves=False, ranked=False,
        )  # fmt: skip
        self._windows: deque[tuple[int, Behaviour]] = deque()
        self._now = 0.0
        self._flushed = False
        self._ended = Tally()

    def __repr__(self) -> str:
        inner = "" if type(self._template) is Queue else f", inner={self._template!r}"
        return f"Window({self._period:g}{inner})"

    def __len__(self) -> int:
        return sum(len(behaviour) for _, behaviour in self._windows)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the messages held, period by period, if the inner behaviour lists them."""
        return chain.from_iterable(
            getattr(behaviour, "__iter__", tuple)() for _, behaviour in self._windows
        )

    def add(self, message: Any) -> None:
        """Accumulate a message in the period of its arrival. O(1) more.

        >>> window = Window(10.0)
        >>> window.add("a")
        >>> len(window)
        1
        """
        number = floor(self._now / self._period)
        if not self._windows or self._windows[-1][0] != number:
            behaviour = self._make()
            if self.gone is not None:
                behaviour.track(self.gone)
            self._windows.append((number, behaviour))
        try:
            self._windows[-1][1].add(message)
        finally:
            self._close_empty()

    def accepts(self, message: Any) -> bool:
        """Return whether the inner behaviour can use `message`."""
        return self._template.accepts(message)

    def grows(self, message: Any) -> bool:
        """Return whether `message` makes its period longer."""
        if self._windows and self._windows[-1][0] == floor(self._now / self._period):
            return self._windows[-1][1].grows(message)
        return self._template.grows(message)

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over messages of the earliest period. Costs what the inner behaviour costs."""
        first = self._windows[0][1]
        batch = first.take() if limit is None else first.take(limit)
        self._close_empty()
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes of the earliest period in which it takes anything."""
        batch: list[Any] = []
        noting = Noting(judge)
        for number, behaviour in list(self._windows):
            if not self._is_over(number) and behaviour is not self._windows[0][1]:
                break
            batch = behaviour.choose(noting, limit)
            if batch or noting.stopped:
                break
        self._close_empty()
        return batch

    def peek(self) -> Any:
        """Return the first message of the earliest period."""
        if not self._windows:
            msg = f"peek at an empty {self!r}"
            raise IndexError(msg)
        return self._windows[0][1].peek()

    def portion(self) -> int | None:
        """Return how many messages of a period that is over may leave. O(periods)."""
        portions = [
            lower(behaviour.portion(), len(behaviour))
            for at, (number, behaviour) in enumerate(self._windows)
            if not at or self._is_over(number)
        ]
        return max((each for each in portions if each is not None), default=None)

    def reason(self) -> Reason:
        """Return TIME; FLUSH for a batch whose period is not over."""
        return Reason.FLUSH if self._flushed else Reason.TIME

    def drop_oldest(self) -> Any:
        """Forget the oldest message of the earliest period and return it."""
        dropped = self._windows[0][1].drop_oldest()
        self._close_empty()
        return dropped

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget the dead messages of all periods and return them."""
        forgotten: list[Any] = []
        for _, behaviour in self._windows:
            forgotten += behaviour.forget(dead)
        self._close_empty()
        return forgotten

    def withdraw(self, message: Any) -> bool:
        """Forget one message, if it is held."""
        found = any(behaviour.withdraw(message) for _, behaviour in self._windows)
        self._close_empty()
        return found

    def track(self, gone: list[tuple[Item, Fate]]) -> None:
        """Allow messages to come wrapped in `Item`."""
        super().track(gone)
        for _, behaviour in self._windows:
            behaviour.track(gone)

    def ready_at(self, now: float) -> float:
        """Return when the earliest period that has messages is over. O(1).

        >>> window = Window(10.0)
        >>> window.ready_at(101.0)
        inf
        >>> window.add("a")
        >>> window.ready_at(101.0)
        110.0
        """
        self._now = now
        if not self._windows:
            return inf
        return now if self._flushed else max(now, (self._windows[0][0] + 1) * self._period)

    def until_full(self) -> int | None:
        """Return `None`: no number of messages ends a period."""
        return None

    def flush(self) -> None:
        """Wait for the end of no period any more."""
        self._flushed = True

    def tally(self) -> Tally:
        """Return the counts of all periods."""
        total = self._ended
        for _, behaviour in self._windows:
            total += behaviour.tally()
        return total

    def check(self) -> None:
        """Verify that periods are in order and none is empty. O(periods)."""
        numbers = [number for number, _ in self._windows]
        assert numbers == sorted(set(numbers)), "periods out of order"  # noqa: S101
        assert all(len(behaviour) for _, behaviour in self._windows), "an empty one"  # noqa: S101

    def _is_over(self, number: int) -> bool:
        return self._flushed or (number + 1) * self._period <= self._now

    def _close_empty(self) -> None:
        """Forget the periods of which nothing is held."""
        if all(len(behaviour) for _, behaviour in self._windows):
            return
        for number, behaviour in list(self._windows):
            if not len(behaviour):
                self._windows.remove((number, behaviour))
                self._ended += behaviour.tally()
