"""The children of one supervisor, and the plans that change them, one at a time.

`Children` records them in start order, by key and by incarnation.

A *plan* is a generator: it yields the action that it waits for, a start or a round of stops, and is
sent the outcome. Everything else it does at once. So a plan reads like a blocking function, but
nothing blocks: between two steps it is just an object that the `Planner` keeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from actorflow.runtime.errors import ActorflowError
from actorflow.runtime.exits import FailedToStart, GaveUp, Normal, Shutdown
from actorflow.runtime.supervision.actions import (
    SHUTDOWN,
    Answer,
    LogAction,
    Release,
    RequestDone,
    StartChild,
    StopChildren,
)
from actorflow.runtime.supervision.spec import ChildType

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.actions import Action, Exit, Incarnation, LogKind
    from actorflow.runtime.supervision.spec import Child, RestartType

__all__ = [
    "ChildCounts",
    "ChildInfo",
    "ChildRecord",
    "ChildState",
    "Children",
    "ImpossibleReport",
    "Phase",
    "Plan",
    "Planner",
    "Request",
    "Round",
]


class ChildState(Enum):
    """The state of a child. OTP shows three of these; the others last for one step."""

    STARTING = auto()
    """Its start was requested and has not been reported yet."""
    RUNNING = auto()
    STOPPING = auto()
    """It was asked to stop and its exit has not been reported yet."""
    EXITED = auto()
    """It ended by itself during another plan; its exit is handled after that plan."""
    RESTARTING = auto()
    """It failed to start again; a retry is scheduled."""
    STOPPED = auto()
    """It is known but not running (OTP: undefined)."""


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """One child as seen from outside."""

    id: Hashable
    state: ChildState
    ref: Incarnation
    """None unless the child is alive."""
    type: ChildType
    restart: RestartType
    restarts: int
    """How often the supervisor has restarted it, for its own sake or a sibling's."""
    started_at: float | None
    last_exit: ExitReason | None


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """The number of children by kind. A dynamic supervisor with a template has one spec."""

    specs: int
    active: int
    """Alive: running or stopping."""
    supervisors: int
    workers: int


# Tuples: comparing with two members is cheaper than hashing one, which enums do in Python.
_ALIVE = (ChildState.RUNNING, ChildState.STOPPING)
_HAS_REF = (*_ALIVE, ChildState.EXITED)


@dataclass(slots=True, eq=False)
class ChildRecord:
    """One child over all its incarnations. Only `Children` changes its state."""

    key: Hashable
    """The id of the child; for a dynamic child a unique number."""
    child: Child
    state: ChildState = ChildState.STOPPED
    ref: Incarnation = None
    """The incarnation: alive, or the last one while a restart is under way."""
    started_at: float | None = None
    last_exit: ExitReason | None = None
    failure: ExitReason | None = None
    """Why it needs a restart: how it ended, or why its last start failed."""
    restarts: int = 0
    failures: int = 0
    """Restarts in a row that did not last: the back-off grows with it."""
    ticket: int = 0
    """The number of the retry that is scheduled while RESTARTING."""
    suspended: bool = False
    """Stopped to make way for a restart, which includes its own."""

    @property
    def is_alive(self) -> bool:
        """Whether there is an incarnation whose end has not been reported."""
        return self.state in _ALIVE

    def info(self) -> ChildInfo:
        """Return what callers may see of it."""
        return ChildInfo(
            id=self.child.id,
            state=self.state,
            ref=self.ref if self.is_alive else None,
            type=self.child.type,
            restart=self.child.restart,
            restarts=self.restarts,
            started_at=self.started_at,
            last_exit=self.last_exit,
        )


