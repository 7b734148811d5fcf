"""The set of busy instances, whose inboxes hold events back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import DecisionMode
from actorflow.workflows.service.inbox import EventInbox
from actorflow.workflows.service.stored import read_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import ExecutionRow

__all__ = ["BusyInstances"]


class BusyInstances:
    """The busy instances of one workflow class, and their inboxes. Thread-safe.

    Args:
        elsewhere: decisions are taken in another process, so events wait until they have ended.
        look: reads an execution, to find out whether its instance is busy when it is loaded.

    """

    def __init__(
        self, *, elsewhere: bool, look: Callable[[str], ExecutionRow | None] | None
    ) -> None:
        self._elsewhere = elsewhere
        self._look = look
        self._takes_turns: dict[str, bool] = {}
        self._busy: set[str] = set()

    def inbox(self, execution: str, factory: Callable[[], Any]) -> EventInbox:
        """Return a new inbox for an instance."""
        made = EventInbox(factory)
        if made.takes_turns or self._elsewhere:
            self._takes_turns[execution] = made.takes_turns
            row = None if self._look is None else self._look(execution)
            if row is not None and row.state is not None:
                self.note(execution, Instance(read_row(row).instance))
            elif self._look is not None:
                self._busy.add(execution)  # until `handle` has begun
            made.hold_while(partial(self._busy.__contains__, execution))
        return made

    def note(self, execution: str, instance: Instance) -> None:
        """Record what an instance is doing, after each of its runs."""
        takes_turns = self._takes_turns.get(execution)
        if takes_turns is None:
            return
        state = instance.state
        # While no decisions are taken, turns would begin before the earlier ones have ended.
        stopped = state.decision_mode is not DecisionMode.RUN
        if state.decision_ongoing or (takes_turns and (stopped or instance.at_work)):
            self._busy.add(execution)
        else:
            self._busy.discard(execution)

    def forget(self, execution: str) -> None:
        """Forget an instance that has ended."""
        self._takes_turns.pop(execution, None)
        self._busy.discard(execution)
