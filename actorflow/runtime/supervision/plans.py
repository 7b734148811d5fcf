"""Plans: the steps that they consist of, and how they are run, one at a time.

A `Family` never starts, stops, waits or logs. It returns a list of *actions*, which the supervisor
performs in order, and *answers* to the requests that it was asked for.

A *plan* is a generator: it yields the action that it waits for, a start or a round of stops, and is
sent the outcome. Everything else it does at once. So a plan reads like a blocking function, but
nothing blocks: between two steps it is just an object that is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.runtime.errors import ActorflowError
from actorflow.runtime.exits import ExitReason, FailedToStart, GaveUp, Normal, Shutdown
from actorflow.runtime.supervision.children import ChildState

if TYPE_CHECKING:
    from collections.abc import Hashable

    from actorflow.runtime.supervision.children import Children, Incarnation, Record
    from actorflow.runtime.supervision.spec import Child, Grace

__all__ = [
    "SHUTDOWN",
    "Action",
    "Answer",
    "Done",
    "Exit",
    "Ignored",
    "Log",
    "LogKind",
    "OutOfTurn",
    "Phase",
    "Plan",
    "Planner",
    "Ready",
    "Refused",
    "Release",
    "Reply",
    "Request",
    "RequestRefusal",
    "Round",
    "ScheduleRetry",
    "StartChild",
    "Started",
    "StopChildren",
    "Why",
]

SHUTDOWN = Shutdown()
"""What children that are stopped end with, unless there is more to say."""


class Phase(Enum):
    """The phases in the life of a family."""

    NEW = auto()
    STARTING = auto()
    UP = auto()
    LEAVING = auto()
    GONE = auto()


class Why(Enum):
    """Why a supervisor ends."""

    REQUESTED = auto()
    """`shutdown()` was called: by a user, the parent, or a signal."""
    START_FAILED = auto()
    """One of the first children did not start."""
    TOO_MANY_RESTARTS = auto()
    AUTO_SHUTDOWN = auto()
    """Significant children have ended."""


class LogKind(Enum):
    """The events of a supervisor that are logged."""

    PROGRESS = auto()
    """A child has started."""
    CHILD_TERMINATED = auto()
    """A child ended by itself; not for clean exits of children that stay ended."""
    START_ERROR = auto()
    SHUTDOWN_ERROR = auto()
    """A child that was stopped ended for another reason than the stop."""
    TOO_MANY_RESTARTS = auto()
    """The supervisor gives up (OTP: reached_max_restart_intensity)."""


class RequestRefusal(Enum):
    """Why a request was refused; the value says so, and what to do."""

    ALREADY_STARTED = "a child of that id is running: use it, or terminate and delete it first"
    """`ref` is the running child."""
    ALREADY_PRESENT = "a child of that id is known but not running: restart_child or delete_child"
    NOT_FOUND = "there is no such child: which_children() lists them"
    RUNNING = "the child is running: terminate_child first"
    RESTARTING = "the child is being restarted: wait, or terminate_child first"
    MAX_CHILDREN = "there are as many children as max_children allows"
    START_FAILED = "the child did not start"
    """`reason` says why."""
    DYNAMIC = "dynamic children are found by their refs, not by an id"
    NOT_DYNAMIC = "only children of a dynamic supervisor are found by their refs: pass the id"
    TEMPLATE = "this supervisor starts copies of its template only: use start_copy"
    NO_TEMPLATE = "this supervisor has no template to start copies of: use start_child"
    STOPPING = "the supervisor is stopping, or has ended"


# Answers to requests


@dataclass(frozen=True, slots=True)
class Started:
    """The child is running; `extra` is what its start returned besides the ref."""

    ref: Incarnation
    extra: Any = None


@dataclass(frozen=True, slots=True)
class Ignored:
    """The child's start chose not to run; it is kept as stopped, unless temporary or dynamic."""


@dataclass(frozen=True, slots=True)
class Done:
    """The request was carried out."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The request was refused, and nothing has changed."""

    why: RequestRefusal
    ref: Incarnation = None
    reason: ExitReason | None = None


Answer: TypeAlias = Started | Ignored | Done | Refused


# Actions


