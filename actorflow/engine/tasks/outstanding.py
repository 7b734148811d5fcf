"""A task that is out: which attempt it is, and what the clock has to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import TaskRow
    from actorflow.runtime.clock import Timer

__all__ = ["Outstanding"]


class Outstanding:
    """A task that waits for its result."""

    __slots__ = ("begun", "expired", "lease", "recovered", "row", "start")

    def __init__(self, row: TaskRow, *, recovered: bool = False) -> None:
        self.row = row
        self.recovered = recovered
        """Its attempt may be the next of one that nobody has counted: note it before it begins."""
        self.begun = False
        """Its tasker has called the function. Set under the lock of the board."""
        self.start: Timer | None = None
        self.lease: Timer | None = None
        self.expired: Callable[[Exception], None] | None = None

    def cancel_timers(self) -> None:
        """Cancel what the clock was to do about this attempt."""
        for timer in (self.start, self.lease):
            if timer is not None:
                timer.cancel()
