"""Callers that wait: which of them waits for which message that is held.

A message that somebody waits for carries a *ticket*, wrapped around it as an `Item`. A ticket is
resolved exactly once: when its message was processed, or with the error that says why it never
will be. A producer that appends an `Item` to `raw` appends a mark to `marks` first, so that a
drain that sees no mark need not look for items. Behaviours of users take bare messages; their
fate is inferred from the payloads.
"""

from __future__ import annotations

from _thread import allocate_lock
from itertools import repeat
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.behaviour import Fate, Item
from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import Dropped, Duplicate, Expired, Replaced
from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.behaviours.behaviour import Behaviour
    from actorflow.runtime.worker.job.batch import Batch, Ticket
    from actorflow.runtime.worker.latency import LatencySampler
    from actorflow.runtime.worker.shape import Shape

__all__ = ["Callers", "displacement"]

_MARKING = allocate_lock()


def _renew_lock() -> None:
    global _MARKING  # noqa: PLW0603 - a thread that is not in the child may have held it
    _MARKING = allocate_lock()


after_fork(_renew_lock)


_DISPLACED: dict[Fate, Callable[[Any], Exception]] = {
    Fate.REPLACED: lambda message: Replaced(f"a newer message replaced {brief(message)}"),
    Fate.DROPPED: lambda message: Dropped(f"dropped to make room: {brief(message)}"),
    Fate.DUPLICATE: lambda message: Duplicate(f"came before: {brief(message)}"),
    Fate.EXPIRED: lambda message: Expired(f"waited too long: {brief(message)}"),
}


def displacement(fate: Fate, message: Any) -> Exception:
    """Return the error for the caller of a message that was displaced."""
    return _DISPLACED[fate](message)


def _is_abandoned(item: Item) -> bool:
    """Return whether all callers that waited for a message have given up."""
    return all(getattr(ticket, "abandoned", False) for ticket in item.tickets)


