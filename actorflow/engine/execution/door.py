"""How messages come into the inbox of an execution: at once, or through a door.

Where the behaviour runs code of a user's, messages are let in by a lane, so that the writer never
waits for such code. What was accepted earlier, and has come from the store again, waits beside the
door while the inbox is full; nothing overtakes it there.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.engine.envelopes import Message, TimerFired
from actorflow.engine.errors import EngineClosed
from actorflow.engine.execution.letters import give_up
from actorflow.engine.execution.ticket import Both, Ticket
from actorflow.runtime.errors import Full, WorkerStopped
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.execution.live import Live

    _Pairs: TypeAlias = "list[tuple[Any, Ticket]]"
    _Refused: TypeAlias = "Sequence[tuple[Any, Exception]]"
    _Told: TypeAlias = "list[tuple[Any, Exception | None]]"

__all__ = ["Door", "admit", "nudge", "tell_outcome"]


def admit(live: Live, pairs: _Pairs, acks: Sequence[Any]) -> _Told:
    """Accumulate messages; return the callers to tell now: pairs of a waiter and no error.

    `acks` are pairs of a caller, who waits until it is accumulated, and the id of its message.
    Those whose message is rejected are told when the dead letter is stored.
    """
    refused = _offer(live, pairs)
    if refused:
        acks = _reject(live, refused, acks)
    return [(waiter, None) for waiter, _ in acks]


def tell_outcome(live: Live, waiting: Sequence[Any], number: Any) -> None:
    """Resolve the tickets of senders that sent a message twice. In the writer's thread.

    Where it waits at the door, nobody knows yet: then they wait there, too.
    """
    if live.door is not None and not live.door.is_clear:
        live.door.add([], [(each, number) for each in waiting], accepted=False)
        return
    error = _outcome_of(live, number)
    for each in waiting:
        each.resolve(error)


def nudge(live: Live) -> None:
    """Make the inbox look again at what it holds back. Thread-safe."""
    nothing = TimerFired(None, 0.0, "", 0.0)
    pairs: _Pairs = [(nothing, Ticket(live, None, nothing))]
    if live.door is None:
        admit(live, pairs, ())
    else:
        live.door.add(pairs, (), accepted=False)


class Door:
    """Lets messages into an inbox that runs code of a user's. Thread-safe."""

    __slots__ = ("_gate", "_line", "_live", "_patient")

    def __init__(self, live: Live) -> None:
        self._live = live
        self._line: deque[tuple[_Pairs, Sequence[Any], bool]] = deque()
        self._patient: _Pairs = []  # accepted earlier; they wait for room
        self._gate: list[None] = [None]  # the token of whoever lets messages in

    @property
    def is_clear(self) -> bool:
        """Whether nothing waits here, and nobody is letting anything in."""
        return bool(self._gate) and not (self._line or self._patient)

    def add(self, pairs: _Pairs, acks: Sequence[Any], *, accepted: bool) -> None:
        """Let messages in, soon; see `admit`. Without any, tell what became of earlier ones.

        Where they were `accepted` before, they are not rejected now because the inbox is full.
        """
        self._line.append((pairs, acks, accepted))
        self._enter()

    def look(self) -> None:
        """Let in what waits, if there is room by now."""
        if self._patient or self._line:
            self._enter()

    def _enter(self) -> None:
        """Schedule `run`, unless that is done."""
        try:
            self._gate.pop()
        except IndexError:
            return
        POOL.submit(self)

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
                else:  # they ask what became of an earlier one
                    told = [(each, _outcome_of(live, number)) for each, number in acks]
            except BaseException as error:  # noqa: BLE001 - a user's code: others go on
                log.error("messages refused", execution=live.id, exc_info=error)
                pairs, self._patient = [*self._patient, *pairs], []
                _refuse(live, pairs, acks, error)
                continue
            for waiter, refusal in told:
                waiter.resolve(refusal)
        self._gate.append(None)
        if line or (self._patient and not self._makes_room()):  # the writer has just added more
            self._enter()

    def _admit(self, pairs: _Pairs, acks: Sequence[Any], *, accepted: bool) -> _Told:
        """Like `admit`, after those that wait for room."""
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
            acks = _reject(live, refused, acks)
        return [(waiter, None) for waiter, _ in acks]

    def _let_wait(self, refused: _Refused, accepted: _Pairs, *, sure: Ticket | None) -> _Refused:
        """Keep what was accepted earlier until there is room; return what is rejected.

        There will never be room for one that is refused although nothing is held (`sure`).
        """
        full = {ticket for ticket, refusal in refused if isinstance(refusal, Full)} - {sure}
        self._patient = [pair for pair in accepted if pair[1] in full]  # in their order
        waiting = {ticket for _, ticket in self._patient}
        return [each for each in refused if each[0] not in waiting]

    def _makes_room(self) -> bool:
        """Return whether something will leave the inbox: its commit makes the host look here."""
        port = self._live.port
        return port is not None and port.depth > 0 and not port.is_stopping


def _unwrapped(pairs: _Pairs) -> _Pairs:
    """Return bodies instead of envelopes: what the behaviour of some kinds holds."""
    for _, ticket in pairs:
        if type(ticket.item) is Message:
            ticket.item = ticket.item.body
    return [(ticket.item, ticket) for _, ticket in pairs]


def _offer(live: Live, pairs: _Pairs) -> _Refused:
    """Accumulate messages; return the tickets of those that are refused, and why."""
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


def _reject(live: Live, refused: _Refused, acks: Sequence[Any]) -> Sequence[Any]:
    """Make dead letters of messages; return the callers that none of them is of."""
    others = _await_burial([ticket for ticket, _ in refused], acks)
    for ticket, refusal in refused:
        give_up(live, ticket, refusal)
    return others


def _refuse(live: Live, pairs: _Pairs, acks: Sequence[Any], error: BaseException) -> None:
    """Make dead letters of what a user's code would not take."""
    tickets = [ticket for _, ticket in pairs if ticket.open]
    for waiter, _ in _await_burial(tickets, acks):
        waiter.resolve(error)
    for ticket in tickets:
        give_up(live, ticket, error)


def _await_burial(tickets: Sequence[Ticket], acks: Sequence[Any]) -> Sequence[Any]:
    """Let callers wait until their messages are dead letters; return the others."""
    if not acks:
        return acks
    given = {ticket.id: ticket for ticket in tickets}
    for waiter, number in acks:
        if number in given:
            ticket = given[number]
            ticket.waiter = waiter if ticket.waiter is None else Both(waiter, ticket.waiter)
    return [each for each in acks if each[1] not in given]


def _outcome_of(live: Live, number: Any) -> BaseException | None:
    host = live.core.host
    return host.refusals.get(number) or host.refusal_of(number)
