"""The actions that a family requests from its supervisor, and its answers to requests.

A `Family` never starts, stops, waits or logs. It returns a list of *actions*, which the supervisor
performs in order, and *answers* to the requests that it was asked for.

Structs, because a frozen dataclass takes ten times as long to make, and each start makes several.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum, auto
from typing import Any, TypeAlias

from msgspec import Struct

from actorflow.runtime.exits import ExitReason, Shutdown
from actorflow.runtime.supervision.spec import Child, Grace

__all__ = [
    "SHUTDOWN",
    "Action",
    "Answer",
    "ChildStarted",
    "Exit",
    "Ignored",
    "Incarnation",
    "LogAction",
    "LogKind",
    "Ready",
    "Release",
    "Reply",
    "RequestDenied",
    "RequestDone",
    "RequestRefusal",
    "ScheduleRetry",
    "StartChild",
    "StopChildren",
    "Why",
]

Incarnation: TypeAlias = Any
"""One start of a child: opaque to the family, hashable, never used for two starts."""

SHUTDOWN = Shutdown()
"""What children that are stopped end with, unless there is more to say."""


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
    """The events of a supervisor that are logged."""

    PROGRESS = auto()
    """A child has started."""
    CHILD_TERMINATED = auto()
    """A child ended by itself; not for clean exits of children that stay ended."""
    START_ERROR = auto()
    SHUTDOWN_ERROR = auto()
    """A child that was stopped ended for another reason than the stop."""
    TOO_MANY_RESTARTS = auto()
    """The supervisor gives up (OTP: reached_max_restart_intensity)."""


class RequestRefusal(Enum):
    """Why a request was refused; the value says so, and what to do."""

    ALREADY_STARTED = "a child of that id is running: use it, or terminate and delete it first"
    """`ref` is the running child."""
    ALREADY_PRESENT = "a child of that id is known but not running: restart_child or delete_child"
    NOT_FOUND = "there is no such child: which_children() lists them"
    RUNNING = "the child is running: terminate_child first"
    RESTARTING = "the child is being restarted: wait, or terminate_child first"
    MAX_CHILDREN = "there are as many children as max_children allows"
    START_FAILED = "the child did not start"
    """`reason` says why."""
    DYNAMIC = "dynamic children are found by their refs, not by an id"
    NOT_DYNAMIC = "only children of a dynamic supervisor are found by their refs: pass the id"
    TEMPLATE = "this supervisor starts copies of its template only: use start_copy"
    NO_TEMPLATE = "this supervisor has no template to start copies of: use start_child"
    STOPPING = "the supervisor is stopping, or has ended"


# Answers to requests


class ChildStarted(Struct, frozen=True):
    """The child is running; `extra` is what its start returned besides the ref."""

    ref: Incarnation
    extra: Any = None


class Ignored(Struct, frozen=True):
    """The child's start chose not to run; it is kept as stopped, unless temporary or dynamic."""


class RequestDone(Struct, frozen=True):
    """The request was carried out."""


class RequestDenied(Struct, frozen=True):
    """The request was refused, and nothing has changed."""

    why: RequestRefusal
    ref: Incarnation = None
    reason: ExitReason | None = None


Answer: TypeAlias = ChildStarted | Ignored | RequestDone | RequestDenied


# Actions


class StartChild(Struct, frozen=True):
    """Call `child.start(*child.args, **child.kwargs)` and report the outcome.

    Report with `started`, `start_ignored` or `start_failed`, each with this `key`.
    """

    key: Hashable
    child: Child


class StopChildren(Struct, frozen=True):
    """Ask all of these at once to stop, and kill those still alive after `shutdown` seconds.

    One timer serves all. "brutal_kill" kills at once, `math.inf` waits without a limit. Report
    each end with `exited`, like any other end: there is no separate report.
    """

    refs: tuple[Incarnation, ...]
    shutdown: Grace
    reason: ExitReason = SHUTDOWN
    """What they are to end with."""
    final: bool = True
    """False: they will be restarted, so what a worker has accumulated is kept."""


class Release(Struct, frozen=True):
    """Free what outlives an incarnation: it has ended, and its child will not be restarted.

    Of a worker that is the accumulator. Not said for children that are left when the family
    itself ends.
    """

    ref: Incarnation
    reason: ExitReason


class ScheduleRetry(Struct, frozen=True):
    """Pass this very object to `retry()` after `after` seconds, behind earlier messages.

    It need not be cancelled: a retry that is out of date does nothing.
    """

    key: Hashable
    after: float
    ticket: int


class Reply(Struct, frozen=True):
    """Pass `answer` to the caller of a request; `to` is the `caller` of that request."""

    to: Any
    answer: Answer


class Ready(Struct, frozen=True):
    """All first children have started: the supervisor is up."""


class Exit(Struct, frozen=True):
    """All children have ended: end the supervisor with this reason. Always the last action."""

    reason: ExitReason
    why: Why


class LogAction(Struct, frozen=True):
    """Log this, together with the name of the supervisor."""

    kind: LogKind
    child: Child
    ref: Incarnation = None
    reason: ExitReason | None = None
    restarts: int = 0
    """How often the supervisor has restarted this child."""
    requested: bool = False
    """PROGRESS only: the start was requested, so it is logged at debug level."""


Action: TypeAlias = (
    StartChild | StopChildren | Release | ScheduleRetry | Reply | Ready | Exit | LogAction
)
