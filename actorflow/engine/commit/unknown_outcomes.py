"""Commits and messages whose outcome was unknown when their caller had to get an answer.

There are two cases. A commit that failed may be on the disk; its changes know more once the store
has committed something else. And a message may be part of a commit that the store has refused and
the engine repeats; the ticket of its caller is resolved when that succeeds.
"""

from __future__ import annotations

import uuid
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import (
    EngineClosed,
    ExecutionEnded,
    KindMismatch,
    OutcomeUnknown,
    StoreRefused,
    UnknownExecution,
)
from actorflow.runtime.tickets import AsyncTicket

if TYPE_CHECKING:
    import asyncio

    from actorflow.engine.stores.protocol import Change

__all__ = ["Delivery", "UnknownOutcomes"]

_KEPT = 10_000
_NOT_STORED = (StoreRefused, ExecutionEnded, KindMismatch, UnknownExecution)


class Delivery(StrEnum):
    """The answer of `engine.outcome(id)`."""

    STORED = "stored"
    """The message, the resulting state or the dead letter is on disk."""
    NOT_STORED = "not stored"
    """The message is not on disk, and never will be."""
    UNKNOWN = "unknown"
    """Nobody knows yet; or the id is that of an engine that was closed."""


class UnknownOutcomes:
    """The latest 10,000 outcomes that were unknown. Thread-safe.

    Args:
        decides: whether a commit of the store decides what happened to an earlier one.

    """

    def __init__(self, *, decides: bool) -> None:
        self._decides = decides
        self._sources: dict[str, Any] = {}
        self._changes: dict[str, Change] = {}

    def identified(self, error: Exception | None, change: Change) -> Exception | None:
        """Return an error of a commit for the callers of a change, with an id if it needs one.

        In the writer's thread.
        """
        if not isinstance(error, OutcomeUnknown):
            return error
        found = self._with_id(error)
        if self._decides:
            self._changes[found.id] = change
        self._keep(found.id, Delivery.UNKNOWN)
        return found

    def note_ticket(self, message: str, ticket: Any) -> OutcomeUnknown:
        """Return the error for a caller that does not wait any longer, in its thread or task."""
        found = self._with_id(message)
        if isinstance(ticket, AsyncTicket):
            ticket.future = ticket.future.get_loop().create_future()
            ticket.future.add_done_callback(_retrieve)
        self._keep(found.id, ticket)
        return found

    def _with_id(self, why: object) -> OutcomeUnknown:
        name = uuid.uuid4().hex
        return OutcomeUnknown(f"{why}; engine.outcome({name!r}) answers later", name)

    def _keep(self, name: str, source: Any) -> None:
        self._sources[name] = source
        while len(self._sources) > _KEPT:
            self._sources.pop(next(iter(self._sources)), None)

    def committed(self) -> None:
        """Decide all commits that have failed before. In the writer's thread."""
        changes, self._changes = self._changes, {}
        for name, change in changes.items():
            if name in self._sources:
                stored = change.committed
                self._sources[name] = Delivery.STORED if stored else Delivery.NOT_STORED

    def of(self, name: str) -> Delivery:
        """Return the present answer."""
        source = self._sources.get(name, Delivery.UNKNOWN)
        if isinstance(source, Delivery):
            return source
        if isinstance(source, AsyncTicket):
            future = source.future
            return _delivery_of(future.exception()) if future.done() else Delivery.UNKNOWN
        return _delivery_of(source.error) if source.resolved else Delivery.UNKNOWN


def _delivery_of(error: BaseException | None) -> Delivery:
    if isinstance(error, (OutcomeUnknown, EngineClosed)):
        return Delivery.UNKNOWN
    return Delivery.NOT_STORED if isinstance(error, _NOT_STORED) else Delivery.STORED


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Keep asyncio from reporting an error that nobody waits for any longer."""
    if not future.cancelled():
        future.exception()
