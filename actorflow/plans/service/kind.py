"""The durable plan: a kind of execution. Pure: results of jobs go in, tasks come out.

Its state is a journal. The first entry is the plan; each run adds the jobs that have ended since.
Reading it again replays it through a new scheduler, which makes the same decisions. So a commit
writes only the new entries, however large the plan is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from actorflow.engine import bodies
from actorflow.engine.errors import TaskTimeout, TaskWithdrawn
from actorflow.engine.kind import (
    Addition,
    Failure,
    Message,
    NewTask,
    Options,
    Outcome,
    Status,
    TaskEnded,
)
from actorflow.plans.errors import BadPlan
from actorflow.plans.run.dispatcher import ArgumentsNotSent, Dispatcher
from actorflow.plans.run.job_records import records_of
from actorflow.plans.scheduler import Ending, OnFailure, State
from actorflow.plans.service.stored_plan import unpack_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from actorflow.engine.kind import Context, Envelope
    from actorflow.plans.job_record import JobRecord

__all__ = ["KIND", "TASKER", "DurablePlan", "PlanKind", "start_body", "tasker_for"]

KIND = "plan"
TASKER = "plan:jobs"
"""The tasker that runs the jobs of all plans."""
_LARGEST = bodies.MAX_BYTES - 1024 * 1024
"""Bytes of a call with its inputs that are stored as a task."""
_SHOWN = 1_000  # jobs
_JOB = (
    "name", "status", "upstream", "attempts", "crashes", "worker", "started", "ended", "reason",
    "error", "traceback", "output",
)  # fmt: skip
_WHOLE = 1 << 62  # bytes: stored tasks take no memory here


class _AttemptEnd(msgspec.Struct, array_like=True):
    """An attempt of a job that has ended, as the journal has it."""

    job: int
    ending: str
    at: float
    wire: Any = None
    error: str = ""
    traceback: str = ""
    started: float | None = None
    pid: int | None = None
    output: str = ""
    warnings: tuple[str, ...] = ()


class _JournalEntry(msgspec.Struct, array_like=True):
    """One entry of the journal: what one run has learned."""

    ends: list[_AttemptEnd]
    refused: list[tuple[int, str]] = []
    """Which of the jobs handed out in this run, by turn, could not be sent, and why."""
    plan: bytes = b""
    options: dict[str, Any] = {}
    began: float = 0.0


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_JournalEntry)


class DurablePlan:
    """The state of a durable plan: a dispatcher, and the measured details of its jobs."""

    def __init__(self) -> None:
        self.dispatcher: Dispatcher | None = None
        """`None` before the plan is known."""
        self.began = 0.0
        """When it was started, in seconds since the epoch."""
        self.workers = 1
        """How many of its jobs run at the same time, at most."""
        self.directory = ""
        """Where its large results go; empty if they are in the store."""
        self.offered = False
        """Whether only workers that offer the resources of a job get it."""
        self.errors: dict[int, tuple[str, str]] = {}
        """By job whose last attempt went wrong: the error and the traceback."""
        self.last: dict[int, dict[str, Any]] = {}
        """By job: when and where its last attempt ran, as its record has it."""
        self.fresh = b""
        """What the last run has added to the journal."""
        self.read: bytes | None = None
        """The whole journal, if it was just read and nothing was added since."""
        self.begun = False
        """Whether a part of the journal is stored."""

    def apply(
        self, entry: _JournalEntry, send: Callable[[Dispatcher, int], str] | None = None
    ) -> None:
        """Record jobs that have ended, and hand out jobs that are ready.

        `send` returns why a job cannot be sent to a worker, or nothing, which is noted in the
        entry. Without it, the entry is played again.
        """
        if entry.plan:
            options = entry.options
            self.began = entry.began
            self.workers = options["workers"]
            self.directory = options["directory"]
            self.offered = options["offered"]
            self.dispatcher = Dispatcher(
                unpack_plan(entry.plan),
                options["directory"],
                on_failure=OnFailure(options["on_failure"]),
                workers=options["workers"],
                budget=_WHOLE,
                retries=options["retries"],
                crashes_max=options["crashes_max"],
                limits=options["resources"],
            )
        if self.dispatcher is None:
            msg = "the journal of a plan begins with the plan, and this one does not"
            raise BadPlan(msg)
        for end in entry.ends:
            self._note(end)
            seconds = None if end.started is None else end.at - end.started
            self.dispatcher.ended(end.job, Ending(end.ending), end.wire, seconds)
        refused = dict(entry.refused)
        turn = 0
        while (job := self.dispatcher.next()) is not None:
            if send is not None and (why := send(self.dispatcher, job)):
                refused[turn] = why
                entry.refused.append((turn, why))
            if turn in refused:
                self._note(_AttemptEnd(job, Ending.FAILED.value, self.began, error=refused[turn]))
                self.dispatcher.ended(job, Ending.FAILED)
            turn += 1

    def _note(self, end: _AttemptEnd) -> None:
        if end.ending == Ending.CANCELLED.value:
            return  # it was never begun
        self.last[end.job] = {
            "started": None if end.started is None else end.started - self.began,
            "ended": end.at - self.began,
            "worker": None if end.pid is None else str(end.pid),
            "output": end.output,
            "warnings": end.warnings,
        }
        if end.error:
            self.errors[end.job] = end.error, end.traceback

    @property
    def stopped(self) -> bool:
        """Whether a failure has stopped the plan: nothing more is to be begun."""
        return self.dispatcher is not None and self.dispatcher.scheduler.stopped

    def records(self) -> Sequence[JobRecord]:
        """Return the record of each job."""
        return [] if self.dispatcher is None else records_of(self.dispatcher, self._details)

    def plain(self) -> dict[str, Any]:
        """Return what people look for in it, as plain data: the first thousand jobs."""
        records = self.records()
        return {
            "began": self.began,
            "workers": self.workers,
            "jobs": [{name: getattr(each, name) for name in _JOB} for each in records[:_SHOWN]],
            "more": max(0, len(records) - _SHOWN),
        }

    def _details(self, job: int) -> Mapping[str, Any]:
        error, traceback = self.errors.get(job, ("", ""))
        return {**self.last.get(job, {}), "error": error, "traceback": traceback}


class PlanKind:
    """Durable plans."""

    name = KIND

    def quick(self, _execution: str) -> bool:
        """Return True: no code of a user runs in its inbox."""
        return True

    def options(self, _execution: str) -> Options:
        """Return the defaults: jobs that end during a run form the next batch."""
        return Options()

    def decode(self, data: bytes | None) -> DurablePlan:
        """Play the journal."""
        state = DurablePlan()
        if data:
            offset = 0
            while offset < len(data):
                size = int.from_bytes(data[offset : offset + _HEAD], "big")
                offset += _HEAD
                state.apply(_decoder.decode(data[offset : offset + size]))
                offset += size
            state.read, state.begun = data, True
        return state

    def encode(self, state: DurablePlan) -> bytes | Addition:
        """Return what the last run has added."""
        if state.read is not None:
            return state.read
        return Addition(state.fresh) if state.begun else state.fresh

    def run(self, context: Context, state: DurablePlan, batch: Sequence[Envelope]) -> Outcome:
        """Record jobs that have ended, and hand out jobs that are ready."""
        state.begun = state.begun or bool(state.fresh)
        state.read = None
        entry = _JournalEntry([])
        for envelope in batch:
            if isinstance(envelope, Message):
                _begin(entry, state, envelope)
            elif isinstance(envelope, TaskEnded):
                entry.ends.append(_end(envelope))
        outcome = Outcome(state=state)
        was_stopped = state.stopped
        state.apply(entry, lambda _, job: _send(outcome, context, state, job))
        if state.stopped and not was_stopped:
            _withdraw(outcome, context, state)
        data = _encode(entry)
        state.fresh = len(data).to_bytes(_HEAD, "big") + data
        _conclude(outcome, state)
        return outcome


def tasker_for(resources: Iterable[str]) -> str:
    """Return the tasker that runs jobs which use these resources, where workers offer some.

    >>> tasker_for(()), tasker_for(("ssd", "gpu"))
    ('plan:jobs', 'plan:jobs:gpu+ssd')
    """
    names = "+".join(quote(name, safe="") for name in sorted(resources))
    return f"{TASKER}:{names}" if names else TASKER


def _send(outcome: Outcome, context: Context, state: DurablePlan, job: int) -> str:
    """Make a task of a job; return why that cannot be done, else nothing."""
    dispatcher = state.dispatcher
    assert dispatcher is not None  # noqa: S101 - it has handed out the job
    try:
        packed = dispatcher.call(job)
    except ArgumentsNotSent as refused:
        return str(refused)
    if packed.size > _LARGEST:
        return (
            f"the arguments of job {dispatcher.name(job)!r} take {packed.size:,} bytes, and one "
            f"task {_LARGEST:,}: let jobs return large results through directory="
        )
    options = dispatcher.options(job)
    attempt = dispatcher.scheduler.attempts(job) + 1
    body = {
        "job": dispatcher.name(job),
        "call": packed.data,
        "buffers": [bytes(each.raw()) for each in packed.buffers],
        "memory": options.memory[:attempt][-1] if options.memory else 0,
    }
    outcome.tasks.append(
        NewTask(
            _task_id(context, dispatcher, job),
            tasker_for(options.uses) if state.offered else TASKER,
            body,
            timeout=options.timeout,
            retries=0,
            priority=options.priority,
        )
    )
    return ""


def _task_id(context: Context, dispatcher: Dispatcher, job: int) -> str:
    """Return the id of the attempt of a job that is out."""
    return f"{context.id}:{job}:{dispatcher.scheduler.attempts(job) + 1}"


def _withdraw(outcome: Outcome, context: Context, state: DurablePlan) -> None:
    """Withdraw jobs that have not begun; running jobs may end."""
    dispatcher = state.dispatcher
    if dispatcher is not None:
        jobs = dispatcher.scheduler.handed_out()
        outcome.withdrawn_tasks = [_task_id(context, dispatcher, job) for job in jobs]


def _conclude(outcome: Outcome, state: DurablePlan) -> None:
    """End the execution if the plan is done."""
    dispatcher = state.dispatcher
    if dispatcher is None or not dispatcher.scheduler.done:
        return
    states = dispatcher.scheduler.states
    counts = {
        "done": states.count(State.DONE),
        "failed": states.count(State.FAILED),
        "skipped": states.count(State.SKIPPED),
    }
    if dispatcher.scheduler.stopped:
        job = next(job for job in state.errors if dispatcher.scheduler.state(job) is State.FAILED)
        error, traceback = state.errors[job]
        outcome.status = Status.STUCK
        outcome.error = Failure(
            "PlanFailed", f"job {dispatcher.name(job)!r} failed: {error}", traceback
        )
    else:
        outcome.status = Status.DONE
        outcome.result = counts
    outcome.history.append(counts)


_HEAD = 4  # bytes of the length before each entry


def _begin(entry: _JournalEntry, state: DurablePlan, message: Message) -> None:
    body: Any = message.body
    if not isinstance(body, dict) or "plan" not in body or "options" not in body:
        msg = f"{body!r:.100} refused: a durable plan takes no messages but the plan it starts with"
        raise BadPlan(msg)
    if state.dispatcher is None and not entry.plan:
        entry.plan, entry.options, entry.began = body["plan"], body["options"], message.at


def _end(envelope: TaskEnded) -> _AttemptEnd:
    job = int(envelope.task.rsplit(":", 2)[1])
    if envelope.ok:
        found: dict[str, Any] = envelope.value
        error = found.get("error", "")
        return _AttemptEnd(
            job,
            (Ending.FAILED if error else Ending.OK).value,
            found["ended"],
            found.get("wire"),
            error,
            found.get("traceback", ""),
            found["started"],
            found["pid"],
            found.get("output", ""),
            tuple(found.get("warnings", ())),
        )
    failure = envelope.error
    if failure is not None and failure.type == TaskWithdrawn.__name__:
        return _AttemptEnd(job, Ending.CANCELLED.value, envelope.at)
    text = "it failed" if failure is None else str(failure)
    # A job whose time is up has failed, as in a run without an engine.
    late = failure is not None and failure.type == TaskTimeout.__name__
    crashed = envelope.outcome == "crashed" and not late
    return _AttemptEnd(
        job, (Ending.CRASHED if crashed else Ending.FAILED).value, envelope.at, error=text
    )


def start_body(plan: bytes, options: dict[str, Any]) -> Any:
    """Return the first message of a durable plan."""
    body = {"plan": plan, "options": options}
    bodies.encode(body)
    return body