class Children:
    """An ordered collection of records that keeps count. All methods O(1), unless they say so.

    A plain dict keeps the order: a restarted child keeps its place, a new one goes last, and
    removing one costs the others nothing.
    """

    __slots__ = (
        "_active",
        "_by_key",
        "_by_ref",
        "_ended",
        "_restarting",
        "_supervisors",
        "significant",
    )

    def __init__(self) -> None:
        self._by_key: dict[Hashable, ChildRecord] = {}
        self._by_ref: dict[Incarnation, ChildRecord] = {}
        self._ended: dict[ChildRecord, Incarnation] = {}  # by child, the last one, until released
        self._restarting = 0
        self._active = 0
        self._supervisors = 0
        self.significant = 0
        """Significant children that are not STOPPED: one being restarted still counts."""

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[ChildRecord]:
        return iter(self._by_key.values())

    def __reversed__(self) -> Iterator[ChildRecord]:
        return reversed(self._by_key.values())

    def __contains__(self, record: ChildRecord) -> bool:
        return self._by_key.get(record.key) is record

    def find(self, key: Hashable) -> ChildRecord | None:
        """Return the record with that key."""
        return self._by_key.get(key)

    def find_ref(self, ref: Incarnation) -> ChildRecord | None:
        """Return the record of an incarnation, also of the last one of a RESTARTING child."""
        return self._by_ref.get(ref)

    def snapshot(self) -> list[ChildRecord]:
        """Return all records, in order. Thread-safe: one C call. O(n)."""
        return list(self._by_key.values())

    def since(self, record: ChildRecord) -> list[ChildRecord]:
        """Return the record and those after it, in order. O(as many)."""
        later = list(takewhile(lambda other: other is not record, reversed(self)))
        return [record, *reversed(later)]

    def counts(self) -> ChildCounts:
        """Return the counts; `specs` is the number of records."""
        return ChildCounts(
            specs=len(self),
            active=self._active,
            supervisors=self._supervisors,
            workers=len(self) - self._supervisors,
        )

    def add(self, record: ChildRecord) -> None:
        """Append a new record, which has no ref yet."""
        self._by_key[record.key] = record
        self._supervisors += record.child.type is ChildType.SUPERVISOR
        self._count(record, 1)

    def remove(self, record: ChildRecord) -> None:
        """Forget a record. The others keep their order."""
        del self._by_key[record.key]
        self._supervisors -= record.child.type is ChildType.SUPERVISOR
        self._count(record, -1)
        self._unbind(record)

    def move(self, record: ChildRecord, state: ChildState) -> None:
        """Change the state. A record that becomes STOPPED loses its ref."""
        self._count(record, -1)
        record.state = state
        self._count(record, 1)
        if state is ChildState.STOPPED:
            self._unbind(record)

    def bind(self, record: ChildRecord, ref: Incarnation, now: float) -> None:
        """Set a new incarnation, which is now RUNNING."""
        self._unbind(record)
        self._ended.pop(record, None)
        record.suspended = False
        record.ref = ref
        record.started_at = now
        self._by_ref[ref] = record
        self.move(record, ChildState.RUNNING)

    def take_released(self, *, leaving: bool) -> Sequence[tuple[ChildRecord, Incarnation]]:
        """Return the children that ended and will not be restarted, with their incarnations.

        Each is returned once. A child that was suspended for a restart which is still pending is
        kept, unless the family is leaving. O(ended children).
        """
        if not self._ended:
            return ()
        released = [
            (record, ref)
            for record, ref in self._ended.items()
            if record not in self
            or (
                record.state is ChildState.STOPPED
                and (leaving or not (record.suspended and self._restarting))
            )
        ]
        for record, _ in released:
            del self._ended[record]
        return released

    def _unbind(self, record: ChildRecord) -> None:
        if record.ref is not None:
            self._ended[record] = record.ref
            del self._by_ref[record.ref]
            record.ref = None

    def _count(self, record: ChildRecord, one: int) -> None:
        if record.state in _ALIVE:
            self._active += one
        elif record.state is ChildState.RESTARTING:
            self._restarting += one
        if record.child.significant and record.state is not ChildState.STOPPED:
            self.significant += one

    def check(self) -> None:
        """Raise AssertionError if indexes or counts do not match the records. O(n)."""
        records = list(self)
        bound = {record.ref: record for record in records if record.ref is not None}
        _hold(self._by_ref == bound, "the index by ref matches the records")
        _hold(all(key == record.key for key, record in self._by_key.items()), "keys match")
        _hold(
            self._active == sum(record.is_alive for record in records), "live children are counted"
        )
        restarting = sum(record.state is ChildState.RESTARTING for record in records)
        _hold(self._restarting == restarting, "children that wait for a retry are counted")
        _hold(
            not any(record in self and record.is_alive for record in self._ended),
            "children whose incarnation has ended are not alive",
        )
        _hold(
            self._supervisors == sum(r.child.type is ChildType.SUPERVISOR for r in records),
            "supervisors are counted",
        )
        _hold(
            self.significant
            == sum(r.child.significant and r.state is not ChildState.STOPPED for r in records),
            "significant children are counted",
        )
        for record in records:
            if record.state in _HAS_REF:
                _hold(record.ref is not None, f"{record.key!r} has a ref: {record.state}")
            if record.state is ChildState.STOPPED:
                _hold(record.ref is None, f"{record.key!r} is stopped and has no ref")


