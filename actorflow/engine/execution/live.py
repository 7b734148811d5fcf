"""One execution in memory: a worker whose job is a run, and the tickets of its messages.

Its accumulator holds stored messages under the behaviour that its kind chooses; its executor runs
one batch, commits, and only then goes on. The state in memory is always one that was committed.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.envelopes import Message, unpack
from actorflow.engine.errors import StoreRefused
from actorflow.engine.execution.door import Door, admit
from actorflow.engine.execution.letters import failure_left, give_up
from actorflow.engine.execution.run import AlreadyThere, Run, RunFailed, answered
from actorflow.engine.execution.ticket import Ticket
from actorflow.engine.kind import Options, Status
from actorflow.engine.stores.protocol import NEVER_RUN, Change
from actorflow.runtime.errors import Displaced, WorkerStopped
from actorflow.runtime.exits import Crash
from actorflow.runtime.lanes.relay import RELAY
from actorflow.runtime.log import log
from actorflow.runtime.worker.pair.runner import current_batch
from actorflow.runtime.worker.port import Port
from behaviours import Queue
from behaviours.base import adapt, release

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from actorflow.engine.core import Core
    from actorflow.engine.envelopes import Envelope
    from actorflow.engine.kind import Kind
    from actorflow.engine.stores.protocol import (
        ExecutionRow,
        MessageRow,
        NewExecution,
        TaskRow,
    )
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.worker.job.deferred import Deferred

__all__ = ["WINDOW", "Live"]

WINDOW = 10_000
"""Stored messages of one execution that are in memory at the same time, about."""


_DEFAULT = Options()


def run_batch(batch: Any, live: Live) -> Deferred:
    """Run a batch of an execution and submit the outcome; done when that is committed.

    The job of every live execution; its state is the `Live` itself.
    """
    current = current_batch()
    tickets: Any = () if current is None else current.tickets or ()
    run = Run(live, batch, [ticket for _, ticket in reversed(tickets)])
    run.start()
    return run.deferred


@contextmanager
def _reading() -> Iterator[None]:
    """Make refusals of the errors of a way to the store: see `Store.commit`."""
    try:
        yield
    except OSError as error:
        raise StoreRefused(f"{type(error).__name__}: {error}") from error


class Live:
    """One execution in memory.

    It has a *door* if its behaviour runs code of a user's.
    """

    __slots__ = (
        "behind", "broken", "core", "created", "creates", "displaced", "door", "epoch", "failure",
        "fetched", "first", "held", "id", "kind", "known", "last", "late", "loaded", "noted",
        "options", "outdated", "pace", "parent", "port", "reading", "revision", "state", "status",
        "unstored",
    )  # fmt: skip

    def __init__(self, core: Core, execution: str, kind: Kind, row: ExecutionRow | None) -> None:
        self.core = core
        self.fetched = row
        self.epoch = core.ownership.epoch_of(execution)
        """In which it is owned; commits of it name it."""
        self.known: set[Any] | None = set() if core.ownership.shared else None
        """Stored messages that were handed over and are not consumed, where others store some too:
        these may appear in any order."""
        self.id = execution
        self.kind = kind
        self.pace = core.host.pace_of(kind.name)
        self.loaded = False
        self.noted = False
        self.reading = False
        """Somebody is about to read its messages from the store."""
        self.revision: Any = NEVER_RUN
        self.state: Any = None
        self.status = Status.ACTIVE if row is None else Status(row.status)
        self.parent = None if row is None else row.parent
        self.created = 0.0 if row is None else row.created
        self.displaced: list[tuple[Ticket, Displaced]] = []
        self.held = 0
        """Stored messages that were handed over and are not consumed. The writer's thread."""
        self.behind = False
        """The store has messages that were not handed over yet: those after `last`."""
        self.outdated = False
        """It gets nothing more: another one, with the inbox of today, takes its place."""
        self.last: Any = None
        self.late: dict[Any, Any] = {}
        """The waiters of messages that were not handed over yet, by message id."""
        self.broken: BaseException | None = None
        """Why nothing of it can be processed here."""
        self.failure: bytes | None = None
        """Why it has failed, as long as it lacks what it waits for."""
        self.first: Ticket | None = None
        """The first message of an execution that has never run: without it, it has failed."""
        self.creates: NewExecution | None = None
        """What its first commit creates: it is not in the store yet."""
        self.unstored = False
        """Whether it may get messages that are not stored: these can displace none that is."""
        self.options = _DEFAULT
        self.port: Port | None = None
        self.door: Door | None = None
        quick = getattr(kind, "quick", None)
        if quick is not None and quick(execution):
            self.open()
        else:
            self.door = Door(self)

    def open(self) -> None:
        """Make the worker. Calls the kind, and perhaps a user's factory of behaviours."""
        options = self.options = self.kind.options(self.id)
        behaviour = adapt(Queue if options.behaviour is None else options.behaviour)
        release(behaviour)  # its owner is the worker
        traits = behaviour.traits
        self.unstored = not (traits.shrinks or traits.bounded or traits.expires)
        given: Any = {
            "clock": self.core.worker_clock,
            "executor": RELAY,
            "behaviour": behaviour,
            "on_failure": options.on_failure,
            "state": self,
        }
        self.port = Port.launch(run_batch, given, self._on_crash)
        if self.core.closed:  # the host may have ended the others before this
            self.port.finish()

    def _on_crash(self, reason: ExitReason) -> None:
        """Start another executor, in the writer's thread."""
        error = reason.exception if isinstance(reason, Crash) else None
        if not isinstance(error, RunFailed):  # those are logged with their messages
            log.error("execution crashed", execution=self.id, exc_info=error)
        if self.port is not None:
            self.core.writer.call(self.port.revive)

    def load(self) -> None:
        """Fetch the state from the store, if it is not here. In the lane's thread.

        Raises:
            Exception: it cannot be read or decoded.

        """
        if not self.loaded:
            self._load()
        if self.status == Status.FAILED:
            with _reading():
                self.failure = failure_left(self)

    def _load(self) -> None:
        row, self.fetched = self.fetched, None
        if row is None:
            with _reading():
                row = self.core.store.execution(self.id)
        self.revision = NEVER_RUN if row is None else row.revision
        self.state = self.core.decode(self.kind, row)
        self.status = Status.ACTIVE if row is None else Status(row.status)
        self.parent = None if row is None else row.parent
        self.created = 0.0 if row is None else row.created
        self.loaded = True

    @property
    def has_ended(self) -> bool:
        """Whether its worker has ended: the engine was closed, or it has retired."""
        return self.port is not None and self.port.has_ended

    def finish(self) -> None:
        """Begin to end after the current batch. Thread-safe."""
        if self.port is not None:
            self.port.finish()
        if self.door is not None:
            self.door.look()

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing of it is in memory, accumulated or running."""
        if self.held or (self.door is not None and not self.door.is_clear):
            return False
        return self.port is not None and self.port.is_idle

    # Messages that come in.

    def take(
        self,
        rows: Sequence[MessageRow],
        waiters: dict[Any, Any] | None,
        acks: Sequence[Any],
        *,
        accepted: bool,
    ) -> list[tuple[Any, Exception | None]]:
        """Accumulate stored messages; return the callers to tell now. In the writer's thread.

        `acks` are pairs of a caller, who waits until it is accumulated, and the id of its message.
        Where they were `accepted` before, they are not rejected now because the inbox is full.
        """
        unwrapped = self.options.bodies
        pairs = []
        item: Any
        for number, _, type_, body, at, _ in rows:
            if unwrapped and type_ == "message":
                item = bodies.decode(body)
            else:
                item = unpack(number, at, type_, body)
            waiter = waiters.pop(number, None) if waiters else None
            pairs.append((item, Ticket(self, number, item, waiter)))
        self.held += len(pairs)
        self.last = rows[-1].id
        if self.first is None and self.revision == NEVER_RUN:
            self.first = pairs[0][1]
        if self.known is not None:
            self.known.update(row.id for row in rows)
        if self.door is None:
            return admit(self, pairs, acks)
        self.door.add(pairs, acks, accepted=accepted)
        return []

    def offer_unstored(self, envelope: Envelope, waiter: Any, task: TaskRow | None) -> bool:
        """Accumulate a message that is not stored; return whether that was possible. Thread-safe.

        It need not be stored: either its pusher waits for the outcome, or it answers a task, which
        is stored until the answer has been consumed. It never displaces what is stored, and never
        comes before that.
        """
        port = self.port
        if port is None or not self.unstored or self.behind:
            return False
        if self.door is not None and not self.door.is_clear:
            return False
        item: Any = envelope
        if self.options.bodies and type(envelope) is Message:
            item = envelope.body
        ticket = Ticket(self, None, item, waiter, task)
        try:
            refused = port.offer([(item, ticket)])
        except WorkerStopped:
            return False
        for _, error in refused:
            give_up(self, ticket, error)
        return True

    # Messages that are not processed.

    def lost(self, ticket: Ticket, error: BaseException) -> None:
        """React to a message that will not be processed here. Thread-safe."""
        core = self.core
        if isinstance(error, RunFailed):
            log.error("message dead-lettered", execution=self.id, exc_info=error.cause)
            give_up(self, ticket, error.cause)
        elif isinstance(error, Displaced):
            self.displaced.append((ticket, error))
            core.host.note(self)
        elif isinstance(error, WorkerStopped):
            if core.closed:
                core.host.keep_waiting(ticket)
            elif ticket.task is not None:  # not stored: it goes the long way
                core.board.store_answer(ticket.task, *ticket.packed())
            elif ticket.id is None and isinstance(self.broken, AlreadyThere):
                ticket.consume(self.broken)  # it was to begin what somebody else has begun
            elif ticket.id is None:
                core.append_late(self.id, self.kind.name, ticket)
            elif ticket.waiter is not None:  # it is stored, and waits for code that can read it
                ticket.waiter.resolve(self.broken or error)
        else:
            give_up(self, ticket, error)

    def add_creation(self, change: Change) -> None:
        """Make a change create the execution, if it is not in the store yet."""
        if self.creates is not None:
            change.creates = [self.creates, *change.creates]
            change.new_only = True

    def take_displaced(self) -> list[tuple[Ticket, Displaced]]:
        """Return what has been displaced since the last commit."""
        displaced = self.displaced[:]
        del self.displaced[: len(displaced)]
        return displaced

    def mark_displaced(self) -> None:
        """Consume what was displaced, where no run does so. In the writer's thread."""
        displaced = self.take_displaced()
        tickets = [ticket for ticket, _ in displaced]

        def committed(_change: Change, error: Exception | None) -> None:
            for ticket, fate in displaced:
                ticket.consume(error or fate)
            self.core.host.settle(self)

        change = Change(
            self.id,
            consumed=[ticket.id for ticket in tickets if ticket.id is not None],
            finished_tasks=answered(tickets),
            epoch=self.epoch,
        )
        self.core.writer.submit(change, committed, insist=True)
