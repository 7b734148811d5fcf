"""The admission of messages to the inbox of an execution: at once, or in a lane.

Problem
    The writer delivers messages, and must never run code of a user: a key function that hangs would
    stop all commits. But some behaviours call such functions when a message is added.

Approach
    An inbox whose behaviour runs no user code gets messages directly from the writer. Any other one
    has an `AdmissionLane`: the writer appends to a line, and a thread of the pool decodes, adds and
    resolves the callers.

Invariants
    1. One thread at a time admits messages to an inbox: the one that has popped `_gate`. It puts
       the flag back and then looks at the line again, so no message is stranded.
    2. Messages are admitted in the order in which the writer appended them.
    3. A message that was accepted before (read from the store again) is not rejected because the
       inbox is full. It waits in `_patient`, and nothing overtakes it there. It is rejected only if
       even an empty inbox refuses it.
    4. The callers of a rejected message are resolved when its dead letter is stored, not before.
    5. If user code raises, only the messages at hand become dead letters.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.engine import bodies
from actorflow.engine.envelopes import Message, TimerFired, unpack
from actorflow.engine.errors import EngineClosed
from actorflow.engine.executions.loaded import Both, MessageTicket
from actorflow.engine.executions.ownership import refusal_of
from actorflow.engine.stores.protocol import NEVER_RUN
from actorflow.runtime import tracing
from actorflow.runtime.errors import Full, WorkerStopped
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.envelopes import Envelope
    from actorflow.engine.executions.dead_lettering import DeadLettering
    from actorflow.engine.executions.loaded import LoadedExecution
    from actorflow.engine.stores.protocol import MessageRow, TaskRow
    from actorflow.runtime.lanes.lane import RuntimeLane

    _Pairs: TypeAlias = "list[tuple[Any, MessageTicket]]"
    _Refused: TypeAlias = "Sequence[tuple[Any, Exception]]"
    _Told: TypeAlias = "list[tuple[Any, Exception | None]]"

__all__ = ["AdmissionLane", "InboxAdmission"]


class InboxAdmission:
    """Hands messages to the inboxes of executions.

    Args:
        letters: stores rejected messages as dead letters.
        lane: runs code of users.

    """

    def __init__(self, letters: DeadLettering, lane: RuntimeLane) -> None:
        self._letters = letters
        self._lane = lane

    def prepare(self, live: LoadedExecution) -> None:
        """Open an execution that has just been loaded, or give it a lane that does so."""
        quick = getattr(live.kind, "quick", None)
        if quick is not None and quick(live.id):
            live.open()
        else:
            live.lane = AdmissionLane(live, self._letters, self._lane)

    def accumulate(
        self,
        live: LoadedExecution,
        rows: Sequence[MessageRow],
        waiters: dict[Any, Any] | None,
        acks: Sequence[Any],
        *,
        accepted: bool,
    ) -> _Told:
        """Accumulate stored messages; return the callers to resolve now. In the writer's thread.

        `acks` are pairs of a caller that waits until its message is accumulated, and the id of
        that message. Messages `accepted` before are not rejected because the inbox is
        full.
        """
        unwrapped = live.options.bodies
        pairs = []
        unreadable: list[tuple[MessageTicket, MessageRow, Exception]] = []
        item: Any
        for row in rows:
            number, _, type_, body, at, _ = row
            waiter = waiters.pop(number, None) if waiters else None
            try:
                if unwrapped and type_ == "message":
                    item = bodies.decode(body)
                else:
                    item = unpack(number, at, type_, body)
            except Exception as error:  # noqa: BLE001 - it becomes a dead letter, others go on
                unreadable.append((MessageTicket(live, number, None, waiter), row, error))
                continue
            ticket = MessageTicket(live, number, item, waiter)
            if tracing.TRACER is not None:
                ticket.context = bodies.split_context(body)[0]
            pairs.append((item, ticket))
        live.unconsumed += len(rows)
        live.last = rows[-1].id
        if live.first is None and live.revision == NEVER_RUN and pairs:
            live.first = pairs[0][1]
        if live.seen_ids is not None:
            live.seen_ids.update(row.id for row in rows)
        if unreadable:
            acks = _await_letters([ticket for ticket, _, _ in unreadable], acks)
            for ticket, row, why in unreadable:
                self._letters.give_up_unread(live, ticket, row, why)
        if live.lane is None:
            return _admit(self._letters, live, pairs, acks)
        live.lane.add(pairs, acks, accepted=accepted)
        return []

    def offer_unstored(
        self, live: LoadedExecution, envelope: Envelope, waiter: Any, task: TaskRow | None
    ) -> bool:
        """Accumulate a message that is not stored; return whether that was possible. Thread-safe.

        It need not be stored: its pusher waits for the outcome, or it answers a task, which is
        stored until the answer has been consumed. It neither displaces nor overtakes a stored
        message.
        """
        port = live.port
        if port is None or not live.takes_unstored or live.has_unread:
            return False
        if live.lane is not None and not live.lane.is_clear:
            return False
        item: Any = envelope
        if live.options.bodies and type(envelope) is Message:
            item = envelope.body
        ticket = MessageTicket(live, None, item, waiter, task)
        try:
            refused = port.offer([(item, ticket)])
        except WorkerStopped:
            return False
        for _, error in refused:
            self._letters.give_up(live, ticket, error)
        return True

    def tell_outcome(self, live: LoadedExecution, waiting: Sequence[Any], number: Any) -> None:
        """Resolve the callers that sent a message twice. In the writer's thread.

        While messages wait in the lane, the outcome may be unknown: then the callers wait there.
        """
        if live.lane is not None and not live.lane.is_clear:
            live.lane.add([], [(each, number) for each in waiting], accepted=False)
            return
        error = _outcome_of(self._letters, number)
        for each in waiting:
            each.resolve(error)

    def nudge(self, live: LoadedExecution) -> None:
        """Make the inbox look again at what it holds back. Thread-safe."""
        nothing = TimerFired(None, 0.0, "", 0.0)
        pairs: _Pairs = [(nothing, MessageTicket(live, None, nothing))]
        if live.lane is None:
            _admit(self._letters, live, pairs, ())
        else:
            live.lane.add(pairs, (), accepted=False)


class AdmissionLane:
    """Admits messages to an inbox that runs code of a user. Thread-safe."""

    __slots__ = ("_gate", "_lane", "_letters", "_line", "_live", "_patient")

    def __init__(self, live: LoadedExecution, letters: DeadLettering, lane: RuntimeLane) -> None:
        self._live = live
        self._letters = letters
        self._lane = lane
        self._line: deque[tuple[_Pairs, Sequence[Any], bool]] = deque()
        self._patient: _Pairs = []  # accepted earlier; they wait for room
        self._gate: list[None] = [None]  # atomic flag: the thread that pops it admits messages

    @property
    def is_clear(self) -> bool:
        """Whether no message waits here or is being admitted."""
        return bool(self._gate) and not (self._line or self._patient)

    def add(self, pairs: _Pairs, acks: Sequence[Any], *, accepted: bool) -> None:
        """Admit messages, soon; see `accumulate`. Without messages, resolve `acks` of earlier ones.

        Messages that were `accepted` before are not rejected because the inbox is full.
        """
        self._line.append((pairs, acks, accepted))
        self._enter()

    def look(self) -> None:
        """Admit waiting messages, if there is room by now."""
        if self._patient or self._line:
            self._enter()

    def _enter(self) -> None:
        """Schedule `run`, unless that is done."""
        try:
            self._gate.pop()
        except IndexError:
            return
        self._lane.submit(self)

    def run(self) -> None:
        """Accumulate the messages that wait. Only the pool calls this."""
        live, line = self._live, self._line
        look = bool(self._patient)
        while line or look:
            pairs, acks, accepted = line.popleft() if line else ([], (), True)
            look = False
            told: Sequence[tuple[Any, BaseException | None]]
            try:
                if live.port is None:
                    live.open()
                    if live.options.bodies:
                        pairs = _unwrapped(pairs)
                        for at, (more, others, known) in enumerate(line):
                            line[at] = _unwrapped(more), others, known
                if pairs or accepted:
                    told = self._admit(pairs, acks, accepted=accepted)
                else:  # callers of earlier messages
                    letters = self._letters
                    told = [(each, _outcome_of(letters, number)) for each, number in acks]
            except BaseException as error:  # noqa: BLE001 - code of a user: others go on
                log.error("messages refused", execution=live.id, exc_info=error)
                pairs, self._patient = [*self._patient, *pairs], []
                _refuse(self._letters, live, pairs, acks, error)
                continue
            for waiter, refusal in told:
                waiter.resolve(refusal)
        self._gate.append(None)
        if line or (self._patient and not self._makes_room()):  # the writer has just added more
            self._enter()

    def _admit(self, pairs: _Pairs, acks: Sequence[Any], *, accepted: bool) -> _Told:
        """Accumulate messages behind the ones that wait for room."""
        live, patient = self._live, self._patient
        if patient:
            pairs = [*patient, *pairs]
        may_wait = pairs if accepted else patient
        empty = bool(may_wait) and live.port is not None and not live.port.depth
        refused = _offer(live, pairs)
        self._patient = []
        if refused:
            if may_wait:
                refused = self._let_wait(refused, may_wait, sure=pairs[0][1] if empty else None)
            acks = _reject(self._letters, live, refused, acks)
        return [(waiter, None) for waiter, _ in acks]

    def _let_wait(
        self, refused: _Refused, accepted: _Pairs, *, sure: MessageTicket | None
    ) -> _Refused:
        """Keep messages that were accepted earlier until there is room; return the rejected ones.

        There will never be room for one that is refused although the inbox is empty (`sure`).
        """
        full = {ticket for ticket, refusal in refused if isinstance(refusal, Full)} - {sure}
        self._patient = [pair for pair in accepted if pair[1] in full]  # in their order
        waiting = {ticket for _, ticket in self._patient}
        return [each for each in refused if each[0] not in waiting]

    def _makes_room(self) -> bool:
        """Return whether a message will leave the inbox: its commit makes the table look here."""
        port = self._live.port
        return port is not None and port.depth > 0 and not port.is_stopping


def _unwrapped(pairs: _Pairs) -> _Pairs:
    """Return bodies instead of envelopes: what the behaviour of some kinds holds."""
    for _, ticket in pairs:
        if type(ticket.item) is Message:
            ticket.item = ticket.item.body
    return [(ticket.item, ticket) for _, ticket in pairs]


def _offer(live: LoadedExecution, pairs: _Pairs) -> _Refused:
    """Accumulate messages; return the tickets of the rejected ones with the reasons."""
    if live.port is None:
        msg = f"execution {live.id!r} has no worker"
        raise WorkerStopped(msg)
    try:
        return live.port.offer(pairs)
    except WorkerStopped as error:  # the engine is being closed: it is all in the store
        closed = EngineClosed("the engine was closed; the message is stored")
        closed.__cause__ = error
        for _, ticket in pairs:
            ticket.consume(closed)
        return ()


def _admit(
    letters: DeadLettering, live: LoadedExecution, pairs: _Pairs, acks: Sequence[Any]
) -> _Told:
    """Accumulate messages; return the callers to resolve now: pairs of a waiter and no error.

    The callers of rejected messages are resolved when the dead letters are stored.
    """
    refused = _offer(live, pairs)
    if refused:
        acks = _reject(letters, live, refused, acks)
    return [(waiter, None) for waiter, _ in acks]


def _reject(
    letters: DeadLettering, live: LoadedExecution, refused: _Refused, acks: Sequence[Any]
) -> Sequence[Any]:
    """Make dead letters of messages; return the callers of the others."""
    others = _await_letters([ticket for ticket, _ in refused], acks)
    for ticket, refusal in refused:
        letters.give_up(live, ticket, refusal)
    return others


def _refuse(
    letters: DeadLettering,
    live: LoadedExecution,
    pairs: _Pairs,
    acks: Sequence[Any],
    error: BaseException,
) -> None:
    """Make dead letters of messages for which code of a user has raised."""
    tickets = [ticket for _, ticket in pairs if ticket.open]
    for waiter, _ in _await_letters(tickets, acks):
        waiter.resolve(error)
    for ticket in tickets:
        letters.give_up(live, ticket, error)


def _await_letters(tickets: Sequence[MessageTicket], acks: Sequence[Any]) -> Sequence[Any]:
    """Let callers wait until their messages are dead letters; return the others."""
    if not acks:
        return acks
    given = {ticket.id: ticket for ticket in tickets}
    for waiter, number in acks:
        if number in given:
            ticket = given[number]
            ticket.waiter = waiter if ticket.waiter is None else Both(waiter, ticket.waiter)
    return [each for each in acks if each[1] not in given]


def _outcome_of(letters: DeadLettering, number: Any) -> BaseException | None:
    return letters.refusals.get(number) or refusal_of(letters.store, number)
