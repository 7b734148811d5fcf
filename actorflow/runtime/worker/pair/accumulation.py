"""The pure logic of the accumulator: held messages, and the next batch.

The accumulator drives it under its lock, embedded mode from its owner's thread, the simulator in
virtual time.

Messages come in two ways. `raw` is a plain list that producers append to; `fold` moves its
messages into the behaviour. `offer` adds one message at once and says whether it was accepted. Who
waits for which of them is in `callers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.behaviours import Chunk
from actorflow.behaviours.behaviour import (
    Behaviour,
    Fate,
    Item,
    MessageOutcome,
    Reason,
    Tally,
    unwrap,
)
from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadBehaviour
from actorflow.runtime.worker.job.batch import Batch
from actorflow.runtime.worker.latency import Probe
from actorflow.runtime.worker.pair.callers import Callers, displacement
from actorflow.runtime.worker.shape import QUEUE, STACK, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.behaviours.behaviour import Refusal
    from actorflow.runtime.worker.job.batch import Ticket
    from actorflow.runtime.worker.shape import Shape

__all__ = [
    "LONG",
    "NEVER",
    "Accumulation",
    "Counts",
]

NEVER = 2**30 - 1
"""More messages than there can be. Python compares numbers up to this one fastest."""
LONG = 1_024
"""Raw messages from which small batches are not cut: each cut moves all that come after."""


class Counts(NamedTuple):
    """What became of the messages so far; they add up at every moment.

    `accepted = handed + replaced + merged + dropped + expired + abandoned + held`.
    """

    accepted: int
    rejected: int
    replaced: int
    merged: int
    dropped: int
    expired: int
    held: int
    abandoned: int


class Accumulation(Callers):
    """Messages on their way to one executor.

    Args:
        behaviour: how they accumulate; it must have been claimed (`adapt`), or be `QUEUE` or
            `STACK`.

    """

    __slots__ = (
        "batches", "dead_lettered", "due", "failed", "first_at", "handed", "in_flight", "lost",
        "oldest_at", "past", "portion", "processed", "refusals", "rejected",
    )  # fmt: skip

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.shape = shape_of(behaviour)
        self.portion = _portion(behaviour, self.shape)
        """How many messages of a plain line make a batch; 0 for any other behaviour."""
        self.past: Tally | None = None
        """What earlier behaviours have counted, if this is not the first."""
        self.raw: list[Any] = []
        self.first_at = 0.0
        self.oldest_at = 0.0
        """When the oldest message of a behaviour with time arrived; 0.0 where nobody knows."""
        self.rejected = 0
        self.lost = 0
        """Messages that a custom behaviour dropped without reporting it, and leftovers."""
        self.batches = 0
        """Batches handed over."""
        self.handed = 0
        """Messages that `take` has handed over."""
        self.due: float | None = None
        """After a `take` that returned nothing: when to try again, if time alone changes it."""
        self.in_flight = self.processed = self.failed = self.dead_lettered = 0
        """What became of the messages that were handed over."""
        self.refusals: list[Refusal] | None = None
        """Refused messages without waiting callers, until they are reported."""
        # What `Callers` says of itself; in one call, because workers are made by the thousand.
        self.marks = ()
        self.folded = self.abandoned = 0
        self.given_up = False
        self.sampler = self._waiting = self._gone = None
        self._bare = []

    def __len__(self) -> int:
        """Return how many messages are accumulated, raw ones included."""
        return self.raw_count() + len(self.behaviour)

    def raw_count(self) -> int:
        """Return how many messages are in `raw`. Thread-safe."""
        return len(self.raw) // self.shape.width

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
            # Almost all times are in order already, so sorting takes one fast pass.
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
        """Add raw messages, and settle the ones that are refused or displaced by that."""
        self._own()
        shape, behaviour = self.shape, self.behaviour
        if self.given_up and behaviour.traits.bounded:
            self.withdraw_abandoned()
        if self.marks:
            self._unmark(messages)
        if self.sampler is not None:
            self._sample(messages, times)
        if self._bare:
            self._bare += [(message, None) for message in messages]
        refusals = (
            behaviour.extend(messages) if times is None else behaviour.extend_at(messages, times)
        )
        if refusals:
            self._refuse(refusals)
        if not shape.tracks:
            self._balance_bare()
        if self._gone:
            self._settle_gone()

    def _own(self) -> None:
        """Take a line of its own instead of the shared one, before something is put in."""
        if self.behaviour is QUEUE or self.behaviour is STACK:
            self.behaviour = type(self.behaviour)()  # unclaimed, but nobody else knows it

    def offer(self, message: Any, ticket: Ticket | None = None, now: float = 0.0) -> None:
        """Add one message now; `fold` first, so that the order of arrival holds.

        Raises:
            Exception: what the behaviour raised to refuse it, usually `Rejected`. The ticket is
                not resolved then, because the caller knows.

        """
        self._own()
        behaviour = self.behaviour
        if self.given_up and behaviour.traits.bounded:
            self.withdraw_abandoned()
        self.note_time(now)
        self.folded += 1
        waited_for = None if ticket is None else Item(message, (ticket,))
        if ticket is not None:
            self._begin_tracking()
        item = message if waited_for is None or not self.shape.tracks else waited_for
        if self.sampler is not None:
            sampled = [item]
            self._sample(sampled)
            item = sampled[0]
        try:
            behaviour.add(item)
        except BaseException:
            self.rejected += 1
            raise
        if waited_for is not None:
            self._await(item if type(item) is Item else waited_for)
        if not self.shape.tracks:
            if ticket is not None or self._bare:
                self._bare.append((message, ticket))
            self._balance_bare()
        if self._gone:
            self._settle_gone()

    def reenter(self, message: Any, tickets: tuple[Ticket, ...], now: float) -> None:
        """Like `offer`, for a message that the job asks for again, with all who wait for it."""
        if not self.shape.tracks or not tickets:
            self.offer(message, tickets[0] if tickets else None, now)
            return
        self._own()
        self.note_time(now)
        self.folded += 1
        self._begin_tracking()
        item = Item(message, tickets)
        try:
            self.behaviour.add(item)
        except BaseException:
            self.rejected += 1
            raise
        self._await(item)
        if self._gone:
            self._settle_gone()

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
        if not self.shape.tracks or len(pairs) == 1:
            for message, ticket in pairs:
                try:
                    self.offer(message, ticket, now)
                except Exception as error:  # noqa: BLE001 - concerns this message alone
                    refused.append((ticket, error))
            return refused
        self.note_time(now)
        self.folded += len(pairs)
        offered = [Item(message, (ticket,)) for message, ticket in pairs]
        for item in offered:
            self._await(item)
        for items, why in self.behaviour.extend(offered):
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

    def take(  # noqa: C901 - called for each batch, so nothing is moved into calls of its own
        self, now: float = 0.0, free: int = 1
    ) -> Batch | None:
        """Hand over the next batch, if there is one and it may leave now.

        `free` is the number of executors that are free, this one included. Without a batch, `due`
        says when to try again, or is `None` if nothing is held.
        """
        behaviour = self.behaviour
        if self.given_up and (behaviour.traits.observes or behaviour.traits.pads):
            self.withdraw_abandoned()
        fruitless = False
        while self.ready(now):
            held = len(behaviour)
            payload = behaviour.take(free=free) if self.shape.spreads else behaviour.take()
            if self._gone:
                self._settle_gone()
            left = held - len(behaviour)
            tickets: list[tuple[int, Ticket]] | None = None
            listed = type(payload) is list
            may_be_empty = behaviour.traits.expires or behaviour.traits.may_be_empty
            if not may_be_empty and listed and not payload:
                msg = f"take of {behaviour!r} returned nothing, though its len was {held}"
                raise BadBehaviour(msg)
            if self._bare:
                tickets = self._collect_bare(payload)
            elif self._waiting:
                payload, tickets = self._collect(payload)
            size = len(payload) if listed else 1
            if not self.shape.tracks:
                size = min(left if left > 0 else size, self._outstanding())
            elif not listed and left > 1:
                size = left  # something was made of several messages
            fill = behaviour.padding() if behaviour.traits.pads else 0
            size -= fill
            withdrawn = listed and not payload
            if size or not (withdrawn or may_be_empty):
                self.batches += 1
                self.handed += size
                if not self.shape.tracks:
                    self._balance()
                reason = behaviour.reason() if self.shape.explains else Reason.IDLE
                return Batch(payload, size, tickets, reason, fill=fill)
            fruitless = self._was_fruitless(left, fruitless)
        return None

    def take_steering(self, now: float = 0.0) -> Batch | None:
        """Hand over the messages that may join a batch which is running, if there are any now.

        They are no batch of their own, so none is counted.
        """
        behaviour = self.behaviour
        if self.given_up:
            self.withdraw_abandoned()
        if not self.ready(now):
            return None
        if behaviour.traits.expires:  # else the first messages may vanish, and others come instead
            behaviour.purge()
            if self._gone:
                self._settle_gone()
        if not (self.ready(now) and behaviour.steers()):
            return None
        taken = self.take(now)
        if taken is not None:
            self.batches -= 1
        return taken

    def _was_fruitless(self, left: int, before: bool) -> bool:  # noqa: FBT001 - as it returned
        """Return whether an empty `take` has forgotten nothing either.

        Raises:
            BadBehaviour: for the second time, so it would be asked for ever.

        """
        if left == 0 and before:
            msg = (
                f"ready_at of {self.behaviour!r} says that a batch may leave, but take returns "
                f"nothing of the {len(self.behaviour)} held; return a later time from ready_at"
            )
            raise BadBehaviour(msg)
        return left == 0

    def _balance_bare(self) -> None:
        """Count messages that were dropped; if none is held, resolve the callers of all."""
        self._balance()
        if self._bare and not len(self.behaviour):
            dropped, self._bare = self._bare, []
            for message, ticket in dropped:
                if ticket is not None:
                    self._let_go(ticket)
                    ticket.resolve(displacement(Fate.DROPPED, message))

    def report(
        self, batch: Batch, took: float, outcome: MessageOutcome | Sequence[MessageOutcome]
    ) -> None:
        """Tell the behaviour what a call of the job has made of a batch, or of each message.

        A behaviour that raises is not called again for this batch; the error is noted.
        """
        messages = batch.messages()
        batch.is_reported = True
        if isinstance(outcome, MessageOutcome):
            outcome = [outcome] * len(messages)
        try:
            self.behaviour.done(messages, took, outcome)
        except Exception as error:  # noqa: BLE001 - the batch has been processed nevertheless
            failure = BadBehaviour(f"done of {self.behaviour!r} raised {brief(error)}")
            failure.__cause__ = error
            self.note_refusal((), failure)
        if self._gone:  # it has looked for what may leave now, and found expired messages
            self._settle_gone()

    # Who waits.

    def _refuse(self, refusals: Iterable[Refusal]) -> None:
        for messages, error in refusals:
            self.rejected += len(messages)
            if not self._waiting:  # so none of them carries a ticket
                self.note_refusal(messages, error)
                continue
            silent = []
            for message in messages:
                waited_for = False
                for ticket in message.tickets if type(message) is Item else ():
                    waited_for = waited_for or type(ticket) is not Probe
                    self._let_go(ticket)
                    ticket.resolve(error)
                if not waited_for:
                    silent.append(unwrap(message))
            if silent:
                self.note_refusal(silent, error)

    def note_refusal(self, messages: Sequence[Any], error: Exception) -> None:
        """Keep a refusal until it is reported. O(1). No messages: the behaviour has failed."""
        if self.refusals is None:
            self.refusals = []
        self.refusals.append((messages, error))

    def take_refusals(self) -> list[Refusal]:
        """Return the refusals since the last call."""
        refusals, self.refusals = self.refusals, None
        return refusals or []

    def _outstanding(self) -> int:
        """Return how many messages a custom behaviour should still hold."""
        tally = self.tally()
        gone = tally.replaced + tally.merged + tally.dropped + tally.expired
        return self.folded - self.rejected - self.lost - self.handed - gone

    def _balance(self) -> None:
        """Count messages that a custom behaviour has dropped without reporting it."""
        self.lost += max(self._outstanding() - len(self.behaviour), 0)

    # The end, and the counts.

    def abandon(self, error: BaseException) -> int:
        """Forget all that has been folded, resolving the tickets. Return how many messages.

        Nothing is taken from the behaviour for that: it may be the one that failed.
        """
        waiting, self._waiting = self._waiting, None
        self._gone, self._bare = None, []
        for one, item in (waiting or {}).items():
            for ticket in item.tickets:
                if id(ticket) == one:  # an item that was merged with others has theirs, too
                    ticket.resolve(error)
        self.behaviour = _Ended(self.behaviour)
        tally = self.tally()
        gone = tally.replaced + tally.merged + tally.dropped + tally.expired
        handed = self.processed + self.failed + self.dead_lettered + self.in_flight
        handed = max(handed, self.handed)  # a plain line counts the one, a bare core the other
        # Computed from the counts, because a behaviour that failed may not know what it holds.
        left = self.folded - self.rejected - self.lost - self.abandoned - gone - handed
        self.lost += left
        return left

    def tally(self) -> Tally:
        """Return what this behaviour and earlier ones have counted. O(1)."""
        tally = self.behaviour.tally()
        return tally if self.past is None else tally + self.past

    def exchange(self, behaviour: Behaviour) -> None:
        """Go on with another behaviour, which holds the same messages. `raw` is empty."""
        self.past = self.tally()
        self.behaviour = behaviour
        self.shape = shape_of(behaviour)
        self.portion = _portion(behaviour, self.shape)
        for item in list((self._waiting or {}).values()):
            for ticket in item.tickets:
                if type(ticket) is Probe:
                    self._let_go(ticket)
        if not self.shape.tracks:
            self._gone = None
        if self._gone is not None:
            behaviour.track(self._gone)

    def counts(self) -> Counts:
        """Return what became of the messages so far. O(1)."""
        raw = self.raw_count()
        tally = self.tally()
        held = len(self.behaviour)
        if not self.shape.tracks:  # the length of a custom behaviour may mean anything
            held = min(held, self._outstanding())
        return Counts(
            accepted=self.folded + raw - self.rejected,
            rejected=self.rejected,
            replaced=tally.replaced,
            merged=tally.merged,
            dropped=tally.dropped + self.lost,
            expired=tally.expired,
            held=raw + held,
            abandoned=self.abandoned,
        )


def _portion(behaviour: Behaviour, shape: Shape) -> int:
    """Return how many messages of a plain line make a batch; 0 for any other behaviour."""
    if type(behaviour) is Chunk:
        return (behaviour.portion() or 0) if behaviour.cuts_a_line else 0
    return NEVER if shape.turns is not None else 0


class _Ended(Behaviour):
    """Stands for a behaviour whose worker has ended: it has only the counts."""

    __slots__ = ("total",)

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__()
        self.total = behaviour.tally()

    def __len__(self) -> int:
        return 0

    def tally(self) -> Tally:
        """Return what the behaviour had counted."""
        return self.total
