"""actorflow: executor actors fronted by accumulators that batch what arrives while they are busy.

Start with `spawn`; see README.md and docs/ for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.actions import (
    ChildInfo,
    ChildState,
    Counts,
    Ignored,
    Refusal,
    Started,
)
from actorflow.runtime.actor import Actor, Stop
from actorflow.runtime.childspec import Backoff, BadChild, BadFlags, Child
from actorflow.runtime.deferred import Deferred
from actorflow.runtime.embedded import Workers
from actorflow.runtime.errors import (
    ActorflowError,
    AlreadyStarted,
    AlreadyUsed,
    BadBehaviour,
    BadJob,
    BadOption,
    Displaced,
    Dropped,
    Expired,
    Full,
    Malformed,
    NotParked,
    PushTimeout,
    Rejected,
    Replaced,
    RequestRefused,
    StartFailed,
    StopTimeout,
    UnknownWorker,
    WorkerCrashed,
    WorkerStopped,
    WouldDeadlock,
)
from actorflow.runtime.executor import Executor
from actorflow.runtime.exits import (
    Crash,
    ExitReason,
    FailedToStart,
    Killed,
    Normal,
    Shutdown,
)
from actorflow.runtime.failure import Breaker, DeadLetter, DeadLetters, Drop, Isolate, Retry
from actorflow.runtime.foreground import ExitCode, run
from actorflow.runtime.orders import WorkerStatus
from actorflow.runtime.registry import whereis
from actorflow.runtime.server import Restart, Server
from actorflow.runtime.statistics import WorkerStatistics
from actorflow.runtime.supervisor import IGNORE, Supervisor, SupervisorRef
from actorflow.runtime.tree import Tree
from actorflow.runtime.worker import Worker, WorkerRef, spawn

if TYPE_CHECKING:
    from actorflow.application import Engine
    from actorflow.bench.trace import record
    from actorflow.engine.tasker import HOLD
    from actorflow.flows.taskers import FlowTask

__version__ = "0.1.0"

__all__ = [
    "HOLD",
    "IGNORE",
    "Actor",
    "ActorflowError",
    "AlreadyStarted",
    "AlreadyUsed",
    "Backoff",
    "BadBehaviour",
    "BadChild",
    "BadFlags",
    "BadJob",
    "BadOption",
    "Breaker",
    "Child",
    "ChildInfo",
    "ChildState",
    "Counts",
    "Crash",
    "DeadLetter",
    "DeadLetters",
    "Deferred",
    "Displaced",
    "Drop",
    "Dropped",
    "Engine",
    "Executor",
    "ExitCode",
    "ExitReason",
    "Expired",
    "FailedToStart",
    "FlowTask",
    "Full",
    "Ignored",
    "Isolate",
    "Killed",
    "Malformed",
    "Normal",
    "NotParked",
    "PushTimeout",
    "Refusal",
    "Rejected",
    "Replaced",
    "RequestRefused",
    "Restart",
    "Retry",
    "Server",
    "Shutdown",
    "StartFailed",
    "Started",
    "Stop",
    "StopTimeout",
    "Supervisor",
    "SupervisorRef",
    "Tree",
    "UnknownWorker",
    "Worker",
    "WorkerCrashed",
    "WorkerRef",
    "WorkerStatistics",
    "WorkerStatus",
    "WorkerStopped",
    "Workers",
    "WouldDeadlock",
    "record",
    "run",
    "spawn",
    "whereis",
]


_LATER = {
    "Engine": "actorflow.application",
    "FlowTask": "actorflow.flows.taskers",
    "HOLD": "actorflow.engine.tasker",
    "record": "actorflow.bench.trace",
}


def __getattr__(name: str) -> Any:
    """Import what not every program needs when it is first asked for."""
    if name in _LATER:
        from importlib import import_module  # noqa: PLC0415 - keeps the import light

        return getattr(import_module(_LATER[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
