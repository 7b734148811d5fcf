"""Tickets of messages in a behaviour that takes bare messages only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import Dropped, Expired, Replaced
from behaviours.base import Fate
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.runtime.worker.pair.batch import Ticket
    from behaviours.base import Behaviour

__all__ = ["Loose", "displacement"]

_DISPLACED: dict[Fate, Callable[[Any], Exception]] = {
    Fate.REPLACED: lambda message: Replaced(f"a newer message replaced {brief(message)}"),
    Fate.DROPPED: lambda message: Dropped(f"dropped to make room: {brief(message)}"),
    Fate.EXPIRED: lambda message: Expired(f"waited too long: {brief(message)}"),
}


def displacement(fate: Fate, message: Any) -> Exception:
    """Return the error for the caller of a message that was displaced."""
    return _DISPLACED[fate](message)


class Loose:
    """Tickets of messages in a behaviour of the user's that takes bare messages only.

    What became of a message is concluded from what can be seen: it is in the payload; or the
    behaviour lists what it holds, and lists it no longer; or the behaviour has become empty
    without handing it over. Where nothing can be seen a waiter is answered late rather than too
    early.
    """

    __slots__ = ("_seen", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, Ticket, bool]] = []  # and whether it was listed when added
        self._seen: dict[int, Any] = {}  # messages added since somebody began to wait

    def add(self, message: Any, tickets: Iterable[Ticket], behaviour: Behaviour) -> None:
        """Note who waits for a message that was just added."""
        self._seen[id(message)] = message
        listed = id(message) in _listed(behaviour)
        self._waiting.extend((message, ticket, listed) for ticket in tickets)

    def saw(self, messages: Iterable[Any]) -> None:
        """Note messages that are being added, if somebody waits for any."""
        if self._waiting:
            self._seen.update((id(message), message) for message in messages)

    def collect(
        self, payload: Any, behaviour: Behaviour, let_go: Callable[[Ticket], None]
    ) -> list[tuple[int, Ticket]] | None:
        """Return the tickets that leave with a payload, the last one first.

        Those whose messages have vanished otherwise are resolved.
        """
        if not self._waiting:
            return None
        places = {}
        if isinstance(payload, (list, tuple)):
            places = {id(message): at for at, message in enumerate(payload)}
        verbatim = any(name in self._seen for name in places)
        left: list[tuple[Any, Ticket, bool]] = []
        tickets: list[tuple[int, Ticket]] = []
        held = _listed(behaviour)
        empty = not len(behaviour)
        for message, ticket, listed in self._waiting:
            name = id(message)
            if name in places:
                tickets.append((places[name], ticket))
            elif held.get(name, 0) > 0:
                held[name] -= 1
                left.append((message, ticket, listed))
                continue
            elif not (listed or empty):
                left.append((message, ticket, listed))  # it may still be there
                continue
            elif not verbatim:
                tickets.append((0, ticket))  # something was made of the messages
            else:
                ticket.resolve(displacement(Fate.REPLACED, message))
            let_go(ticket)
        self._waiting = left
        if not left:
            self._seen.clear()
        tickets.reverse()
        return tickets or None

    def displaced(self, behaviour: Behaviour) -> list[tuple[Any, Ticket]]:
        """Return those whose messages are certainly not held any more."""
        if not self._waiting:
            return []
        held = _listed(behaviour)
        empty = not len(behaviour)
        gone = []
        left = []
        for message, ticket, listed in self._waiting:
            if held.get(id(message), 0) > 0:
                held[id(message)] -= 1
                left.append((message, ticket, listed))
            elif not (listed or empty):
                left.append((message, ticket, listed))
            else:
                gone.append((message, ticket))
        self._waiting = left
        return gone


def _listed(behaviour: Behaviour) -> dict[int, int]:
    """Count by identity what a behaviour of the user's says it holds."""
    held: dict[int, int] = {}
    if hasattr(behaviour, "__iter__"):
        for message in behaviour:
            held[id(message)] = held.get(id(message), 0) + 1
    return held
