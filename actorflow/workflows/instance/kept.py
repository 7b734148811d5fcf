"""The events of an instance that no wait has taken, in the order of their reception.

They are not stored: an event is kept if a branch or the buffer has it and no step has taken it. So
going back to before a wait returns the event that the wait took, without further ado.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from sortedcontainers import SortedDict

from actorflow.workflows.instance.state import BranchType, KeptEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.workflows.instance.state import InstanceState

__all__ = ["Kept", "kept_event"]


class Kept:
    """Lookups that are derived from a state.

    Args:
        state: of an instance; if it does not keep events, this stays empty.

    """

    def __init__(self, state: InstanceState) -> None:
        self._state = state
        self._by_name: dict[str, SortedDict[int, KeptEvent]] = {}
        self._number = max(state.removed_events, default=0)
        self.count = 0
        """How many are kept. An attribute, because each run asks."""
        if not state.keeps_events:
            return
        taken = set(_taken(state))
        for event in _events(state):
            self._number = max(self._number, event.number)
            if event.number not in taken:
                self.add(event)

    def __iter__(self) -> Iterator[KeptEvent]:
        """Yield the kept events, oldest first. O(n log n)."""
        found = [event for events in self._by_name.values() for event in events.values()]
        yield from sorted(found, key=lambda event: event.number)

    def next_number(self) -> int:
        """Return the number of the next event that arrives."""
        self._number += 1
        return self._number

    def add(self, event: KeptEvent) -> None:
        """Keep an event, in its place, if events of its name are kept."""
        if not self._state.keeps(event.name):
            return
        events = self._by_name.setdefault(event.name, SortedDict())
        self.count += event.number not in events
        events[event.number] = event

    def find(self, number: int) -> KeptEvent:
        """Return an event that was received and not refused, whether it is kept or not. O(n)."""
        return next(event for event in _events(self._state) if event.number == number)

    def give_back(self, number: int) -> None:
        """Keep an event again, unless a step has taken it. O(n)."""
        if number in _taken(self._state):
            return
        for event in _events(self._state):
            if event.number == number:
                self.add(event)

    def take(self, name: str, latest: float) -> KeptEvent | None:
        """Remove and return the oldest event of a name, if it was received in time. O(log n).

        Args:
            name: of the event.
            latest: when it must have been received at the latest, unless it was planned before.

        """
        events = self._by_name.get(name)
        if not events:
            return None
        number, event = events.peekitem(0)
        if event.at > latest:
            return None
        self.remove(name, number)
        found: KeptEvent = event
        return found

    def remove(self, name: str, number: int) -> None:
        """Forget an event, if it is kept."""
        events = self._by_name.get(name)
        if events is not None and events.pop(number, None) is not None:
            self.count -= 1
            if not events:
                del self._by_name[name]


def _taken(state: InstanceState) -> Iterator[int]:
    """Yield the numbers of the events taken by waits that a branch awaits."""
    for status in state.statuses:
        if type(status.taken) is int and status.left_index is UNSET:
            yield status.taken


def _events(state: InstanceState) -> Iterator[KeptEvent]:
    """Yield all events that a state has ever received and not refused."""
    removed = set(state.removed_events)
    for event in state.carried_events:
        if event.number not in removed:
            yield event
    for branch in state.branches:
        if type(branch.event_number) is int and branch.event_number not in removed:
            yield KeptEvent(
                branch.event_number, branch.at, str(branch.event_name), branch.event_input,
                branch.event_id,
            )  # fmt: skip
    for event in () if state.cancellation is None else state.cancellation.events:
        if event.number not in removed:
            yield event
    for action in state.buffer:
        if action.type is BranchType.EVENT and action.data["event_number"] not in removed:
            yield kept_event(action.timestamp, action.data)


def kept_event(at: float, data: dict[str, Any]) -> KeptEvent:
    """Return an event that was received at a moment, with the data of its action."""
    return KeptEvent(
        data["event_number"],
        at,
        data["event_name"],
        data["event_input"],
        data.get("event_id", UNSET),
    )
