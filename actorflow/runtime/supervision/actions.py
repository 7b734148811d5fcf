"""What a `Family` wants done, and what it answers: the words between strategy and supervisor.

The strategy (`strategy.py`) is pure: it never starts, stops, waits or logs. It returns a list of
these actions, to be performed in order by the supervisor around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.spec import Child, ChildType, Grace, RestartType

__all__ = [
    "Action",
    "Answer",
    "ChildInfo",
    "ChildState",
    "Counts",
    "Done",
    "Exit",
    "FamilyStatistics",
    "Ignored",
    "Log",
    "LogKind",
    "Phase",
    "Ready",
    "Ref",
    "Refusal",
    "Refused",
    "Reply",
    "Retry",
    "StartChild",
    "Started",
    "StopChildren",
    "Why",
]

Ref: TypeAlias = Any
"""One incarnation of a child: opaque and hashable, never used for two of them."""


class ChildState(Enum):
    """What is known of a child. OTP shows three of these; the others last for one step."""

    STARTING = auto()
    """Its start was asked for and has not been reported yet."""
    RUNNING = auto()
    STOPPING = auto()
    """It was asked to stop and its exit has not been reported yet."""
    EXITED = auto()
    """It died by itself while something else was being done; its turn comes."""
    RESTARTING = auto()
    """It did not start again; a `Retry` is under way."""
    STOPPED = auto()
    """It is known but not running (OTP: undefined)."""


class Phase(Enum):
    """Where a family is in its life."""

    NEW = auto()
    STARTING = auto()
    UP = auto()
    LEAVING = auto()
    GONE = auto()


class Why(Enum):
    """Why a supervisor ends."""

    REQUESTED = auto()
    """`shutdown()` was called: by a user, the parent, or a signal."""
    START_FAILED = auto()
    """One of the first children did not start."""
    TOO_MANY_RESTARTS = auto()
    AUTO_SHUTDOWN = auto()
    """Significant children have ended."""


class LogKind(Enum):
    """The events of a supervisor that are worth a line in the log."""

    PROGRESS = auto()
    """A child has started."""
    CHILD_TERMINATED = auto()
    """A child died by itself; not for clean exits of children that stay ended."""
    START_ERROR = auto()
    SHUTDOWN_ERROR = auto()
    """A child that was stopped ended in another way than it was told to."""
    TOO_MANY_RESTARTS = auto()
    """The supervisor gives up (OTP: reached_max_restart_intensity)."""


class Refusal(Enum):
    """Why a request was not granted; the value says it, and what to do."""

    ALREADY_STARTED = "a child of that id is running: use it, or terminate and delete it first"
    """`ref` is the one that runs."""
    ALREADY_PRESENT = "a child of that id is known but not running: restart_child or delete_child"
    NOT_FOUND = "there is no such child: which_children() lists them"
    RUNNING = "the child is running: terminate_child first"
    RESTARTING = "the child is being restarted: wait, or terminate_child first"
    MAX_CHILDREN = "there are as many children as max_children allows"
    START_FAILED = "the child did not start"
    """`reason` says how."""
    DYNAMIC = "dynamic children are known by their refs, not by an id"
    NOT_DYNAMIC = "only children of a dynamic supervisor are known by their refs: give the id"
    TEMPLATE = "this supervisor starts copies of its template only: use start_copy"
    NO_TEMPLATE = "this supervisor has no template to start copies of: use start_child"
    STOPPING = "the supervisor is ending, or has ended"


# Answers to requests


@dataclass(frozen=True, slots=True)
class Started:
    """The child is running; `extra` is what its start gave besides the ref."""

    ref: Ref
    extra: Any = None


@dataclass(frozen=True, slots=True)
class Ignored:
    """The child's start chose not to run; it is kept as stopped, unless temporary or dynamic."""


@dataclass(frozen=True, slots=True)
class Done:
    """The request was carried out."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The request was not granted, and nothing has changed."""

    why: Refusal
    ref: Ref = None
    reason: ExitReason | None = None


Answer: TypeAlias = Started | Ignored | Done | Refused


# Actions


@dataclass(frozen=True, slots=True)
class StartChild:
    """Call `child.start(*child.args, **child.kwargs)` and report what came of it.

    Report with `started`, `start_ignored` or `start_failed`, each with this `key`.
    """

    key: Hashable
    child: Child


@dataclass(frozen=True, slots=True)
class StopChildren:
    """Tell all of these at once to stop, and kill those that live on after `shutdown` seconds.

    One timer serves all. "brutal_kill" kills at once, `math.inf` waits for ever. Report each
    death with `exited`, as any other death: there is no other report.
    """

    refs: tuple[Ref, ...]
    shutdown: Grace
    final: bool = True
    """False: they only make way for a restart, so what waits for them is kept."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Hand this very object to `retry()` after `after` seconds, behind what has arrived by then.

    There is no need to cancel it: a retry that is out of date does nothing.
    """

    key: Hashable
    after: float
    ticket: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Give `answer` to the caller of a request; `to` is what the request came with."""

    to: Any
    answer: Answer


@dataclass(frozen=True, slots=True)
class Ready:
    """All first children have started: the supervisor is up."""


@dataclass(frozen=True, slots=True)
class Exit:
    """All children are down: end the supervisor with this reason. It is the last action."""

    reason: ExitReason
    why: Why


@dataclass(frozen=True, slots=True)
class Log:
    """Write this to the log, together with the name of the supervisor."""

    kind: LogKind
    child: Child
    ref: Ref = None
    reason: ExitReason | None = None
    restarts: int = 0
    """How often the supervisor has started this child again."""
    requested: bool = False
    """PROGRESS only: somebody asked for this start, so it is no news (debug level)."""


Action: TypeAlias = StartChild | StopChildren | Retry | Reply | Ready | Exit | Log


# Views


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """One child as seen from outside."""

    id: Hashable
    state: ChildState
    ref: Ref
    """None unless the child is alive."""
    type: ChildType
    restart: RestartType
    restarts: int
    """How often the supervisor has started it again, for its own sake or a sibling's."""
    started_at: float | None
    last_exit: ExitReason | None


@dataclass(frozen=True, slots=True)
class Counts:
    """How many children there are. A dynamic supervisor with a template has one spec."""

    specs: int
    active: int
    """Alive: running or stopping."""
    supervisors: int
    workers: int


@dataclass(frozen=True, slots=True)
class FamilyStatistics:
    """A snapshot of a family; O(1) to take."""

    phase: Phase
    children: Counts
    restarts: int
    """Attempts to restart since the beginning: what counts against `max_restarts`."""
    waiting: int
    """Requests and exits that arrived while something else was being done."""
