"""How a supervisor starts, stops, kills and watches a child: actors and workers behind one handle.

A handle outlives the incarnations of its child: `start` is called for each of them. An actor is
made anew each time. A worker is a pair: its incarnation is the executor, while the accumulator,
with what it holds, and the `WorkerRef` stay until the family releases the child. So its handle is
with the pair, in `worker/port.py`, and supervision knows nothing of accumulators.

All of this runs in the supervisor's turn, unless a docstring says that it is thread-safe.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pykka

from actorflow.behaviours.errors import brief
from actorflow.runtime.actor.ref import Ref
from actorflow.runtime.supervision.spec import BadChild
from actorflow.runtime.worker.options import check_state
from actorflow.runtime.worker.port import WorkerHandle
from actorflow.runtime.worker.spec import Worker, launch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import TypeAlias

    from actorflow.runtime.actor.lifespan import Lifespan
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.spec import Child
    from actorflow.runtime.worker.ref import WorkerRef

    Notice: TypeAlias = Callable[[Any, ExitReason], None]

__all__ = ["IGNORE", "ActorHandle", "ChildHandle", "handle_for", "is_child", "parent", "successor"]


class _Ignore:
    """The type of `IGNORE`."""

    def __repr__(self) -> str:
        return "IGNORE"


IGNORE = _Ignore()
"""Return this from a child's start function if the child is not to run."""


class ChildHandle(Protocol):
    """How a supervisor starts, stops, kills and watches a child, whatever kind it is."""

    ref: Any
    """What users get. A worker keeps its ref when it is restarted; an actor gets a new one."""

    def start(self, child: Child) -> Any:
        """Start the child, or start it again; return what its start returned besides the ref.

        Returns `IGNORE` if the child chose not to run. Raises what its start raised.
        """

    def stop(self, reason: ExitReason, *, final: bool) -> None:
        """Ask the child to stop, and return at once. Does nothing if it has ended.

        Not `final`: it will be started again. `final`, for a child whose incarnation has ended:
        free the data kept for the next one. Thread-safe.
        """

    def kill(self) -> None:
        """End the incarnation at once, whatever it is doing. Thread-safe."""

    def watch(self, notice: Notice) -> None:
        """Call `notice(ref, reason)`, in any thread, when the incarnation has ended.

        It may be called twice: the family counts the end of an incarnation once.
        """


class ActorHandle:
    """The handle of a child that is an actor, or a supervisor, which is an actor too."""

    __slots__ = ("_owner", "ref")

    def __init__(self, owner: Lifespan) -> None:
        self._owner = owner
        self.ref: Any = None

    def __repr__(self) -> str:
        return repr(self.ref)

    def start(self, child: Child) -> Any:
        """See `ChildHandle.start`."""
        start = child.start
        if isinstance(start, type) and issubclass(start, pykka.Actor):
            start = start.start
        outcome: Any = start(*child.args, **child.kwargs)
        ref, extra = outcome if _has_extra(outcome) else (outcome, None)
        if ref is IGNORE:
            return IGNORE
        if not isinstance(ref, Ref):
            raise BadChild(_not_a_child(child, outcome))
        if ref is self.ref:
            raise BadChild(
                f"the start of child {brief(child.id)} returned {brief(ref)} again; each start "
                "must return a new one"
            )
        ref.lifespan.__dict__.update(supervisor=self._owner, child_id=child.id)
        self.ref = ref
        return extra

    def stop(self, reason: ExitReason, *, final: bool) -> None:
        """See `ChildHandle.stop`."""
        self.ref.lifespan.shut_down(reason)

    def kill(self) -> None:
        """See `ChildHandle.kill`."""
        if self.ref.is_alive():
            self.ref.kill()

    def watch(self, notice: Notice) -> None:
        """See `ChildHandle.watch`."""
        self.ref.watch(notice)


def handle_for(child: Child, owner: Lifespan) -> ChildHandle:
    """Return a handle for a child that has not been started yet."""
    if isinstance(child.start, Worker):
        return WorkerHandle(partial(_launch, owner))
    return ActorHandle(owner)


def _launch(
    owner: Lifespan, child: Child, executor_ended: Callable[[ExitReason], None]
) -> WorkerRef:
    """Start a worker that is a child; `executor_ended` is called at the end of each executor."""
    if child.args:
        raise BadChild(_no_arguments(child))
    spec: Worker = child.start  # type: ignore[assignment]
    worker = (spec.with_options(**child.kwargs) if child.kwargs else spec).make()
    check_state(worker.actor.value)
    # Before it runs: a crash must leave the accumulator alone, and its job may call us.
    worker.actor.lifecycle.supervise(executor_ended, owner, child.id)
    launch(worker)
    return worker


def successor(worker: WorkerRef) -> WorkerRef:
    """Return the worker that its supervisor has started in place of one that has ended."""
    while (after := worker.actor.__dict__.get("successor")) is not None:
        worker = after
    return worker


def parent(actor: Any) -> Any:
    """Return the actor that waits for the start of this one, or else its supervisor."""
    life = life_of(actor)
    return life.starter or life.supervisor


def is_child(actor: Any, child: Hashable) -> bool:
    """Return whether an actor is the child with that id or ref."""
    if isinstance(child, pykka.ActorRef):
        return bool(child is getattr(actor, "pair", actor).actor_ref)
    return bool(life_of(actor).child_id == child)


def life_of(actor: Any) -> Any:
    """Return what knows the supervisor of whatever is running: an actor, or a worker's code."""
    pair = getattr(actor, "pair", None)
    return actor if pair is None else pair.lifecycle


def _has_extra(outcome: Any) -> bool:
    return isinstance(outcome, tuple) and len(outcome) == len(("ref", "extra"))


def _not_a_child(child: Child, outcome: Any) -> str:
    if isinstance(outcome, pykka.ActorRef):
        return (
            f"child {brief(child.id)} is {brief(outcome)}, a plain pykka actor, which "
            "cannot be watched; derive it from actorflow.Actor"
        )
    return (
        f"the start of child {brief(child.id)} returned {brief(outcome)}; it must return the ref "
        "of an actor that it has started, (ref, extra), or IGNORE"
    )


def _no_arguments(child: Child) -> str:
    return (
        f"child {brief(child.id)} is a Worker, which takes options but no arguments; write for "
        f"example Child({brief(child.id)}, Worker(...), kwargs={{'state': 0}}), or "
        "start_copy(state=0)"
    )
