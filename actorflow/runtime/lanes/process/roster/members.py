"""The calls and the processes of a crew, as its roster sees them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorflow.runtime.lanes.process.call import Call, CallOutcome

__all__ = ["ACTIVE", "Job", "Limits", "Member", "MemberState"]


class Job:
    """A call in the hands of a crew."""

    __slots__ = ("call", "crashes", "ended", "over", "sequence", "skipped", "verdict")

    def __init__(self, call: Call, ended: Any = None) -> None:
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


class MemberState(Enum):
    """What a process is about."""

    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"
    """It was asked to end once it has done what it holds."""
    KILLED = "killed"


class Member:
    """One process."""

    __slots__ = ("assigned", "begun", "held", "look_at", "place", "since", "state", "worker")

    def __init__(self, worker: int, place: int, now: float) -> None:
        self.worker = worker
        self.place = place
        self.state = MemberState.STARTING
        self.since = now
        """When it was started; when it became ready."""
        self.held: deque[Job] = deque()
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
class Limits:
    """The options of a crew that the roster decides by."""

    least: int = 0
    most: int = 1
    prefetch: int = 1
    renew_after: float = math.inf
    renew_after_seconds: float = math.inf
    max_rss: float = math.inf
    idle_stop: float = math.inf
    launches_max: int = 5
    launch_timeout: float = 60.0


ACTIVE = (MemberState.STARTING, MemberState.READY)
"""The states of a process that takes calls, or soon will."""
