"""The durable worker: a worker whose messages and state survive anything.

Its state and the messages that led to it are committed together, so each message is in the state
exactly once. What the job does outside happens at least once.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.kind import Outcome
from actorflow.runtime.errors import BadOption
from actorflow.runtime.worker.failure import failure_policy
from actorflow.runtime.worker.jobs import kind_of
from actorflow.runtime.worker.tickets import AsyncTicket, ThreadTicket
from behaviours import Throttle
from behaviours.base import adapt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.engine.engine import Engine
    from actorflow.engine.operations.dead_letters import Letters

__all__ = ["DurableWorker", "WorkerKind"]

_TIMEOUT = 5.0


class WorkerKind:
    """The kind of execution that a durable worker is: one job, one state."""

    def __init__(
        self,
        name: str,
        job: Callable[[Any, Any], Any],
        *,
        state: Any,
        behaviour: Any,
        throttle: float | None,
        on_failure: Any,
    ) -> None:
        kind_of(job)  # refuses what cannot be a job
        failure_policy(on_failure)
        self.name = f"worker:{name}"
        self._job = job
        self._asynchronous = inspect.iscoroutinefunction(job)
        self._first = bodies.encode(state)
        self._behaviour = behaviour
        self._throttle = throttle
        self._on_failure = on_failure
        if not callable(behaviour):
            msg = (
                "a durable worker comes back to life, so it needs a behaviour each time: "
                f"behaviour=lambda: {behaviour!r}"
            )
            raise BadOption(msg)
        if adapt(self.options("")["behaviour"]).traits.blocks:
            msg = (
                "when_full='block' makes pushers wait, but what is pushed to a durable worker is "
                "stored before it is accumulated; use 'reject', 'drop_oldest' or 'drop_newest'"
            )
            raise BadOption(msg)

    def options(self, _execution: str) -> dict[str, Any]:
        """Return the options of the live worker."""
        behaviour = self._behaviour()
        if self._throttle is not None:
            behaviour = Throttle(behaviour, self._throttle)
        return {"behaviour": behaviour, "on_failure": self._on_failure}

    def decode(self, data: bytes | None) -> Any:
        """Return the state from stored bytes; without any, a new copy of the first state."""
        return bodies.decode(self._first if data is None else data)

    def encode(self, state: Any) -> bytes:
        """Return a state as bytes."""
        return bodies.encode(state)

    def run(self, _execution: str, state: Any, batch: Any, _keep_going: Callable[[], bool]) -> Any:
        """Call the job."""
        if self._asynchronous:
            return self._run_async(state, batch)
        return Outcome(state=self._job(batch, state))

    async def _run_async(self, state: Any, batch: Any) -> Outcome:
        return Outcome(state=await self._job(batch, state))


class DurableWorker:
    """The handle of a durable worker. Thread-safe."""

    def __init__(self, engine: Engine, name: str, kind: WorkerKind) -> None:
        self._engine = engine
        self.name = name
        self._kind = kind

    @property
    def kind(self) -> str:
        """The kind that it is stored under."""
        return self._kind.name

    def __repr__(self) -> str:
        return f"<durable worker {self.name!r}>"

    def push(self, message: Any) -> None:
        """Send a message without waiting; it is stored soon.

        Raises:
            NotStorable: it is not plain data.
            StoreFull: the store has just refused others, because it is full.

        """
        self._engine.append(self.name, self._kind.name, (message,))

    def push_many(self, messages: Iterable[Any]) -> None:
        """Send many messages; they are stored together."""
        messages = tuple(messages)
        if messages:
            self._engine.append(self.name, self._kind.name, messages)

    def push_ack(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Send a message and return when it is on disk, and accumulated.

        Raises:
            StoreFull: there is no room; it is not stored.
            Rejected: the behaviour refuses it; it is a dead letter.
            PushTimeout: not in time; it may be stored all the same.

        """
        stored = ThreadTicket()
        self._engine.append(self.name, self._kind.name, (message,), stored=stored)
        self._engine.await_ticket(stored, timeout, message)

    def push_block(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Send a message and return when the state that it led to is on disk.

        Where the worker has nothing else to store, the message itself is not stored first: one
        commit instead of two. If the process crashes meanwhile, the message is gone, and this call
        has not returned.

        Raises:
            Exception: what the job raised; the message is a dead letter then.
            Displaced: a newer message replaced it, or it was dropped.
            PushTimeout: not in time; it is processed all the same.

        """
        processed = ThreadTicket()
        self._engine.append_waiting(self.name, self._kind.name, message, processed)
        self._engine.await_ticket(processed, timeout, message)

    async def apush_ack(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Like `push_ack`, from a task of any event loop."""
        stored = AsyncTicket()
        self._engine.append(self.name, self._kind.name, (message,), stored=stored)
        await self._engine.await_async(stored, timeout, message)

    async def apush_block(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Like `push_block`, from a task of any event loop."""
        processed = AsyncTicket()
        self._engine.append_waiting(self.name, self._kind.name, message, processed)
        await self._engine.await_async(processed, timeout, message)

    def state(self) -> Any:
        """Return the state as it was last committed."""
        row = self._engine.store.execution(self.name)
        return self._kind.decode(None if row is None else row.state)

    def depth(self) -> int:
        """Count the stored messages that are not in the state yet. O(all stored messages)."""
        return sum(1 for _ in self._engine.store.rows("messages", self.name))

    @property
    def dead_letters(self) -> Letters:
        """Messages that could not be processed: read, retry or purge them."""
        return self._engine.dead_letters(self.name)
