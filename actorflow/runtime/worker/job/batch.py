"""Batches: the messages handed to the job in one call, and their waiting callers.

A *ticket* belongs to a caller that waits for a message; it travels with the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from actorflow.behaviours.behaviour import MessageOutcome, Reason
from actorflow.behaviours.errors import brief
from actorflow.runtime.tickets import resolve_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Batch", "Ticket"]


class Ticket(Protocol):
    """A caller that waits for a message. If its attribute `abandoned` is true, it has given up."""

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """Report that the message was processed, or why it never will be. Called exactly once."""


class Batch(Struct, eq=False):
    """The input of one call of the job. A struct, because one is made for each call."""

    payload: Any
    size: int
    """How many messages it is made of."""
    tickets: list[tuple[int, Ticket]] | None = None
    """Who waits, with the place of the message in the payload; the last one first."""
    reason: Reason = Reason.IDLE
    """Why it left."""
    attempt: int = 1
    """1 for the first call of the job with it."""
    fill: int = 0
    """How many items at the end of the payload are not messages."""
    outcomes: list[MessageOutcome] | None = None
    """The outcome of each message, if not all were processed."""
    is_reported: bool = False
    """Whether the behaviour knows what happened to the messages."""
    not_before: float | None = None
    """When it may run again, after it has failed."""
    parts: tuple[Batch, ...] | None = None
    """What `split` has made of it."""
    cancelled: bool = False
    """Whether it was preempted (see `Preempt`). A job in a thread looks at it and returns early."""

    def __repr__(self) -> str:
        return f"Batch({brief(self.payload)}, size={self.size}, reason={self.reason.value!r})"

    @property
    def abandoned(self) -> bool:
        """Whether every message was asked, and all callers have given up since.

        A slow job may look at it and stop early.
        """
        tickets = tuple(self.tickets or ())
        waited_for = len({at for at, _ in tickets})
        left = any(not getattr(ticket, "abandoned", False) for _, ticket in tickets)
        return 0 < self.size == waited_for and not left

    def resolve(self, error: BaseException | None = None) -> None:
        """Resolve every ticket of this batch and of its parts. Without tickets, nobody waits.

        Each is resolved once, even if two threads do this at the same time or one splits it.
        """
        tickets = self.tickets
        if tickets is not None and len(tickets) > 1:
            resolve_many((ticket, error) for _, ticket in _popped(tickets))
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
        if tickets is not None and len(tickets) > 1:  # one wake-up for each event loop
            resolve_many((ticket, None, answers[at]) for at, ticket in _popped(tickets))
        while tickets:  # `_popped`, inlined: callers wait
            try:
                at, ticket = tickets.pop()
            except IndexError:
                break
            ticket.resolve(None, answers[at])

    def messages(self) -> list[Any]:
        """Return the messages one by one; a payload that is not a list counts as one."""
        if type(self.payload) is not list:
            return [self.payload]
        return self.payload[: -self.fill] if self.fill else self.payload

    def items(self) -> list[Any]:
        """Return what the job answers to: the messages, and what fills up the batch."""
        return self.payload if type(self.payload) is list else [self.payload]

    def halves(self) -> list[Batch]:
        """Split a batch whose payload is a list into its first and its second half."""
        half = len(self.messages()) // 2
        return self.split([(0, half), (half, None)])

    def singles(self, places: Iterable[int]) -> list[Batch]:
        """Split off the messages at these places, each as a batch of its own."""
        if type(self.payload) is not list:
            return self.split([(0, 1)])
        return self.split([(at, at + 1) for at in places])

    def split(self, ranges: list[tuple[int, int | None]]) -> list[Batch]:
        """Split into parts by their places in the payload; tickets move with the messages."""
        payload = self.messages()
        if self.fill:
            self.payload, self.fill = payload, 0
        own: list[list[tuple[int, Ticket]]] = [[] for _ in ranges]
        parts = []
        covered = 0
        for (start, end), tickets in zip(ranges, own, strict=True):
            chosen: Any = payload[start:end]
            covered += len(chosen)
            # The payload may have another length than there were messages.
            size = min(len(chosen), self.size)
            self.size -= size
            if type(self.payload) is not list:
                chosen = self.payload
            part = Batch(chosen, size, tickets, self.reason)
            part.attempt = self.attempt
            parts.append(part)
        if parts and (type(self.payload) is not list or covered == len(payload)):
            parts[-1].size += self.size  # nothing else is left of it
            self.size = 0
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
