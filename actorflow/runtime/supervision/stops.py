"""How children are stopped: one, a group before its restart, or all of them at the end.

The methods of `Stops` are plans, or parts of plans (see `children.py`). They follow OTP's
supervisor: the same steps in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.runtime.exits import FailedToStart, GaveUp, Killed, Normal, Shutdown
from actorflow.runtime.supervision.actions import Exit, Incarnation, LogKind, StopChildren, Why
from actorflow.runtime.supervision.children import ChildState, Phase
from actorflow.runtime.supervision.spec import AutoShutdown, RestartType, Strategy

if TYPE_CHECKING:
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.children import ChildRecord, Children, Plan, Planner, Round
    from actorflow.runtime.supervision.spec import Child, Flags, Grace

__all__ = ["Stops"]


class Stops:
    """Every plan that stops children, and the handling of ended children."""

    __slots__ = ("_children", "_dynamic", "_flags", "_planner")

    def __init__(self, flags: Flags, children: Children, planner: Planner) -> None:
        self._flags = flags
        self._children = children
        self._planner = planner
        self._dynamic = flags.strategy is Strategy.DYNAMIC

    def stop(self, record: ChildRecord, *, final: bool = True) -> Plan:
        """Stop one child if it is alive, and cancel its pending restart.

        Not `final`: it is stopped because it will also be restarted.
        """
        record.suspended = not final
        if record.state is ChildState.RUNNING:
            yield (self._stopping(record, final=final),)  # settled when its exit is reported
        elif record.state is ChildState.EXITED:
            self.settle(record)
        else:
            self.retire(record)

    def settle(self, record: ChildRecord) -> None:
        """Handle the end of a child that was to be stopped. O(1)."""
        reason = record.last_exit
        if reason is not None and not _is_expected(record.child, reason):
            self._planner.log(LogKind.SHUTDOWN_ERROR, record, reason)
        self.retire(record)

    def retire(self, record: ChildRecord) -> None:
        """Keep the child as stopped, or forget it."""
        if self._dynamic or record.child.restart is RestartType.TEMPORARY:
            self._children.remove(record)
        else:
            self._children.move(record, ChildState.STOPPED)

    def consider_shutdown(self, ended: Child) -> None:
        """End the family if the end of a significant child means that."""
        if not ended.significant or self._flags.auto_shutdown is AutoShutdown.NEVER:
            return
        if self._flags.auto_shutdown is AutoShutdown.ANY_SIGNIFICANT or not (
            self._children.significant
        ):
            self.leave(Shutdown(), Why.AUTO_SHUTDOWN)

    def leave(self, reason: ExitReason, why: Why) -> None:
        """Decide that the family ends. Later decisions are ignored."""
        farewell = Exit(reason, why)
        self._planner.leave(farewell, self._depart(farewell))

    def _depart(self, farewell: Exit) -> Plan:
        if self._dynamic:
            for record in list(self._children):
                if not record.is_alive:
                    yield from self.stop(record)
            if any(record.is_alive for record in self._children):
                yield self._together()  # not kept here: children that have ended can be freed
        else:
            for record in list(reversed(self._children)):
                yield from self.stop(record)
        self._planner.phase = Phase.GONE
        self._planner.say(farewell)

    def _together(self) -> Round:
        by_grace: dict[Grace, list[Incarnation]] = {}
        for record in self._children:
            if record.is_alive:
                by_grace.setdefault(record.child.shutdown, []).append(record.ref)
        reason = self._planner.stop_reason
        return tuple(StopChildren(tuple(refs), grace, reason) for grace, refs in by_grace.items())

    def _stopping(self, record: ChildRecord, *, final: bool = True) -> StopChildren:
        reason = self._planner.stop_reason
        return StopChildren((record.ref,), record.child.shutdown, reason, final=final)


def _is_expected(child: Child, reason: ExitReason) -> bool:
    """Return whether a child that was stopped should have ended with that reason."""
    brutal = child.shutdown == "brutal_kill"
    match reason:
        case Killed():
            return brutal
        case Shutdown(detail=None | GaveUp() | FailedToStart()) if not brutal:
            return True  # OTP's `shutdown`: it has no such details
        case Shutdown() | Normal():
            # It ended by itself just then, which only a permanent child should not do.
            return child.restart is not RestartType.PERMANENT
        case _:
            return False
