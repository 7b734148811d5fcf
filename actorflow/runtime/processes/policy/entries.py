"""The calls and the processes of a pool, as its policy sees them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorflow.runtime.processes.call import CallOutcome, ProcessCall

__all__ = ["ACTIVE", "PoolCall", "PoolLimits", "ProcessEntry", "ProcessState"]


class PoolCall:
    """A call in the hands of a pool."""

    __slots__ = ("call", "crashes", "ended", "over", "sequence", "skipped", "verdict")

    def __init__(self, call: ProcessCall, ended: Any = None) -> None:
        self.call = call
        self.ended = ended
        """Whom to tell, for the shell."""
        self.crashes = 0
        self.sequence = 0
        """Its number among the calls of the process that holds it."""
        self.skipped = False
        """Whether the process was asked to skip it."""
        self.verdict: tuple[CallOutcome, BaseException] | None = None
        """How it ends, unless it ends by itself before."""
        self.over = False

    @property
    def memory(self) -> int:
        """The limit of memory for its present attempt; 0 without one."""
        limits = self.call.memory
        if isinstance(limits, tuple):
            return limits[min(self.call.attempt - 1 + self.crashes, len(limits) - 1)]
        return limits or 0


class ProcessState(Enum):
    """What a process is about."""

    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"
    """It was asked to end once it has done what it holds."""
    KILLED = "killed"


class ProcessEntry:
    """One process."""

    __slots__ = ("assigned", "begun", "held", "look_at", "place", "since", "state", "worker")

    def __init__(self, worker: int, place: int, now: float) -> None:
        self.worker = worker
        self.place = place
        self.state = ProcessState.STARTING
        self.since = now
        """When it was started; when it became ready."""
        self.held: deque[PoolCall] = deque()
        self.assigned = 0
        """How many calls it was given."""
        self.begun = now
        """When it began with the call in hand; when it became idle, without one."""
        self.look_at = math.inf
        """When it is certain which of the calls to be skipped it has begun."""
        """Whether it leaves to be replaced."""

    def __repr__(self) -> str:
        return f"<{self.state.value} {self.worker} at {self.place}: {len(self.held)} held>"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """The options of a pool that the policy decides by."""

    least: int = 0
    most: int = 1
    prefetch: int = 1
    renew_after: float = math.inf
    renew_after_seconds: float = math.inf
    max_rss: float = math.inf
    idle_stop: float = math.inf
    launches_max: int = 5
    launch_timeout: float = 60.0


ACTIVE = (ProcessState.STARTING, ProcessState.READY)
"""The states of a process that takes calls, or soon will."""


_FIRST = 0.05  # seconds after the first launch that failed; doubled with each further one
_MOST = 5.0
_REST = 60.0  # seconds between attempts to add to a pool whose further launches fail


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
