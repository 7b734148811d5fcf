"""What a supervisor does about its children, as a pure state machine: events in, actions out.

A `Family` has no thread, no clock and no actors. The supervisor around it (the shell) tells it
what happened and performs, in order, the actions that come back:

    start the supervisor         begin()                  StartChild     call it, then report
    a start was performed        started() start_ignored()               or start_failed()
    any child ended              exited()                 StopChildren   then exited() for each
    a Retry came due             retry()                  Retry          hand it back after a while
    a request came in            start_child() ...        Reply          give it to the caller
    the supervisor must end      shutdown()               Ready Log Exit

Starts and stops are steps of a *plan*: the strategy's whole way from a crash to a family that is
whole again. A plan that waits for a report is simply kept, so the shell may take its time. What
arrives meanwhile queues up, as in an Erlang mailbox, and has its turn when the plan is done.
`shutdown()` alone does not wait for the whole plan, only for the step under way. Views
(`which_children()` and so on) answer at any time.

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
...             case StopChildren(refs, _):
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

Rules that the shell keeps: one thread (or lock) at a time; `now` never goes backwards; a ref is
hashable, not None, and names one incarnation only; `started` is reported before the `exited` of
the same ref, and each death exactly once (a second notice, or a stranger's, is ignored). At most
one start, or one round of stops, is under way, and it is the last action of the list it came in.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from actorflow.runtime.exits import Crash
from actorflow.runtime.supervision.actions import (
    Action,
    ChildInfo,
    ChildState,
    Counts,
    Done,
    FamilyStatistics,
    Ignored,
    Phase,
    Ref,
    Refusal,
    Refused,
    Reply,
    Retry,
    Started,
    Why,
)
from actorflow.runtime.supervision.children import Children, Record
from actorflow.runtime.supervision.planner import Conductor, OutOfTurn
from actorflow.runtime.supervision.spec import BadChild, Child, Flags, RestartType, Strategy
from actorflow.runtime.supervision.strategies import Recovery

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.planner import Plan, Request, Round

__all__ = ["Family"]


class Family:
    """The children of one supervisor and the plan, if any, that is being carried out for them.

    `Family(children, flags)`: the children are started by `begin()`, in this order. With the
    "dynamic" strategy there is none to begin with; one child may be given as the template that
    `start_copy()` starts copies of, otherwise `start_child()` takes any child.

    Raises `BadChild` for ids that are not unique and for children that the flags do not allow.

    Events and requests return actions, O(1) for one child however many there are; strategies
    that touch several children cost O(those). `draw` gives random numbers in [0, 1) to the jitter
    of a back-off.
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
        self._conductor = Conductor(self._children)
        self._recovery = Recovery(self.flags, self._children, self._conductor, draw)
        for child in children:
            self._accept(child)

    def _accept(self, child: Child) -> None:
        self.flags.refuse_mismatch(child)
        if self._dynamic:
            if self.template is not None:
                raise BadChild(
                    f"a dynamic supervisor takes one child, the template of all others, but got "
                    f"{self.template.id!r} and {child.id!r}; start the others with start_child()"
                )
            self.template = child
        elif self._children.find(child.id) is not None:
            raise BadChild(
                f"two children have the id {child.id!r}; an id is unique within a supervisor, "
                f"write for example Child({f'{child.id}-2'!r}, start)"
            )
        else:
            self._children.add(Record(child.id, child))

    # What the shell reports

    def begin(self, *, now: float) -> list[Action]:
        """Start the children, left to right. Ends in `Ready`, or in `Exit` if one cannot start."""
        if self.phase is not Phase.NEW:
            raise OutOfTurn(f"begin() comes once and first; this family is {self.phase.name}")
        self._conductor.phase = Phase.STARTING
        self._conductor.now = now
        return self._conductor.submit(self._recovery.boot())

    def started(self, key: Hashable, ref: Ref, extra: Any = None, *, now: float) -> list[Action]:
        """Report that the start of `key` gave a running child, and perhaps something extra."""
        record = self._conductor.starting(key)
        if ref is None:
            raise OutOfTurn(f"None is no ref; report start_ignored({key!r}) if nothing is running")
        other = self._children.find_ref(ref)
        if other is not None:
            mistake = BadChild(
                f"the start of child {record.child.id!r} gave {ref!r}, which belongs to child "
                f"{other.child.id!r}; each start must give a new one"
            )
            return self.start_failed(key, Crash(mistake), now=now)
        self._conductor.now = now
        self._children.bind(record, ref, now)
        if record.child.restart is RestartType.TEMPORARY:
            # It will not be started again, so what it was started with can go.
            record.child = self.template or record.child.with_arguments((), {})
        return self._conductor.start_done(Started(ref, extra))

    def start_ignored(self, key: Hashable, *, now: float) -> list[Action]:
        """Report that the start of `key` chose not to run anything."""
        self._conductor.starting(key)
        self._conductor.now = now
        return self._conductor.start_done(Ignored())

    def start_failed(self, key: Hashable, reason: ExitReason, *, now: float) -> list[Action]:
        """Report that the start of `key` raised, or gave something that is no child."""
        self._conductor.starting(key)
        self._conductor.now = now
        return self._conductor.start_done(Refused(Refusal.START_FAILED, reason=reason))

    def exited(self, ref: Ref, reason: ExitReason, *, now: float) -> list[Action]:
        """Report that an incarnation ended, by itself or because it was stopped.

        Unknown refs are ignored: a late notice of a child that was replaced must not count.
        """
        record = self._children.find_ref(ref)
        if record is None or not record.is_alive:
            return []
        self._conductor.now = now
        record.last_exit = reason
        if record.state is ChildState.STOPPING:
            self._recovery.settle(record)
            return self._conductor.stop_done()
        self._children.move(record, ChildState.EXITED)
        return self._conductor.submit(self._recovery.after_exit(record, ref))

    def retry(self, retry: Retry, *, now: float) -> list[Action]:
        """Report that a `Retry` came due. Does nothing if it is out of date."""
        self._conductor.now = now
        return self._conductor.submit(self._recovery.after_wait(retry))

    def shutdown(self, reason: ExitReason) -> list[Action]:
        """Stop all children and then end with this reason; the first shutdown decides.

        A plan under way is given up after its current step. Requests that wait are refused.
        """
        self._recovery.leave(reason, Why.REQUESTED)
        return self._conductor.go_on()

    # Requests: each ends in one Reply to its caller, at once or when its turn comes

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
        """Stop a child, or give up restarting it. It stays known, unless temporary.

        Answer: `Done`, also if it was not running; `Refused`: NOT_FOUND, DYNAMIC.
        """
        return self._request(caller, self._terminate(id))

    def terminate_ref(self, ref: Ref, *, alive: bool = True, caller: Any = None) -> list[Action]:
        """Stop the dynamic child with that ref, or give up restarting it.

        Answer: `Done`; `Refused`: NOT_DYNAMIC, or NOT_FOUND for the ref of a stranger. `alive`
        says whether a stranger lives: for one that has ended the answer is `Done`.
        """
        return self._request(caller, self._terminate_dynamic(ref, alive=alive))

    def restart_child(self, id: Hashable, *, caller: Any = None) -> list[Action]:  # noqa: A002
        """Start a stopped child. Answer: `Started`, `Ignored`, or `Refused`; it stays known.

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
        """Where the family is in its life."""
        return self._conductor.phase

    @property
    def is_settled(self) -> bool:
        """Whether no plan is being carried out: everybody is where they will stay."""
        return not self._conductor.is_busy

    def state_of(self, key: Hashable) -> ChildState | None:
        """Give the state of the child with that key; `None` if it is not known any more. O(1)."""
        record = self._children.find(key)
        return None if record is None else record.state

    def which_children(self) -> list[ChildInfo]:
        """Show all children, the newest first, as OTP does. Any thread may look. O(n)."""
        return [record.info() for record in reversed(self._children.snapshot())]

    def refs(self) -> list[Ref]:
        """Give the refs of all incarnations that may be alive. Any thread may look. O(n)."""
        return self._children.refs()

    def which_child(self, id: Hashable) -> ChildInfo | Refusal:  # noqa: A002
        """Show one child, by its id or its ref (dynamic: by its ref). O(1)."""
        record = self._find(id)
        return Refusal.NOT_FOUND if record is None else record.info()

    def get_childspec(self, id: Hashable) -> Child | Refusal:  # noqa: A002
        """Give a child's specification, by its id or its ref (dynamic: by its ref). O(1).

        Temporary children are given without the arguments of their start, which are not kept.
        """
        record = self._find(id)
        return Refusal.NOT_FOUND if record is None else record.child

    def count_children(self) -> Counts:
        """Count the children. O(1)."""
        counts = self._children.counts()
        return counts if self.template is None else replace(counts, specs=1)

    def statistics(self) -> FamilyStatistics:
        """Give a snapshot of the family. O(1)."""
        return FamilyStatistics(
            phase=self.phase,
            children=self.count_children(),
            restarts=self._recovery.restarts,
            waiting=len(self._conductor),
        )

    def plan_shutdown(self) -> list[Round]:
        """Show how the children that live now would be stopped, without doing it. O(n).

        A list of rounds: what is in one round is told at once, the next round begins when all
        of it are down. One child per round, in reverse; dynamic children are all in one.
        """
        return self._recovery.rounds()

    def check(self) -> None:
        """Raise AssertionError if anything about the family does not fit. O(n)."""
        self._children.check()
        self._conductor.check()
        self._recovery.check()

    # How requests are carried out

    def _request(self, caller: Any, request: Request) -> list[Action]:
        if self._conductor.leaving is not None:
            return [Reply(caller, Refused(Refusal.STOPPING))]
        return self._conductor.submit(self._answer(caller, request))

    def _answer(self, caller: Any, request: Request) -> Plan:
        leaving = self._conductor.leaving is not None
        answer = Refused(Refusal.STOPPING) if leaving else (yield from request)
        self._conductor.say(Reply(caller, answer))

    def _enter(self, child: Child) -> Request:
        if self._dynamic:
            if self.template is not None:
                return Refused(Refusal.TEMPLATE)
            return (yield from self._add(next(self._keys), child))
        known = self._children.find(child.id)
        if known is None:
            return (yield from self._add(child.id, child))
        if known.state in {ChildState.RUNNING, ChildState.EXITED}:
            return Refused(Refusal.ALREADY_STARTED, ref=known.ref)
        return Refused(Refusal.ALREADY_PRESENT)

    def _copy(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Request:
        child = self.template
        if child is None:
            return Refused(Refusal.NO_TEMPLATE)
        if args or kwargs:
            child = child.with_arguments((*child.args, *args), {**child.kwargs, **kwargs})
        return (yield from self._add(next(self._keys), child))

    def _add(self, key: Hashable, child: Child) -> Request:
        limit = self.flags.max_children
        if limit is not None and len(self._children) >= limit:
            return Refused(Refusal.MAX_CHILDREN)
        record = Record(key, child)
        self._children.add(record)
        answer = yield from self._recovery.start(record, requested=True)
        if isinstance(answer, Refused):
            self._children.remove(record)
        return answer

    def _terminate(self, id: Hashable) -> Request:  # noqa: A002
        record = self._named(id)
        if isinstance(record, Refused):
            return record
        record.failures = 0
        yield from self._recovery.stop(record)
        return Done()

    def _terminate_dynamic(self, ref: Ref, *, alive: bool) -> Request:
        if not self._dynamic:
            return Refused(Refusal.NOT_DYNAMIC)
        record = self._children.find_ref(ref)
        if record is not None:
            yield from self._recovery.stop(record)
        elif alive:
            return Refused(Refusal.NOT_FOUND)
        return Done()

    def _restart(self, id: Hashable) -> Request:  # noqa: A002
        record = self._stopped(id)
        if isinstance(record, Refused):
            return record
        record.failures = 0
        answer = yield from self._recovery.start(record, requested=True)
        if isinstance(answer, Refused):
            self._children.move(record, ChildState.STOPPED)
        return answer

    def _delete(self, id: Hashable) -> Request:  # noqa: A002
        yield from ()  # a request like the others, though it waits for nothing
        record = self._stopped(id)
        if isinstance(record, Refused):
            return record
        self._children.remove(record)
        return Done()

    def _named(self, id: Hashable) -> Record | Refused:  # noqa: A002
        if self._dynamic:
            return Refused(Refusal.DYNAMIC)
        return self._children.find(id) or Refused(Refusal.NOT_FOUND)

    def _stopped(self, id: Hashable) -> Record | Refused:  # noqa: A002
        record = self._named(id)
        if isinstance(record, Refused) or record.state is ChildState.STOPPED:
            return record
        restarting = record.state is ChildState.RESTARTING
        return Refused(Refusal.RESTARTING if restarting else Refusal.RUNNING)

    def _find(self, id: Hashable) -> Record | None:  # noqa: A002
        record = None if self._dynamic else self._children.find(id)
        return record or self._children.find_ref(id)
