"""What is accumulated, what leaves next and who waits for what: the accumulator's logic, pure.

No thread, no lock, no clock. The accumulator drives it under its lock, the embedded mode from
its owner's thread, the simulator in virtual time: all three run this very code.

Messages come in two ways. `raw` is a plain list that producers append to; `fold` moves what is
there into the behaviour. `offer` adds one message at once and says whether it was accepted. A
message that somebody waits for carries a *ticket*, wrapped around it as an `Item`. A ticket is
resolved exactly once: when its message was processed, or with the error that says why it never
will be. A producer that appends an `Item` to `raw` appends a mark to `marks` first, so that a
drain that sees no mark need not look for items.
"""

from __future__ import annotations

from _thread import allocate_lock
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.runtime.errors import BadBehaviour
from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.shelter import SHELTER
from actorflow.runtime.worker.pair.batch import Batch
from actorflow.runtime.worker.pair.loose import Loose, displacement
from behaviours import Chunk, Queue, Stack
from behaviours.base import Behaviour, Fate, Item, Reason, Tally, adapt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.runtime.worker.pair.batch import Ticket
    from behaviours.base import Refusal

__all__ = [
    "FOLD_AT",
    "LONG",
    "NEVER",
    "QUEUE",
    "STACK",
    "Accumulation",
    "Counts",
    "Shape",
    "fold_at",
]

FOLD_AT = 2_048
"""Raw messages at which a producer has them folded, for behaviours with a bound.

A bound can be exceeded by what is raw: at most `4 * FOLD_AT` messages, and for each producer what
it pushes in one call. What is handed to the job, and what `push_ack` accepts, is within the bound.
Without a bound there is nothing to exceed, so behaviours that only shrink let four times as many
lie before they are folded: each fold on behalf of a main thread is handed to another thread.
"""

NEVER = 2**30 - 1
"""More messages than there can be. Python compares numbers up to this one fastest."""
LONG = 1_024
"""Raw messages from which small batches are not cut: each cut moves all that come after."""

QUEUE, STACK = adapt(Queue), adapt(Stack)
"""Empty lines that all accumulations share until one puts something in, which most never do."""

_MARKING = allocate_lock()


def _renew_lock() -> None:
    global _MARKING  # noqa: PLW0603 - a thread that is not in the child may have held it
    _MARKING = allocate_lock()


