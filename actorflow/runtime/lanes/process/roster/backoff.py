"""When the next process may be started, after launches that failed."""

from __future__ import annotations

import math

__all__ = ["LaunchBackoff"]

_FIRST = 0.05  # seconds after the first launch that failed; doubled with each further one
_MOST = 5.0
_REST = 60.0  # seconds between attempts to add to a crew whose further launches fail


class LaunchBackoff:
    """Counts launches that fail in a row. Not thread-safe."""

    def __init__(self, launches_max: int) -> None:
        self._most = launches_max
        self.failures = 0
        """How many launches have failed in a row."""
        self.next_time = -math.inf
        """When the next one may be made."""
        self.reason = ""
        """Why the last one has failed."""

    def succeeded(self) -> None:
        """Forget the failures."""
        self.failures = 0
        self.next_time = -math.inf

    def failed(self, how: str, now: float, *, others: bool) -> bool:
        """Count a failure; return whether it is time to give up.

        Never with `others`, processes that do the work: then further attempts become rare.
        """
        self.failures += 1
        self.reason = how
        delay = min(_FIRST * 2 ** (self.failures - 1), _MOST)
        enough = self.failures >= self._most
        self.next_time = now + (_REST if enough and others else delay)
        return enough and not others
