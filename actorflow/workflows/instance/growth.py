"""What a state has got since it was stored, so that storing a step costs the same at any length.

The long lists of a state only grow. Of their entries, a step may change and a branch may get an
output; both are noted. All the rest of a state is short, and is stored each time.
"""

from __future__ import annotations

from operator import lt
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from actorflow.workflows.instance.state import InstanceState, StepStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Changes", "Growth", "grown"]

_LISTS = (
    "branches",
    "executions",
    "statuses",
    "properties",
    "records",
    "carried_events",
    "removed_events",
)


class Growth(Struct, array_like=True):
    """What a state has got since some moment."""

    state: InstanceState
    """All that is short, and the new ends of the long lists."""
    statuses: list[StepStatus] = []
    """Steps of before that have changed."""
    outputs: list[tuple[int, Any]] = []
    """Branches of before that have got an output, by their keys."""


class Changes:
    """Notes what changes in a state.

    Args:
        state: as it is stored.

    """

    def __init__(self, state: InstanceState) -> None:
        self._state = state
        self._sizes = _sizes(state)
        self._statuses: dict[int, StepStatus] = {}
        self._branches: set[int] = set()
        self._rewritten = False

    def rewritten(self) -> None:
        """Record that the past has changed: all has to be stored again."""
        self._rewritten = True

    def cut(self, executions: int) -> None:
        """Record that executions are planned anew from an index on."""
        self._rewritten = self._rewritten or executions < self._sizes[1]

    def status(self, status: StepStatus) -> None:
        """Record that a step has changed, or is new."""
        self._statuses[id(status)] = status

    def output(self, branch_key: int) -> None:
        """Record that a branch has got an output."""
        self._branches.add(branch_key)

    def take(self) -> Growth | None:
        """Return what the state has got since the last time; `None` if its past has changed.

        O(what that is).
        """
        state, before = self._state, self._sizes
        if self._rewritten or any(map(lt, _sizes(state), before)):
            self.forget()
            return None
        branches, executions, statuses, properties, records, carried, removed = before
        added = state.statuses[statuses:]
        for status in added:
            self._statuses.pop(id(status), None)
        outputs = sorted(key for key in self._branches if key < branches) if self._branches else ()
        growth = Growth(
            msgspec.structs.replace(
                state,
                branches=state.branches[branches:],
                executions=state.executions[executions:],
                statuses=added,
                properties=state.properties[properties:],
                records=state.records[records:],
                carried_events=state.carried_events[carried:],
                removed_events=state.removed_events[removed:],
            ),
            list(self._statuses.values()),
            [(key, state.branches[key].output) for key in outputs],
        )
        self.forget()
        return growth

    def forget(self) -> None:
        """Begin again: the state was stored as a whole."""
        self._sizes = _sizes(self._state)
        self._statuses.clear()
        self._branches.clear()
        self._rewritten = False


def _sizes(state: InstanceState) -> tuple[int, int, int, int, int, int, int]:
    """Return the lengths of the long lists, in the order of `_LISTS`."""
    return (
        len(state.branches),
        len(state.executions),
        len(state.statuses),
        len(state.properties),
        len(state.records),
        len(state.carried_events),
        len(state.removed_events),
    )


def grown(state: InstanceState, growths: Iterable[Growth]) -> InstanceState:
    """Return a state with what it has got since. The state is used up. O(all of it)."""
    places = {status.step: at for at, status in enumerate(state.statuses)}
    for growth in growths:
        new = growth.state
        for status in new.statuses:
            places[status.step] = len(places)
        for name in _LISTS:
            end = getattr(new, name)
            setattr(new, name, getattr(state, name))
            getattr(new, name).extend(end)
        for status in growth.statuses:
            new.statuses[places[status.step]] = status
        for key, output in growth.outputs:
            new.branches[key].output = output
        state = new
    return state
