"""How a supervisor treats its children, as a pure state machine: events in, actions out.

A `Family` has no thread, no clock and no actors. The supervisor around it (the shell) reports
what happened and performs, in order, the actions that are returned:

    start the supervisor         begin()                  StartChild     call it, then report
    a start was performed        started() start_ignored()               or start_failed()
    any child ended              exited()                 StopChildren   then exited() for each
    a retry came due             retry()                  ScheduleRetry  pass it back after a while
    a request came in            requests.start_child()   Reply          pass it to the caller
    the supervisor must end      shutdown()               Ready Log Release Exit

Starts and stops are steps of a *plan*: the strategy's whole way from a crash to a complete family
again. A plan that waits for a report is simply kept, so the shell may take its time. What arrives
meanwhile is queued, as in an Erlang mailbox, and handled when the plan is done. Only `shutdown()`
does not wait for the whole plan, but just for the step under way. Questions (`which_children()` and
so on, see `requests.py`) are answered at any time.

The shell in a few lines, for children whose starts and stops take no time:

>>> from actorflow.runtime.supervision.actions import Exit, StartChild, StopChildren
>>> from actorflow.runtime.supervision.spec import Child, Flags
>>> from actorflow.runtime.exits import Crash, Shutdown
>>> def perform(actions):
...     for action in actions:
...         match action:
...             case StartChild(key, child):
...                 print("start", key)
...                 perform(family.started(key, child.start(*child.args), now=0.0))
...             case StopChildren(refs):
...                 print("stop", *refs)
...                 for ref in refs:
...                     perform(family.exited(ref, Shutdown(), now=0.0))
...             case Exit(reason, why):
...                 print(reason.describe(), why.name)
>>> numbers = iter(range(1, 10))
>>> family = Family(
...     [Child(name, lambda: f"ref{next(numbers)}") for name in "abc"],
...     Flags(strategy="rest_for_one"),
... )
>>> perform(family.begin(now=0.0))
start a
start b
start c
>>> perform(family.exited("ref2", Crash(ValueError("boom")), now=1.0))
stop ref3
start b
start c
>>> perform(family.shutdown(Shutdown()))
stop ref5
stop ref4
stop ref1
shutdown REQUESTED

The shell's obligations: one thread (or lock) at a time; `now` never goes backwards; a ref is
hashable, not None, and identifies one incarnation only; `started` is reported before the `exited`
of the same ref, and each end once (a second report, or one for an unknown ref, is ignored). At
most one start, or one round of stops, is under way, and it comes last in its list of actions.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime.exits import Crash, FailedToStart, GaveUp, Normal, Shutdown
from actorflow.runtime.restarts import RestartWindow
from actorflow.runtime.supervision.actions import (
    ChildStarted,
    Ignored,
    LogKind,
    Ready,
    RequestDenied,
    RequestRefusal,
    ScheduleRetry,
    StartChild,
    Why,
)
from actorflow.runtime.supervision.children import (
    ChildRecord,
    Children,
    ChildState,
    ImpossibleReport,
    Phase,
    Planner,
)
from actorflow.runtime.supervision.requests import Requests
from actorflow.runtime.supervision.spec import BadChild, Child, Flags, RestartType, Strategy
from actorflow.runtime.supervision.stops import Stops

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.actions import Action, Incarnation
    from actorflow.runtime.supervision.children import Plan, Request
    from actorflow.runtime.supervision.spec import Grace

__all__ = ["Family"]


class Restarts:
    """What the flags mean for a child that has ended: every plan that starts children.

    As in OTP's supervisor, with the same steps in the same order; only the back-off is new.
    """

    __slots__ = (
        "_children",
        "_draw",
        "_flags",
        "_planner",
        "_shared_fate",
        "_stops",
        "_tickets",
        "count",
        "window",
    )

    def __init__(
        self,
        flags: Flags,
        children: Children,
        planner: Planner,
        stops: Stops,
        draw: Callable[[], float],
    ) -> None:
        self._flags = flags
        self._children = children
        self._planner = planner
        self._stops = stops
        self._draw = draw
        self._shared_fate = flags.strategy in {Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE}
        self._tickets = itertools.count(1)
        self.window = RestartWindow(flags.max_restarts, flags.within)
        """The recent restarts, which `max_restarts` limits."""
        self.count = 0
        """Attempts to restart since the beginning."""

    def boot(self) -> Plan:
        """Start all children in order; stop them again, in reverse, if one does not start."""
        for record in list(self._children):
            answer = yield from self.start(record)
            if isinstance(answer, RequestDenied) and answer.reason is not None:
                self._stops.retire(record)
                detail = FailedToStart(record.child.id, answer.reason)
                self._stops.leave(Shutdown(detail), Why.START_FAILED)
                return
        if self._planner.leaving is None:
            self._planner.phase = Phase.UP
            self._planner.say(Ready())

    def after_exit(self, record: ChildRecord, ref: Incarnation) -> Plan:
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
            self._planner.log(LogKind.CHILD_TERMINATED, record, record.last_exit)
        if not again:
            self._stops.retire(record)
            self._stops.consider_shutdown(child)
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

    def start(self, record: ChildRecord, *, requested: bool = False) -> Request:
        """Start one child. If that fails, the calling plan decides what happens to the record."""
        answer = yield StartChild(record.key, record.child)
        if isinstance(answer, ChildStarted):
            self._planner.log(LogKind.PROGRESS, record, requested=requested)
        elif isinstance(answer, Ignored):
            self._stops.retire(record)
        elif isinstance(answer, RequestDenied):
            record.failure = answer.reason
            if not requested:
                self._planner.log(LogKind.START_ERROR, record, answer.reason)
        return answer

    def _attempt(self, culprit: ChildRecord) -> Plan:
        """Restart the culprit and its group, if the limit allows one more restart."""
        if not self.window.admit(self._planner.now):
            self._give_up(culprit)
            return
        self.count += 1
        affected = self._affected(culprit)
        if self._shared_fate:
            culprit.suspended = True
            self._children.move(culprit, ChildState.STOPPED)
            for record in reversed(affected):
                yield from self._stops.stop(record, final=False)
        for record in affected:
            if record not in self._children:
                continue  # it was temporary
            record.restarts += 1
            answer = yield from self.start(record)
            if isinstance(answer, RequestDenied):
                self._children.move(record, ChildState.RESTARTING)
                yield from self._try_again(record)
                return

    def _affected(self, record: ChildRecord) -> list[ChildRecord]:
        if self._flags.strategy is Strategy.ONE_FOR_ALL:
            return list(self._children)
        if self._flags.strategy is Strategy.REST_FOR_ONE:
            return self._children.since(record)
        return [record]

    def _give_up(self, culprit: ChildRecord) -> None:
        self._planner.log(LogKind.TOO_MANY_RESTARTS, culprit, culprit.failure)
        gave_up = GaveUp(
            child=culprit.child.id,
            reason=culprit.failure or Normal(),
            restarts=self.window.recent(self._planner.now) + 1,
            max_restarts=self._flags.max_restarts,
            within=self._flags.within,
        )
        self._stops.retire(culprit)
        self._stops.leave(Shutdown(gave_up), Why.TOO_MANY_RESTARTS)

    def _try_again(self, record: ChildRecord) -> Plan:
        """Schedule a retry behind earlier messages; with a back-off, after a while.

        With a back-off, the children that depend on this one are stopped before the wait, not
        after it. Without one they are left as they are, as in OTP, and the retry stops them.
        """
        delay = 0.0
        if self._flags.backoff is not None:
            delay = self._flags.backoff.delay(record.failures, self._draw())
            for other in reversed(self._affected(record)):
                if other is not record:
                    yield from self._stops.stop(other, final=False)
        record.failures += 1
        record.ticket = next(self._tickets)
        if self._planner.leaving is None:
            self._planner.say(ScheduleRetry(record.key, delay, record.ticket))

    def check(self) -> None:
        """Raise AssertionError if the window of restarts is not in order. O(limit)."""
        self.window.check()


class Family:
    """The children of one supervisor and the plan, if any, that is under way.

    `Family(children, flags)`: the children are started by `begin()`, in this order. With the
    "dynamic" strategy no child is started; one may be passed as the template that `start_copy()`
    starts copies of, otherwise `start_child()` takes any child.

    Raises `BadChild` for ids that are not unique and for children that the flags do not allow.

    Events and requests return actions, O(1) for one child however many there are; strategies
    that restart several children cost O(those). `draw` returns random numbers in [0, 1), for the
    jitter of a back-off.
    """

    def __init__(
        self,
        children: Iterable[Child] = (),
        flags: Flags | None = None,
        *,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.flags = flags or Flags()
        self.template: Child | None = None
        self._dynamic = self.flags.strategy is Strategy.DYNAMIC
        self.children = Children()
        self.planner = Planner(self.children)
        self.stops = Stops(self.flags, self.children, self.planner)
        self.restarts = Restarts(self.flags, self.children, self.planner, self.stops, draw)
        self.requests = Requests(self)
        """What users may ask of it."""
        for child in children:
            self._accept(child)

    def _accept(self, child: Child) -> None:
        self.flags.refuse_mismatch(child)
        if self._dynamic:
            if self.template is not None:
                raise BadChild(
                    f"a dynamic supervisor takes one child, the template of all others, but got "
                    f"{brief(self.template.id)} and {brief(child.id)}; leave the children out and "
                    "start them with start_child()"
                )
            self.template = child
        elif self.children.find(child.id) is not None:
            raise BadChild(
                f"two children have the id {brief(child.id)}; ids are unique within a supervisor"
            )
        else:
            self.children.add(ChildRecord(child.id, child))

    # Reports from the shell

    def begin(self, *, now: float) -> list[Action]:
        """Start the children in order. Leads to `Ready`, or to `Exit` if one does not start."""
        if self.phase is not Phase.NEW:
            raise ImpossibleReport(
                f"begin() is called once and first; this family is {self.phase.name}"
            )
        self.planner.phase = Phase.STARTING
        self.planner.now = now
        return self.planner.submit(self.restarts.boot())

    def started(
        self, key: Hashable, ref: Incarnation, extra: Any = None, *, now: float
    ) -> list[Action]:
        """Report that the start of `key` returned a running child, and perhaps an extra value."""
        record = self.planner.starting(key)
        if ref is None:
            raise ImpossibleReport(
                f"None is not a ref; use start_ignored({key!r}) if nothing is running"
            )
        other = self.children.find_ref(ref)
        if other is not None:
            mistake = BadChild(
                f"the start of child {brief(record.child.id)} returned {brief(ref)}, which is "
                f"child {brief(other.child.id)} already; each start must return a new one"
            )
            return self.start_failed(key, Crash(mistake), now=now)
        self.planner.now = now
        self.children.bind(record, ref, now)
        if record.child.restart is RestartType.TEMPORARY:
            # It will not be restarted, so the arguments of its start can be freed.
            record.child = self.template or record.child.with_arguments((), {})
        return self.planner.start_done(ChildStarted(ref, extra))

    def start_ignored(self, key: Hashable, *, now: float) -> list[Action]:
        """Report that the start of `key` chose not to run anything."""
        self.planner.starting(key)
        self.planner.now = now
        return self.planner.start_done(Ignored())

    def start_failed(self, key: Hashable, reason: ExitReason, *, now: float) -> list[Action]:
        """Report that the start of `key` raised, or returned something that is not a child."""
        self.planner.starting(key)
        self.planner.now = now
        return self.planner.start_done(RequestDenied(RequestRefusal.START_FAILED, reason=reason))

    def exited(self, ref: Incarnation, reason: ExitReason, *, now: float) -> list[Action]:
        """Report that an incarnation ended, by itself or because it was stopped.

        Unknown refs are ignored: a late report of a child that was replaced must not count.
        """
        record = self.children.find_ref(ref)
        if record is None or not record.is_alive:
            return []
        self.planner.now = now
        record.last_exit = record.failure = reason
        if record.state is ChildState.STOPPING:
            self.stops.settle(record)
            return self.planner.stop_done()
        self.children.move(record, ChildState.EXITED)
        return self.planner.submit(self.restarts.after_exit(record, ref))

    def retry(self, retry: ScheduleRetry, *, now: float) -> list[Action]:
        """Report that a retry came due. Does nothing if it is out of date."""
        self.planner.now = now
        return self.planner.submit(self.restarts.after_wait(retry))

    def shutdown(self, reason: ExitReason) -> list[Action]:
        """Stop all children and then end with this reason. A second shutdown does nothing.

        A plan under way is given up after its current step. Queued requests are refused.
        """
        self.stops.leave(reason, Why.REQUESTED)
        return self.planner.go_on()

    # What the shell looks at

    def __len__(self) -> int:
        return len(self.children)

    @property
    def phase(self) -> Phase:
        """The phase of the family's life."""
        return self.planner.phase

    @property
    def round(self) -> int:
        """The number of the current round of stops; 0 outside of one."""
        return self.planner.round

    def stopping(self, shutdown: Grace) -> list[Incarnation]:
        """Return the children that have that `shutdown` time and are being stopped. O(n)."""
        return [
            record.ref
            for record in self.children
            if record.state is ChildState.STOPPING and record.child.shutdown == shutdown
        ]

    def check(self) -> None:
        """Raise AssertionError if an invariant of the family does not hold. O(n)."""
        self.children.check()
        self.planner.check()
        self.restarts.check()
        if self.phase in {Phase.NEW, Phase.STARTING} or self.planner.leaving is not None:
            return
        for record in self.children:
            forgets = self._dynamic or record.child.restart is RestartType.TEMPORARY
            if forgets and record.state is ChildState.STOPPED:
                raise AssertionError(f"{record.key!r} has ended and should be forgotten")
