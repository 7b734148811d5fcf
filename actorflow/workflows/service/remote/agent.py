"""The agent of an engine: its jobs, the leases of the ones handed out, and waiting workers.

A job is a task of the engine that its tasker only holds. The lease begins when a worker gets it;
when the lease runs out, the attempt has failed, and the board hands the task out again.
"""

from __future__ import annotations

import asyncio
import threading
import uuid as uuids
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.engine.envelopes import Failure
from actorflow.engine.errors import NotStorable, TaskFailed
from actorflow.engine.tasks.table import CRASHES
from actorflow.engine.tasks.task import HOLD
from actorflow.engine.typed import freeze
from actorflow.runtime.restarts import Backoff
from actorflow.runtime.tickets import ThreadTicket
from actorflow.workflows.agent.cursor import DecisionCursor
from actorflow.workflows.agent.jobs import AgentJob, AgentQueue, Jobs
from actorflow.workflows.errors import InvalidStep, JobGone
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import UNSET, StepType
from actorflow.workflows.service.names import decision_tasker
from actorflow.workflows.service.remote.offers import Place, job_of, stored_job
from actorflow.workflows.service.remote.pollers import Pollers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from actorflow.engine.engine import BareEngine
    from actorflow.engine.stores.protocol import TaskRow
    from actorflow.engine.tasks.task import TaskAttempt
    from actorflow.workflows.service.kind import WorkflowKind

__all__ = ["Agent"]

_ALWAYS = 1_000_000_000  # a decision is handed out again, however often its worker dies
_AT_ONCE = Backoff(initial=0.0, maximum=0.0)
_STORED = 5.0  # seconds that an answer may take to be stored


