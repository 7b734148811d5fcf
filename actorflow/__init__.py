"""actorflow: executor actors fronted by accumulators that batch what arrives while they are busy.

Start with `spawn`; see README.md and docs/ for the rest. Each name is imported when it is first
used, so that `import actorflow` takes a few milliseconds.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in typing, which takes longer to import than everything here

if TYPE_CHECKING:
    from typing import Any

    from actorflow.api.web_app import web_app
    from actorflow.application import Engine
    from actorflow.engine.commit.unknown_outcomes import Delivery
    from actorflow.engine.encryption import Encrypted, WrongKey
    from actorflow.engine.errors import (
        BadId,
        BadResult,
        Cancelled,
        NoAnswer,
        OutcomeUnknown,
        StoreFull,
        StoreRefused,
    )
    from actorflow.engine.kinds.lane import Lane
    from actorflow.engine.tasks.task import HOLD
    from actorflow.flows.service.taskers import FlowTask
    from actorflow.lab.recording import record
    from actorflow.plans.errors import BadPlan, JobFailed, JobSkipped, PlanFailed
    from actorflow.plans.plan import Plan
    from actorflow.plans.run.result import PlanResult
    from actorflow.plans.sources import job
    from actorflow.runtime.actor.actor import Actor, Stop, stash, unstash_all
    from actorflow.runtime.errors import (
        ActorflowError,
        AlreadyStarted,
        AlreadyUsed,
        AnswerTimeout,
        BadBehaviour,
        BadJob,
        BadOption,
        Displaced,
        Dropped,
        Duplicate,
        Expired,
        Full,
        LaunchFailed,
        LoopBlocked,
        Malformed,
        NotHandling,
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
    from actorflow.runtime.restarts import Backoff, BadFlags
    from actorflow.runtime.server import Pool, Restart, Server
    from actorflow.runtime.supervision.actions import ChildStarted, Ignored, RequestRefusal
    from actorflow.runtime.supervision.children import ChildCounts, ChildInfo, ChildState
    from actorflow.runtime.supervision.run import ExitCode, run
    from actorflow.runtime.supervision.spec import BadChild, Child
    from actorflow.runtime.supervision.supervisor import IGNORE, Supervisor, SupervisorRef
    from actorflow.runtime.supervision.tree import Tree
    from actorflow.runtime.telemetry.observe import Observation, observe
    from actorflow.runtime.telemetry.prometheus import Collector
    from actorflow.runtime.tracing import Tracer, trace
    from actorflow.runtime.worker.batched import batched
    from actorflow.runtime.worker.embedded import Workers
    from actorflow.runtime.worker.job.answers import Again, Answers
    from actorflow.runtime.worker.job.dead_letters import DeadLetter, DeadLetters
    from actorflow.runtime.worker.job.deferred import Deferred
    from actorflow.runtime.worker.job.executor import Executor
    from actorflow.runtime.worker.job.failure import Breaker, Drop, Isolate, Retry
    from actorflow.runtime.worker.job.limit import Limit
    from actorflow.runtime.worker.job.split import Split
    from actorflow.runtime.worker.options import WorkerOptions
    from actorflow.runtime.worker.pair.inbox import JobInbox, current_inbox
    from actorflow.runtime.worker.pair.runner import current_batch
    from actorflow.runtime.worker.pair.states import PairState
    from actorflow.runtime.worker.process.options import Processes
    from actorflow.runtime.worker.ref import WorkerRef
    from actorflow.runtime.worker.spec import Worker, spawn
    from actorflow.runtime.worker.statistics import WorkerStatistics
    from actorflow.workflows.errors import (
        Failed,
        Interrupted,
        Refused,
        StepFailed,
        WorkflowFailed,
    )
    from actorflow.workflows.inbox import Interrupt, Turns
    from actorflow.workflows.remote import RemoteWorkflow
    from actorflow.workflows.service.handle import WorkflowHandle
    from actorflow.workflows.task import current_task, task
    from actorflow.workflows.wait import Event, Wait
    from actorflow.workflows.workflow import Workflow, workflow

__version__ = "0.1.0"

__all__ = [
    "HOLD",
    "IGNORE",
    "Actor",
    "ActorflowError",
    "Again",
    "AlreadyStarted",
    "AlreadyUsed",
    "AnswerTimeout",
    "Answers",
    "Backoff",
    "BadBehaviour",
    "BadChild",
    "BadFlags",
    "BadId",
    "BadJob",
    "BadOption",
    "BadPlan",
    "BadResult",
    "Breaker",
    "Cancelled",
    "Child",
    "ChildCounts",
    "ChildInfo",
    "ChildStarted",
    "ChildState",
    "Collector",
    "Crash",
    "DeadLetter",
    "DeadLetters",
    "Deferred",
    "Delivery",
    "Displaced",
    "Drop",
    "Dropped",
    "Duplicate",
    "Encrypted",
    "Engine",
    "Event",
    "Executor",
    "ExitCode",
    "ExitReason",
    "Expired",
    "Failed",
    "FailedToStart",
    "FlowTask",
    "Full",
    "GaveUp",
    "Ignored",
    "Interrupt",
    "Interrupted",
    "Isolate",
    "JobFailed",
    "JobInbox",
    "JobSkipped",
    "Killed",
    "Lane",
    "LaunchFailed",
    "Limit",
    "LoopBlocked",
    "Malformed",
    "NoAnswer",
    "Normal",
    "NotHandling",
    "NotParked",
    "NotSendable",
    "Observation",
    "OutcomeUnknown",
    "PairState",
    "Plan",
    "PlanFailed",
    "PlanResult",
    "Pool",
    "ProcessCancelled",
    "ProcessCrashed",
    "ProcessTimeout",
    "Processes",
    "PushTimeout",
    "Refused",
    "Rejected",
    "RemoteWorkflow",
    "Replaced",
    "RequestRefusal",
    "RequestRefused",
    "Restart",
    "Retry",
    "Server",
    "Shutdown",
    "Split",
    "StartFailed",
    "StepFailed",
    "Stop",
    "StopTimeout",
    "StoreFull",
    "StoreRefused",
    "Supervisor",
    "SupervisorRef",
    "Tracer",
    "Tree",
    "Turns",
    "UnknownWorker",
    "Wait",
    "Worker",
    "WorkerCrashed",
    "WorkerOptions",
    "WorkerRef",
    "WorkerStatistics",
    "WorkerStopped",
    "Workers",
    "Workflow",
    "WorkflowFailed",
    "WorkflowHandle",
    "WouldDeadlock",
    "WrongKey",
    "batched",
    "current_batch",
    "current_inbox",
    "current_task",
    "job",
    "observe",
    "record",
    "run",
    "spawn",
    "stash",
    "task",
    "trace",
    "unstash_all",
    "web_app",
    "whereis",
    "workflow",
]


_HOMES = {
    "Actor": "actorflow.runtime.actor.actor",
    "ActorflowError": "actorflow.runtime.errors",
    "AlreadyStarted": "actorflow.runtime.errors",
    "AlreadyUsed": "actorflow.runtime.errors",
    "AnswerTimeout": "actorflow.runtime.errors",
    "Again": "actorflow.runtime.worker.job.answers",
    "Answers": "actorflow.runtime.worker.job.answers",
    "Backoff": "actorflow.runtime.restarts",
    "BadBehaviour": "actorflow.runtime.errors",
    "BadChild": "actorflow.runtime.supervision.spec",
    "BadFlags": "actorflow.runtime.restarts",
    "BadId": "actorflow.engine.errors",
    "BadJob": "actorflow.runtime.errors",
    "BadOption": "actorflow.runtime.errors",
    "BadPlan": "actorflow.plans.errors",
    "BadResult": "actorflow.engine.errors",
    "Breaker": "actorflow.runtime.worker.job.failure",
    "Cancelled": "actorflow.engine.errors",
    "Child": "actorflow.runtime.supervision.spec",
    "ChildInfo": "actorflow.runtime.supervision.children",
    "ChildState": "actorflow.runtime.supervision.children",
    "Collector": "actorflow.runtime.telemetry.prometheus",
    "ChildCounts": "actorflow.runtime.supervision.children",
    "Crash": "actorflow.runtime.exits",
    "DeadLetter": "actorflow.runtime.worker.job.dead_letters",
    "DeadLetters": "actorflow.runtime.worker.job.dead_letters",
    "Deferred": "actorflow.runtime.worker.job.deferred",
    "Delivery": "actorflow.engine.commit.unknown_outcomes",
    "Displaced": "actorflow.runtime.errors",
    "Drop": "actorflow.runtime.worker.job.failure",
    "Dropped": "actorflow.runtime.errors",
    "Duplicate": "actorflow.runtime.errors",
    "Encrypted": "actorflow.engine.encryption",
    "Engine": "actorflow.application",
    "Event": "actorflow.workflows.wait",
    "Executor": "actorflow.runtime.worker.job.executor",
    "ExitCode": "actorflow.runtime.supervision.run",
    "ExitReason": "actorflow.runtime.exits",
    "Expired": "actorflow.runtime.errors",
    "Failed": "actorflow.workflows.errors",
    "FailedToStart": "actorflow.runtime.exits",
    "FlowTask": "actorflow.flows.service.taskers",
    "Full": "actorflow.runtime.errors",
    "GaveUp": "actorflow.runtime.exits",
    "HOLD": "actorflow.engine.tasks.task",
    "IGNORE": "actorflow.runtime.supervision.supervisor",
    "Ignored": "actorflow.runtime.supervision.actions",
    "Interrupt": "actorflow.workflows.inbox",
    "Interrupted": "actorflow.workflows.errors",
    "Isolate": "actorflow.runtime.worker.job.failure",
    "JobFailed": "actorflow.plans.errors",
    "JobInbox": "actorflow.runtime.worker.pair.inbox",
    "JobSkipped": "actorflow.plans.errors",
    "Killed": "actorflow.runtime.exits",
    "Lane": "actorflow.engine.kinds.lane",
    "LaunchFailed": "actorflow.runtime.errors",
    "Limit": "actorflow.runtime.worker.job.limit",
    "LoopBlocked": "actorflow.runtime.errors",
    "Malformed": "actorflow.runtime.errors",
    "NoAnswer": "actorflow.engine.errors",
    "Normal": "actorflow.runtime.exits",
    "NotHandling": "actorflow.runtime.errors",
    "NotParked": "actorflow.runtime.errors",
    "NotSendable": "actorflow.runtime.errors",
    "Observation": "actorflow.runtime.telemetry.observe",
    "OutcomeUnknown": "actorflow.engine.errors",
    "PairState": "actorflow.runtime.worker.pair.states",
    "Plan": "actorflow.plans.plan",
    "PlanFailed": "actorflow.plans.errors",
    "PlanResult": "actorflow.plans.run.result",
    "Pool": "actorflow.runtime.server",
    "ProcessCancelled": "actorflow.runtime.errors",
    "ProcessCrashed": "actorflow.runtime.errors",
    "ProcessTimeout": "actorflow.runtime.errors",
    "Processes": "actorflow.runtime.worker.process.options",
    "PushTimeout": "actorflow.runtime.errors",
    "Refused": "actorflow.workflows.errors",
    "Rejected": "actorflow.runtime.errors",
    "RemoteWorkflow": "actorflow.workflows.remote",
    "Replaced": "actorflow.runtime.errors",
    "RequestRefusal": "actorflow.runtime.supervision.actions",
    "RequestRefused": "actorflow.runtime.errors",
    "Restart": "actorflow.runtime.server",
    "Retry": "actorflow.runtime.worker.job.failure",
    "Server": "actorflow.runtime.server",
    "Shutdown": "actorflow.runtime.exits",
    "Split": "actorflow.runtime.worker.job.split",
    "StartFailed": "actorflow.runtime.errors",
    "ChildStarted": "actorflow.runtime.supervision.actions",
    "StepFailed": "actorflow.workflows.errors",
    "Stop": "actorflow.runtime.actor.actor",
    "StopTimeout": "actorflow.runtime.errors",
    "StoreFull": "actorflow.engine.errors",
    "StoreRefused": "actorflow.engine.errors",
    "Supervisor": "actorflow.runtime.supervision.supervisor",
    "SupervisorRef": "actorflow.runtime.supervision.supervisor",
    "Tree": "actorflow.runtime.supervision.tree",
    "Turns": "actorflow.workflows.inbox",
    "UnknownWorker": "actorflow.runtime.errors",
    "Wait": "actorflow.workflows.wait",
    "Worker": "actorflow.runtime.worker.spec",
    "WorkerCrashed": "actorflow.runtime.errors",
    "WorkerOptions": "actorflow.runtime.worker.options",
    "WorkerRef": "actorflow.runtime.worker.ref",
    "WorkerStatistics": "actorflow.runtime.worker.statistics",
    "WorkerStopped": "actorflow.runtime.errors",
    "Workers": "actorflow.runtime.worker.embedded",
    "Workflow": "actorflow.workflows.workflow",
    "WorkflowFailed": "actorflow.workflows.errors",
    "WorkflowHandle": "actorflow.workflows.service.handle",
    "WouldDeadlock": "actorflow.runtime.errors",
    "WrongKey": "actorflow.engine.encryption",
    "batched": "actorflow.runtime.worker.batched",
    "current_batch": "actorflow.runtime.worker.pair.runner",
    "current_inbox": "actorflow.runtime.worker.pair.inbox",
    "current_task": "actorflow.workflows.task",
    "job": "actorflow.plans.sources",
    "observe": "actorflow.runtime.telemetry.observe",
    "trace": "actorflow.runtime.tracing",
    "Tracer": "actorflow.runtime.tracing",
    "record": "actorflow.lab.recording",
    "run": "actorflow.runtime.supervision.run",
    "spawn": "actorflow.runtime.worker.spec",
    "stash": "actorflow.runtime.actor.actor",
    "task": "actorflow.workflows.task",
    "unstash_all": "actorflow.runtime.actor.actor",
    "web_app": "actorflow.api.web_app",
    "whereis": "actorflow.runtime.registry",
    "workflow": "actorflow.workflows.workflow",
}
"""Where each public name is defined."""


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # the next use does not come here
    return value
