"""`Adaptive`: batches as large as a latency target allows."""

from __future__ import annotations

from math import inf
from typing import Any

from behaviours.arguments import seconds
from behaviours.contract import Reason
from behaviours.timing.waiting import WaitingFromFirst

_EXAMPLE = "Adaptive(Queue(), target=0.05)"
_SHARE = 0.5  # of the target that one call may take, before batches are cut
_SPARE = 0.02  # of the target, for what cannot be foreseen
_FORGET = 0.98  # how much a call still counts when the next one is observed
_LATE = 0.01  # share of the calls that may take longer than allowed for
_STEP = 0.05  # how fast the allowance follows, in shares of the typical deviation
_NOISE = 1e-9  # of the target: a call that takes just what was foreseen does so up to roundings
_KNOWN = 2.5  # calls before it does: the first ones surprise, as nothing is known yet
_WORTH = 9.0  # how many times its fixed part a call must work off when there is a backlog


class Adaptive(WaitingFromFirst):
    """Waits for more for as long as the `target` allows, and cuts batches that take too long.

    The target is for the time from arrival to processed, in seconds, of all but the unlucky few
    (the 99th percentile). A batch leaves when its first message could not wait longer: its age
    and the time that the job will take make up the target. How long the job takes is learnt from
    the calls so far, as a fixed part, a part for each message, and an allowance for how much
    calls differ. One call takes at most half of the target, because a message that arrives just
    after it has begun waits for it and for the next. So a sink that is costly per call gets few
    large batches, and the target is met when the load changes.

    With a backlog of more than two such calls the target is missed anyway; then batches are cut
    only as far as that wastes no more than a tenth of the throughput, and nothing waits. What a
    partial take leaves behind has waited already: it is due at once.

    >>> from behaviours import Queue
    >>> adaptive = Adaptive(Queue(), target=1.0)
    >>> _ = adaptive.ready_at(100.0)
    >>> adaptive.add("a")
    >>> adaptive.ready_at(100.0)
    100.98
    >>> _ = adaptive.take()
    >>> adaptive.observe(1, 0.25)
    >>> adaptive.add("b")
    >>> adaptive.ready_at(100.5)
    100.73
    """

    __slots__ = ("_cut", "_deviation", "_fixed", "_late", "_slope", "_sums", "_wide")

    def __init__(self, inner: Any, target: float = 0.05) -> None:
        super().__init__(inner, seconds(target, "target", _EXAMPLE, zero=False), observes=True)
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)  # of 1, n, n*n, t and n*t, older ones fading
        self._fixed = self._slope = 0.0  # what a call takes, and each message of it
        self._late = self._deviation = 0.0
        self._cut: int | None = None  # the most messages for one call
        self._wide = 0  # the same, with a backlog

    def __repr__(self) -> str:
        return f"Adaptive({self._inner!r}, target={self._wait:g})"

    def take(self, limit: int | None = None) -> Any:
        """Hand over a batch that the job can process within its share of the target. O(1) more.

        >>> from behaviours import Queue
        >>> adaptive = Adaptive(Queue(), target=1.0)
        >>> adaptive.observe(1, 0.1), adaptive.observe(3, 0.3)
        (None, None)
        >>> _ = adaptive.extend(list("abcdefg"))
        >>> adaptive.take(), adaptive.take()
        (['a', 'b', 'c', 'd', 'e'], ['f', 'g'])
        """
        cut, held = self._cut, len(self._inner)
        reason = self._why(self._leaves(held), Reason.DEADLINE)
        if cut is not None and held >= cut:
            reason = Reason.SIZE
            if self.traits.divisible:
                if held > 2 * cut:
                    cut = max(cut, self._wide)
                limit = cut if limit is None else min(limit, cut)
        batch = super().take(limit)
        self._due = -inf
        self._reason = reason
        return batch

    def ready_at(self, now: float) -> float:
        """Return until when the first message can wait. O(1) more.

        >>> from behaviours import Queue
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

    def observe(self, size: int, took: float) -> None:
        """Learn from a call of the job: `size` messages took `took` seconds. O(1).

        >>> from behaviours import Queue
        >>> Adaptive(Queue()).observe(10, 0.002)
        """
        self._inner.observe(size, took)
        if self._sums[0] > _KNOWN:
            self._surprise(took - self._fixed - self._slope * size)
        count, n, nn, t, nt = (_FORGET * value for value in self._sums)
        self._sums = (count + 1, n + size, nn + size * size, t + took, nt + size * took)
        self._fixed, self._slope = _line(*self._sums)
        room = self._wait * _SHARE - self._fixed - self._late
        self._cut = None
        if self._slope and room > 0:
            self._cut = max(int(room / self._slope + 1e-9), 1)
            self._wide = int(_WORTH * self._fixed / self._slope)

    def _surprise(self, by: float) -> None:
        """Move the allowance towards what all but `_LATE` of the calls stay below.

        Up much, down little: the two balance when just that share of the calls is above it.
        """
        self._deviation += (abs(by) - self._deviation) * (1 - _FORGET)
        step = self._deviation * _STEP
        above = by - self._late > self._wait * _NOISE
        self._late += step * (1 - _LATE) / _LATE if above else -step
        # Not more than half of the rest: where calls differ that much, no wait would help.
        self._late = min(max(self._late, 0.0), self._wait * _SHARE / 2)

    def _leaves(self, held: int) -> float:
        """Return when a batch of `held` messages must leave to be processed in time."""
        takes = self._fixed + self._slope * held + self._late
        return self._due - takes - self._wait * _SPARE

    def _missing(self) -> int | None:
        # Each message of a larger batch makes it due a little earlier. Half of what is kept in
        # reserve may be used up before anybody looks again.
        if not self._slope or self._flushed or self._due == -inf:
            return None
        steps = max(int(self._wait * _SPARE / 2 / self._slope), 1)
        return steps if self._cut is None else max(min(steps, self._cut - len(self._inner)), 1)


def _line(count: float, n: float, nn: float, t: float, nt: float) -> tuple[float, float]:
    """Return the fixed part of a call and the part for each message, by least squares."""
    spread = count * nn - n * n
    if spread <= 1e-9 * nn * count:  # all batches had the same size, or there was only one
        return (t / count, 0.0)
    slope = max((count * nt - n * t) / spread, 0.0)
    return (max((t - slope * n) / count, 0.0), slope)
