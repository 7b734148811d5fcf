"""`Adaptive`: batches as large as a latency target allows."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import number, seconds
from actorflow.behaviours.behaviour import Judge, MessageOutcome, Reason, lower
from actorflow.behaviours.timing.calls import FORGET, Calls
from actorflow.behaviours.timing.waiting import WaitingFromFirst

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLE = "Adaptive(Queue(), target=0.05)"
_LEAST = "Adaptive(Queue(), overhead=0.1)"
_TARGET = 0.05
_SHARE = 0.5  # of the target that one call may take, before batches are cut
_SPARE = 0.02  # of the target, kept in reserve for unforeseen delays
_LATE = 0.01  # share of the calls that may take longer than allowed for
_STEP = 0.05  # how fast the allowance follows, in shares of the typical deviation
_NOISE = 1e-9  # of the target: smaller deviations from the estimate are rounding errors
_KNOWN = 2.5  # calls before it does: the first ones surprise, as nothing is known yet
_WORTH = 9.0  # how many times its fixed part a call must work off when there is a backlog


class Adaptive(WaitingFromFirst):
    """Waits for more for as long as the `target` allows, and cuts batches that are too slow.

    The target is for the time from arrival to processed, in seconds, of all but the unlucky few
    (the 99th percentile). A batch leaves when its first message could not wait longer: its age
    and the time that the job will take make up the target. How long the job takes is learnt from
    the calls so far, as a fixed part, a part for each message, and an allowance for how much
    calls differ. One call takes at most half of the target, because a message that arrives just
    after it has begun waits for it and for the next. So a sink that is costly per call gets few
    large batches, and the target is met when the load changes.

    With `overhead` instead, a batch waits until the fixed parts of the calls take at most that
    share of the executor's time: after a call with a fixed part of 10 ms, `overhead=0.1` holds the
    next batch back until 100 ms after the last one has left. The first message after a pause leaves
    at once. With both, a batch leaves at the earlier of the two times.

    With a backlog of more than two such calls the target is missed anyway; then batches are cut
    only as far as that wastes no more than a tenth of the throughput, and nothing waits. What a
    partial take leaves behind has waited already: it is due at once.

    >>> from actorflow.behaviours import MessageOutcome, Queue
    >>> adaptive = Adaptive(Queue(), target=1.0)
    >>> _ = adaptive.ready_at(100.0)
    >>> adaptive.add("a")
    >>> adaptive.ready_at(100.0)
    100.98
    >>> batch = adaptive.take()
    >>> adaptive.done(batch, 0.25, [MessageOutcome.PROCESSED])
    >>> adaptive.add("b")
    >>> adaptive.ready_at(100.5)
    100.73
    """

    __slots__ = ("_calls", "_cut", "_deviation", "_last", "_late", "_overhead", "_wide")

    def __init__(
        self, inner: Any, target: float | None = None, *, overhead: float | None = None
    ) -> None:
        self._overhead = 0.0
        if overhead is not None:
            self._overhead = float(number(overhead, "overhead", _LEAST, above=0, most=1))
        if target is None:
            target = _TARGET if overhead is None else inf
        else:
            seconds(target, "target", _EXAMPLE, zero=False)
        super().__init__(inner, target, observes=True)
        self._last = -inf
        """When the last batch left."""
        if self.traits.divisible and target < inf:
            self.traits = replace(self.traits, limits=True)
        self._calls = Calls()
        self._late = self._deviation = 0.0
        self._cut: int | None = None  # the most messages for one call
        self._wide = 0  # the same, with a backlog

    def __repr__(self) -> str:
        target = f", target={self._wait:g}" if self._wait < inf else ""
        overhead = f", overhead={self._overhead:g}" if self._overhead else ""
        return f"Adaptive({self._inner!r}{target}{overhead})"

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over a batch that the job can process within its share of the target. O(1) more.

        >>> from actorflow.behaviours import MessageOutcome, Queue
        >>> adaptive = Adaptive(Queue(), target=1.0)
        >>> for size in 1, 3:
        ...     adaptive.done(["x"] * size, size / 10, [MessageOutcome.PROCESSED] * size)
        >>> _ = adaptive.extend(list("abcdefg"))
        >>> adaptive.take(), adaptive.take()
        (['a', 'b', 'c', 'd', 'e'], ['f', 'g'])
        """
        self._note_reason()
        batch = super().take(lower(limit, self._most()), free)
        self._last = self._now
        self._leave()
        return batch

    def choose(self, judge: Judge, limit: int | None = None) -> list[Any]:
        """Hand over what `judge` takes, within the share of the target. O(1) more."""
        self._note_reason()
        batch = super().choose(judge, lower(limit, self._most()))
        if batch:  # a wrapper may only have looked
            self._last = self._now
            self._leave()
        return batch

    def portion(self) -> int | None:
        """Return how many messages the job can process within its share of the target. O(1).

        >>> from actorflow.behaviours import Queue
        >>> Adaptive(Queue()).portion() is None  # nothing is known yet
        True
        """
        return lower(self._most(), self._inner.portion())

    def _most(self) -> int | None:
        """Return the most messages for one call, more if there is a backlog."""
        cut, held = self._cut, len(self._inner)
        if cut is None or not self.traits.divisible:
            return None
        return max(cut, self._wide) if held > 2 * cut else cut

    def _note_reason(self) -> None:
        held = len(self._inner)
        self._reason = self._why(self._leaves(held), Reason.DEADLINE)
        if self._cut is not None and held >= self._cut:
            self._reason = Reason.SIZE

    def ready_at(self, now: float) -> float:
        """Return until when the first message can wait. O(1) more.

        >>> from actorflow.behaviours import Queue
        >>> Adaptive(Queue(), target=1.0).ready_at(7.0)
        inf
        """
        self._now = now
        inner = self._inner.ready_at(now)
        held = len(self._inner)
        if not held:
            return inf
        if self._flushed or (self._cut is not None and held >= self._cut):
            return inner
        return max(inner, self._leaves(held))

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Learn from a call of the job that has processed something. O(batch).

        >>> from actorflow.behaviours import MessageOutcome, Queue
        >>> Adaptive(Queue()).done(["a"], 0.002, [MessageOutcome.PROCESSED])
        """
        self._inner.done(batch, took, outcomes)
        if MessageOutcome.PROCESSED in outcomes:
            self._learn(len(outcomes), took)

    def _learn(self, size: int, took: float) -> None:
        if self._calls.count > _KNOWN:
            self._surprise(took - self._calls.fixed - self._calls.slope * size)
        self._calls.observe(size, took)
        fixed, slope = self._calls.fixed, self._calls.slope
        room = self._wait * _SHARE - fixed - self._late
        self._cut = None
        if slope and 0 < room < inf:
            self._cut = max(int(room / slope + 1e-9), 1)
            self._wide = int(_WORTH * fixed / slope)

    def _surprise(self, by: float) -> None:
        """Move the allowance towards what all but `_LATE` of the calls stay below.

        Up much, down little: the two balance when just that share of the calls is above it.
        """
        self._deviation += (abs(by) - self._deviation) * (1 - FORGET)
        step = self._deviation * _STEP
        above = by - self._late > self._wait * _NOISE
        self._late += step * (1 - _LATE) / _LATE if above else -step
        if self._wait == inf:
            self._late = 0.0
            return
        # Not more than half of the rest: where calls differ that much, no wait would help.
        self._late = min(max(self._late, 0.0), self._wait * _SHARE / 2)

    def _leaves(self, held: int) -> float:
        """Return when a batch of `held` messages must leave to be processed in time."""
        paced = self._last + self._calls.fixed / self._overhead if self._overhead else inf
        if self._wait == inf or self._due == -inf:
            return min(paced, self._due) if self._wait < inf else paced
        takes = self._calls.fixed + self._calls.slope * held + self._late
        return min(paced, self._due - takes - self._wait * _SPARE)

    def _missing(self) -> int | None:
        # Each message of a larger batch makes it due a little earlier. Half of the reserve may
        # be used up before the next check.
        if not self._calls.slope or self._flushed or self._due == -inf or self._wait == inf:
            return None
        steps = max(int(self._wait * _SPARE / 2 / self._calls.slope), 1)
        return steps if self._cut is None else max(min(steps, self._cut - len(self._inner)), 1)
