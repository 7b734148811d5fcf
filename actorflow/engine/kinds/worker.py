"""The durable worker: a worker whose messages and state survive anything.

Its state and the messages that led to it are committed together, so each message is in the state
exactly once. What the job does outside happens at least once.

All durable workers of an engine are executions of one kind, `worker`; which job one runs is told by
its name.
"""

from __future__ import annotations

import inspect
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.errors import StateUnreadable
from actorflow.engine.kind import Options, Outcome
from actorflow.engine.operations.dead_letters import Letters
from actorflow.runtime.errors import BadOption
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.job.failure import failure_policy
from actorflow.runtime.worker.job.jobs import kind_of
from actorflow.runtime.worker.tickets import AsyncTicket, ThreadTicket, check_timeout
from behaviours import Queue, Stack, Throttle
from behaviours.base import adapt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.engine.core import Core
    from actorflow.engine.kind import Context
    from actorflow.engine.stores.protocol import ExecutionRow, Store

__all__ = ["KIND", "DurableWorker", "Job", "WorkerKind", "name_of"]

KIND = "worker"
_TIMEOUT = 5.0


class Job:
    """What one durable worker does, as its user described it."""

    __slots__ = ("asynchronous", "behaviour", "do", "first", "on_failure", "throttle")

    def __init__(
        self,
        do: Callable[[Any, Any], Any],
        *,
        state: Any,
        behaviour: Any,
        throttle: float | None,
        on_failure: Any,
    ) -> None:
        kind_of(do)  # refuses what cannot be a job
        failure_policy(on_failure)
        self.do = do
        self.asynchronous = inspect.iscoroutinefunction(do)
        self.first = bodies.encode(state)
        self.behaviour = behaviour
        self.throttle = throttle
        self.on_failure = on_failure
        if not callable(behaviour):
            msg = (
                "a durable worker comes back to life, so it needs a behaviour each time: "
                f"behaviour=lambda: {behaviour!r}"
            )
            raise BadOption(msg)
        if adapt(self.options().behaviour).traits.blocks:
            msg = (
                "when_full='block' makes pushers wait, but what is pushed to a durable worker is "
                "stored before it is accumulated; use 'reject', 'drop_oldest' or 'drop_newest'"
            )
            raise BadOption(msg)

    def options(self) -> Options:
        """Return the options of the inbox."""
        behaviour = self.behaviour()
        if self.throttle is not None:
            behaviour = Throttle(behaviour, self.throttle)
        return Options(behaviour=behaviour, on_failure=self.on_failure, bodies=True)


_FIRST = object()
"""The state of a worker that has not run: its job knows it."""


class WorkerKind:
    """The kind of execution that durable workers are."""

    name = KIND
    unhurried = True

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def add(self, name: str, job: Job) -> None:
        """Make the job of a worker known.

        Raises:
            BadOption: there is one of that name.

        """
        if name in self._jobs:
            msg = f"there is a durable worker {name!r} already; give this one another name"
            raise BadOption(msg)
        self._jobs[name] = job

    def knows(self, execution: str) -> bool:
        """Return whether there is a job for an execution; until then its messages wait."""
        return execution in self._jobs

    def reserves(self, execution: str) -> bool:
        """Return whether there is a worker of that name, before it has been pushed to."""
        return execution in self._jobs

    def kind_of(self, execution: str) -> str | None:
        """Return what kind is created by a message to that name, if it is that of a worker."""
        return KIND if execution in self._jobs else None

    def quick(self, execution: str) -> bool:
        """Return whether the behaviour is one that runs no code of a user."""
        job = self._jobs.get(execution)
        return job is not None and job.behaviour in (Queue, Stack)

    def options(self, execution: str) -> Options:
        """Return the options that the user chose."""
        return self._jobs[execution].options()

    def decode(self, data: bytes | None) -> Any:
        """Return the state from stored bytes."""
        return _FIRST if data is None else bodies.decode(data)

    def encode(self, state: Any) -> bytes:
        """Return a state as bytes."""
        return bodies.encode(state)

    def run(self, context: Context, state: Any, batch: Any) -> Any:
        """Call the job."""
        job = self._jobs[context.id]
        if state is _FIRST:
            state = bodies.decode(job.first)
        if job.asynchronous:
            return self._run_async(job, state, batch)
        result = job.do(batch, state)
        if type(result) is Deferred:
            return self._run_later(result)
        return Outcome(state=result)

    def _run_later(self, result: Deferred) -> Deferred:
        made = Deferred()

        def go_on(error: BaseException | None, state: Any) -> None:
            made.resolve(error, None if error is not None else Outcome(state=state))

        result.then(go_on)
        return made

    async def _run_async(self, job: Job, state: Any, batch: Any) -> Outcome:
        return Outcome(state=await job.do(batch, state))

    def state_of(self, name: str, data: bytes | None) -> Any:
        """Return the state of a worker; the first one if it has not run.

        Raises:
            StateUnreadable: it is not what a worker stores.

        """
        if data is None:
            return bodies.decode(self._jobs[name].first) if name in self._jobs else None
        try:
            return bodies.decode(data)
        except ValueError as error:
            raise StateUnreadable(name, self.name, data, error) from error

    def view(self, row: ExecutionRow, _store: Store) -> Any:
        """Return the state."""
        return self.state_of(row.id, row.state)