after_fork(_renew_lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How messages reach a behaviour: what its traits mean for whoever pushes."""

    timed: bool
    stamped: bool
    """`raw` holds each message after the time of its arrival."""
    width: int
    """Entries of `raw` per message."""
    first_stamped: bool
    """`first_at` is the time of the first message in `raw`."""
    observed: bool
    explains: bool
    """It can say why a batch left."""
    tracks: bool
    """It takes messages wrapped in `Item`."""
    accepts_all: bool
    """Nothing is ever refused or displaced, so whoever waits need not wait for a verdict."""
    bounded: bool
    folds: bool
    """It holds fewer messages than arrive, so producers fold a long `raw`."""
    divides: bool
    """A batch may leave others behind that came with it."""
    turns: bool | None
    """A plain line, of which a drain takes all: `False` for `Queue`, `True` for `Stack`."""


_TURNS: dict[type[Behaviour], bool] = {Queue: False, Stack: True}
_SHAPES: dict[tuple[type[Behaviour], Any], Shape] = {}
_LATEST: dict[type[Behaviour], tuple[Any, Shape]] = {}
"""The traits last seen of each class and what they mean: hashing traits takes long."""


def _shape(behaviour: Behaviour) -> Shape:
    kind, traits = type(behaviour), behaviour.traits
    latest = _LATEST.get(kind)
    if latest is not None and latest[0] is traits:
        return latest[1]
    found = _SHAPES.get((kind, traits))
    if found is None:
        displaces = traits.blocks or traits.shrinks or traits.bounded or traits.expires
        found = _SHAPES[kind, traits] = Shape(
            timed=traits.timed,
            stamped=traits.stamped,
            width=2 if traits.stamped else 1,
            first_stamped=traits.first_stamped and not traits.stamped,
            observed=traits.observes,
            explains=kind.reason is not Behaviour.reason,
            tracks=traits.trackable,
            accepts_all=traits.accepts_all and traits.trackable and not displaces,
            bounded=traits.bounded,
            folds=traits.shrinks or traits.bounded,
            divides=kind is Chunk,
            turns=_TURNS.get(kind),
        )
    _LATEST[kind] = traits, found
    return found


def fold_at(shape: Shape) -> int:
    """Return how many raw messages make a producer fold, for a shape that folds."""
    return FOLD_AT if shape.bounded else 4 * FOLD_AT


class Counts(NamedTuple):
    """What became of the messages so far; they add up at every moment.

    `accepted = handed + replaced + merged + dropped + expired + held`.
    """

    accepted: int
    rejected: int
    replaced: int
    merged: int
    dropped: int
    expired: int
    held: int


class Accumulation:
    """Messages on their way to one executor.

    Args:
        behaviour: how they accumulate; it must have been claimed (`adapt`), or be `QUEUE` or
            `STACK`.

    """

    __slots__ = (
        "_gone", "_loose", "_waiting", "batches", "behaviour", "dead_lettered",
        "due", "failed", "first_at", "folded", "handed", "in_flight", "lost", "marks", "oldest_at",
        "portion", "processed", "raw", "refusals", "rejected", "shape",
    )  # fmt: skip

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.shape = _shape(behaviour)
        self.portion = NEVER if self.shape.turns is not None else 0
        """How many messages of a plain line make a batch; 0 if the behaviour is none."""
        if type(behaviour) is Chunk:
            self.portion = behaviour.portion or 0
        self.raw: list[Any] = []
        self.marks: list[None] | tuple[()] = ()
        """One for each item that was, or is about to be, appended to `raw`."""
        self.first_at = 0.0
        self.oldest_at = 0.0
        """When the oldest message of a behaviour with time arrived; 0.0 where nobody knows."""
        self.folded = 0
        """Messages that have left `raw`, or were offered; refused ones included."""
        self.rejected = 0
        self.lost = 0
        """Messages that a behaviour of the user's let go without saying so, and leftovers."""
        self.batches = 0
        """Batches handed over."""
        self.handed = 0
        """Messages that `take` has handed over."""
        self.due: float | None = None
        """After a `take` that returned nothing: when to try again, if time alone changes it."""
        self.in_flight = self.processed = self.failed = self.dead_lettered = 0
        """What became of the messages that were handed over."""
        self.refusals: list[Refusal] | None = None
        """What was refused for which nobody waits, until somebody reports it."""
        self._waiting: dict[int, Ticket] | None = None  # by identity, until they leave
        self._gone: list[tuple[Item, Fate]] | None = None
        self._loose: Loose | None = None

    def __len__(self) -> int:
        """Return how many messages are accumulated, raw ones included."""
        return self.raw_count() + len(self.behaviour)

    def raw_count(self) -> int:
        """Return how many messages are in `raw`. Thread-safe."""
        return len(self.raw) // self.shape.width

    def mark(self, count: int = 1) -> None:
        """Announce items that are about to be appended to `raw`. Thread-safe."""
        if type(self.marks) is tuple:
            SHELTER.run(self._make_marks)
        self.marks.extend((None,) * count)  # type: ignore[union-attr]

    def _make_marks(self) -> None:
        """Make the list of marks, once: most accumulations never need it."""
        with _MARKING:
            if type(self.marks) is tuple:
                self.marks = []

    # Taking messages in.

    def fold(self, now: float = 0.0, count: int | None = None) -> None:
        """Move raw messages into the behaviour: all of them, or the oldest `count`. O(n).

        Producers may append meanwhile: the list is cut, never replaced, because one of them may
        hold it.
        """
        raw = self.raw
        shape, behaviour = self.shape, self.behaviour
        length = len(raw)
        if count is not None:
            length = min(length, count * shape.width)
        if not length:
            return
        messages = raw[shape.width - 1 : length : shape.width]
        times: list[float] | None = raw[:length:2] if shape.stamped else None
        del raw[:length]
        self.folded += length // shape.width
        if times is not None:
            # Producers read the clock before they append, so neighbours may be out of order.
            # What is in order already, as almost all of it is, is sorted in one fast pass.
            times.sort()
            if not len(behaviour):
                self.oldest_at = times[0]
        elif shape.timed:
            first_at = min(self.first_at or now, now)
            if not len(behaviour):
                self.oldest_at = first_at
            if shape.first_stamped:
                behaviour.ready_at(first_at)
        self._absorb(messages, times)

    def _absorb(self, messages: list[Any], times: list[float] | None) -> None:
        """Add messages that were raw, and settle those that are refused or displaced for it."""
        self._own()
        shape, behaviour = self.shape, self.behaviour
        items = self._unmark(messages) if self.marks else []
        loose = self._loose
        if loose is not None and items:
            messages = [item.message if type(item) is Item else item for item in messages]
        if loose is not None:
            loose.saw(messages)
        refusals = (
            behaviour.extend(messages) if times is None else behaviour.extend_at(messages, times)
        )
        if refusals:
            self._refuse(refusals)
        if not shape.tracks:
            self._balance()
        if loose is not None:
            for item in items:
                loose.add(item.message, item.tickets, behaviour)
            self._settle_loose()
        elif self._gone:
            self._settle_gone()

    def _own(self) -> None:
        """Take a line of its own instead of the shared one, before something is put in."""
        if self.behaviour is QUEUE or self.behaviour is STACK:
            self.behaviour = type(self.behaviour)()  # unclaimed, but nobody else knows it

    def _unmark(self, messages: list[Any]) -> list[Item]:
        """Return the items among these messages, and remove their marks."""
        items = [message for message in messages if type(message) is Item]
        if items:
            del self.marks[: len(items)]  # type: ignore[union-attr]
            self._begin_tracking()
            for item in items:
                self._await(item.tickets)
        return items

    def unwrap(self, payload: list[Any]) -> list[tuple[int, Ticket]] | None:
        """Replace the items of a batch that goes straight from `raw` to the job by their messages.

        Return their tickets with the places of the messages, the last one first. O(n).
        """
        if len(payload) == 1:  # as almost always when somebody waits
            item = payload[0]
            if type(item) is not Item:
                return None
            payload[0] = item.message
            del self.marks[:1]  # type: ignore[union-attr]
            if len(item.tickets) == 1:
                return [(0, item.tickets[0])]
            return list(zip(repeat(0), item.tickets))
        places = [at for at, message in enumerate(payload) if type(message) is Item]
        if not places:
            return None
        del self.marks[: len(places)]  # type: ignore[union-attr]
        tickets: list[tuple[int, Ticket]] = []
        for at in reversed(places):
            item = payload[at]
            payload[at] = item.message
            tickets += zip(repeat(at), item.tickets)
        return tickets

    def offer(self, message: Any, ticket: Ticket | None = None, now: float = 0.0) -> None:
        """Add one message now; `fold` first, so that the order of arrival holds.

        Raises:
            Exception: what the behaviour raised to refuse it, usually `Rejected`. The ticket is
                not resolved then, because the caller knows.

        """
        self._own()
        behaviour = self.behaviour
        self.note_time(now)
        self.folded += 1
        tickets = () if ticket is None else (ticket,)
        if ticket is not None:
            self._begin_tracking()
        loose = self._loose
        try:
            if ticket is not None and loose is None:
                behaviour.add(Item(message, tickets))
            else:
                behaviour.add(message)
        except BaseException:
            self.rejected += 1
            raise
        self._await(tickets)
        if loose is not None:
            loose.saw((message,))
            if ticket is not None:
                loose.add(message, tickets, behaviour)
        if not self.shape.tracks:
            self._balance()
        if self._gone:
            self._settle_gone()
        elif loose is not None:
            self._settle_loose()

    def note_time(self, now: float) -> None:
        """Pass the time of the next arrival to a behaviour that needs it."""
        if self.shape.timed:
            self.behaviour.ready_at(now)
            if not len(self.behaviour):
                self.oldest_at = now

    def unoffer(self) -> None:
        """Undo the count of a refused message that is going to be offered again."""
        self.folded -= 1
        self.rejected -= 1

    def offer_many(
        self, pairs: Sequence[tuple[Any, Ticket]], now: float = 0.0
    ) -> list[tuple[Ticket, Exception]]:
        """Add messages with their tickets, like `offer` one by one; return those refused."""
        self._own()
        self._begin_tracking()
        refused: list[tuple[Ticket, Exception]] = []
        if self._loose is not None or len(pairs) == 1:
            for message, ticket in pairs:
                try:
                    self.offer(message, ticket, now)
                except Exception as error:  # noqa: BLE001 - concerns this message alone
                    refused.append((ticket, error))
            return refused
        self.note_time(now)
        self.folded += len(pairs)
        for _, ticket in pairs:
            self._await((ticket,))
        for items, why in self.behaviour.extend([Item(message, (t,)) for message, t in pairs]):
            self.rejected += len(items)
            for item in items:
                for ticket in item.tickets:
                    self._let_go(ticket)
                    refused.append((ticket, why))
        if self._gone:
            self._settle_gone()
        return refused

    # Handing batches over.

    def ready(self, now: float = 0.0) -> bool:
        """Return whether what the behaviour holds may leave now; else set `due`."""
        self.due = None
        if not len(self.behaviour):
            return False
        if self.shape.timed:
            ready = self.behaviour.ready_at(now)
            if ready > now:
                self.due = ready
                return False
        return True

    def take(self, now: float = 0.0) -> Batch | None:
        """Hand over the next batch, if there is one and it may leave now.

        Otherwise `due` says when to try again, or is `None` if nothing is held.
        """
        behaviour = self.behaviour
        while self.ready(now):
            held = len(behaviour)
            payload = behaviour.take()
            if self._gone:
                self._settle_gone()
            left = held - len(behaviour)
            tickets: list[tuple[int, Ticket]] | None = None
            listed = type(payload) is list
            if self._loose is not None:
                tickets = self._loose.collect(payload, behaviour, self._let_go)
            elif self._waiting:
                payload, tickets = self._collect(payload)
            size = len(payload) if listed else 1
            if not behaviour.traits.expires and listed and not payload:
                msg = f"take of {behaviour!r} returned nothing, though its len was {held}"
                raise BadBehaviour(msg)
            if not self.shape.tracks:
                size = min(left if left > 0 else size, self._outstanding())
            elif not listed and left > 1:
                size = left  # something was made of several messages
            if size or not behaviour.traits.expires:
                self.batches += 1
                self.handed += size
                if not self.shape.tracks:
                    self._balance()
                reason = behaviour.reason() if self.shape.explains else Reason.IDLE
                return Batch(payload, size, tickets, reason)
        return None

    def _collect(self, payload: Any) -> tuple[Any, list[tuple[int, Ticket]] | None]:
        """Find the tickets of those messages that leave with this payload."""
        tickets: list[tuple[int, Ticket]] = []
        if type(payload) is list:
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

    # Who waits.

    def _begin_tracking(self) -> None:
        if self._gone is None and self._loose is None:
            if self.shape.tracks:
                self._gone = []
                self.behaviour.track(self._gone)
            else:
                self._loose = Loose()

    def _await(self, tickets: tuple[Ticket, ...]) -> None:
        if tickets:
            if self._waiting is None:
                self._waiting = {}
            for ticket in tickets:
                self._waiting[id(ticket)] = ticket

    def _let_go(self, ticket: Ticket) -> None:
        if self._waiting is not None:
            self._waiting.pop(id(ticket), None)

    def _refuse(self, refusals: Iterable[Refusal]) -> None:
        for messages, error in refusals:
            self.rejected += len(messages)
            if not self._waiting:  # so none of them carries a ticket
                self.note_refusal(messages, error)
                continue
            silent = []
            for message in messages:
                if type(message) is Item and message.tickets:
                    for ticket in message.tickets:
                        self._let_go(ticket)
                        ticket.resolve(error)
                else:
                    silent.append(message)
            if silent:
                self.note_refusal(silent, error)

    def note_refusal(self, messages: Sequence[Any], error: Exception) -> None:
        """Keep a refusal for whoever reports it. O(1). No messages: the behaviour has failed."""
        if self.refusals is None:
            self.refusals = []
        self.refusals.append((messages, error))

    def take_refusals(self) -> list[Refusal]:
        """Return the refusals since the last call."""
        refusals, self.refusals = self.refusals, None
        return refusals or []

    def _outstanding(self) -> int:
        """Return how many messages a behaviour of the user's should still hold."""
        tally = self.behaviour.tally()
        gone = tally.replaced + tally.merged + tally.dropped + tally.expired
        return self.folded - self.rejected - self.lost - self.handed - gone

    def _balance(self) -> None:
        """Count what a behaviour of the user's has let go without saying so."""
        self.lost += max(self._outstanding() - len(self.behaviour), 0)

    def _settle_gone(self) -> None:
        """Resolve the tickets of messages that were displaced."""
        gone = self._gone or []
        while gone:
            item, fate = gone.pop()
            for ticket in item.tickets:
                self._let_go(ticket)
                ticket.resolve(displacement(fate, item.message))

    def _settle_loose(self) -> None:
        if self._loose is not None:
            for message, ticket in self._loose.displaced(self.behaviour):
                self._let_go(ticket)
                ticket.resolve(displacement(Fate.DROPPED, message))

    # The end, and the books.

    def abandon(self, error: BaseException) -> int:
        """Forget all that has been folded, resolving the tickets. Return how many messages.

        Nothing is taken from the behaviour for that: it may be the one that failed.
        """
        waiting, self._waiting = self._waiting, None
        self._gone = self._loose = None
        for ticket in (waiting or {}).values():
            ticket.resolve(error)
        self.behaviour = ended = _Ended(self.behaviour)
        tally = ended.total
        gone = tally.replaced + tally.merged + tally.dropped + tally.expired
        handed = self.processed + self.failed + self.dead_lettered + self.in_flight
        handed = max(handed, self.handed)  # a plain line counts the one, a bare core the other
        # By the books, because a behaviour that failed may not know what it holds.
        left = self.folded - self.rejected - self.lost - gone - handed
        self.lost += left
        return left

    def counts(self) -> Counts:
        """Return what became of the messages so far. O(1)."""
        raw = self.raw_count()
        tally = self.behaviour.tally()
        held = len(self.behaviour)
        if not self.shape.tracks:  # what a behaviour of the user's calls its length is its own
            held = min(held, self._outstanding())
        return Counts(
            accepted=self.folded + raw - self.rejected,
            rejected=self.rejected,
            replaced=tally.replaced,
            merged=tally.merged,
            dropped=tally.dropped + self.lost,
            expired=tally.expired,
            held=raw + held,
        )


class _Ended(Behaviour):
    """What is left of a behaviour when its worker has ended: the counts."""

    __slots__ = ("total",)

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__()
        self.total = behaviour.tally()

    def __len__(self) -> int:
        return 0

    def tally(self) -> Tally:
        """Return what the behaviour had counted."""
        return self.total
