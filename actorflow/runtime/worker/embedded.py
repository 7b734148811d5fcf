"""Workers without actors: the same accumulation, driven by its owner.

`Workers` is a plain value. Its owner pushes messages into it, runs the calls that it says are
pending (here, in a thread, in a process, in simulated time) and hands their results back. Nothing
happens by itself, so everything is deterministic.

>>> def job(batch, total):
...     return total + sum(batch)
>>> workers = Workers([Worker("sum", job, state=0)])
>>> for number in (1, 2, 3):
...     workers = workers.push("sum", number)
>>> while calls := workers.pending():
...     for call in calls:
...         print(call.batch)
...         workers = workers.handle_message(call.run())
[1]
[2, 3]
>>> workers.state("sum")
6
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.adapt import refuse_preempting
from actorflow.behaviours.behaviour import MessageOutcome
from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import (
    ActorflowError,
    BadJob,
    BadOption,
    UnknownWorker,
    WorkerCrashed,
)
from actorflow.runtime.exits import Stop
from actorflow.runtime.worker.job.answers import Answers
from actorflow.runtime.worker.job.jobs import JobKind, kind_of
from actorflow.runtime.worker.options import accumulation_of
from actorflow.runtime.worker.pair.accumulation import Accumulation
from actorflow.runtime.worker.spec import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from actorflow.behaviours.behaviour import Tally
    from actorflow.runtime.worker.job.batch import Batch, Ticket

__all__ = ["Call", "Done", "Workers"]


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a call: hand it to `Workers.handle_message`."""

    worker_id: Hashable
    number: int
    state: Any = None
    error: BaseException | None = None


class Call:
    """One batch that a worker is to process now.

    `run` calls the job in this thread. An owner that runs it elsewhere uses `batch` and `state`,
    and makes the answer with `done` or `failed`.
    """

    __slots__ = ("_job", "_tickets", "batch", "number", "size", "state", "worker_id")

    def __init__(
        self, worker_id: Hashable, number: int, batch: Batch, state: Any, job: Callable[..., Any]
    ) -> None:
        self.worker_id = worker_id
        self.number = number
        self.batch = batch.payload
        self.size = batch.size
        self.state = state
        self._tickets = batch
        self._job = job

    def __repr__(self) -> str:
        return f"Call({self.worker_id!r}, {self.batch!r:.100})"

    def run(self) -> Done:
        """Call the job. What it raises is in the answer."""
        try:
            state = self._job(self.batch, self.state)
        except Exception as error:  # noqa: BLE001 - handle_message raises it
            return self.failed(error)
        # Nothing runs by itself here, so a job that wants to stop can only tell its owner.
        return self.failed(state) if isinstance(state, Stop) else self.done(state)

    def done(self, state: Any) -> Done:
        """Report that the job returned this state."""
        return Done(self.worker_id, self.number, state)

    def failed(self, error: BaseException) -> Done:
        """Report that the job raised this error."""
        return Done(self.worker_id, self.number, None, error)


class _Embedded:
    """One of the workers: idle, or busy with the call `current`."""

    __slots__ = (
        "core",
        "current",
        "given_at",
        "id",
        "job",
        "number",
        "offered",
        "state",
    )

    def __init__(self, spec: Worker) -> None:
        if kind_of(spec.job) != JobKind(asynchronous=False):
            msg = f"embedded workers run plain functions job(batch, state), not {spec.job!r}"
            raise BadJob(msg)
        behaviour = accumulation_of(spec.options)
        refuse_preempting(behaviour, "an embedded worker", BadOption)
        self.core = Accumulation(behaviour)
        self.id = spec.id
        self.job = spec.job
        self.state = spec.options.get("state")
        self.current: Call | None = None
        self.offered = False  # the owner has been given the current call
        self.given_at = 0.0
        self.number = 0


