"""The time trackers that a member knows, and the tombstones of those that it has done with."""

from __future__ import annotations

from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING

from sortedcontainers import SortedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from actorflow.cluster.ring.messages import Tracker, TrackerKey

__all__ = ["Trackers"]

_HORIZON = 5.0  # seconds: trackers that are due sooner may be gone elsewhere already
_LAST = ("\U0010ffff", "", 0.0)  # after every key


class Trackers:
    """Trackers by the moment they are due. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[TrackerKey, Tracker] = {}
        self._order: SortedDict[tuple[float, TrackerKey], Tracker] = SortedDict()
        self._stones: dict[TrackerKey, float] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Tracker]:
        return iter(self._order.values())

    def __contains__(self, key: TrackerKey) -> bool:
        return key in self._known

    def add(self, tracker: Tracker, oldest: float) -> bool:
        """Add a tracker, unless it is known or was discarded; return whether it is new.

        One that was due before `oldest` is refused: its tombstone may be gone already.
        """
        key = tracker.key
        if key in self._known or key in self._stones or tracker.due < oldest:
            return False
        self._known[key] = tracker
        self._order[tracker.due, key] = tracker
        return True

    def discard(self, tracker: Tracker, until: float) -> None:
        """Remove a tracker and refuse it until a moment of the member's clock.

        A copy of the cycle that is still under way would bring it back otherwise.
        """
        key = tracker.key
        if self._known.pop(key, None) is not None:
            del self._order[tracker.due, key]
        self._stones[key] = until

    def due(self, time: float) -> list[Tracker]:
        """Return the trackers that are due at a moment of the store's clock. O(their number)."""
        return [self._order[key] for key in self._order.irange(maximum=(time, _LAST))]

    def first_due(self) -> float:
        """Return when the first one is due."""
        return self._order.peekitem(0)[0][0] if self._order else inf

    def forget(self, now: float) -> None:
        """Remove the tombstones that are old enough."""
        for key in [key for key, until in self._stones.items() if until <= now]:
            del self._stones[key]

    def digest(self, time: float, known: Callable[[TrackerKey], bool]) -> str:
        """Return a hash of those that everybody should know at a moment. O(n)."""
        total = 0
        for tracker in self._later(time):
            if known(tracker.key):
                data = repr(tracker.key).encode()
                total ^= int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
        return f"{total:016x}"

    def _later(self, time: float) -> Iterable[Tracker]:
        keys = self._order.irange(minimum=(time + _HORIZON, _LAST))
        return (self._order[key] for key in keys)
