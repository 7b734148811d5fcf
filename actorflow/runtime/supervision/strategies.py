"""The restart strategies: from the end of one child to a complete family again, or to giving up.

The methods of `Strategies` are plans (see `plans.py`). They follow OTP's supervisor in what is
done and in which order; only the back-off goes beyond OTP.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from actorflow.runtime.exits import FailedToStart, GaveUp, Killed, Normal, Shutdown
from actorflow.runtime.supervision.children import ChildState, Incarnation
from actorflow.runtime.supervision.plans import (
    Exit,
    Ignored,
    Log,
    LogKind,
    Phase,
    Ready,
    Refused,
    ScheduleRetry,
    StartChild,
    Started,
    StopChildren,
    Why,
)
from actorflow.runtime.supervision.spec import AutoShutdown, RestartType, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.children import Children, Record
    from actorflow.runtime.supervision.plans import Plan, Planner, Request, Round
    from actorflow.runtime.supervision.spec import Child, Flags, Grace

__all__ = ["RestartWindow", "Strategies"]


class RestartWindow:
    """The restarts within the last `within` seconds, at most `limit`. Pure: takes the time.

    A restart that is exactly `within` seconds old still counts. With `limit=0` nothing is ever
    admitted: the first crash is one too many.

    >>> window = RestartWindow(limit=2, within=5.0)
    >>> [window.admit(now) for now in (0.0, 1.0, 5.0, 5.5)]
    [True, True, False, True]
    """

    __slots__ = ("_times", "limit", "within")

    def __init__(self, limit: int, within: float) -> None:
        self.limit = limit
        self.within = within
        self._times: deque[float] = deque()

    def admit(self, now: float) -> bool:
        """Count one attempt to restart; return False if it is one too many. O(1) amortised.

        An attempt that is refused is not counted. `now` must not go backwards.
        """
        self._forget(now)
        if len(self._times) >= self.limit:
            return False
        self._times.append(now)
        return True

    def recent(self, now: float) -> int:
        """Return the number of attempts in the window that ends at `now`. O(1) amortised."""
        self._forget(now)
        return len(self._times)

    def check(self) -> None:
        """Raise AssertionError if the window is not in order or too long. O(limit)."""
        times = list(self._times)
        if len(times) > self.limit or times != sorted(times):
            raise AssertionError(f"{times} is not a window of {self.limit} restarts")

    def _forget(self, now: float) -> None:
        # `now - then` is exact for times that are close together; `now - within` would round,
        # and could lose a restart that is exactly `within` old.
        while self._times and now - self._times[0] > self.within:
            self._times.popleft()


class Strategies:
    """What the flags mean for the children: every plan that starts or stops them."""

    __slots__ = (
        "_children",
        "_draw",
        "_dynamic",
        "_flags",
        "_planner",
        "_shared_fate",
        "_tickets",
        "_window",
        "restarts",
    )

    def __init__(
        self, flags: Flags, children: Children, planner: Planner, draw: Callable[[], float]
    ) -> None:
        self._flags = flags
        self._children = children
        self._planner = planner
        self._draw = draw
        self._dynamic = flags.strategy is Strategy.DYNAMIC
        self._shared_fate = flags.strategy in {Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE}
        self._tickets = itertools.count(1)
        self._window = RestartWindow(flags.max_restarts, flags.within)
        self.restarts = 0
        """Attempts to restart since the beginning."""

    # Plans

    def boot(self) -> Plan:
        """Start all children in order; stop them again, in reverse, if one does not start."""
        for record in list(self._children):
            answer = yield from self.start(record)
            if isinstance(answer, Refused) and answer.reason is not None:
                self._retire(record)
                detail = FailedToStart(record.child.id, answer.reason)
                self.leave(Shutdown(detail), Why.START_FAILED)
                return
        if self._planner.leaving is None:
            self._planner.phase = Phase.UP
            self._planner.say(Ready())

    def after_exit(self, record: Record, ref: Incarnation) -> Plan:
        """Handle the end of a child that ended by itself. O(1) besides the restart."""
        if (
            self._planner.leaving is not None
            or record.state is not ChildState.EXITED
            or record.ref != ref
        ):
            return  # it was stopped, or replaced, before this plan began
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
            lasted = self._planner.now - (record.started_at or 0.0)
            if lasted > self._flags.within:
                record.failures = 0
            self._children.move(record, ChildState.RESTARTING)
            yield from self._try_again(record)

    def after_wait(self, retry: ScheduleRetry) -> Plan:
        """Try again to restart, unless the child was stopped, deleted or started meanwhile."""
        record = self._children.find(retry.key)
        if (
            self._planner.leaving is None
            and record is not None
            and record.state is ChildState.RESTARTING
            and record.ticket == retry.ticket
        ):
            yield from self._attempt(record)

    def start(self, record: Record, *, requested: bool = False) -> Request:
        """Start one child. If that fails, the calling plan decides what becomes of the record."""
        answer = yield StartChild(record.key, record.child)
        if isinstance(answer, Started):
            self._log(LogKind.PROGRESS, record, requested=requested)
        elif isinstance(answer, Ignored):
            self._retire(record)
        elif isinstance(answer, Refused):
            record.failure = answer.reason
            if not requested:
                self._log(LogKind.START_ERROR, record, answer.reason)
        return answer

    def stop(self, record: Record, *, final: bool = True) -> Plan:
        """Stop one child if it is alive, and cancel its pending restart.

        Not `final`: it is stopped because it, too, will be restarted.
        """
        record.suspended = not final
        if record.state is ChildState.RUNNING:
            yield (self._stopping(record, final=final),)  # settled when its exit is reported
        elif record.state is ChildState.EXITED:
            self.settle(record)
        else:
            self._retire(record)

    def leave(self, reason: ExitReason, why: Why) -> None:
        """Decide that the family ends. Later decisions are ignored."""
        farewell = Exit(reason, why)
        self._planner.leave(farewell, self._depart(farewell))

    def rounds(self) -> list[Round]:
        """Return how the children that are alive now would be stopped. O(n)."""
        if self._dynamic:
            together = self._together()
            return [together] if together else []
        return [(self._stopping(record),) for record in reversed(self._children) if record.is_alive]

    def settle(self, record: Record) -> None:
        """Handle the end of a child that was to be stopped. O(1)."""
        reason = record.last_exit
        if reason is not None and not _is_expected(record.child, reason):
            self._log(LogKind.SHUTDOWN_ERROR, record, reason)
        self._retire(record)

    def check(self) -> None:
        """Raise AssertionError if the flags do not allow these children. O(n)."""
        self._window.check()
        if self._planner.phase in {Phase.NEW, Phase.STARTING}:
            return
        for record in self._children:
            if self._dynamic or record.child.restart is RestartType.TEMPORARY:
                kept = record.state is ChildState.STOPPED
                if kept and self._planner.leaving is None:
                    raise AssertionError(f"{record.key!r} has ended and should be forgotten")

    # Steps

    def _attempt(self, culprit: Record) -> Plan:
        """Restart the culprit and those that share its fate, if the limit allows one more."""
        if not self._window.admit(self._planner.now):
            self._give_up(culprit)
            return
        self.restarts += 1
        affected = self._affected(culprit)
        if self._shared_fate:
            culprit.suspended = True
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

    def _give_up(self, culprit: Record) -> None:
        self._log(LogKind.TOO_MANY_RESTARTS, culprit, culprit.failure)
        gave_up = GaveUp(
            child=culprit.child.id,
            reason=culprit.failure or Normal(),
            restarts=self._window.recent(self._planner.now) + 1,
            max_restarts=self._flags.max_restarts,
            within=self._flags.within,
        )
        self._retire(culprit)
        self.leave(Shutdown(gave_up), Why.TOO_MANY_RESTARTS)

    def _try_again(self, record: Record) -> Plan:
        """Schedule a retry behind what has arrived by then; with a back-off, after a while.

        With a back-off, the children that depend on this one are stopped before the wait, not
        after it. Without one they are left as they are, as in OTP, and the retry stops them.
        """
        delay = 0.0
        if self._flags.backoff is not None:
            delay = self._flags.backoff.delay(record.failures, self._draw())
            for other in reversed(self._affected(record)):
                if other is not record:
                    yield from self.stop(other, final=False)
        record.failures += 1
        record.ticket = next(self._tickets)
        if self._planner.leaving is None:
            self._planner.say(ScheduleRetry(record.key, delay, record.ticket))

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

    def _affected(self, record: Record) -> list[Record]:
        if self._flags.strategy is Strategy.ONE_FOR_ALL:
            return list(self._children)
        if self._flags.strategy is Strategy.REST_FOR_ONE:
            return self._children.since(record)
        return [record]

    def _together(self) -> Round:
        by_grace: dict[Grace, list[Incarnation]] = {}
        for record in self._children:
            if record.is_alive:
                by_grace.setdefault(record.child.shutdown, []).append(record.ref)
        reason = self._planner.stop_reason
        return tuple(StopChildren(tuple(refs), grace, reason) for grace, refs in by_grace.items())

    def _stopping(self, record: Record, *, final: bool = True) -> StopChildren:
        reason = self._planner.stop_reason
        return StopChildren((record.ref,), record.child.shutdown, reason, final=final)

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
        self._planner.say(
            Log(kind, record.child, record.ref, reason, record.restarts, requested=requested)
        )


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
