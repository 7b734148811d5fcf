"""What a roster wants done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actorflow.runtime.lanes.process.call import CallOutcome
    from actorflow.runtime.lanes.process.roster.members import Job, Member

__all__ = ["Action", "End", "Kill", "Launch", "Leave", "Look", "Send", "Skip"]


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a process."""

    worker: int
    place: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send calls to a process."""

    worker: int
    jobs: list[Job]


@dataclass(frozen=True, slots=True)
class Skip:
    """Ask a process not to begin some of the calls that it holds."""

    worker: int
    sequences: list[int]


@dataclass(frozen=True, slots=True)
class Look:
    """See which call a process has begun, and report it with `looked`."""

    worker: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Ask a process to end once it has done what it was sent."""

    worker: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill a process."""

    worker: int


@dataclass(frozen=True, slots=True)
class End:
    """Report a call that has no result."""

    job: Job
    outcome: CallOutcome
    error: BaseException
    member: Member | None


Action = Launch | Send | Skip | Look | Leave | Kill | End
