"""The inbox of an instance whose user has put a behaviour in front of its events.

Only events go through that behaviour. Answers of tasks, timers and controls never wait for it, are
never dropped, and never merged.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.adapt import adapt, refuse_preempting
from actorflow.behaviours.behaviour import Behaviour, Item, Reason
from actorflow.runtime.errors import BadOption
from actorflow.workflows.inbox import Turns
from actorflow.workflows.service.received_messages import event_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.behaviours.behaviour import Fate, MessageOutcome, Refusal, Tally

__all__ = ["EventInbox"]


class EventInbox(Behaviour):
    """A behaviour for events, and a queue for all other messages.

    Args:
        inner: a behaviour of `Event`s: a class or a factory.

    """

    __slots__ = ("_inner", "_is_held", "_others", "_ripe", "_tickets", "_turns", "traits")

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = adapt(inner)
        given = self._inner.traits
        refuse_preempting(self._inner, "the inbox of a workflow (see af.Interrupt)", BadOption)
        if given.blocks:
            raise BadOption(
                "inbox: when_full='block' makes senders wait, but events are stored before they "
                "are accumulated; use 'reject', 'drop_oldest' or 'drop_newest'"
            )
        self._turns = self._inner if isinstance(self._inner, Turns) else None
        if _has_turns_inside(self._inner):
            raise BadOption(
                "inbox: af.Turns must be the outermost behaviour, as in "
                "af.Turns(Debounce(Queue(), 0.5))"
            )
        self.traits = replace(given, divisible=False, ordered=False, trackable=True, patient=False)
        self._is_held: Callable[[], bool] | None = None
        self._others: list[Any] = []
        self._ripe = not given.timed
        self._tickets: dict[int, Item] = {}
        """The item of each held event, if the behaviour cannot hold items itself."""

    def __repr__(self) -> str:
        return f"EventInbox({self._inner!r})"

    def __len__(self) -> int:
        return len(self._others) + len(self._inner)

    @property
    def takes_turns(self) -> bool:
        """Whether events wait until the instance has finished its current turn."""
        return self._turns is not None

    def hold_while(self, is_held: Callable[[], bool]) -> None:
        """Hold events back as long as `is_held` returns true. Called once, before the first event.

        The function is called again after each run and after each message.
        """
        self._is_held = is_held
        self._ripe = False
        self.traits = replace(self.traits, timed=True)

    def add(self, message: Any) -> None:
        """Accumulate one envelope, at the cost of the inner behaviour."""
        wrapped = type(message) is Item
        event = event_of(message.message if wrapped else message)
        if event is None or (self._turns is not None and not self._turns.waits(event)):
            self._others.append(message)
        elif not wrapped:
            self._inner.add(event)
        elif self._inner.traits.trackable:
            self._inner.add(Item(event, message.tickets, message.born))
        else:
            self._inner.add(event)
            self._tickets[id(event)] = Item(event, message.tickets, message.born)

    def extend_at(self, messages: list[Any], times: list[float]) -> Sequence[Refusal]:
        """Accumulate many envelopes that arrived at these times."""
        return Behaviour.extend_at(self, messages, times)

    def take(self, limit: int | None = None, free: int = 1) -> Any:
        """Hand over the events that may leave, and all other messages."""
        batch, self._others = self._others, []
        if len(self._inner) and self._ripe:
            payload = self._inner.take()
            events = payload if type(payload) is list else [payload]
            batch += events if self._inner.traits.trackable else self._wrapped(events)
        return batch

    def _wrapped(self, events: list[Any]) -> list[Any]:
        """Return events with the tickets of the original ones."""
        tickets = self._tickets
        found = [tickets.pop(id(each)) if id(each) in tickets else each for each in events]
        if not len(self._inner) and tickets and found:
            # An event merged from several leaves with the ticket of the first.
            given = found[0] if type(found[0]) is Item else Item(found[0])
            rest = tuple(ticket for item in tickets.values() for ticket in item.tickets)
            found[0] = Item(given.message, (*given.tickets, *rest), given.born)
            tickets.clear()
        return found

    def reason(self) -> Reason:
        """Return why the events left."""
        return self._inner.reason()

    def grows(self, message: Any) -> bool:
        """Return whether an envelope makes it longer."""
        event = event_of(message)
        return event is None or self._inner.grows(event)

    def ready_at(self, now: float) -> float:
        """Pass the time on; messages other than events may leave at once."""
        inner = self._inner.ready_at(now)
        if self._is_held is not None and len(self._inner) and self._is_held():
            inner = inf
        self._ripe = inner <= now
        return now if self._others else inner

    def track(self, gone: list[tuple[Item, Fate]]) -> None:
        """Allow envelopes to come wrapped in `Item`."""
        self.gone = gone
        if self._inner.traits.trackable:
            self._inner.track(gone)

    def forget(self, dead: Callable[[Any], bool]) -> Sequence[Any]:
        """Forget nothing here: the inner behaviour knows how old its events may grow."""
        return ()

    def purge(self) -> None:
        """Make the inner behaviour drop its expired messages."""
        self._inner.purge()

    def done(self, batch: Sequence[Any], took: float, outcomes: Sequence[MessageOutcome]) -> None:
        """Pass on what happened to the events of a batch."""
        found = [(event_of(each), outcome) for each, outcome in zip(batch, outcomes, strict=True)]
        known = [(event, outcome) for event, outcome in found if event is not None]
        if known:
            events, ends = zip(*known, strict=True)
            self._inner.done(events, took, ends)

    def flush(self) -> None:
        """Make the inner behaviour stop waiting for more."""
        self._inner.flush()

    def tally(self) -> Tally:
        """Return the counts of the inner behaviour."""
        return self._inner.tally()


def _has_turns_inside(behaviour: Any) -> bool:
    """Return whether a behaviour that cannot hear of an instance is asked to wait for it."""
    inner = getattr(behaviour, "_inner", None)
    return isinstance(inner, Turns) or (inner is not None and _has_turns_inside(inner))
