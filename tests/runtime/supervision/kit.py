"""A stage for supervisors: scripted children, a manual lane and virtual time."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import actorflow as af
from actorflow.testing import ManualLane, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Hashable

    from actorflow.runtime.supervision.actions import RequestRefusal
    from actorflow.runtime.supervision.children import ChildState

BOOM = ValueError("boom")
CLEAN = [af.Normal(), af.Shutdown(), af.Shutdown("because")]
UNCLEAN = [af.Crash(BOOM), af.Killed()]
STATIC = ["one_for_one", "one_for_all", "rest_for_one"]
RESTARTS: list[Any] = ["permanent", "transient", "temporary"]
FAIL = object()
"""An outcome of a start: it raises OSError("refused")."""


class Player(af.Actor):
    """A child that records its start and stop, and ends in the way that a message says."""

    def __init__(self, stage: Stage, name: str, lane: ManualLane) -> None:
        super().__init__(lane=lane)
        self.stage = stage
        self.name = name
        self.on_stopping: Any = None

    def __repr__(self) -> str:
        return self.name

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException) and not isinstance(message, af.Stop):
            raise message
        return message() if callable(message) else message

    def on_start(self) -> None:
        self.stage.trace.append(f"+{self.name}")

    def on_stop(self) -> None:
        self.stage.trace.append(f"-{self.name}")
        if self.on_stopping is not None:
            self.on_stopping()


class Stage:
    """A manual lane, a virtual clock, and children whose n-th incarnation of "a" is called "an".

    `outcomes["a"]` are the outcomes of the next starts of "a": `FAIL`, `af.IGNORE`, an exception,
    or anything else that is then returned instead of a ref.
    """

    def __init__(self) -> None:
        self.lane = ManualLane()
        self.slow = ManualLane()
        """A lane that is never run: an actor on it does not react."""
        self.clock = VirtualClock()
        self.trace: list[str] = []
        self.outcomes: defaultdict[Hashable, deque[Any]] = defaultdict(deque)
        self.births: defaultdict[Hashable, itertools.count[int]] = defaultdict(
            lambda: itertools.count(1)
        )
        self.started: list[af.SupervisorRef] = []

    # Descriptions.

    def start(self, name: Hashable, *extra: Any, lane: ManualLane | None = None) -> Any:
        """Start a child, or do what `outcomes` says instead."""
        outcome = self.outcomes[name].popleft() if self.outcomes[name] else None
        if outcome is FAIL:
            self.trace.append(f"!{name}")
            raise OSError("refused")
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome is not None:
            return outcome
        ref = Player.start(self, f"{name}{next(self.births[name])}", _or(lane, self.lane))
        return (ref, *extra) if extra else ref

    def child(self, name: Hashable, *extra: Any, **options: Any) -> af.Child:
        """Describe a child that stops when asked to; its start also returns `extra`."""
        return af.Child(name, self.start, name, *extra, **options)

    def stubborn(self, name: Hashable, **options: Any) -> af.Child:
        """Describe a child that does not react unless `slow` is run."""
        return af.Child(name, self.start, name, kwargs={"lane": self.slow}, **options)

    def worker(self, name: Hashable, job: Any, /, **options: Any) -> af.Worker:
        """Describe a worker on this stage."""
        return af.Worker(name, job, executor=self.lane, clock=self.clock, **options)

    def tree(self, *children: af.Child | af.Worker, **flags: Any) -> af.Supervisor:
        """Describe a supervisor on this stage."""
        return af.Supervisor(children, lane=self.lane, clock=self.clock, **flags)

    def up(self, *children: af.Child | af.Worker, **flags: Any) -> af.SupervisorRef:
        """Start a supervisor, and clear the record."""
        supervisor = self.tree(*children, **flags).start()
        self.started.append(supervisor)
        self.trace.clear()
        return supervisor

    # What happens.

    def run(self, seconds: float = 0.0) -> None:
        """Run the lane, let time pass, then run it again."""
        self.lane.run()
        if seconds:
            self.clock.advance(seconds)
            self.lane.run()

    def ends(self, ref: Any, reason: Any = None) -> None:
        """Make a child end by itself, for that reason, and run everything that follows."""
        match reason or af.Crash(BOOM):
            case af.Killed():
                ref.kill()
            case af.Crash(exception):
                ref.tell(exception)
            case clean:
                ref.tell(af.Stop(clean))
        self.run()

    def crash(self, supervisor: af.SupervisorRef, *names: Hashable) -> None:
        """Make children crash, one after another."""
        for name in names:
            self.ends(ref(supervisor, name))

    def take(self) -> str:
        """Return the records since the last call, in order."""
        text, self.trace = " ".join(self.trace), []
        return text

    def close(self) -> None:
        """End everything."""
        for supervisor in self.started:
            supervisor.kill()
        self.run()
        self.slow.run()


def _or(lane: ManualLane | None, default: ManualLane) -> ManualLane:
    return default if lane is None else lane  # an empty lane is false


def ref(supervisor: af.SupervisorRef, name: Hashable) -> Any:
    """Return the ref of a child; None if it is not running."""
    return supervisor.which_child(name).ref


def names(supervisor: af.SupervisorRef) -> str:
    """Return the names of the running incarnations, in start order."""
    refs = [info.ref for info in reversed(supervisor.which_children())]
    return " ".join("-" if ref is None else ref.actor.name for ref in refs)


def ids(supervisor: af.SupervisorRef) -> list[Hashable]:
    """Return the ids of the children, in start order."""
    return [info.id for info in reversed(supervisor.which_children())]


def state(supervisor: af.SupervisorRef, name: Hashable) -> ChildState:
    """Return the state of a child."""
    return supervisor.which_child(name).state


def counts(supervisor: af.SupervisorRef) -> list[int]:
    """Return the numbers of specs, active children, supervisors and workers."""
    count = supervisor.count_children()
    return [count.specs, count.active, count.supervisors, count.workers]


def refusal(call: Any, *arguments: Any, **options: Any) -> RequestRefusal:
    """Make a request that must be refused, and return the reason."""
    try:
        call(*arguments, **options)
    except af.RequestRefused as error:
        why: RequestRefusal = error.why
        return why
    raise AssertionError("the request was carried out")


def gave_up(supervisor: af.SupervisorRef) -> af.GaveUp:
    """Return why a supervisor gave up, which it must have done."""
    reason = supervisor.exit_reason
    assert isinstance(reason, af.Shutdown)
    assert isinstance(reason.detail, af.GaveUp), reason
    return reason.detail