class Agent:
    """Hands out the decisions and tasks of other languages. Thread-safe.

    Args:
        engine: whose tasks they are.

    """

    def __init__(self, engine: BareEngine) -> None:
        self._engine = engine
        self._parts = engine.parts
        self._lock = threading.Lock()
        self._jobs = Jobs()
        self._decisions: dict[str, _Decision] = {}
        self._pollers = Pollers(self._has_job)
        self._tasks: dict[str, Place] = {}

    # What it hands out.

    def add_workflow(self, kind: WorkflowKind, queue: AgentQueue, lease: float) -> None:
        """Hand out the decisions of a workflow, each with so many seconds for the next request."""
        offer = partial(self._offer_decision, kind, Place(queue, lease))
        options = {"retries": _ALWAYS, "backoff": _AT_ONCE}
        self._register(decision_tasker(kind.workflow), offer, options)

    def add_task(self, name: str, queue: AgentQueue, lease: float, options: dict[str, Any]) -> None:
        """Hand out a task, with so many seconds for the next request."""
        place = Place(queue, lease)
        self._register(name, partial(self._offer_task, place), options)
        self._tasks[name] = place

    def _register(
        self, name: str, offer: Callable[[TaskAttempt], Any], options: dict[str, Any]
    ) -> None:
        given = {"passes_on": True, "on_cancel": self._on_cancel, **options}
        self._parts.tasks.register(name, offer, given)

    def _offer_decision(self, kind: WorkflowKind, place: Place, task: TaskAttempt) -> Any:
        # Under another uuid each time, so that a worker that lost its lease can change nothing.
        uuid = str(uuids.uuid4())
        answer = {"action": "DecisionScheduled", "uuid": uuid, "name": kind.workflow}
        attempts = task.attempt - 1
        job = AgentJob(uuid, *place, task.id, task.execution, attempts, answer, is_decision=True)
        with self._lock:
            self._decisions[uuid] = _Decision(kind, job, task.body["decision"])
        self._offer(job)
        return HOLD

    def _offer_task(self, place: Place, task: TaskAttempt) -> Any:
        self._offer(job_of(place, task))
        return HOLD

    def _offer(self, job: AgentJob) -> None:
        with self._lock:
            found = self._jobs.find(job.uuid) if self._jobs.is_out(job.uuid) else None
            if found is not None and found.attempts == job.attempts:
                return  # its worker has it since before the engine was restarted
            self._jobs.add(job if found is None else replace(job, was_out=True))
        self._pollers.wake(job.queue)

    def _has_job(self, queue: AgentQueue) -> bool:
        with self._lock:
            return self._jobs.waits(queue)

    def _on_cancel(self, task: TaskAttempt) -> None:
        """Forget a job that is not wanted any more. In a lane."""
        with self._lock:
            self._forget(self._jobs.remove(task.id))

    def _forget(self, job: AgentJob | None) -> None:
        if job is not None:
            self._decisions.pop(job.uuid, None)

    # Handing out.

    async def job(
        self,
        queue: AgentQueue,
        wait: float = 0.0,
        is_gone: Callable[[], Awaitable[bool]] | None = None,
    ) -> dict[str, Any] | None:
        """Return the next job of a queue, once there is one; `None` after `wait` seconds.

        `is_gone()` says whether the worker that asks has left meanwhile. On any event loop.
        """
        self._parts.state.require_open()
        if not self._parts.state.resumed:
            await asyncio.to_thread(self._engine.resume)
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        while True:
            found = self._take(queue)
            left = end - loop.time()
            if found is not None or left <= 0 or self._pollers.closed:
                return found
            await self._pollers.wait(queue, left)
            if is_gone is not None and await is_gone():
                self._pollers.wake(queue)  # somebody else
                return None

    def _take(self, queue: AgentQueue) -> dict[str, Any] | None:
        board = self._parts.tasks
        while True:
            with self._lock:
                job = self._jobs.take(queue)
            if job is None:
                return None
            row = board.row(job.task)
            if row is not None and row.attempts == job.attempts:
                expired = partial(self._expire, job, row)
                if board.lease(row, job.lease, expired):
                    board.tell_start(row)
                    return job.answer
            self._drop(job)

    def _expire(self, job: AgentJob, row: TaskRow, error: Exception) -> None:
        """Count a job as lost with its worker. In the clock's thread."""
        if job.is_decision:
            self._drop(job)
        # The job of a task stays: its answer is welcome until somebody else has given one.
        self._parts.tasks.attempt_failed(row, error, least=CRASHES)

    def _drop(self, job: AgentJob) -> None:
        with self._lock:
            self._decisions.pop(job.uuid, None)
            if self._jobs.find(job.uuid) is job:
                self._jobs.remove(job.task)

    # Decisions.

    def next_branch(self, uuid: str) -> dict[str, Any]:
        """Return the next branch of a decision; `{}` once the decision is stored.

        Raises:
            JobGone: it is not the worker's any more.
            OutOfTurn: the code was modified.

        """
        decision = self._decision(uuid)
        with decision.lock:
            cursor = self._cursor(decision)
            reply = cursor.next_branch()
            if not reply:
                self._answer(decision.job, self._storable(cursor))
        return reply

    def finish_branch(
        self, uuid: str, properties: dict[str, Any], output: Any = UNSET
    ) -> dict[str, Any]:
        """Take how a branch has left the properties, and what it has returned.

        Raises:
            JobGone: it is not the worker's any more.
            OutOfTurn: no branch is being executed.
            NotStorable: the properties or the output cannot be stored.

        """
        decision = self._decision(uuid)
        freeze(properties, Any, "the properties")
        freeze(None if output is UNSET else output, Any, "the output")
        with decision.lock:
            return self._cursor(decision).finish_branch(properties, output)

    def execute(self, uuid: str, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Schedule steps, or return their outcome.

        Raises:
            JobGone: it is not the worker's any more.
            OutOfTurn: no branch is being executed.
            InvalidStep: one of the steps makes no sense.
            NotStorable: an input cannot be stored.

        """
        decision = self._decision(uuid)
        freeze(steps, Any, "the steps")
        for each in steps:
            _check_flow(each)
        with decision.lock:
            return self._cursor(decision).execute(steps)

    def break_decision(self, uuid: str, error: Mapping[str, Any]) -> dict[str, Any]:
        """Discard a decision that the code cannot take; the instance waits for a fix.

        Raises:
            JobGone: it is not the worker's any more.
            NotStorable: the error cannot be stored.

        """
        decision = self._decision(uuid)
        freeze(error, Any, "the error")
        with decision.lock:
            self._answer(decision.job, self._cursor(decision).broken(error))
        return {}

    def _decision(self, uuid: str) -> _Decision:
        """Return a decision that is out, and renew its lease."""
        self._parts.state.require_open()
        with self._lock:
            job = self._jobs.find(uuid) if self._jobs.is_out(uuid) else None
            decision = self._decisions.get(uuid)
        row = None if job is None else self._parts.tasks.row(job.task)
        if job is None or decision is None or row is None or row.attempts != job.attempts:
            raise _gone("decision", uuid)
        if not self._parts.tasks.lease(row, job.lease):
            raise _gone("decision", uuid)
        return decision

    def _cursor(self, decision: _Decision) -> DecisionCursor:
        """Return where the decision stands; what it depends on is read the first time."""
        if decision.cursor is None:
            job = decision.job
            row = self._parts.row(job.execution)
            view = decision.kind.view(row, self._parts.store)
            if view is None or view.state.decision_uuid != decision.decision:
                self._answer(job, {"completed": []})  # of another past: nobody waits for it
                raise _gone("decision", job.uuid)
            decision.cursor = DecisionCursor(Instance(view.state))
        return decision.cursor

    @staticmethod
    def _storable(cursor: DecisionCursor) -> dict[str, Any]:
        answer = cursor.completed()
        try:
            freeze(answer, Any, "the decision")
        except NotStorable as error:
            answer = cursor.broken({"name": "NotStorable", "message": str(error)})
        return answer

    def _answer(self, job: AgentJob, answer: Any) -> None:
        """Store the answer to a job, which is over then."""
        wanted = self._engine.return_task(job.task, answer)
        self._drop(job)
        if not wanted:
            raise _gone("decision" if job.is_decision else "task", job.uuid)

    # Tasks.

    def complete_task(self, uuid: str, output: Any = None) -> dict[str, Any]:
        """Store the output of a task.

        Raises:
            JobGone: nobody waits for it any more.
            NotStorable: the output cannot be stored.

        """
        self._answer(self._task(uuid), output)
        return {}

    def fail_task(self, uuid: str, error: Mapping[str, Any]) -> dict[str, Any]:
        """Store that a task has failed: it is tried again if it has retries left.

        Raises:
            JobGone: it is not the worker's any more.
            NotStorable: the error cannot be stored.

        """
        job, row = self._claim(uuid)
        freeze(error, Any, "the error")
        failure = Failure(
            str(error.get("name") or "Error"),
            str(error.get("message") or ""),
            str(error.get("stacktrace") or ""),
            error.get("code"),
        )
        done = ThreadTicket()
        failed = TaskFailed(str(failure), failure)
        if not self._parts.tasks.attempt_failed(row, failed, done=done):
            raise _gone("task", uuid)
        if self._parts.tasks.row(job.task) is None:
            self._drop(job)
        self._parts.writer.wait_for(done, _STORED, job.task)
        return {}

    def renew_task(self, uuid: str) -> dict[str, Any]:
        """Renew the lease of a task that takes longer.

        Raises:
            JobGone: it is not the worker's any more. It may stop.

        """
        job, row = self._claim(uuid)
        if not self._parts.tasks.lease(row, job.lease):
            raise _gone("task", uuid)
        return {}

    def _task(self, uuid: str) -> AgentJob:
        """Return an open task, whichever engine has handed it out."""
        self._parts.state.require_open()
        if not self._parts.state.resumed:
            self._engine.resume()
        with self._lock:
            job = self._jobs.find(uuid)
        if job is None:
            job = stored_job(self._parts, self._tasks, uuid)
        if job is None or job.is_decision:
            raise _gone("task", uuid)
        return job

    def _claim(self, uuid: str) -> tuple[AgentJob, TaskRow]:
        """Return a task that a worker has.

        One that was not handed out here is its own again: it has it since before a restart.
        """
        board = self._parts.tasks
        job = self._task(uuid)
        row = board.row(job.task)
        if row is None or row.attempts != job.attempts:
            raise _gone("task", uuid)
        with self._lock:
            is_out = self._jobs.is_out(uuid)
            if not is_out and not job.was_out:
                self._jobs.claim(job)
        if not is_out:
            if job.was_out or not board.lease(row, job.lease, partial(self._expire, job, row)):
                raise _gone("task", uuid)
            board.tell_start(row)
        return job, row

    def close(self) -> None:
        """Send the workers away that wait for a job."""
        self._pollers.close()


class _Decision:
    """A decision that is handed out: one script at a time takes it."""

    __slots__ = ("cursor", "decision", "job", "kind", "lock")

    def __init__(self, kind: WorkflowKind, job: AgentJob, decision: str) -> None:
        self.kind = kind
        self.job = job
        self.decision = decision
        """What the instance calls it."""
        self.lock = threading.Lock()
        self.cursor: DecisionCursor | None = None


def _check_flow(step: Mapping[str, Any]) -> None:
    """Refuse a sub-workflow whose input cannot be its properties: nothing could mend it later."""
    given = step.get("input")
    if step.get("type") == StepType.FLOW and not isinstance(given, dict | None):
        raise InvalidStep(
            f"input={given!r:.80} of the flow {step.get('name')!r}: its input is its first "
            "properties, as in {'order': 7}"
        )


def _gone(what: str, uuid: str) -> JobGone:
    return JobGone(
        f"no {what} {uuid!r} is out: it was answered, its lease ran out, it is not wanted any "
        "more, or the engine was restarted; drop it and ask for the next job"
    )