def _hold(condition: bool, what: str) -> None:  # noqa: FBT001
    if not condition:
        raise AssertionError(f"not true of these children: {what}")


# Plans.

Round: TypeAlias = tuple[StopChildren, ...]
"""Stops that are made at once and waited for together."""

Plan: TypeAlias = Generator[StartChild | Round, Answer, None]
Request: TypeAlias = Generator[StartChild | Round, Answer, Answer]
"""A plan that ends in the answer to a caller."""


class Phase(Enum):
    """The phases in the life of a family."""

    NEW = auto()
    STARTING = auto()
    UP = auto()
    LEAVING = auto()
    GONE = auto()


class ImpossibleReport(ActorflowError, RuntimeError):
    """A family was given a report that cannot be true: a bug in the supervisor around it."""


class Planner:
    """Runs plans one after another over the same children, and queues waiting ones.

    Methods that can resume a plan return the resulting actions; all others add to them.
    """

    __slots__ = (
        "_last",
        "_out",
        "_plan",
        "_queue",
        "_rounds",
        "_starting",
        "_stops",
        "children",
        "leaving",
        "now",
        "phase",
    )

    def __init__(self, children: Children) -> None:
        self.children = children
        self.phase = Phase.NEW
        self.now = 0.0
        """The time of the last report."""
        self.leaving: Exit | None = None
        """How the family will end, once that is decided."""
        self._plan: Plan | None = None
        self._queue: deque[Plan] = deque()
        self._last: Plan | None = None
        self._out: list[Action] = []
        self._starting: ChildRecord | None = None
        self._stops = 0
        self._rounds = 0

    def __len__(self) -> int:
        """Return the number of plans that wait for their turn."""
        return len(self._queue)

    @property
    def round(self) -> int:
        """The number of the current round of stops; 0 outside of one."""
        return self._rounds if self._stops else 0

    @property
    def stop_reason(self) -> ExitReason:
        """The reason for stops made now: OTP's `shutdown`, with the cause if there is one."""
        reason = None if self.leaving is None else self.leaving.reason
        if isinstance(reason, Shutdown) and isinstance(reason.detail, GaveUp | FailedToStart):
            return reason
        return SHUTDOWN

    def say(self, action: Action) -> None:
        """Add an action whose outcome is not waited for."""
        self._out.append(action)

    def log(
        self,
        kind: LogKind,
        record: ChildRecord,
        reason: ExitReason | None = None,
        *,
        requested: bool = False,
    ) -> None:
        """Add the log of what happened to a child."""
        self.say(
            LogAction(kind, record.child, record.ref, reason, record.restarts, requested=requested)
        )

    def submit(self, plan: Plan) -> list[Action]:
        """Run a plan as soon as those before it are done."""
        if self.phase is Phase.NEW:
            raise ImpossibleReport("this family has not begun; call begin() first")
        self._queue.append(plan)
        return self.go_on()

    def leave(self, farewell: Exit, last: Plan) -> None:
        """Make `last` the last plan, unless another one is already.

        A plan under way is given up after its current step; plans in the queue have to check
        for themselves whether the family is `leaving`.
        """
        if self.leaving is None:
            self.leaving = farewell
            self.phase = Phase.LEAVING
            self._last = last

    def go_on(self) -> list[Action]:
        """Run the pending plans, unless one waits for a report."""
        return self._flush() if self._plan else self._resume(None)

    def starting(self, key: Hashable) -> ChildRecord:
        """Return the child that is starting; raise `ImpossibleReport` if its key is not `key`."""
        record = self._starting
        if record is None or record.key != key:
            waited = "no start is" if record is None else f"the start of {record.key!r} is"
            raise ImpossibleReport(f"the start of {key!r} was reported, but {waited} waited for")
        return record

    def start_done(self, answer: Answer) -> list[Action]:
        """Resume the plan with the outcome of its start."""
        self._starting = None
        return self._resume(answer)

    def stop_done(self) -> list[Action]:
        """Resume the plan if this was the last stop of its round."""
        self._stops -= 1
        if self.leaving is not None:
            self._release()  # now, not after the round: nothing will be restarted any more
        return self._flush() if self._stops else self._resume(RequestDone())

    def _resume(self, answer: Answer | None) -> list[Action]:
        while True:
            if self._plan is None:
                self._plan = self._next()
                answer = None
            if self._plan is None:
                return self._flush()
            try:
                step = next(self._plan) if answer is None else self._plan.send(answer)
            except StopIteration:
                self._finish()
                continue
            if self._last is not None:
                # The family is leaving: this step is not begun, and so the plan ends here.
                self._plan.close()
                self._finish()
                continue
            self._begin(step)
            return self._flush()

    def _next(self) -> Plan | None:
        if self._queue:
            return self._queue.popleft()
        last, self._last = self._last, None
        return last

    def _finish(self) -> None:
        self._plan = None
        if self.phase is not Phase.GONE:  # then Exit was the last action, and releases everything
            # Not earlier: a child that the plan has stopped may be one that it starts again.
            self._release()

    def _release(self) -> None:
        for record, ref in self.children.take_released(leaving=self.leaving is not None):
            reason = self.stop_reason if record.suspended else record.last_exit
            self._out.append(Release(ref, reason or Normal()))

    def _begin(self, step: StartChild | Round) -> None:
        if isinstance(step, StartChild):
            record = self.children.find(step.key)
            if record is None:
                raise ImpossibleReport(f"there is no child {step.key!r} to start")
            self._starting = record
            self.children.move(record, ChildState.STARTING)
            self._out.append(step)
            return
        self._rounds += 1
        for stop in step:
            for ref in stop.refs:
                record = self.children.find_ref(ref)
                if record is None:
                    raise ImpossibleReport(f"there is no child {ref!r} to stop")
                self.children.move(record, ChildState.STOPPING)
            self._stops += len(stop.refs)
        self._out.extend(step)

    def _flush(self) -> list[Action]:
        out, self._out = self._out, []
        return out

    def check(self) -> None:
        """Raise AssertionError if the plan does not match the states of the children. O(n)."""
        states = [record.state for record in self.children]
        idle = self._plan is None
        for name, holds in {
            "one start at a time": states.count(ChildState.STARTING) == bool(self._starting),
            "stops are counted": states.count(ChildState.STOPPING) == self._stops,
            "a plan waits for something": idle == (self._starting is None and not self._stops),
            "all exits were handled": not idle or ChildState.EXITED not in states,
            "an idle family has no plans left": not idle or not (self._queue or self._last),
            "all actions were returned": not self._out,
            "a family that is gone has no live children": self.phase is not Phase.GONE
            or not any(record.is_alive for record in self.children),
        }.items():
            if not holds:
                raise AssertionError(f"not true of this family: {name}")
