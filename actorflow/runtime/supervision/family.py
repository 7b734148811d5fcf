"""How a supervisor treats its children, as a pure state machine: events in, actions out.

A `Family` has no thread, no clock and no actors. The supervisor around it (the shell) reports
what happened and performs, in order, the actions that are returned:

    start the supervisor         begin()                  StartChild     call it, then report
    a start was performed        started() start_ignored()               or start_failed()
    any child ended              exited()                 StopChildren   then exited() for each
    a retry came due             retry()                  ScheduleRetry  pass it back after a while
    a request came in            start_child() ...        Reply          pass it to the caller
    the supervisor must end      shutdown()               Ready Log Release Exit

Starts and stops are steps of a *plan*: the strategy's whole way from a crash to a complete family
again. A plan that waits for a report is simply kept, so the shell may take its time. What arrives
meanwhile is queued, as in an Erlang mailbox, and handled when the plan is done. Only `shutdown()`
does not wait for the whole plan, but just for the step under way. Views (`which_children()` and so
on) answer at any time.

The shell in a few lines, for children whose starts and stops take no time:

>>> from actorflow.runtime.supervision.plans import Exit, StartChild, StopChildren
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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from actorflow.runtime.exits import Crash
from actorflow.runtime.supervision.children import (
    ChildInfo,
    Children,
    ChildState,
    Counts,
    Incarnation,
    Record,
)
from actorflow.runtime.supervision.plans import (
    Action,
    Done,
    Ignored,
    OutOfTurn,
    Phase,
    Planner,
    Refused,
    Reply,
    RequestRefusal,
    ScheduleRetry,
    Started,
    Why,
)
from actorflow.runtime.supervision.spec import BadChild, Child, Flags, RestartType, Strategy
from actorflow.runtime.supervision.strategies import Strategies
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.plans import Plan, Request, Round
    from actorflow.runtime.supervision.spec import Grace

__all__ = ["Family"]


@dataclass(frozen=True, slots=True)
class FamilyStatistics:
    """A snapshot of a family; O(1) to take."""

    phase: Phase
    children: Counts
    restarts: int
    """Attempts to restart since the beginning: what counts against `max_restarts`."""
    waiting: int
    """Requests and exits that arrived during a plan and have not been handled yet."""


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
        self._keys = itertools.count(1)
        self._children = Children()
        self._planner = Planner(self._children)
        self._strategies = Strategies(self.flags, self._children, self._planner, draw)
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
        elif self._children.find(child.id) is not None:
            raise BadChild(
                f"two children have the id {brief(child.id)}; ids are unique within a supervisor"
            )
        else:
            self._children.add(Record(child.id, child))

    # Reports from the shell

    def begin(self, *, now: float) -> list[Action]:
        """Start the children in order. Leads to `Ready`, or to `Exit` if one does not start."""
        if self.phase is not Phase.NEW:
            raise OutOfTurn(f"begin() is called once and first; this family is {self.phase.name}")
        self._planner.phase = Phase.STARTING
        self._planner.now = now
        return self._planner.submit(self._strategies.boot())

    def started(
        self, key: Hashable, ref: Incarnation, extra: Any = None, *, now: float
    ) -> list[Action]:
        """Report that the start of `key` returned a running child, and perhaps an extra value."""
        record = self._planner.starting(key)
        if ref is None:
            raise OutOfTurn(f"None is not a ref; use start_ignored({key!r}) if nothing is running")
        other = self._children.find_ref(ref)
        if other is not None:
            mistake = BadChild(
                f"the start of child {brief(record.child.id)} returned {brief(ref)}, which is "
                f"child {brief(other.child.id)} already; each start must return a new one"
            )
            return self.start_failed(key, Crash(mistake), now=now)
        self._planner.now = now
        self._children.bind(record, ref, now)
        if record.child.restart is RestartType.TEMPORARY:
            # It will not be restarted, so the arguments of its start can be freed.
            record.child = self.template or record.child.with_arguments((), {})
        return self._planner.start_done(Started(ref, extra))

    def start_ignored(self, key: Hashable, *, now: float) -> list[Action]:
        """Report that the start of `key` chose not to run anything."""
        self._planner.starting(key)
        self._planner.now = now
        return self._planner.start_done(Ignored())

    def start_failed(self, key: Hashable, reason: ExitReason, *, now: float) -> list[Action]:
        """Report that the start of `key` raised, or returned something that is not a child."""
        self._planner.starting(key)
        self._planner.now = now
        return self._planner.start_done(Refused(RequestRefusal.START_FAILED, reason=reason))

    def exited(self, ref: Incarnation, reason: ExitReason, *, now: float) -> list[Action]:
        """Report that an incarnation ended, by itself or because it was stopped.

        Unknown refs are ignored: a late report of a child that was replaced must not count.
        """
        record = self._children.find_ref(ref)
        if record is None or not record.is_alive:
            return []
        self._planner.now = now
        record.last_exit = record.failure = reason
        if record.state is ChildState.STOPPING:
            self._strategies.settle(record)
            return self._planner.stop_done()
        self._children.move(record, ChildState.EXITED)
        return self._planner.submit(self._strategies.after_exit(record, ref))

    def retry(self, retry: ScheduleRetry, *, now: float) -> list[Action]:
        """Report that a retry came due. Does nothing if it is out of date."""
        self._planner.now = now
        return self._planner.submit(self._strategies.after_wait(retry))

    def shutdown(self, reason: ExitReason) -> list[Action]:
        """Stop all children and then end with this reason. A second shutdown does nothing.

        A plan under way is given up after its current step. Queued requests are refused.
        """
        self._strategies.leave(reason, Why.REQUESTED)
        return self._planner.go_on()

    # Requests: each leads to one Reply to its caller, at once or when the plans before it are done

    def start_child(self, child: Child, *, caller: Any = None) -> list[Action]:
        """Start one more child, last in order. Answer: `Started`, `Ignored` or `Refused`.

        A child that does not start is not kept. Raises `BadChild` if the flags do not allow it.
        """
        self.flags.refuse_mismatch(child)
        return self._request(caller, self._enter(child))

    def start_copy(
        self, *args: Any, kwargs: Mapping[str, Any] | None = None, caller: Any = None
    ) -> list[Action]:
        """Start a copy of the template, with these arguments after its own."""
        return self._request(caller, self._copy(args, kwargs or {}))

    def terminate_child(self, id: Hashable, *, caller: Any = None) -> list[Action]:  # noqa: A002
        """Stop a child, or cancel its restart. It is kept as stopped, unless temporary.

        Answer: `Done`, also if it was not running; `Refused`: NOT_FOUND, DYNAMIC.
        """
        return self._request(caller, self._terminate(id))

    def terminate_ref(
        self, ref: Incarnation, *, alive: bool = True, caller: Any = None
    ) -> list[Action]:
        """Stop the dynamic child with that ref, or cancel its restart.

        Answer: `Done`; `Refused`: NOT_DYNAMIC, or NOT_FOUND for an unknown ref. `alive` says
        whether an unknown ref is alive: if it has ended, the answer is `Done`.
        """
        return self._request(caller, self._terminate_dynamic(ref, alive=alive))

    def restart_child(self, id: Hashable, *, caller: Any = None) -> list[Action]:  # noqa: A002
        """Start a stopped child. Answer: `Started`, `Ignored`, or `Refused`; it is kept anyway.

        Does not count against `max_restarts`.
        """
        return self._request(caller, self._restart(id))

    def delete_child(self, id: Hashable, *, caller: Any = None) -> list[Action]:  # noqa: A002
        """Forget a stopped child. Answer: `Done` or `Refused`."""
        return self._request(caller, self._delete(id))

    # Views

    def __len__(self) -> int:
        return len(self._children)

    @property
    def phase(self) -> Phase:
        """The phase of the family's life."""
        return self._planner.phase

    @property
    def round(self) -> int:
        """The number of the round of stops under way; 0 if there is none."""
        return self._planner.round

    def stopping(self, shutdown: Grace) -> list[Incarnation]:
        """Return the children that have that `shutdown` time and are being stopped. O(n)."""
        return [
            record.ref
            for record in self._children
            if record.state is ChildState.STOPPING and record.child.shutdown == shutdown
        ]

    def which_children(self) -> list[ChildInfo]:
        """Return all children, the newest first, as OTP does. Thread-safe. O(n)."""
        return [record.info() for record in reversed(self._children.snapshot())]

    def which_child(self, id: Hashable) -> ChildInfo | RequestRefusal:  # noqa: A002
        """Return one child, by its id or its ref (dynamic: by its ref). O(1)."""
        record = self._find(id)
        return RequestRefusal.NOT_FOUND if record is None else record.info()

    def get_childspec(self, id: Hashable) -> Child | RequestRefusal:  # noqa: A002
        """Return a child's specification, by its id or its ref (dynamic: by its ref). O(1).

        That of a temporary child comes without the arguments of its start, which are not kept.
        """
        record = self._find(id)
        return RequestRefusal.NOT_FOUND if record is None else record.child

    def count_children(self) -> Counts:
        """Return the number of children by kind. O(1)."""
        counts = self._children.counts()
        return counts if self.template is None else replace(counts, specs=1)

    def statistics(self) -> FamilyStatistics:
        """Return a snapshot of the family. O(1)."""
        return FamilyStatistics(
            phase=self.phase,
            children=self.count_children(),
            restarts=self._strategies.restarts,
            waiting=len(self._planner),
        )

    def plan_shutdown(self) -> list[Round]:
        """Return how the children that are alive now would be stopped, without doing it. O(n).

        A list of rounds: the children of one round are stopped at once, the next round begins
        when all of them have ended. One child per round, in reverse; dynamic children are all in
        one.
        """
        return self._strategies.rounds()

    def check(self) -> None:
        """Raise AssertionError if an invariant of the family does not hold. O(n)."""
        self._children.check()
        self._planner.check()
        self._strategies.check()

    # The plans of requests

    def _request(self, caller: Any, request: Request) -> list[Action]:
        if self._planner.leaving is not None:
            return [Reply(caller, Refused(RequestRefusal.STOPPING))]
        return self._planner.submit(self._answer(caller, request))

    def _answer(self, caller: Any, request: Request) -> Plan:
        leaving = self._planner.leaving is not None
        answer = Refused(RequestRefusal.STOPPING) if leaving else (yield from request)
        self._planner.say(Reply(caller, answer))

    def _enter(self, child: Child) -> Request:
        if self._dynamic:
            if self.template is not None:
                return Refused(RequestRefusal.TEMPLATE)
            return (yield from self._add(next(self._keys), child))
        known = self._children.find(child.id)
        if known is None:
            return (yield from self._add(child.id, child))
        if known.state in {ChildState.RUNNING, ChildState.EXITED}:
            return Refused(RequestRefusal.ALREADY_STARTED, ref=known.ref)
        return Refused(RequestRefusal.ALREADY_PRESENT)

    def _copy(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Request:
        child = self.template
        if child is None:
            return Refused(RequestRefusal.NO_TEMPLATE)
        if args or kwargs:
            child = child.with_arguments((*child.args, *args), {**child.kwargs, **kwargs})
        return (yield from self._add(next(self._keys), child))

    def _add(self, key: Hashable, child: Child) -> Request:
        limit = self.flags.max_children
        if limit is not None and len(self._children) >= limit:
            return Refused(RequestRefusal.MAX_CHILDREN)
        record = Record(key, child)
        self._children.add(record)
        answer = yield from self._strategies.start(record, requested=True)
        if isinstance(answer, Refused):
            self._children.remove(record)
        return answer

    def _terminate(self, id: Hashable) -> Request:  # noqa: A002
        record = self._named(id)
        if isinstance(record, Refused):
            return record
        record.failures = 0
        yield from self._strategies.stop(record)
        return Done()

    def _terminate_dynamic(self, ref: Incarnation, *, alive: bool) -> Request:
        if not self._dynamic:
            return Refused(RequestRefusal.NOT_DYNAMIC)
        record = self._children.find_ref(ref)
        if record is not None:
            yield from self._strategies.stop(record)
        elif alive:
            return Refused(RequestRefusal.NOT_FOUND)
        return Done()

    def _restart(self, id: Hashable) -> Request:  # noqa: A002
        record = self._stopped(id)
        if isinstance(record, Refused):
            return record
        record.failures = 0
        answer = yield from self._strategies.start(record, requested=True)
        if isinstance(answer, Refused):
            self._children.move(record, ChildState.STOPPED)
        return answer

    def _delete(self, id: Hashable) -> Request:  # noqa: A002
        yield from ()  # a generator like the others, though it has no step to wait for
        record = self._stopped(id)
        if isinstance(record, Refused):
            return record
        self._children.remove(record)
        return Done()

    def _named(self, id: Hashable) -> Record | Refused:  # noqa: A002
        if self._dynamic:
            return Refused(RequestRefusal.DYNAMIC)
        return self._children.find(id) or Refused(RequestRefusal.NOT_FOUND)

    def _stopped(self, id: Hashable) -> Record | Refused:  # noqa: A002
        record = self._named(id)
        if isinstance(record, Refused) or record.state is ChildState.STOPPED:
            return record
        restarting = record.state is ChildState.RESTARTING
        return Refused(RequestRefusal.RESTARTING if restarting else RequestRefusal.RUNNING)

    def _find(self, id: Hashable) -> Record | None:  # noqa: A002
        record = None if self._dynamic else self._children.find(id)
        return record or self._children.find_ref(id)