class Callers:
    """The tickets of the messages that one `Accumulation` holds."""

    __slots__ = (
        "_bare", "_gone", "_waiting", "abandoned", "behaviour", "folded", "given_up", "marks",
        "raw", "sampler", "shape",
    )  # fmt: skip

    behaviour: Behaviour
    shape: Shape
    marks: list[None] | tuple[()]
    """One for each item that was, or is about to be, appended to `raw`."""
    raw: list[Any]
    """Messages that were pushed, and that the behaviour has not got yet."""
    folded: int
    """Messages that have left `raw`, or were offered; refused ones included."""
    abandoned: int
    """Messages that were not handed over, because nobody waited for their answer any more."""
    given_up: bool
    """Whether a caller has given up since `withdraw_abandoned`."""
    sampler: LatencySampler | None
    """Times some messages, where they may overtake each other."""
    _waiting: dict[int, Item] | None
    """The message that each ticket, by its identity, waits for, until it leaves."""
    _gone: list[tuple[Item, Fate]] | None
    _bare: list[tuple[Any, Ticket | None]]
    """Where messages cannot carry tickets: those added since somebody began to wait."""

    def mark(self, count: int = 1) -> None:
        """Announce items that are about to be appended to `raw`. Thread-safe."""
        if type(self.marks) is tuple:
            UNINTERRUPTIBLE.run(self._make_marks)
        self.marks.extend((None,) * count)  # type: ignore[union-attr]

    def _make_marks(self) -> None:
        """Make the list of marks, once: most accumulations never need it."""
        with _MARKING:
            if type(self.marks) is tuple:
                self.marks = []

    # Tickets that come in.

    def _unmark(self, messages: list[Any]) -> None:
        """Remove the marks of the items among these messages, and note who waits."""
        items = [message for message in messages if type(message) is Item]
        if items:
            del self.marks[: len(items)]  # type: ignore[union-attr]
            self._begin_tracking()
            for item in items:
                self._await(item)

    def _sample(self, messages: list[Any], times: list[float] | None = None) -> None:
        """Have some of the messages timed."""
        if self.sampler is not None:
            for item in self.sampler.probe(messages, times):
                self._begin_tracking()
                self._await(item)

    def _begin_tracking(self) -> None:
        if self._gone is None and self.shape.tracks:
            self._gone = []
            self.behaviour.track(self._gone)

    def _await(self, item: Item) -> None:
        if item.tickets:
            if self._waiting is None:
                self._waiting = {}
            for ticket in item.tickets:
                self._waiting[id(ticket)] = item

    def _let_go(self, ticket: Ticket) -> None:
        if self._waiting is not None:
            self._waiting.pop(id(ticket), None)

    # Callers that give up.

    def give_up(self, ticket: Ticket) -> None:
        """Note that a caller waits no longer. Thread-safe, O(1).

        Its message is withdrawn when that makes a difference: before it would leave, be counted,
        or take the place of another one.
        """
        ticket.abandoned = True  # type: ignore[attr-defined] # tickets of `ask` have it
        self.given_up = True

    def withdraw_abandoned(self) -> None:
        """Forget the messages whose callers have all given up. O(raw messages + callers).

        Not where a held message may have been merged with others, or have replaced one.
        """
        self.given_up = False
        if self.marks:
            self._withdraw_raw()
        if self._waiting and self.shape.tracks and not self.behaviour.traits.shrinks:
            items = {id(item): item for item in self._waiting.values() if _is_abandoned(item)}
            for item in items.values():
                if self.behaviour.withdraw(item):
                    self.abandoned += 1
                    for ticket in item.tickets:
                        self._let_go(ticket)

    def _withdraw_raw(self) -> None:
        """Remove abandoned messages from `raw`, to which producers may append meanwhile."""
        raw, width = self.raw, self.shape.width
        for at in range(len(raw) - 1, -1, -width):
            item = raw[at]
            if type(item) is Item and _is_abandoned(item):
                del raw[at - width + 1 : at + 1]
                del self.marks[:1]  # type: ignore[union-attr]
                self._abandon(1)

    # Tickets that leave.

    def unwrap(self, payload: list[Any]) -> list[tuple[int, Ticket]] | None:
        """Replace the items of a batch that goes straight from `raw` to the job by their messages.

        Return their tickets with the places of the messages, the last one first. O(n).
        """
        if len(payload) == 1:  # as almost always when somebody waits
            item = payload[0]
            if type(item) is not Item:
                return None
            del self.marks[:1]  # type: ignore[union-attr]
            if getattr(item.tickets[0], "abandoned", False) and _is_abandoned(item):
                payload.clear()
                self._abandon(1)
                return None
            payload[0] = item.message
            if len(item.tickets) == 1:
                return [(0, item.tickets[0])]
            return list(zip(repeat(0), item.tickets))
        places = [at for at, message in enumerate(payload) if type(message) is Item]
        if not places:
            return None
        del self.marks[: len(places)]  # type: ignore[union-attr]
        abandoned = [at for at in places if _is_abandoned(payload[at])]
        if abandoned:
            for at in reversed(abandoned):
                del payload[at]
            self._abandon(len(abandoned))
            places = [at for at, message in enumerate(payload) if type(message) is Item]
        tickets: list[tuple[int, Ticket]] = []
        for at in reversed(places):
            item = payload[at]
            payload[at] = item.message
            tickets += zip(repeat(at), item.tickets)
        return tickets

    def _abandon(self, count: int) -> None:
        """Count messages that leave `raw` and are not handed over."""
        self.abandoned += count
        self.folded += count

    def _without_abandoned(self, payload: list[Any]) -> list[Any]:
        """Return a payload without the messages whose callers have all given up.

        Not where a message may be made of several, of which others have pushed one, and not where
        the behaviour counts the messages that it has handed over.
        """
        abandoned = [each for each in payload if type(each) is Item and _is_abandoned(each)]
        if not abandoned:
            return payload
        self.abandoned += len(abandoned)
        for item in abandoned:
            for ticket in item.tickets:
                self._let_go(ticket)
        return [each for each in payload if type(each) is not Item or each not in abandoned]

    def _collect(self, payload: Any) -> tuple[Any, list[tuple[int, Ticket]] | None]:
        """Find the tickets of those messages that leave with this payload."""
        tickets: list[tuple[int, Ticket]] = []
        if type(payload) is list:
            traits = self.behaviour.traits
            if not (traits.shrinks or traits.observes or traits.pads):
                payload = self._without_abandoned(payload)
            for at, item in enumerate(payload):
                if type(item) is Item:
                    tickets.extend((at, ticket) for ticket in item.tickets)
                    payload[at] = item.message
        elif type(payload) is Item:
            tickets.extend((0, ticket) for ticket in payload.tickets)
            payload = payload.message
        for _, ticket in tickets:
            self._let_go(ticket)
        tickets.reverse()
        return payload, tickets or None

    def _collect_bare(self, payload: Any) -> list[tuple[int, Ticket]] | None:
        """Find the tickets that leave with a payload of a behaviour that takes bare messages.

        Such a behaviour can make anything of a message. A caller is answered when its message is
        in a payload, at the latest when the behaviour has become empty.
        """
        places: dict[int, list[int]] = {}
        for at, message in enumerate(payload if type(payload) is list else [payload]):
            places.setdefault(id(message), []).append(at)
        tickets, hidden = [], []
        verbatim = False
        for message, ticket in self._bare:
            if place := places.get(id(message)):
                verbatim = True
                tickets.append((place.pop(), ticket))
            else:
                hidden.append((message, ticket))
        self._bare = hidden if len(self.behaviour) else []
        if not self._bare:
            for message, ticket in hidden:
                if not verbatim:
                    tickets.append((0, ticket))  # the payload was made of the messages
                elif ticket is not None:
                    self._let_go(ticket)
                    ticket.resolve(displacement(Fate.DROPPED, message))
        found = [(at, ticket) for at, ticket in reversed(tickets) if ticket is not None]
        for _, ticket in found:
            self._let_go(ticket)
        return found or None

    def take_back(self, batch: Batch) -> None:
        """Give the messages of a preempted batch to the behaviour, with all who wait for them."""
        callers: dict[int, list[Ticket]] = {}
        while batch.tickets:  # the last one first
            at, ticket = batch.tickets.pop()
            callers.setdefault(at, []).append(ticket)
        items = [
            Item(message, tuple(callers[at])) if at in callers else message
            for at, message in enumerate(batch.messages())
        ]
        if callers:
            self._begin_tracking()
            for item in items:
                if type(item) is Item:
                    self._await(item)
        self.behaviour.put_back(items)
        if self._gone:
            self._settle_gone()

    def _settle_gone(self) -> None:
        """Resolve the tickets of messages that were displaced."""
        gone = self._gone or []
        while gone:
            item, fate = gone.pop()
            for ticket in item.tickets:
                self._let_go(ticket)
                ticket.resolve(displacement(fate, item.message))

    @property
    def tracks_tickets(self) -> bool:
        """Whether messages have carried tickets into the behaviour."""
        return self._gone is not None
