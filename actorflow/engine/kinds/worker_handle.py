"""Handles of durable workers: of one by its name, and of a family by their keys."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import NoAnswer
from actorflow.engine.ids import check_id
from actorflow.engine.kinds.worker import KIND, DurableAnswer
from actorflow.runtime.errors import BadOption
from actorflow.runtime.tickets import AsyncTicket, ThreadTicket, check_timeout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actorflow.engine.kinds.worker import DurableJob, WorkerKind
    from actorflow.engine.operations.dead_letters import Letters
    from actorflow.engine.parts import EngineParts

__all__ = ["DurableStatistics", "DurableWorker", "DurableWorkers", "name_of"]

_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableStatistics:
    """A durable worker at one moment."""

    name: str
    in_memory: bool
    stored: int
    """Messages in the store which are not in the state yet."""
    held: int
    """Messages in its inbox, of which some may not be stored."""
    dead_letters: int


class DurableWorker:
    """The handle of a durable worker. Thread-safe."""

    def __init__(self, parts: EngineParts, name: str, kind: WorkerKind) -> None:
        self._parts = parts
        self.name = name
        self._kind = kind
        job = kind.job_of(name)
        self._pack = None if job is None or job.is_plain else job.pack

    def __repr__(self) -> str:
        return f"<durable worker {self.name!r}>"

    def _packed(self, message: Any) -> Any:
        """Return a message as plain data, if the job declares another type."""
        return message if self._pack is None else self._pack(message)

    def ask(self, message: Any, timeout: float | None = _TIMEOUT, *, key: str | None = None) -> Any:
        """Send a message and return its answer, once the state that it led to is on disk.

        The job returns `af.Answers(state, answers)`. Like `push_block` otherwise. On a store that
        several engines share, ask the engine that runs the worker.

        Raises:
            NoAnswer: the job has returned a state without answers, or another engine runs the
                worker; the message is still processed.
            Exception: the answer is an exception, or the job raised it.

        """
        if timeout is not None:
            check_timeout(timeout)
        processed = ThreadTicket()
        self._parts.sender.append_waiting(self.name, KIND, self._packed(message), processed, key)
        return self._answer(self._parts.writer.wait_for(processed, timeout, message))

    async def aask(
        self, message: Any, timeout: float | None = _TIMEOUT, *, key: str | None = None
    ) -> Any:
        """Like `ask`, from a task of any event loop."""
        if timeout is not None:
            check_timeout(timeout)
        processed = AsyncTicket()
        self._parts.sender.append_waiting(self.name, KIND, self._packed(message), processed, key)
        return self._answer(await self._parts.writer.await_for(processed, timeout, message))

    def _answer(self, answer: Any) -> Any:
        if type(answer) is DurableAnswer:
            return answer.value
        msg = (
            f"worker {self.name!r} has processed the message, and gave no answer: return "
            "af.Answers(state, [one answer for each message]) from the job, and ask the engine "
            "that runs it"
        )
        raise NoAnswer(msg)

    async def apush(self, message: Any) -> None:
        """Like `push`, from a task of any event loop."""
        self.push(message)

    def statistics(self) -> DurableStatistics:
        """Return figures of this worker as they are now. Reads the store."""
        counts = self._parts.store.counts((self.name,)).get(self.name)
        live = self._parts.table.find(self.name)
        return DurableStatistics(
            name=self.name,
            in_memory=live is not None,
            stored=0 if counts is None else counts.messages,
            held=0 if live is None or live.port is None else live.port.depth,
            dead_letters=0 if counts is None else counts.dead,
        )

    def push(self, message: Any) -> None:
        """Send a message without waiting; it is stored soon.

        Raises:
            NotStorable: it is not plain data.
            StoreFull: the store has just refused others, because it is full.

        """
        self._parts.sender.append(self.name, KIND, (self._packed(message),))

    def push_many(self, messages: Iterable[Any]) -> None:
        """Send many messages; they are stored together."""
        messages = tuple(messages if self._pack is None else map(self._pack, messages))
        if messages:
            self._parts.sender.append(self.name, KIND, messages)

    def push_ack(
        self, message: Any, timeout: float | None = _TIMEOUT, *, key: str | None = None
    ) -> None:
        """Send a message and return when it is on disk, and accumulated.

        With a `key`, only the first message with that key counts; another one changes nothing and
        returns, or raises, as the first did. Keys are kept for a week.

        Raises:
            StoreFull: there is no room; it is not stored.
            OutcomeUnknown: the disk failed, and it may be stored; `engine.outcome(error.id)`
                answers later. Repeat it with its key.
            Rejected: the behaviour refuses it; it is a dead letter.
            ExecutionEnded: the worker was cancelled.
            PushTimeout: not stored in time; it may still be stored. A thread that has a second or
                more to wait may perform the commit itself, and does not cut it short.

        """
        if timeout is not None:
            check_timeout(timeout)
        stored = self._parts.writer.wakes.ticket()
        patience = inf if timeout is None else timeout
        given = (self._packed(message),)
        self._parts.sender.append(self.name, KIND, given, stored=stored, key=key, patience=patience)
        self._parts.writer.wait_for(stored, timeout, message)

    def push_block(
        self, message: Any, timeout: float | None = _TIMEOUT, *, key: str | None = None
    ) -> None:
        """Send a message and return when the state that it led to is on disk.

        Where the worker has nothing else to store, the message itself is not stored first: one
        commit instead of two. If the process crashes meanwhile, the message is gone, and this call
        has not returned. With a `key`, the message is stored first, and only the first one with
        that key counts.

        Raises:
            OutcomeUnknown: not in time, because the store refuses commits. The engine goes on
                trying; `engine.outcome(error.id)` answers later.
            Exception: what the job raised; the message is a dead letter then.
            Displaced: a newer message replaced it, or it was dropped.
            ExecutionEnded: the worker was cancelled.
            PushTimeout: not processed in time; it still will be.

        """
        if timeout is not None:
            check_timeout(timeout)
        processed = ThreadTicket()
        given = message if self._pack is None else self._pack(message)
        self._parts.sender.append_waiting(self.name, KIND, given, processed, key)
        self._parts.writer.wait_for(processed, timeout, message)

    async def apush_ack(
        self, message: Any, timeout: float | None = _TIMEOUT, *, key: str | None = None
    ) -> None:
        """Like `push_ack`, from a task of any event loop."""
        if timeout is not None:
            check_timeout(timeout)
        stored = AsyncTicket()
        given = (self._packed(message),)
        self._parts.sender.append(self.name, KIND, given, stored=stored, key=key)
        if not await stored.wait(timeout):
            raise self._parts.writer.too_late(timeout, message, stored)

    async def apush_block(
        self, message: Any, timeout: float | None = _TIMEOUT, *, key: str | None = None
    ) -> None:
        """Like `push_block`, from a task of any event loop."""
        if timeout is not None:
            check_timeout(timeout)
        processed = AsyncTicket()
        self._parts.sender.append_waiting(self.name, KIND, self._packed(message), processed, key)
        if not await processed.wait(timeout):
            raise self._parts.writer.too_late(timeout, message, processed)

    def state(self) -> Any:
        """Return the state as it was last committed."""
        row = self._parts.store.execution(self.name)
        return self._kind.state_of(self.name, None if row is None else row.state)

    def depth(self) -> int:
        """Count the stored messages that are not in the state yet."""
        counts = self._parts.store.counts((self.name,)).get(self.name)
        return 0 if counts is None else counts.messages

    @property
    def dead_letters(self) -> Letters:
        """Messages that could not be processed: read, retry or purge them."""
        return self._parts.letters(self.name)


class DurableWorkers:
    """A family of durable workers, one for each key: `accounts["7"]`. Thread-safe.

    Making a handle costs nothing, and a worker is loaded when there is a message for it.
    """

    def __init__(self, parts: EngineParts, kind: WorkerKind, pattern: str, job: DurableJob) -> None:
        self._parts = parts
        self._kind = kind
        self._pattern = pattern
        self._family = kind.add_family(pattern, job)

    def __repr__(self) -> str:
        return f"<durable workers {self._pattern!r}>"

    def __getitem__(self, key: str | int) -> DurableWorker:
        """Return the worker of a key: a string that is not empty, or a whole number.

        Raises:
            BadOption: it is another key.

        """
        given: Any = key
        text = str(given) if type(given) is int else given
        if not isinstance(text, str) or not text:
            msg = f"the key {given!r:.80}: give a string that is not empty, as in accounts['7']"
            raise BadOption(msg)
        name = check_id(self._family.name_of(text), "a worker")
        return DurableWorker(self._parts, name, self._kind)


def name_of(worker: Any) -> str:
    """Return the name of a durable worker.

    Raises:
        BadOption: it is not a worker.

    """
    if not isinstance(worker, DurableWorker):
        raise BadOption(f"{worker!r:.80} is not a durable worker: give engine.worker(name, job)")
    return worker.name
