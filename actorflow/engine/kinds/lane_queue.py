"""Who may begin in a lane, and who waits: a pure data structure, and its bytes."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

import msgspec
from msgspec import Struct

from actorflow.engine.growing_bytes import GrowingBytes, entries, entry
from actorflow.engine.kind import Addition

__all__ = ["LaneLimits", "LaneQueue", "LaneState"]


class LaneLimits(Struct, frozen=True, array_like=True):
    """The limits of a lane."""

    concurrency: int | None = None
    """The most executions that run at the same time."""
    rate: tuple[int, float] | None = None
    """The most starts within a number of seconds: `(starts, seconds)`."""


class _StoredLane(Struct, array_like=True):
    """The stored form of a lane."""

    limits: LaneLimits = LaneLimits()
    paused: bool = False
    number: int = 0
    begun_at: list[float] = []
    waiting: list[tuple[int, int, str]] = []
    running: list[str] = []


class _LaneAdditions(Struct, array_like=True):
    """The additions of one run to a lane."""

    limits: LaneLimits
    paused: bool
    number: int
    changes: list[tuple[int, int, str] | str]
    """Executions that have entered, with their places, and that have left, in order."""
    begun: list[str]
    """Who has begun after that."""
    at: float
    """When those in `begun` have begun."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_StoredLane).decode
_decode_added = msgspec.msgpack.Decoder(_LaneAdditions).decode


class LaneQueue:
    """The executions that wait in a lane, and the ones that run.

    Urgent executions begin first; equal ones begin in the order of their entry.
    """

    def __init__(self, stored: _StoredLane | None = None) -> None:
        stored = stored or _StoredLane()
        self.paused = stored.paused
        self._limits = stored.limits
        self._number = stored.number
        self._begun_at: deque[float] = deque(stored.begun_at)
        self._heap = list(stored.waiting)
        heapify(self._heap)
        self._waiting = {execution: number for _, number, execution in self._heap}
        self._running = dict.fromkeys(stored.running)
        self._changes: list[tuple[int, int, str] | str] = []
        self._begun: list[str] = []
        self._at = 0.0
        self._trim()

    @property
    def limits(self) -> LaneLimits:
        """The limits of a lane."""
        return self._limits

    @limits.setter
    def limits(self, limits: LaneLimits) -> None:
        self._limits = limits
        self._trim()

    @property
    def waiting(self) -> list[str]:
        """The ids of waiting executions, in the order in which they begin. O(n log n)."""
        return [each[2] for each in sorted(self._heap) if self._waiting.get(each[2]) == each[1]]

    @property
    def running(self) -> list[str]:
        """The ids of executions that have begun and not ended, the earliest first."""
        return list(self._running)

    def enter(self, execution: str, priority: int = 0) -> None:
        """Let an execution wait, unless it waits or runs already. O(log n)."""
        if execution in self._waiting or execution in self._running:
            return
        place = (-priority, self._number, execution)
        self._number += 1
        self._waiting[execution] = place[1]
        heappush(self._heap, place)
        self._changes.append(place)

    def leave(self, execution: str) -> None:
        """Forget an execution, which has ended. O(1), amortized."""
        if execution in self._running:
            del self._running[execution]
        elif self._waiting.pop(execution, None) is None:
            return
        self._changes.append(execution)

    def begin(self, now: float) -> list[str]:
        """Let executions begin; return their ids, in order."""
        begun: list[str] = []
        self._at = now
        while not self.paused and self._waiting and self._has_place() and self._in_rate(now):
            _, number, execution = heappop(self._heap)
            if self._waiting.get(execution) != number:
                continue  # it has left
            self._start(execution, now)
            begun.append(execution)
        self._begun += begun
        return begun

    def due(self) -> float | None:
        """Return when the next may begin, if only the rate holds it back."""
        rate = self._limits.rate
        if self.paused or not self._waiting or rate is None or not self._has_place():
            return None
        return self._begun_at[0] + rate[1] if len(self._begun_at) == rate[0] else None

    def _start(self, execution: str, now: float) -> None:
        self._waiting.pop(execution, None)
        self._running[execution] = None
        if self._limits.rate is not None:
            self._begun_at.append(now)
            self._trim()

    def _has_place(self) -> bool:
        most = self._limits.concurrency
        return most is None or len(self._running) < most

    def _in_rate(self, now: float) -> bool:
        rate = self._limits.rate
        if rate is None or len(self._begun_at) < rate[0]:
            return True
        return self._begun_at[0] + rate[1] <= now

    def _trim(self) -> None:
        """Drop the times that lie outside the interval of the rate."""
        most = 0 if self._limits.rate is None else self._limits.rate[0]
        while len(self._begun_at) > most:
            self._begun_at.popleft()

    # Bytes.

    def added(self) -> bytes:
        """Return the changes since the last call. O(their number)."""
        added = _LaneAdditions(
            self._limits, self.paused, self._number, self._changes, self._begun, self._at
        )
        data = _encode(added)
        self.forget()
        return data

    def whole(self) -> bytes:
        """Return all of it. O(n)."""
        waiting = [each for each in self._heap if self._waiting.get(each[2]) == each[1]]
        whole = _StoredLane(
            self._limits, self.paused, self._number, list(self._begun_at), waiting,
            list(self._running),
        )  # fmt: skip
        self.forget()
        return _encode(whole)

    def forget(self) -> None:
        """Forget the changes: they are stored."""
        self._changes, self._begun = [], []

    def grow(self, added: _LaneAdditions) -> None:
        """Apply what a run has added."""
        for change in added.changes:
            if isinstance(change, str):
                self._running.pop(change, None)
                self._waiting.pop(change, None)
            else:
                self._waiting[change[2]] = change[1]
                heappush(self._heap, change)
        self._number, self.paused = added.number, added.paused
        self.limits = added.limits
        for execution in added.begun:
            self._start(execution, added.at)


def _read(data: bytes) -> LaneQueue:
    whole, *more = entries(data)
    queue = LaneQueue(_decode(whole))
    for each in more:
        queue.grow(_decode_added(each))
    return queue


class LaneState:
    """A lane between two runs: its bytes, and the queue they stand for.

    A run changes the queue in place. If the run is discarded, the next one reads the bytes again.
    """

    __slots__ = ("_bytes", "_queue")

    def __init__(self, data: bytes | None = None, queue: LaneQueue | None = None) -> None:
        self._bytes = None if data is None else GrowingBytes(data)
        self._queue = queue

    def take(self) -> LaneQueue:
        """Hand over the queue, to be changed."""
        queue, self._queue = self._queue, None
        if queue is not None:
            return queue
        return LaneQueue() if self._bytes is None else _read(self._bytes.joined())

    def after(self, queue: LaneQueue) -> LaneState:
        """Return the state that a run has led to."""
        made = LaneState(queue=queue)
        before = self._bytes
        if before is not None and before.grows:
            more = entry(queue.added())
            if before.has_room(more):
                made._bytes = GrowingBytes(more, before)
                return made
        made._bytes = GrowingBytes(entry(queue.whole()))
        return made

    def encoded(self) -> bytes | Addition:
        """Return the bytes to write: the whole, or the addition of the run."""
        held = self._bytes
        if held is None:
            return entry(LaneQueue().whole())
        return held.data if held.before is None else Addition(held.data)
