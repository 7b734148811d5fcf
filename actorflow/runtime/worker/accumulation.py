"""The accumulator's logic, pure: what is accumulated, what leaves next, who waits for what.

No thread, no lock, no clock. The accumulator actor drives it under its lock, the embedded mode
from its owner's thread, the simulator in virtual time: all three run this very code.

Messages come in two ways. `raw` is a plain list that producers append to; `fold` moves what is
there into the behaviour, in one go. `offer` adds one message at once and says whether it was
accepted. A message that somebody waits for bears a *ticket*, which is resolved exactly once:
when its batch was processed, or with the error that says why that will never be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from actorflow.runtime.errors import BadBehaviour, Dropped, Expired, Replaced
from behaviours.base import Behaviour, Fate, Item, Tally
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from behaviours.base import Refusal

__all__ = ["Accumulation", "Batch", "Ticket"]

_DISPLACED: dict[Fate, Callable[[Any], Exception]] = {
    Fate.REPLACED: lambda message: Replaced(f"a newer message replaced {brief(message)}"),
    Fate.DROPPED: lambda message: Dropped(f"dropped to make room: {brief(message)}"),
    Fate.EXPIRED: lambda message: Expired(f"waited too long: {brief(message)}"),
}


class Ticket(Protocol):
    """Somebody who waits for a message."""

    def resolve(self, error: BaseException | None = None) -> None:
        """Tell the waiter: processed, or why it never will be. Called exactly once."""


class Batch:
    """What is handed to the job in one call."""

    __slots__ = ("failures", "parts", "payload", "size", "tickets")

    def __init__(
        self, payload: Any, size: int, tickets: list[tuple[int, Ticket]] | None = None
    ) -> None:
        self.payload = payload
        self.size = size
        self.tickets = tickets
        """Who waits, with the place of the message in the payload; the last one first."""
        self.failures = 0
        self.parts: tuple[Batch, Batch] | None = None
        """What was made of it by `halves`."""

    def __repr__(self) -> str:
        return f"Batch({self.payload!r:.100}, size={self.size})"

    def resolve(self, error: BaseException | None = None) -> None:
        """Tell everyone who waits for a message of this batch how it went.

        Each is told once, also if two threads do this at the same time, or one of them halves it.
        """
        for ticket in _popped(self.tickets):
            ticket[1].resolve(error)
        for part in self.parts or ():
            part.resolve(error)

    def halves(self) -> list[Batch]:
        """Split a batch whose payload is a list into its first and its second half."""
        middle = len(self.payload) // 2
        left, right = self.payload[:middle], self.payload[middle:]
        first: list[tuple[int, Ticket]] = []
        second: list[tuple[int, Ticket]] = []
        parts = Batch(left, len(left), first), Batch(right, len(right), second)
        self.parts = parts  # before the tickets move: who resolves this batch finds them there
        for at, ticket in _popped(self.tickets):
            if at < middle:
                first.append((at, ticket))
            else:
                second.append((at - middle, ticket))
        first.reverse()
        second.reverse()
        return list(parts)


def _popped(tickets: list[tuple[int, Ticket]] | None) -> Iterator[tuple[int, Ticket]]:
    """Take tickets out one by one, so that none is seen by two threads."""
    while tickets:
        try:
            yield tickets.pop()
        except IndexError:
            return


class Accumulation:
    """Messages on their way to one executor.

    Args:
        behaviour: how they accumulate; it must be claimed for this accumulation (`adapt`).
        refused: called with each refusal of a message that came in raw, where nobody waits.

    """

    __slots__ = (
        "_gone", "_loose", "_refused", "_tickets", "_waiting", "behaviour", "due", "folded",
        "observed", "raw", "rejected", "stamped", "taken", "timed",
    )  # fmt: skip

    def __init__(
        self,
        behaviour: Behaviour,
        refused: Callable[[Sequence[Any], Exception], None] | None = None,
    ) -> None:
        self.behaviour = behaviour
        self.raw: list[Any] = []
        self.folded = 0
        """Messages that have reached the behaviour, refused ones included."""
        self.rejected = 0
        """How many of them it refused."""
        self.taken = 0
        """Batches handed over."""
        self.due: float | None = None
        """After a `take` that gave nothing: when to try again, if time alone will change it."""
        self.timed = behaviour.traits.timed
        self.stamped = behaviour.traits.stamped
        self.observed = behaviour.traits.observes
        self._refused = refused
        self._waiting = 0  # tickets not yet resolved or handed over in a batch
        self._tickets: dict[int, Ticket] | None = None  # they themselves, by identity
        self._gone: list[tuple[Item, Fate]] | None = None
        self._loose: list[tuple[Any, Ticket, bool]] | None = None

    def __len__(self) -> int:
        """Count what is accumulated, raw messages included."""
        return len(self.raw) + len(self.behaviour)

    def fold(self, now: float = 0.0) -> None:
        """Move the raw messages into the behaviour. O(n), mostly in C.

        Producers may append meanwhile: the list is cut, never replaced, because one of them may
        hold it.
        """
        raw = self.raw
        count = len(raw)
        if not count:
            return
        messages = raw[:count]
        del raw[:count]
        self.folded += count
        if self.stamped:
            self.behaviour.ready_at(now)
        refusals = self.behaviour.extend(messages)
        if refusals:
            self._refuse(refusals)
        if self._gone or self._loose:
            self._settle_gone()

    def offer(self, message: Any, ticket: Ticket | None = None, now: float = 0.0) -> None:
        """Add one message now; `fold` first, so that the order of arrival holds.

        Raises:
            Exception: what the behaviour raised to refuse it, usually `Rejected`. The ticket is
                then not resolved: the caller knows.

        """
        if self.stamped:
            self.behaviour.ready_at(now)
        self.folded += 1
        try:
            if ticket is None:
                self.behaviour.add(message)
            else:
                self._offer_tracked(message, ticket)
        except Exception:
            self.rejected += 1
            raise
        if self._gone or self._loose:
            self._settle_gone()

    def offer_alone(self, message: Any, ticket: Ticket | None) -> Batch | None:
        """Add a message where nothing is held, and take it at once: what an idle worker does.

        `None` says that this is not such a case: nothing was done, use `offer` and `take`.
        """
        behaviour = self.behaviour
        if self.raw or self.timed or not behaviour.traits.trackable or len(behaviour):
            return None
        self.folded += 1
        try:
            behaviour.add(message)
        except Exception:
            self.rejected += 1
            raise
        self.taken += 1
        return Batch(behaviour.take(), 1, None if ticket is None else [(0, ticket)])

    def unoffer(self) -> None:
        """Take back that a message was counted as refused: it is going to be offered again."""
        self.folded -= 1
        self.rejected -= 1

    def offer_many(
        self, pairs: Sequence[tuple[Any, Ticket]], now: float = 0.0
    ) -> list[tuple[Ticket, Exception]]:
        """Add messages with their tickets, as `offer` would one by one; give those refused."""
        self._begin_tracking()
        refused: list[tuple[Ticket, Exception]] = []
        if self._loose is not None or len(pairs) == 1:
            for message, ticket in pairs:
                try:
                    self.offer(message, ticket, now)
                except Exception as error:  # noqa: BLE001 - concerns this message alone
                    refused.append((ticket, error))
            return refused
        if self.stamped:
            self.behaviour.ready_at(now)
        self.folded += len(pairs)
        self._waiting += len(pairs)
        if self._tickets is None:
            self._tickets = {}
        self._tickets.update((id(ticket), ticket) for _, ticket in pairs)
        for items, why in self.behaviour.extend([Item(message, (t,)) for message, t in pairs]):
            self.rejected += len(items)
            for item in items:
                for ticket in item.tickets:
                    self._let_go(ticket)
                    refused.append((ticket, why))
        if self._gone:
            self._settle_gone()
        return refused

    def _begin_tracking(self) -> None:
        if self._gone is None and self._loose is None:
            if self.behaviour.traits.trackable:
                self._gone = []
                self.behaviour.track(self._gone)
            else:
                self._loose = []

    def _offer_tracked(self, message: Any, ticket: Ticket) -> None:
        self._begin_tracking()
        if self._loose is not None:
            self.behaviour.add(message)
            self._loose.append((message, ticket, id(message) in self._held()))
        else:
            self.behaviour.add(Item(message, (ticket,)))
        if self._tickets is None:
            self._tickets = {}
        self._tickets[id(ticket)] = ticket
        self._waiting += 1

    def take(self, now: float = 0.0) -> Batch | None:
        """Hand over the next batch, if there is one and it may leave now.

        Otherwise `due` says when to try again, or is `None` if nothing is held.
        """
        behaviour = self.behaviour
        self.due = None
        while held := len(behaviour):
            if self.timed:
                ready = behaviour.ready_at(now)
                if ready > now:
                    self.due = ready
                    return None
            payload = behaviour.take()
            tickets = None
            if self._gone:
                self._settle_gone()
            if self._waiting:
                payload, tickets = self._collect(payload)
            size = len(payload) if type(payload) is list else held - len(behaviour)
            if size == 0 and type(payload) is list and not behaviour.traits.expires:
                msg = f"take of {behaviour!r} handed nothing over, though its len is {held}"
                raise BadBehaviour(msg)
            if size or not behaviour.traits.expires:
                self.taken += 1
                return Batch(payload, size, tickets)
        return None

    def _collect(self, payload: Any) -> tuple[Any, list[tuple[int, Ticket]] | None]:
        """Find the tickets of those messages that leave with this payload."""
        tickets: list[tuple[int, Ticket]] = []
        if self._loose is not None:
            places = _places(payload)
            tickets.extend(
                (places.get(id(message), 0), ticket) for message, ticket in self._collect_loose()
            )
        elif type(payload) is list:
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

    def _collect_loose(self) -> list[tuple[Any, Ticket]]:
        """Find the tickets whose messages a behaviour of the user's does not hold any more.

        It takes bare messages only, so they are told apart by identity. Where the very same
        object is held several times, a waiter is answered only when there are fewer of them left
        than waiters, and where the behaviour does not list its messages, when it is empty: late
        rather than too early. O(n) in what is held.
        """
        loose, self._loose = self._loose or [], []
        empty = not len(self.behaviour)
        held = {} if empty else self._held()
        tickets = []
        for message, ticket, listed in reversed(loose):
            left = held.get(id(message), 0)
            if left or not (listed or empty):
                held[id(message)] = left - 1
                self._loose.append((message, ticket, listed))
            else:
                tickets.append((message, ticket))
        self._loose.reverse()
        tickets.reverse()
        return tickets

    def _held(self) -> dict[int, int]:
        """Count by identity what a behaviour of the user's says it holds."""
        held: dict[int, int] = {}
        if hasattr(self.behaviour, "__iter__"):
            for message in self.behaviour:
                held[id(message)] = held.get(id(message), 0) + 1
        return held

    def _refuse(self, refusals: Iterable[Refusal]) -> None:
        for messages, error in refusals:
            self.rejected += len(messages)
            self._report(messages, error)

    def _report(self, messages: Sequence[Any], error: Exception) -> None:
        if self._refused is not None:
            self._refused(messages, error)

    def _settle_gone(self) -> None:
        """Tell those whose messages were displaced."""
        gone = self._gone or []
        while gone:
            item, fate = gone.pop()
            for ticket in item.tickets:
                self._let_go(ticket)
                ticket.resolve(_DISPLACED[fate](item.message))
        if self._loose and len(self.behaviour):
            for message, ticket in self._collect_loose():
                self._let_go(ticket)
                ticket.resolve(_DISPLACED[Fate.DROPPED](message))

    def _let_go(self, ticket: Ticket) -> None:
        self._waiting -= 1
        if self._tickets is not None:
            self._tickets.pop(id(ticket), None)

    def abandon(self, error: BaseException) -> int:
        """Forget all that has been folded, telling those who wait. Returns how many.

        Nothing is taken from the behaviour for that: it may be the one that failed.
        """
        tickets, self._tickets = self._tickets, None
        self._waiting = 0
        self._gone = self._loose = None
        for ticket in (tickets or {}).values():
            ticket.resolve(error)
        behaviour = self.behaviour
        self.behaviour = ended = _Ended()
        ended.total = behaviour.tally()
        return len(behaviour)


class _Ended(Behaviour):
    """What is left of a behaviour when its worker has ended: the counts."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        super().__init__()
        self.total = Tally()

    def __len__(self) -> int:
        return 0

    def tally(self) -> Tally:
        """Count what the behaviour had counted."""
        return self.total


def _places(payload: Any) -> dict[int, int]:
    """Find where in a payload each message is."""
    return {id(message): at for at, message in enumerate(payload)} if type(payload) is list else {}
