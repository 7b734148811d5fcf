"""What is under way in a pair: batches and other tasks, the seats that perform them, and effects.

A *ticket* belongs to somebody who waits for a message; it travels with the batch.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from behaviours.base import Reason
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from actorflow.runtime.worker.pair.accumulator import Accumulator

__all__ = ["Batch", "Effects", "Failed", "Nobody", "Order", "Seat", "Task", "Ticket"]


class Ticket(Protocol):
    """A caller that waits for a message."""

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """Say that the message was processed, or why it never will be. Called exactly once."""


class Batch:
    """What is handed to the job in one call."""

    __slots__ = ("attempt", "parts", "payload", "reason", "size", "tickets")

    def __init__(
        self,
        payload: Any,
        size: int,
        tickets: list[tuple[int, Ticket]] | None = None,
        reason: Reason = Reason.IDLE,
    ) -> None:
        self.payload = payload
        self.size = size
        """How many messages it is made of."""
        self.tickets = tickets
        """Who waits, with the place of the message in the payload; the last one first."""
        self.reason = reason
        """Why it left."""
        self.attempt = 1
        """1 for the first call of the job with it."""
        self.parts: tuple[Batch, ...] | None = None
        """What `split` has made of it."""

    def __repr__(self) -> str:
        return f"Batch({brief(self.payload)}, size={self.size}, reason={self.reason.value!r})"

    def resolve(self, error: BaseException | None = None) -> None:
        """Resolve every ticket of this batch and of its parts.

        Each is resolved once, even if two threads do this at the same time or one splits it.
        """
        tickets = self.tickets
        while tickets:
            try:
                _, ticket = tickets.pop()
            except IndexError:
                break
            ticket.resolve(error)
        if self.parts:
            for part in self.parts:
                part.resolve(error)

    def answer(self, answers: Sequence[Any]) -> None:
        """Resolve every ticket with the answer to its message."""
        tickets = self.tickets
        while tickets:  # `_popped`, inlined: callers wait
            try:
                at, ticket = tickets.pop()
            except IndexError:
                break
            ticket.resolve(None, answers[at])

    def messages(self) -> list[Any]:
        """Return the messages one by one; a payload that is no list counts as one."""
        return self.payload if type(self.payload) is list else [self.payload]

    def halves(self) -> list[Batch]:
        """Split a batch whose payload is a list into its first and its second half."""
        return self.split([(0, len(self.payload) // 2), (len(self.payload) // 2, None)])

    def singles(self, places: Iterable[int]) -> list[Batch]:
        """Split off the messages at these places, each as a batch of its own."""
        if type(self.payload) is not list:
            return self.split([(0, 1)])
        return self.split([(at, at + 1) for at in places])

    def split(self, ranges: list[tuple[int, int | None]]) -> list[Batch]:
        """Split into parts by their places in the payload; tickets move with the messages."""
        payload = self.messages()
        own: list[list[tuple[int, Ticket]]] = [[] for _ in ranges]
        parts = []
        for (start, end), tickets in zip(ranges, own, strict=True):
            chosen: Any = payload[start:end]
            if type(self.payload) is not list:
                chosen = self.payload
            part = Batch(chosen, len(payload[start:end]), tickets, self.reason)
            part.attempt = self.attempt
            parts.append(part)
        if parts:  # where the payload has another length than there were messages
            whole = type(self.payload) is not list or sum(p.size for p in parts) == len(payload)
            if whole:
                parts[-1].size += self.size - sum(part.size for part in parts)
            self.size -= sum(part.size for part in parts)
        self.parts = tuple(parts)  # before the tickets move: a late resolve finds them there
        kept = []
        for at, ticket in _popped(self.tickets):
            for (start, end), tickets in zip(ranges, own, strict=True):
                if start <= at and (end is None or at < end):
                    tickets.append((at - start, ticket))
                    break
            else:
                kept.append((at, ticket))
        if self.tickets is not None:
            self.tickets += reversed(kept)
        for tickets in own:
            tickets.reverse()
        return parts


def _popped(tickets: list[tuple[int, Ticket]] | None) -> Iterator[tuple[int, Ticket]]:
    """Take tickets out one by one, so that none is seen by two threads."""
    while tickets:
        try:
            yield tickets.pop()
        except IndexError:
            return


class Order(Enum):
    """What a seat is to do other than to process a batch."""

    SERVE = "serve"
    """Answer mail."""
    ON_START = "on_start"
    ON_IDLE = "on_idle"
    ON_STOP = "on_stop"


class Failed:
    """What a seat is to do after the behaviour has raised: crash with that error."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


Task: TypeAlias = Batch | Order | Failed


class Seat:
    """One of several batches that may be in flight at once."""

    __slots__ = ("batch", "first", "pair", "parts", "span")

    def __init__(self, pair: Accumulator) -> None:
        self.pair = pair
        self.batch: Batch | None = None
        self.first: Task | None = None
        """What it does first when the lane runs it."""
        self.parts: list[Batch] | None = None
        """What a failure policy has made of the batch and is still to be run, last one first."""
        self.span: tuple[float, float, float] | None = None
        """Between which moments the messages of the batch arrived, and when it was taken."""

    def run(self) -> None:
        """Process batches for a while. Only the lane calls this."""
        self.pair.run(self)


class Effects:
    """What is done after the lock is free."""

    __slots__ = ("cut", "dead", "error", "executor_gone", "incarnation", "seats")

    def __init__(self) -> None:
        self.seats: list[Any] = []
        """To be submitted to the lane."""
        self.cut: list[Batch] = []
        """Cut off: their callers are told."""
        self.error: BaseException | None = None
        """What they are told, if it is not that the pair has ended."""
        self.executor_gone = False
        self.incarnation: int | None = None
        """Which executor has gone, counted by restarts, where it may have been replaced since."""
        self.dead = False


class Nobody:
    """The token of a pair that has ended: true like any other, and does nothing if it is run."""

    __slots__ = ()

    def run(self) -> None:
        """Do nothing."""
