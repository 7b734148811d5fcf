"""The limit of restarts: at most so many within so many seconds, in a sliding window."""

from __future__ import annotations

from collections import deque

__all__ = ["RestartWindow"]


class RestartWindow:
    """Remembers the restarts that lie within the last `within` seconds; pure, takes the time.

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
        """Count one attempt to restart, or say that it is one too many. O(1) amortised.

        An attempt that is refused is not counted. `now` must not go backwards.
        """
        self._forget(now)
        if len(self._times) >= self.limit:
            return False
        self._times.append(now)
        return True

    def recent(self, now: float) -> int:
        """Give the number of attempts in the window that ends at `now`. O(1) amortised."""
        self._forget(now)
        return len(self._times)

    def check(self) -> None:
        """Raise AssertionError if the window is not what it should be. O(limit)."""
        times = list(self._times)
        if len(times) > self.limit or times != sorted(times):
            raise AssertionError(f"{times} is not a window of {self.limit} restarts")

    def _forget(self, now: float) -> None:
        # `now - then` is exact for moments that are near each other; `now - within` would round,
        # and could lose a restart that is exactly `within` old.
        while self._times and now - self._times[0] > self.within:
            self._times.popleft()
