"""Messages that are given up: each becomes a dead letter, and its execution may be stuck.

An execution without its first message never runs. One that has lost the answer of a task, a child
or a timer waits for it forever, and so do its callers. These executions are stuck. They keep
their state, and go on when the letter is sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from actorflow.engine.commit.writer import AGAIN
from actorflow.engine.envelopes import EnvelopeType, encode_failure, failure_of
from actorflow.engine.executions.loaded import answered
from actorflow.engine.executions.outcomes import AlreadyThere, message_to_parent
from actorflow.engine.kind import Status
from actorflow.engine.stores.protocol import NEVER_RUN, Change, NewDead
from actorflow.runtime.errors import kind_and_text
from actorflow.runtime.log import log
from actorflow.runtime.telemetry.outages import outage_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.envelopes import Failure
    from actorflow.engine.executions.loaded import LoadedExecution, MessageTicket
    from actorflow.engine.executions.waiters import Waiters
    from actorflow.engine.stores.protocol import ExecutionRow, MessageRow, Store

__all__ = ["DeadLetterListener", "DeadLettering", "add_failure", "failure_left"]

_AWAITED = frozenset((EnvelopeType.TIMER, EnvelopeType.ENDED, EnvelopeType.CHILD))


class DeadLetterListener(Protocol):
    """What hears of commits of dead letters: the table of executions."""

    def deliver_rows(self, rows: Iterable[Any]) -> None:
        """Deliver the messages that came with them."""

    def forget(self, live: LoadedExecution, why: Exception) -> None:
        """Discard an execution that was not created."""

    def after_commit(self, live: LoadedExecution) -> None:
        """Evict an execution that has nothing to do, or read on."""


class DeadLettering:
    """Gives messages up. Thread-safe."""

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        writer: Writer,
        waiters: Waiters,
        listener: DeadLetterListener,
    ) -> None:
        self.store = store
        self.clock = clock
        self.writer = writer
        self.waiters = waiters
        self.listener = listener
        self.refusals: dict[Any, BaseException] = {}
        """Why messages were given up, until their dead letters are stored."""

    def give_up(self, live: LoadedExecution, ticket: MessageTicket, error: BaseException) -> None:
        """Turn a message into a dead letter."""
        text = kind_and_text(error)
        kind, body = ticket.packed()
        change = Change(
            live.id,
            at=self.clock.now(),
            consumed=() if ticket.id is None else (ticket.id,),
            dead=(NewDead(ticket.id, live.id, kind, body, text),),
            finished_tasks=answered((ticket,)),
            epoch=live.epoch,
        )
        if ticket.id is not None:
            self.refusals[ticket.id] = error
        first = live.first
        is_first = first is None or first is ticket or not first.open or live.creates is not None
        self.commit(live, change, error, ticket, first=is_first)

    def give_up_unread(
        self, live: LoadedExecution, ticket: MessageTicket, row: MessageRow, error: Exception
    ) -> None:
        """Turn a stored message into a dead letter that cannot be decoded."""
        log.error("a stored message cannot be read", execution=live.id, exc_info=error)
        self.refusals[ticket.id] = error
        text = kind_and_text(error)
        change = Change(
            live.id,
            at=self.clock.now(),
            consumed=(row.id,),
            dead=(NewDead(row.id, live.id, row.type, row.body, text),),
            epoch=live.epoch,
        )
        self.commit(live, change, error, ticket, first=live.first is None)

    def commit(
        self,
        live: LoadedExecution,
        change: Change,
        error: BaseException,
        ticket: MessageTicket | None = None,
        *,
        first: bool,
    ) -> None:
        """Commit a dead letter, and that its execution is stuck if it cannot go on.

        Args:
            live: the execution.
            change: consumes the message and adds the letter.
            error: why it is given up.
            ticket: of the message.
            first: whether the execution has not run, and this message was to begin it.

        """
        _DeadLetter(self, live, change, error, ticket, first=first).submit()


class _DeadLetter:
    """A dead letter on its way into the store."""

    __slots__ = ("_change", "_error", "_first", "_letters", "_live", "_ticket")

    def __init__(
        self,
        letters: DeadLettering,
        live: LoadedExecution,
        change: Change,
        error: BaseException,
        ticket: MessageTicket | None,
        *,
        first: bool,
    ) -> None:
        self._letters = letters
        self._live = live
        self._change = change
        self._error = error
        self._ticket = ticket
        never_run = live.revision == NEVER_RUN and live.status == Status.ACTIVE
        self._first = first and never_run and not live.options.bodies

    def submit(self) -> None:
        """Submit it, with the failure of its execution if it cannot go on without the message."""
        live, change, letters = self._live, self._change, self._letters
        if self._first:
            self._add_failed_start()
        elif change.dead[0].type in _AWAITED:
            try:
                row = letters.store.execution(live.id)
            except Exception as error:  # noqa: BLE001 - it is all in the store: try again
                outage_of(letters.store).failed(error, "the store cannot be read; trying again")
                clock = letters.clock
                clock.call_at(clock.now() + AGAIN, self.submit)
                return
            if row is not None and row.status == Status.ACTIVE:
                add_failure(change, row, failure_of(self._error))
        # The caller that starts an execution hears if there is no room: see `Run`.
        letters.writer.submit(change, self._committed, insist=live.creates is None)

    def _add_failed_start(self) -> None:
        live, change = self._live, self._change
        failure = failure_of(self._error)
        change.kind = live.kind.name
        change.expected = NEVER_RUN
        change.version = getattr(live.kind, "version", 1)
        _fail(change, live.id, live.parent, failure)
        live.add_creation(change)

    def _committed(self, change: Change, failure: Exception | None) -> None:
        live, ticket, letters = self._live, self._ticket, self._letters
        listener = letters.listener
        reason = None if change.refusal is None else change.refusal.reason
        if reason == "exists" or (failure is not None and live.creates is not None):
            why = failure or AlreadyThere(live.id)
            listener.forget(live, why)
            if ticket is not None:
                ticket.consume(why)
            return
        if reason is not None and reason != "fenced":  # it has run meanwhile
            change.expected, change.refusal, change.messages = None, None, ()
            self._first = False
            self.submit()
            return
        if ticket is not None:
            letters.refusals.pop(ticket.id, None)
            ticket.consume(failure or self._error)
        if change.expected is not None and failure is None and reason is None:
            live.creates = live.fetched = None
            live.has_state = False
            live.revision, live.status = change.revision, Status.STUCK
            listener.deliver_rows(change.rows)
            letters.waiters.tell(live.id)
        listener.after_commit(live)


def add_failure(change: Change, row: ExecutionRow, failure: Failure) -> None:
    """Make a change mark an execution as stuck, and leave its state."""
    change.kind = row.kind
    change.expected = row.revision
    change.state = row.state
    change.version = row.version
    _fail(change, row.id, row.parent, failure)


def _fail(change: Change, execution: str, parent: str | None, failure: Failure) -> None:
    change.status = Status.STUCK
    change.error = encode_failure(failure)
    if parent is not None:
        told = message_to_parent(parent, execution, Status.STUCK, error=failure)
        change.messages = (told,)


def failure_left(store: Store, execution: str) -> bytes | None:
    """Return why an execution is stuck, if it still lacks what it waits for. Thread-safe."""
    cursor = None
    while True:
        page = store.dead(execution=execution, after=cursor)
        if any(letter.type in _AWAITED for letter in page.rows):
            row = store.execution(execution)
            return None if row is None else row.error
        cursor = page.after
        if cursor is None:
            return None
