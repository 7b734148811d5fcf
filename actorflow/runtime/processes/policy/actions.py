"""What a policy wants done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actorflow.runtime.processes.call import CallOutcome
    from actorflow.runtime.processes.policy.entries import PoolCall, ProcessEntry

__all__ = [
    "Action",
    "CheckProgress",
    "EndCall",
    "KillProcess",
    "LaunchProcess",
    "RetireProcess",
    "SendCalls",
    "SkipCalls",
]


@dataclass(frozen=True, slots=True)
class LaunchProcess:
    """Start a process."""

    worker: int
    place: int


@dataclass(frozen=True, slots=True)
class SendCalls:
    """Send calls to a process."""

    worker: int
    jobs: list[PoolCall]


@dataclass(frozen=True, slots=True)
class SkipCalls:
    """Ask a process not to begin some of the calls that it holds."""

    worker: int
    sequences: list[int]


@dataclass(frozen=True, slots=True)
class CheckProgress:
    """See which call a process has begun, and report it with `looked`."""

    worker: int


@dataclass(frozen=True, slots=True)
class RetireProcess:
    """Ask a process to end once it has done what it was sent."""

    worker: int


@dataclass(frozen=True, slots=True)
class KillProcess:
    """Kill a process."""

    worker: int


@dataclass(frozen=True, slots=True)
class EndCall:
    """Report a call that has no result."""

    job: PoolCall
    outcome: CallOutcome
    error: BaseException
    member: ProcessEntry | None


Action = (
    LaunchProcess | SendCalls | SkipCalls | CheckProgress | RetireProcess | KillProcess | EndCall
)
