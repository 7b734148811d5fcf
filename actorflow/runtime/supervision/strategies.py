"""The restart strategies: from the end of one child to a family that is whole again, or gives up.

Each method is a plan (see `conductor.py`). They follow OTP's supervisor in what is done and in
which order; what is beyond OTP is the back-off.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from actorflow.runtime.exits import FailedToStart, Killed, Normal, Shutdown
from actorflow.runtime.supervision.actions import (
    ChildState,
    Exit,
    Ignored,
    Log,
    LogKind,
    Phase,
    Ready,
    Ref,
    Refused,
    Retry,
    StartChild,
    Started,
    StopChildren,
    Why,
)
from actorflow.runtime.supervision.intensity import RestartWindow
from actorflow.runtime.supervision.spec import AutoShutdown, RestartType, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.children import Children, Record
    from actorflow.runtime.supervision.planner import Conductor, Plan, Request, Round
    from actorflow.runtime.supervision.spec import Child, Flags, Grace

__all__ = ["Recovery"]


class Recovery:
    """What the flags mean for the children: every plan that starts or stops them."""

    __slots__ = (
        "_children",
        "_conductor",
        "_draw",
        "_dynamic",
        "_flags",
        "_shared_fate",
        "_tickets",
        "_window",
        "restarts",
    )

    def __init__(
        self, flags: Flags, children: Children, conductor: Conductor, draw: Callable[[], float]
    ) -> None:
        self._flags = flags
        self._children = children
        self._conductor = conductor
        self._draw = draw
        self._dynamic = flags.strategy is Strategy.DYNAMIC
        self._shared_fate = flags.strategy in {Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE}
        self._tickets = itertools.count(1)
        self._window = RestartWindow(flags.max_restarts, flags.within)
        self.restarts = 0
        """Attempts to restart, since the beginning."""

    # Plans

    def boot(self) -> Plan:
        """Start all children left to right; give up, in reverse, if one does not start."""
        for record in list(self._children):
            answer = yield from self.start(record)
            if isinstance(answer, Refused) and answer.reason is not None:
                self._retire(record)
                detail = FailedToStart(record.child.id, answer.reason)
                self.leave(Shutdown(detail), Why.START_FAILED)
                return
        if self._conductor.leaving is None:
            self._conductor.phase = Phase.UP
            self._conductor.say(Ready())

    def after_exit(self, record: Record, ref: Ref) -> Plan:
        """Do what is due when a child has ended by itself. O(1) besides the restart."""
        if (
            self._conductor.leaving is not None
            or record.state is not ChildState.EXITED
            or record.ref != ref
        ):
            return  # it was stopped, or replaced, before its turn came
        child = record.child
        clean = record.last_exit is not None and record.last_exit.is_clean
        again = child.restart is RestartType.PERMANENT or (
            child.restart is RestartType.TRANSIENT and not clean
        )
        if again or not clean:
            self._log(LogKind.CHILD_TERMINATED, record, record.last_exit)
        if not again:
            self._retire(record)
            self._consider_shutdown(child)
        elif self._flags.backoff is None:
            yield from self._attempt(record)
        else:
            lasted = self._conductor.now - (record.started_at or 0.0)
            if lasted > self._flags.within:
                record.failures = 0
            self._children.move(record, ChildState.RESTARTING)
            yield from self._try_again(record)

    def after_wait(self, retry: Retry) -> Plan:
        """Try once more, unless the child was stopped, deleted or started meanwhile."""
        record = self._children.find(retry.key)
        if (
            self._conductor.leaving is None
            and record is not None
            and record.state is ChildState.RESTARTING
            and record.ticket == retry.ticket
        ):
            yield from self._attempt(record)

    def start(self, record: Record, *, requested: bool = False) -> Request:
        """Start one child. If it fails, what becomes of the record is the caller's decision."""
        answer = yield StartChild(record.key, record.child)
        if isinstance(answer, Started):
            self._log(LogKind.PROGRESS, record, requested=requested)
        elif isinstance(answer, Ignored):
            self._retire(record)
        elif isinstance(answer, Refused) and not requested:
            self._log(LogKind.START_ERROR, record, answer.reason)
        return answer

    def stop(self, record: Record, *, final: bool = True) -> Plan:
        """Stop one child if it lives, and drop what else was planned for it."""
        if record.state is ChildState.RUNNING:
            yield (_stopping(record, final=final),)  # settled when its exit is reported
        elif record.state is ChildState.EXITED:
            self.settle(record)
        else:
            self._retire(record)

    def leave(self, reason: ExitReason, why: Why) -> None:
        """Decide that the family ends; the first decision stands."""
        farewell = Exit(reason, why)
        self._conductor.leave(farewell, self._depart(farewell))

    def rounds(self) -> list[Round]:
        """Show how the children that live now would be stopped. O(n)."""
        if self._dynamic:
            together = self._together()
            return [together] if together else []
        return [(_stopping(record),) for record in reversed(self._children) if record.is_alive]

    def settle(self, record: Record) -> None:
        """Close the account of a child that was to be stopped, and has ended. O(1)."""
        reason = record.last_exit
        if reason is not None and not _as_told(record.child, reason):
            self._log(LogKind.SHUTDOWN_ERROR, record, reason)
        self._retire(record)

    def check(self) -> None:
        """Raise AssertionError if the children are not what the flags allow. O(n)."""
        self._window.check()
        if self._conductor.phase in {Phase.NEW, Phase.STARTING}:
            return
        for record in self._children:
            if self._dynamic or record.child.restart is RestartType.TEMPORARY:
                kept = record.state is ChildState.STOPPED
                if kept and self._conductor.leaving is None:
                    raise AssertionError(f"{record.key!r} has ended and should be forgotten")

    # Steps

    def _attempt(self, culprit: Record) -> Plan:
        """Restart the culprit and whoever shares its fate, if the limit allows one more."""
        if not self._window.admit(self._conductor.now):
            self._log(LogKind.TOO_MANY_RESTARTS, culprit, culprit.last_exit)
            self._retire(culprit)
            self.leave(Shutdown(), Why.TOO_MANY_RESTARTS)
            return
        self.restarts += 1
        affected = self._affected(culprit)
        if self._shared_fate:
            self._children.move(culprit, ChildState.STOPPED)
            for record in reversed(affected):
                yield from self.stop(record, final=False)
        for record in affected:
            if record not in self._children:
                continue  # it was temporary
            record.restarts += 1
            answer = yield from self.start(record)
            if isinstance(answer, Refused):
                self._children.move(record, ChildState.RESTARTING)
                yield from self._try_again(record)
                return

    def _try_again(self, record: Record) -> Plan:
        """Ask for a retry, so that others have their turn first; with a back-off, after a while.

        With a back-off, who depends on the child is stopped before the wait, not after it.
        Without one they are left as they are, as in OTP, and the retry stops them.
        """
        delay = 0.0
        if self._flags.backoff is not None:
            delay = self._flags.backoff.delay(record.failures, self._draw())
            for other in reversed(self._affected(record)):
                if other is not record:
                    yield from self.stop(other, final=False)
        record.failures += 1
        record.ticket = next(self._tickets)
        if self._conductor.leaving is None:
            self._conductor.say(Retry(record.key, delay, record.ticket))

    def _depart(self, farewell: Exit) -> Plan:
        if self._dynamic:
            for record in list(self._children):
                if not record.is_alive:
                    yield from self.stop(record)
            together = self._together()
            if together:
                yield together
        else:
            for record in list(reversed(self._children)):
                yield from self.stop(record)
        self._conductor.phase = Phase.GONE
        self._conductor.say(farewell)

    def _affected(self, record: Record) -> list[Record]:
        if self._flags.strategy is Strategy.ONE_FOR_ALL:
            return list(self._children)
        if self._flags.strategy is Strategy.REST_FOR_ONE:
            return self._children.since(record)
        return [record]

    def _together(self) -> Round:
        by_grace: dict[Grace, list[Ref]] = {}
        for record in self._children:
            if record.is_alive:
                by_grace.setdefault(record.child.shutdown, []).append(record.ref)
        return tuple(StopChildren(tuple(refs), grace) for grace, refs in by_grace.items())

    def _retire(self, record: Record) -> None:
        """Keep the child as stopped, or forget it."""
        if self._dynamic or record.child.restart is RestartType.TEMPORARY:
            self._children.remove(record)
        else:
            self._children.move(record, ChildState.STOPPED)

    def _consider_shutdown(self, ended: Child) -> None:
        if not ended.significant or self._flags.auto_shutdown is AutoShutdown.NEVER:
            return
        if self._flags.auto_shutdown is AutoShutdown.ANY_SIGNIFICANT or not (
            self._children.significant
        ):
            self.leave(Shutdown(), Why.AUTO_SHUTDOWN)

    def _log(
        self,
        kind: LogKind,
        record: Record,
        reason: ExitReason | None = None,
        *,
        requested: bool = False,
    ) -> None:
        self._conductor.say(
            Log(kind, record.child, record.ref, reason, record.restarts, requested=requested)
        )


def _stopping(record: Record, *, final: bool = True) -> StopChildren:
    return StopChildren((record.ref,), record.child.shutdown, final=final)


def _as_told(child: Child, reason: ExitReason) -> bool:
    """Whether a child that was stopped ended in the way that is expected then."""
    brutal = child.shutdown == "brutal_kill"
    match reason:
        case Killed():
            return brutal
        case Shutdown(detail=None) if not brutal:
            return True
        case Shutdown() | Normal():
            # It ended by itself at that moment, which only a permanent child should not do.
            return child.restart is not RestartType.PERMANENT
        case _:
            return False
