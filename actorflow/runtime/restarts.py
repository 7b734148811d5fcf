"""How often something may be started again, and how long to wait before that. Pure.

Supervisors restart children by these rules, and tasks, steps and batches are repeated by them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from actorflow.behaviours.arguments import number
from actorflow.runtime.errors import ActorflowError

__all__ = ["Backoff", "BadFlags", "RestartWindow"]

_BACKOFF = "Backoff(initial=0.1, factor=2.0, maximum=30.0, jitter=0.1)"


class BadFlags(ActorflowError, ValueError):
    """The flags of a supervisor cannot work, or not together; the message shows some that can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before a child is restarted: longer with each failure in a row.

    The n-th wait (from 0) is `initial * factor ** n` seconds, at most `maximum`. `jitter` takes a
    random part off: 0.0 nothing, 0.25 up to a quarter, 1.0 up to all of it, so that many children
    that failed together are not restarted together.

    >>> backoff = Backoff(initial=0.5, factor=2.0, maximum=30.0, jitter=0.5)
    >>> [backoff.delay(n, 0.0) for n in (0, 1, 2, 10)]
    [0.5, 1.0, 2.0, 30.0]
    >>> backoff.delay(1, 0.5)
    0.75
    """

    initial: float = 0.1
    factor: float = 2.0
    maximum: float = 30.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        """Validate all four numbers."""
        number(self.initial, "initial", _BACKOFF, error=BadFlags, least=0.0)
        number(self.factor, "factor", _BACKOFF, error=BadFlags, least=1.0)
        number(self.maximum, "maximum", _BACKOFF, error=BadFlags, least=self.initial)
        number(self.jitter, "jitter", _BACKOFF, error=BadFlags, least=0.0, most=1.0)

    def delay(self, failures: int, draw: float) -> float:
        """Return the seconds to wait after `failures` earlier failures in a row. O(1).

        `draw` is the random number for the jitter, 0.0 <= draw < 1.0.
        """
        try:
            grown = self.initial * self.factor**failures
        except OverflowError:
            grown = self.maximum
        return min(grown, self.maximum) * (1.0 - self.jitter * draw)


class RestartWindow:
    """The restarts within the last `within` seconds, at most `limit`. Pure: takes the time.

    A restart that is exactly `within` seconds old still counts. With `limit=0` nothing is ever
    admitted: the first crash is one too many.

    >>> window = RestartWindow(limit=2, within=5.0)
    >>> [window.admit(now) for now in (0.0, 1.0, 5.0, 5.5)]
    [True, True, False, True]
    """

    __slots__ = ("_times", "limit", "within")

    def __init__(self, limit: int, within: float) -> None:
        self.limit = limit
        self.within = within
        self._times: deque[float] = deque()

    def admit(self, now: float) -> bool:
        """Count one attempt to restart; return False if it is one too many. O(1) amortised.

        An attempt that is refused is not counted. `now` must not go backwards.
        """
        self._forget(now)
        if len(self._times) >= self.limit:
            return False
        self._times.append(now)
        return True

    def recent(self, now: float) -> int:
        """Return the number of attempts in the window that ends at `now`. O(1) amortised."""
        self._forget(now)
        return len(self._times)

    def count(self, now: float) -> int:
        """Return the same, and change nothing: for other threads. O(limit)."""
        return sum(1 for each in list(self._times) if now - each <= self.within)

    def check(self) -> None:
        """Raise AssertionError if the window is not in order or too long. O(limit)."""
        times = list(self._times)
        if len(times) > self.limit or times != sorted(times):
            raise AssertionError(f"{times} is not a window of {self.limit} restarts")

    def _forget(self, now: float) -> None:
        # `now - then` is exact for times that are close together; `now - within` would round,
        # and could lose a restart that is exactly `within` old.
        while self._times and now - self._times[0] > self.within:
            self._times.popleft()
