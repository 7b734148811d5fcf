"""actorflow: executor actors fronted by accumulators that batch what arrives while they are busy.

Start with `spawn`; see README.md and docs/ for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow import _siblings  # noqa: F401 - first: without behaviours the rest fails unclearly
from actorflow.runtime.actor.actor import Actor, Stop
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
    LaunchFailed,
    LoopBlocked,
    Malformed,
    NotParked,
    NotSendable,
    ProcessCancelled,
    ProcessCrashed,
    ProcessTimeout,
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
from actorflow.runtime.exits import (
    Crash,
    ExitReason,
    FailedToStart,
    GaveUp,
    Killed,
    Normal,
    Shutdown,
)
from actorflow.runtime.registry import whereis
from actorflow.runtime.supervision.actions import Ignored, RequestRefusal, Started
from actorflow.runtime.supervision.children import ChildInfo, ChildState, Counts
from actorflow.runtime.supervision.run import ExitCode, run
from actorflow.runtime.supervision.spec import Backoff, BadChild, BadFlags, Child
from actorflow.runtime.supervision.supervisor import IGNORE, Supervisor, SupervisorRef
from actorflow.runtime.supervision.tree import Tree
from actorflow.runtime.worker.batched import batched
from actorflow.runtime.worker.embedded import Workers
from actorflow.runtime.worker.job.answers import Answers
from actorflow.runtime.worker.job.dead_letters import DeadLetter, DeadLetters
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.job.executor import Executor
from actorflow.runtime.worker.job.failure import Breaker, Drop, Isolate, Retry
from actorflow.runtime.worker.metrics import WorkerStatistics
from actorflow.runtime.worker.options import WorkerOptions
from actorflow.runtime.worker.pair.machine import PairState
from actorflow.runtime.worker.pair.runner import current_batch
from actorflow.runtime.worker.process.options import Processes
from actorflow.runtime.worker.ref import WorkerRef
from actorflow.runtime.worker.server import Restart, Server
from actorflow.runtime.worker.spec import Worker, spawn

if TYPE_CHECKING:
    from actorflow.application import Engine
    from actorflow.engine.tasks.tasker import HOLD
    from actorflow.flows.service.taskers import FlowTask
    from actorflow.lab.recording import record
    from actorflow.plans.errors import BadPlan, JobFailed, JobSkipped, PlanFailed
    from actorflow.plans.plan import Plan
    from actorflow.plans.run.result import PlanResult
    from actorflow.plans.sources import job
    from actorflow.runtime.prometheus import Collector
    from actorflow.workflows.errors import Interrupted, WorkFailed
    from actorflow.workflows.interrupt import Interrupt
    from actorflow.workflows.remote import RemoteWorkflow
    from actorflow.workflows.running import current_task
    from actorflow.workflows.service.handle import WorkflowHandle
    from actorflow.workflows.task import task
    from actorflow.workflows.turns import Turns
    from actorflow.workflows.wait import Event, Wait
    from actorflow.workflows.workflow import Workflow

__version__ = "0.1.0"

__all__ = [
    "HOLD",
    "IGNORE",
    "Actor",
    "ActorflowError",
    "AlreadyStarted",
    "AlreadyUsed",
    "Answers",
    "Backoff",
    "BadBehaviour",
    "BadChild",
    "BadFlags",
    "BadJob",
    "BadOption",
    "BadPlan",
    "Breaker",
    "Child",
    "ChildInfo",
    "ChildState",
    "Collector",
    "Counts",
    "Crash",
    "DeadLetter",
    "DeadLetters",
    "Deferred",
    "Displaced",
    "Drop",
    "Dropped",
    "Engine",
    "Event",
    "Executor",
    "ExitCode",
    "ExitReason",
    "Expired",
    "FailedToStart",
    "FlowTask",
    "Full",
    "GaveUp",
    "Ignored",
    "Interrupt",
    "Interrupted",
    "Isolate",
    "JobFailed",
    "JobSkipped",
    "Killed",
    "LaunchFailed",
    "LoopBlocked",
    "Malformed",
    "Normal",
    "NotParked",
    "NotSendable",
    "PairState",
    "Plan",
    "PlanFailed",
    "PlanResult",
    "ProcessCancelled",
    "ProcessCrashed",
    "ProcessTimeout",
    "Processes",
    "PushTimeout",
    "Rejected",
    "RemoteWorkflow",
    "Replaced",
    "RequestRefusal",
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
    "Turns",
    "UnknownWorker",
    "Wait",
    "WorkFailed",
    "Worker",
    "WorkerCrashed",
    "WorkerOptions",
    "WorkerRef",
    "WorkerStatistics",
    "WorkerStopped",
    "Workers",
    "Workflow",
    "WorkflowHandle",
    "WouldDeadlock",
    "batched",
    "current_batch",
    "current_task",
    "job",
    "record",
    "run",
    "spawn",
    "task",
    "whereis",
]


_LATER = {
    "BadPlan": "actorflow.plans.errors",
    "Collector": "actorflow.runtime.prometheus",
    "Engine": "actorflow.application",
    "Event": "actorflow.workflows.wait",
    "Interrupt": "actorflow.workflows.interrupt",
    "Interrupted": "actorflow.workflows.errors",
    "FlowTask": "actorflow.flows.service.taskers",
    "HOLD": "actorflow.engine.tasks.tasker",
    "JobFailed": "actorflow.plans.errors",
    "JobSkipped": "actorflow.plans.errors",
    "Plan": "actorflow.plans.plan",
    "PlanFailed": "actorflow.plans.errors",
    "PlanResult": "actorflow.plans.run.result",
    "RemoteWorkflow": "actorflow.workflows.remote",
    "Turns": "actorflow.workflows.turns",
    "Wait": "actorflow.workflows.wait",
    "WorkFailed": "actorflow.workflows.errors",
    "Workflow": "actorflow.workflows.workflow",
    "WorkflowHandle": "actorflow.workflows.service.handle",
    "current_task": "actorflow.workflows.running",
    "job": "actorflow.plans.sources",
    "record": "actorflow.lab.recording",
    "task": "actorflow.workflows.task",
}


def __dir__() -> list[str]:
    """Return the public names, those included that are imported when first used."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import what not every program needs when it is first used."""
    if name in _LATER:
        from importlib import import_module  # noqa: PLC0415 - keeps the import light

        return getattr(import_module(_LATER[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
