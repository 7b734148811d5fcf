"""Messages that are given up: each becomes a dead letter, and perhaps its execution has failed.

An execution without its first message never runs; one that has lost the answer of a task, a child
or a timer waits for it for ever, and so would whoever waits for the execution. These have failed.
They keep what they have, and go on when the letter is sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.engine.envelopes import EnvelopeType, encode_failure, failure_of
from actorflow.engine.errors import text_of
from actorflow.engine.execution.run import AlreadyThere, answered, message_to_parent
from actorflow.engine.execution.writing.writer import AGAIN
from actorflow.engine.kind import Status
from actorflow.engine.stores.protocol import NEVER_RUN, Change, NewDead
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from actorflow.engine.envelopes import Failure
    from actorflow.engine.execution.live import Live
    from actorflow.engine.execution.ticket import Ticket
    from actorflow.engine.stores.protocol import ExecutionRow

__all__ = ["add_failure", "bury", "failure_left", "give_up"]

_AWAITED = frozenset((EnvelopeType.TIMER, EnvelopeType.ENDED, EnvelopeType.CHILD))


def give_up(live: Live, ticket: Ticket, error: BaseException) -> None:
    """Turn a message into a dead letter. Thread-safe."""
    core = live.core
    text = f"{type(error).__name__}: {text_of(error)}"
    kind, body = ticket.packed()
    change = Change(
        live.id,
        at=core.clock.now(),
        consumed=() if ticket.id is None else (ticket.id,),
        dead=(NewDead(ticket.id, live.id, kind, body, text),),
        finished_tasks=answered((ticket,)),
        epoch=live.epoch,
    )
    if ticket.id is not None:
        core.host.refusals[ticket.id] = error
    first = live.first
    is_first = first is None or first is ticket or not first.open or live.creates is not None
    bury(live, change, error, ticket, first=is_first)


def bury(
    live: Live, change: Change, error: BaseException, ticket: Ticket | None = None, *, first: bool
) -> None:
    """Commit a dead letter, and that its execution has failed if it cannot go on. Thread-safe.

    Args:
        live: the execution.
        change: consumes the message and adds the letter.
        error: why it is given up.
        ticket: who is told.
        first: whether the execution has not run, and this is what it was to begin with.

    """
    _Burial(live, change, error, ticket, first=first).submit()


class _Burial:
    """A dead letter on its way into the store."""

    __slots__ = ("_change", "_error", "_first", "_live", "_ticket")

    def __init__(
        self,
        live: Live,
        change: Change,
        error: BaseException,
        ticket: Ticket | None,
        *,
        first: bool,
    ) -> None:
        self._live = live
        self._change = change
        self._error = error
        self._ticket = ticket
        never_run = live.revision == NEVER_RUN and live.status == Status.ACTIVE
        self._first = first and never_run and not live.options.bodies

    def submit(self) -> None:
        """Submit it, as what it is now that the execution is as it is."""
        live, change, core = self._live, self._change, self._live.core
        if self._first:
            self._add_failed_start()
        elif change.dead[0].type in _AWAITED:
            try:
                row = core.store.execution(live.id)
            except Exception as error:  # noqa: BLE001 - it is all in the store: try again
                log.error("the store cannot be read; trying again", exc_info=error)
                core.clock.call_at(core.clock.now() + AGAIN, self.submit)
                return
            if row is not None and row.status == Status.ACTIVE:
                add_failure(change, row, failure_of(self._error))
        # Whoever starts an execution is told if there is no room: see `Run`.
        core.writer.submit(change, self._committed, insist=live.creates is None)

    def _add_failed_start(self) -> None:
        live, change = self._live, self._change
        failure = failure_of(self._error)
        change.kind = live.kind.name
        change.expected = NEVER_RUN
        change.version = getattr(live.kind, "version", 1)
        _fail(change, live.id, live.parent, failure)
        live.add_creation(change)

    def _committed(self, change: Change, failure: Exception | None) -> None:
        live, ticket = self._live, self._ticket
        core = live.core
        reason = None if change.refusal is None else change.refusal.reason
        if reason == "exists" or (failure is not None and live.creates is not None):
            why = failure or AlreadyThere(live.id)
            core.host.forget(live, why)
            if ticket is not None:
                ticket.consume(why)
            return
        if reason is not None and reason != "fenced":  # it has run meanwhile
            change.expected, change.refusal, change.messages = None, None, ()
            self._first = False
            self.submit()
            return
        if ticket is not None:
            core.host.refusals.pop(ticket.id, None)
            ticket.consume(failure or self._error)
        if change.expected is not None and failure is None and reason is None:
            live.creates = live.fetched = None
            live.loaded = False
            live.revision, live.status = change.revision, Status.FAILED
            core.host.deliver_rows(change.rows)
            core.watchers.tell(live.id)
        core.host.settle(live)


def add_failure(change: Change, row: ExecutionRow, failure: Failure) -> None:
    """Make a change mark an execution as failed, and leave its state."""
    change.kind = row.kind
    change.expected = row.revision
    change.state = row.state
    change.version = row.version
    _fail(change, row.id, row.parent, failure)


def _fail(change: Change, execution: str, parent: str | None, failure: Failure) -> None:
    change.status = Status.FAILED
    change.error = encode_failure(failure)
    if parent is not None:
        told = message_to_parent(parent, execution, Status.FAILED, error=failure)
        change.messages = (told,)


def failure_left(live: Live) -> bytes | None:
    """Return why an execution has failed, if it still lacks what it waits for. Thread-safe."""
    store = live.core.store
    cursor = None
    while True:
        page = store.dead(execution=live.id, after=cursor)
        if any(letter.type in _AWAITED for letter in page.rows):
            row = store.execution(live.id)
            return None if row is None else row.error
        cursor = page.after
        if cursor is None:
            return None