@dataclass(frozen=True, slots=True)
class StartChild:
    """Call `child.start(*child.args, **child.kwargs)` and report the outcome.

    Report with `started`, `start_ignored` or `start_failed`, each with this `key`.
    """

    key: Hashable
    child: Child


@dataclass(frozen=True, slots=True)
class StopChildren:
    """Ask all of these at once to stop, and kill those still alive after `shutdown` seconds.

    One timer serves all. "brutal_kill" kills at once, `math.inf` waits without a limit. Report
    each end with `exited`, like any other end: there is no separate report.
    """

    refs: tuple[Incarnation, ...]
    shutdown: Grace
    reason: ExitReason = SHUTDOWN
    """What they are to end with."""
    final: bool = True
    """False: they will be restarted, so what a worker has accumulated is kept."""


@dataclass(frozen=True, slots=True)
class Release:
    """Free what outlives an incarnation: it has ended, and its child will not be restarted.

    Of a worker that is the accumulator. Not said for children that are left when the family
    itself ends.
    """

    ref: Incarnation
    reason: ExitReason


@dataclass(frozen=True, slots=True)
class ScheduleRetry:
    """Pass this very object to `retry()` after `after` seconds, behind what has arrived by then.

    It need not be cancelled: a retry that is out of date does nothing.
    """

    key: Hashable
    after: float
    ticket: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Pass `answer` to the caller of a request; `to` is the `caller` of that request."""

    to: Any
    answer: Answer


@dataclass(frozen=True, slots=True)
class Ready:
    """All first children have started: the supervisor is up."""


@dataclass(frozen=True, slots=True)
class Exit:
    """All children have ended: end the supervisor with this reason. Always the last action."""

    reason: ExitReason
    why: Why


@dataclass(frozen=True, slots=True)
class Log:
    """Log this, together with the name of the supervisor."""

    kind: LogKind
    child: Child
    ref: Incarnation = None
    reason: ExitReason | None = None
    restarts: int = 0
    """How often the supervisor has restarted this child."""
    requested: bool = False
    """PROGRESS only: the start was requested, so it is logged at debug level."""


Action: TypeAlias = StartChild | StopChildren | Release | ScheduleRetry | Reply | Ready | Exit | Log


# Running them

Round: TypeAlias = tuple[StopChildren, ...]
"""Stops that are made at once and waited for together."""

Plan: TypeAlias = Generator[StartChild | Round, Answer, None]
Request: TypeAlias = Generator[StartChild | Round, Answer, Answer]
"""A plan that ends in the answer to a caller."""


class OutOfTurn(ActorflowError, RuntimeError):
    """A family was given a report that cannot be true: a bug in the supervisor around it."""


class Planner:
    """Runs plans one after another over the same children, and queues those that wait.

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
        self._starting: Record | None = None
        self._stops = 0
        self._rounds = 0

    def __len__(self) -> int:
        """Return the number of plans that wait for their turn."""
        return len(self._queue)

    @property
    def round(self) -> int:
        """The number of the round of stops under way; 0 if there is none."""
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
        record: Record,
        reason: ExitReason | None = None,
        *,
        requested: bool = False,
    ) -> None:
        """Add the log of what became of a child."""
        self.say(Log(kind, record.child, record.ref, reason, record.restarts, requested=requested))

    def submit(self, plan: Plan) -> list[Action]:
        """Run a plan as soon as those before it are done."""
        if self.phase is Phase.NEW:
            raise OutOfTurn("this family has not begun; call begin() first")
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
        """Run what there is to run, unless a plan waits for a report."""
        return self._flush() if self._plan else self._resume(None)

    def starting(self, key: Hashable) -> Record:
        """Return the child whose start is waited for; raise `OutOfTurn` if that is not `key`."""
        record = self._starting
        if record is None or record.key != key:
            waited = "no start is" if record is None else f"the start of {record.key!r} is"
            raise OutOfTurn(f"the start of {key!r} was reported, but {waited} waited for")
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
        return self._flush() if self._stops else self._resume(Done())

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
                raise OutOfTurn(f"there is no child {step.key!r} to start")
            self._starting = record
            self.children.move(record, ChildState.STARTING)
            self._out.append(step)
            return
        self._rounds += 1
        for stop in step:
            for ref in stop.refs:
                record = self.children.find_ref(ref)
                if record is None:
                    raise OutOfTurn(f"there is no child {ref!r} to stop")
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
