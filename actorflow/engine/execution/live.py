"""One execution in memory: a worker whose job is a run, and the tickets of its messages.

Its accumulator holds stored messages under the behaviour that its kind chooses; its executor runs
one batch, commits, and only then goes on. The state in memory is always one that was committed.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.envelopes import (
    Message,
    TimerFired,
    pack,
    unpack,
)
from actorflow.engine.errors import EngineClosed, StoreRefused
from actorflow.engine.execution.letters import failure_left, give_up
from actorflow.engine.execution.run import AlreadyThere, Run, RunFailed, answered
from actorflow.engine.kind import Options, Status
from actorflow.engine.stores.protocol import NEVER_RUN, Change
from actorflow.runtime.errors import Displaced, Full, WorkerStopped
from actorflow.runtime.exits import Crash
from actorflow.runtime.lanes.pool import POOL
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

__all__ = ["WINDOW", "Live", "Ticket"]

WINDOW = 10_000
"""Stored messages of one execution that are in memory at the same time, about."""


_DEFAULT = Options()


class _Both:
    """Two callers that wait for one message: for its storing, and for its outcome."""

    __slots__ = ("_one", "_other")

    def __init__(self, one: Any, other: Any) -> None:
        self._one = one
        self._other = other

    def resolve(self, error: BaseException | None = None) -> None:
        """Tell both."""
        self._one.resolve(error)
        self._other.resolve(error)


class Ticket:
    """What becomes of one message: its waiter learns of it, and the store if it is stored."""

    __slots__ = ("id", "item", "live", "open", "task", "waiter")

    def __init__(
        self,
        live: Live,
        id: Any,  # noqa: A002 - what it is
        item: Any,
        waiter: Any = None,
        task: TaskRow | None = None,
    ) -> None:
        self.live = live
        self.id = id
        """Under which it is stored; `None` if it is not, because its pusher waits anyway."""
        self.item = item
        """What the behaviour holds: an envelope, or the body of a message."""
        self.waiter = waiter
        self.task = task
        """The task that it answers, where only that is stored."""
        self.open = True

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Note that the runtime will not process it, if so. Thread-safe."""
        if error is not None and self.open:
            self.live.lost(self, error)

    def consume(self, error: BaseException | None = None) -> None:
        """Note that it is gone from the store; resolve the waiter. In the writer's thread."""
        if self.open:
            self.open = False
            if self.id is not None:
                self.live.held -= 1
                if self.live.known is not None:
                    self.live.known.discard(self.id)
        if self.waiter is not None:
            self.waiter.resolve(error)
            self.waiter = None

    def leave(self, error: BaseException) -> None:
        """Leave it in the store, for code that can read the execution. In the lane's thread."""
        if self.task is not None:  # only the task is stored
            self.live.core.board.store_answer(self.task, *self.packed())
        if self.waiter is not None:
            self.waiter.resolve(error)
            self.waiter = None

    def packed(self) -> tuple[str, bytes]:
        """Return the type and body under which it is stored."""
        item = self.item
        if self.live.options.bodies and not hasattr(item, "__struct_fields__"):
            return pack(Message(None, 0.0, item))
        return pack(item)


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

    Messages come in through the *door*: at once where the behaviour runs no code of a user's, else
    in a lane, so that the writer never waits for such code. What was accepted earlier, and has come
    from the store again, waits beside the door while the inbox is full; nothing overtakes it there.
    """

    __slots__ = (
        "_door", "_gate", "_patient", "behind", "broken", "core", "created", "creates", "displaced",
        "epoch", "failure", "fetched", "first", "held", "id", "kind", "known", "last", "late",
        "loaded", "noted", "options", "outdated", "pace", "parent", "port", "reading", "revision",
        "state", "status", "unstored",
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
        self._door: deque[tuple[list[tuple[Any, Ticket]], Sequence[Any], bool]] | None = None
        self._patient: list[tuple[Any, Ticket]] = []  # accepted earlier; they wait for room
        self._gate: list[None] = [None]  # the token of whoever lets messages in
        quick = getattr(kind, "quick", None)
        if quick is not None and quick(execution):
            self._open()
        else:
            self._door = deque()

    def _open(self) -> None:
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
        self.look_at_door()

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is in memory, accumulated or running, or still in the store."""
        return not self.behind and self.is_at_rest

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing of it is in memory, accumulated or running."""
        if self.held or self._door or not self._gate:
            return False
        return self.port is not None and self.port.is_idle

    # The door.

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
        if self._door is None:
            return self._offer(pairs, acks)
        self._door.append((pairs, acks, accepted))
        self._enter()
        return []

    def look_at_door(self) -> None:
        """Let in what waits, if there is room by now. Thread-safe."""
        if self._patient or self._door:
            self._enter()

    def _enter(self) -> None:
        """Schedule a look at the door, unless one is scheduled. Thread-safe."""
        try:
            self._gate.pop()
        except IndexError:
            return
        POOL.submit(self)

    def run(self) -> None:
        """Accumulate the messages that wait at the door. In a thread of the pool."""
        door = self._door
        assert door is not None  # noqa: S101 - only those with a door submit themselves
        look = bool(self._patient)
        while door or look:
            pairs, acks, accepted = door.popleft() if door else ([], (), True)
            look = False
            told: Sequence[tuple[Any, BaseException | None]]
            try:
                if self.port is None:
                    self._open()
                    if self.options.bodies:
                        pairs = self._unwrapped(pairs)
                        for at, (more, others, known) in enumerate(door):
                            door[at] = self._unwrapped(more), others, known
                if pairs or accepted:
                    told = self._offer(pairs, acks, accepted=accepted)
                else:  # they ask what became of an earlier one
                    told = [(each, self._outcome_of(number)) for each, number in acks]
            except BaseException as error:  # noqa: BLE001 - a user's code: others go on
                log.error("messages refused", execution=self.id, exc_info=error)
                pairs, self._patient = [*self._patient, *pairs], []
                self._refuse(pairs, acks, error)
                continue
            for waiter, refusal in told:
                waiter.resolve(refusal)
        self._gate.append(None)
        if door or (self._patient and not self._makes_room()):  # the writer has just added more
            self._enter()

    def _makes_room(self) -> bool:
        """Return whether something will leave the inbox: its commit makes the host look here."""
        return self.port is not None and self.port.depth > 0 and not self.port.is_stopping

    def _unwrapped(self, pairs: list[tuple[Any, Ticket]]) -> list[tuple[Any, Ticket]]:
        """Return bodies instead of envelopes: what the behaviour of this kind holds."""
        for _, ticket in pairs:
            if type(ticket.item) is Message:
                ticket.item = ticket.item.body
        return [(ticket.item, ticket) for _, ticket in pairs]

    def _offer(
        self, pairs: list[tuple[Any, Ticket]], acks: Sequence[Any], *, accepted: bool = False
    ) -> list[tuple[Any, Exception | None]]:
        """Accumulate messages, after those that wait for room; return the callers to tell now.

        Those whose message is rejected are told when the dead letter is stored.
        """
        patient = self._patient
        if patient:
            pairs = [*patient, *pairs]
        may_wait = pairs if accepted else patient
        empty = bool(may_wait) and self.port is not None and not self.port.depth
        refused = self._try(pairs)
        if patient:
            self._patient = []
        if refused:
            if may_wait:
                refused = self._let_wait(refused, may_wait, sure=pairs[0][1] if empty else None)
            acks = self._await_burial([ticket for ticket, _ in refused], acks)
            for ticket, refusal in refused:
                give_up(self, ticket, refusal)
        return [(waiter, None) for waiter, _ in acks]

    def _let_wait(
        self,
        refused: Sequence[tuple[Any, Exception]],
        accepted: Sequence[tuple[Any, Ticket]],
        *,
        sure: Ticket | None,
    ) -> Sequence[tuple[Any, Exception]]:
        """Keep what was accepted earlier until there is room; return what is rejected.

        There will never be room for one that is refused although nothing is held (`sure`).
        """
        full = {ticket for ticket, refusal in refused if isinstance(refusal, Full)} - {sure}
        self._patient = [pair for pair in accepted if pair[1] in full]  # in their order
        waiting = {ticket for _, ticket in self._patient}
        return [each for each in refused if each[0] not in waiting]

    def _try(self, pairs: list[tuple[Any, Ticket]]) -> Sequence[tuple[Any, Exception]]:
        """Accumulate messages; return the tickets of those that are refused, and why."""
        if self.port is None:
            msg = f"execution {self.id!r} has no worker"
            raise WorkerStopped(msg)
        try:
            return self.port.offer(pairs)
        except WorkerStopped as error:  # the engine is being closed: it is all in the store
            closed = EngineClosed("the engine was closed; the message is stored")
            closed.__cause__ = error
            for _, ticket in pairs:
                ticket.consume(closed)
            return ()

    def _await_burial(self, tickets: Sequence[Ticket], acks: Sequence[Any]) -> Sequence[Any]:
        """Let callers wait until their messages are dead letters; return the others."""
        if not acks:
            return acks
        given = {ticket.id: ticket for ticket in tickets}
        for waiter, number in acks:
            if number in given:
                ticket = given[number]
                ticket.waiter = waiter if ticket.waiter is None else _Both(waiter, ticket.waiter)
        return [each for each in acks if each[1] not in given]

    def tell_outcome(self, waiting: Sequence[Any], number: Any) -> None:
        """Resolve the tickets of senders that sent a message twice. In the writer's thread.

        Where it waits at the door, nobody knows yet: then they wait there, too.
        """
        if self._door is not None and (self._door or not self._gate):
            self._door.append(([], [(each, number) for each in waiting], False))
            self._enter()
            return
        error = self._outcome_of(number)
        for each in waiting:
            each.resolve(error)

    def _outcome_of(self, number: Any) -> BaseException | None:
        return self.core.host.refusals.get(number) or self.core.host.refusal_of(number)

    def _refuse(
        self, pairs: list[tuple[Any, Ticket]], acks: Sequence[Any], error: BaseException
    ) -> None:
        """Make dead letters of what a user's code would not take."""
        tickets = [ticket for _, ticket in pairs if ticket.open]
        for waiter, _ in self._await_burial(tickets, acks):
            waiter.resolve(error)
        for ticket in tickets:
            give_up(self, ticket, error)

    def offer_unstored(self, envelope: Envelope, waiter: Any, task: TaskRow | None) -> bool:
        """Accumulate a message that is not stored; return whether that was possible. Thread-safe.

        It need not be stored: either its pusher waits for the outcome, or it answers a task, which
        is stored until the answer has been consumed. It never displaces what is stored, and never
        comes before that.
        """
        port = self.port
        if port is None or not self.unstored or self.behind or self._door or not self._gate:
            return False
        if self._patient:
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

    def nudge(self) -> None:
        """Make the inbox look again at what it holds back. Thread-safe."""
        nothing = TimerFired(None, 0.0, "", 0.0)
        pairs: list[tuple[Any, Ticket]] = [(nothing, Ticket(self, None, nothing))]
        if self._door is None:
            self._offer(pairs, ())
        else:
            self._door.append((pairs, (), False))
            self._enter()

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