class Workers:
    """A set of workers as a value. One thread at a time may use it.

    Args:
        workers: their specifications.
        clock: gives the time, for behaviours with time in them.

    """

    def __init__(
        self, workers: Iterable[Worker], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._workers: dict[Hashable, _Embedded] = {}
        self.rejections: list[tuple[Hashable, Sequence[Any], Exception]] = []
        """Messages that a behaviour refused, with the id of the worker and the reason."""
        given: Any = workers
        for spec in given if isinstance(given, Iterable) else (given,):
            if not isinstance(spec, Worker):
                msg = f"Workers takes a list of Worker(id, job, ...), not {brief(spec)}"
                raise BadOption(msg)
            if spec.id in self._workers:
                msg = f"two workers have the id {spec.id!r}; give each its own"
                raise BadOption(msg)
            self._workers[spec.id] = _Embedded(spec)

    def _find(self, worker_id: Hashable) -> _Embedded:
        try:
            return self._workers[worker_id]
        except KeyError:
            raise UnknownWorker(worker_id, self._workers) from None

    def push(self, worker_id: Hashable, message: Any, ticket: Ticket | None = None) -> Workers:
        """Accumulate a message; an idle worker's call becomes pending at once, with it alone.

        `ticket.resolve(error)` is called when the message was processed, or with the reason why
        it never will be.

        Raises:
            UnknownWorker: no worker has that id.
            Rejected: the behaviour refuses the message, and a ticket was given. Without one the
                refusal is noted in `rejections`.

        """
        worker = self._find(worker_id)
        now = self._clock() if worker.core.shape.timed else 0.0
        try:
            worker.core.offer(message, ticket, now)
        except Exception as error:
            if ticket is not None:
                raise
            cause = error.__cause__
            if cause is not None and not isinstance(cause, Exception):
                raise cause from None  # Ctrl-C in a key function is for the program
            self.rejections.append((worker_id, (message,), error))
        if worker.current is None:
            self._next(worker_id, worker, now)
        return self

    def _next(self, worker_id: Hashable, worker: _Embedded, now: float) -> None:
        batch = worker.core.take(now)
        if batch is not None:
            worker.number += 1
            worker.core.in_flight = batch.size
            worker.current = Call(worker_id, worker.number, batch, worker.state, worker.job)
            worker.offered = False

    def pending(self) -> list[Call]:
        """Return the calls that are to be run now, each of them once."""
        calls = []
        for worker_id, worker in self._workers.items():
            if worker.current is None and len(worker.core):
                self._next(worker_id, worker, self._clock())
            if worker.current is not None and not worker.offered:
                worker.offered = True
                worker.given_at = self._clock()
                calls.append(worker.current)
        return calls

    def handle_message(self, message: Done) -> Workers:
        """Take the result of a call; messages accumulated meanwhile become pending.

        Raises:
            WorkerCrashed: the job raised; its exception is the cause. The worker goes on with
                its last state and the accumulated messages.
            ActorflowError: this is not the result of a call that is out.

        """
        worker = self._find(message.worker_id)
        call = worker.current
        if call is None or call.number != message.number or not worker.offered:
            msg = f"{message!r} answers no call that is out; give each result back once"
            raise ActorflowError(msg)
        worker.current = None
        core, batch = worker.core, call._tickets  # noqa: SLF001 - of this module
        state, error, answers = message.state, message.error, None
        if error is None and isinstance(state, Answers):
            problem = state.problem(batch.items(), 1)
            if problem is None:
                state, answers = state.state, state.answers
            else:
                error = BadJob(problem)
        if error is None:
            worker.state = state
            core.processed += call.size
        else:
            core.failed += call.size
        core.in_flight = 0
        if worker.core.shape.observed:
            outcome = MessageOutcome.PROCESSED if error is None else MessageOutcome.FAILED
            worker.core.report(batch, self._clock() - worker.given_at, outcome)
        if answers is None:
            batch.resolve(error)
        else:
            batch.answer(answers)
        self._next(message.worker_id, worker, self._clock() if worker.core.shape.timed else 0.0)
        if error is not None:
            text = f"the job of {message.worker_id!r} raised {brief(error)}"
            raise WorkerCrashed(text) from error
        return self

    def due(self) -> float | None:
        """Return when a call becomes pending by time alone; `None` if that will not happen."""
        times = [
            worker.core.due
            for worker in self._workers.values()
            if worker.current is None and worker.core.due is not None
        ]
        return min(times, default=None)

    def state(self, worker_id: Hashable) -> Any:
        """Return the state of a worker after its last call."""
        return self._find(worker_id).state

    def busy(self, worker_id: Hashable) -> bool:
        """Return whether a call of the worker is pending or out."""
        return self._find(worker_id).current is not None

    def depth(self, worker_id: Hashable) -> int:
        """Return how many messages are accumulated for a worker."""
        return len(self._find(worker_id).core)

    def tally(self, worker_id: Hashable) -> Tally:
        """Return what the worker's behaviour replaced, dropped, rejected or let expire."""
        return self._find(worker_id).core.behaviour.tally()