class DurableWorker:
    """The handle of a durable worker. Thread-safe."""

    def __init__(self, core: Core, name: str, kind: WorkerKind) -> None:
        self._core = core
        self.name = name
        self._kind = kind

    def __repr__(self) -> str:
        return f"<durable worker {self.name!r}>"

    def push(self, message: Any) -> None:
        """Send a message without waiting; it is stored soon.

        Raises:
            NotStorable: it is not plain data.
            StoreFull: the store has just refused others, because it is full.

        """
        self._core.append(self.name, KIND, (message,))

    def push_many(self, messages: Iterable[Any]) -> None:
        """Send many messages; they are stored together."""
        messages = tuple(messages)
        if messages:
            self._core.append(self.name, KIND, messages)

    def push_ack(
        self, message: Any, timeout: float | None = _TIMEOUT, *, key: str | None = None
    ) -> None:
        """Send a message and return when it is on disk, and accumulated.

        With a `key`, only the first message with that key counts; another one changes nothing and
        returns, or raises, as the first did. Keys are kept for a week.

        Raises:
            StoreFull: there is no room; it is not stored.
            Rejected: the behaviour refuses it; it is a dead letter.
            ExecutionEnded: the worker was cancelled.
            PushTimeout: not in time; it may be stored all the same. A thread that has a second or
                more to wait may make the commit itself; then that is not cut short.

        """
        if timeout is not None:
            check_timeout(timeout)
        stored = self._core.writer.wakes.ticket()
        patience = inf if timeout is None else timeout
        self._core.append(self.name, KIND, (message,), stored=stored, key=key, patience=patience)
        self._core.wait_for(stored, timeout, message)

    def push_block(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Send a message and return when the state that it led to is on disk.

        Where the worker has nothing else to store, the message itself is not stored first: one
        commit instead of two. If the process crashes meanwhile, the message is gone, and this call
        has not returned.

        Raises:
            Exception: what the job raised; the message is a dead letter then.
            Displaced: a newer message replaced it, or it was dropped.
            ExecutionEnded: the worker was cancelled.
            PushTimeout: not in time; it is processed all the same.

        """
        if timeout is not None:
            check_timeout(timeout)
        processed = ThreadTicket()
        self._core.append_waiting(self.name, KIND, message, processed)
        self._core.wait_for(processed, timeout, message)

    async def apush_ack(
        self, message: Any, timeout: float | None = _TIMEOUT, *, key: str | None = None
    ) -> None:
        """Like `push_ack`, from a task of any event loop."""
        if timeout is not None:
            check_timeout(timeout)
        stored = AsyncTicket()
        self._core.append(self.name, KIND, (message,), stored=stored, key=key)
        if not await stored.wait(timeout):
            raise self._core.writer.late(timeout, message)

    async def apush_block(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Like `push_block`, from a task of any event loop."""
        if timeout is not None:
            check_timeout(timeout)
        processed = AsyncTicket()
        self._core.append_waiting(self.name, KIND, message, processed)
        if not await processed.wait(timeout):
            raise self._core.writer.late(timeout, message)

    def state(self) -> Any:
        """Return the state as it was last committed."""
        row = self._core.store.execution(self.name)
        return self._kind.state_of(self.name, None if row is None else row.state)

    def depth(self) -> int:
        """Count the stored messages that are not in the state yet."""
        counts = self._core.store.counts((self.name,)).get(self.name)
        return 0 if counts is None else counts.messages

    @property
    def dead_letters(self) -> Letters:
        """Messages that could not be processed: read, retry or purge them."""
        return Letters(self._core, self.name)


def name_of(worker: Any) -> str:
    """Return the name of a durable worker.

    Raises:
        BadOption: it is none.

    """
    if not isinstance(worker, DurableWorker):
        raise BadOption(f"{worker!r:.80} is not a durable worker: give engine.worker(name, job)")
    return worker.name
