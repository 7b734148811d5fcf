"""The children of a running supervisor, actors and workers behind one `ChildHandle`.

A handle outlives the incarnations of its child: `start` is called for each of them. An actor is
made anew each time. A worker is a pair: its incarnation is the executor, while the accumulator,
with what it holds, and the `WorkerRef` stay until the family releases the child.

Only `WorkerHandle` knows about pairs. All of this runs in the supervisor's turn, unless a docstring
says that it is thread-safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pykka

from actorflow.runtime.actor.ref import Ref
from actorflow.runtime.errors import UnknownWorker
from actorflow.runtime.supervision.spec import BadChild
from actorflow.runtime.worker.options import check_state
from actorflow.runtime.worker.pair.machine import StopMode
from actorflow.runtime.worker.pair.stopping import (
    abandon_executor,
    request_stop,
    shut_down,
    suspend,
)
from actorflow.runtime.worker.ref import WorkerRef
from actorflow.runtime.worker.spec import Worker, launch
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import TypeAlias

    from actorflow.runtime.actor.lifespan import Lifespan
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.spec import Child

    Notice: TypeAlias = Callable[[Any, ExitReason], None]

__all__ = ["IGNORE", "ActorHandle", "ChildHandle", "Handles", "RunningChild", "WorkerHandle"]


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
        free what was kept for the next one. Thread-safe.
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


class WorkerHandle:
    """The handle of a child that is a `Worker`: the only place that knows its accumulator."""

    __slots__ = ("_notice", "_owner", "_pair", "ref")

    def __init__(self, owner: Lifespan) -> None:
        self._owner = owner
        self._notice: Notice | None = None
        self._pair: Any = None
        self.ref: Any = None

    def __repr__(self) -> str:
        return f"<{self._pair!r}>"

    def start(self, child: Child) -> Any:
        """See `ChildHandle.start`."""
        self._notice = None
        if self._pair is None or self._pair.exit_reason is not None:
            self._launch(child)
        else:
            self._pair.life.revive()  # the accumulator is alone: only its executor has ended

    def _launch(self, child: Child) -> None:
        if child.args:
            raise BadChild(_no_arguments(child))
        spec: Worker = child.start  # type: ignore[assignment]
        worker = (spec.with_options(**child.kwargs) if child.kwargs else spec).make()
        check_state(worker.actor.value)
        # Before it runs: a crash must leave the accumulator alone, and its job may call us.
        worker.actor.life.supervise(self._executor_ended, self._owner, child.id)
        launch(worker)
        before, self.ref, self._pair = self.ref, worker, worker.actor
        if before is not None:
            before.actor.__dict__["successor"] = worker
        worker.watch(self._pair_ended)  # if its job hangs, the executor's end never comes

    def stop(self, reason: ExitReason, *, final: bool) -> None:
        """See `ChildHandle.stop`."""
        if not final:
            suspend(self._pair)  # ends the executor only, after its current batch
        elif self._pair.life.executor_exit is None:
            shut_down(self._pair, reason)  # drains first, by default
        else:
            request_stop(self._pair, StopMode.NOW, reason)  # without an executor nothing drains

    def kill(self) -> None:
        """See `ChildHandle.kill`."""
        abandon_executor(self._pair)  # settles the batch in flight; the accumulator stays

    def watch(self, notice: Notice) -> None:
        """See `ChildHandle.watch`."""
        self._notice = notice
        reason = self._pair.exit_reason or self._pair.life.executor_exit
        if reason is not None:  # it ended before `_notice` was set
            notice(self.ref, reason)

    def _executor_ended(self, reason: ExitReason) -> None:
        notice = self._notice
        if notice is not None:
            notice(self.ref, reason)

    def _pair_ended(self, worker: WorkerRef, reason: ExitReason) -> None:
        notice = self._notice
        if notice is not None and worker is self.ref:
            notice(worker, reason)


class RunningChild:
    """One incarnation of a child: what the family knows it by. It is its own exit notice."""

    __slots__ = ("_report", "handle", "id", "key", "ref")

    def __init__(
        self,
        key: Hashable,
        child: Child,
        handle: ChildHandle,
        report: Callable[[RunningChild, ExitReason], None],
    ) -> None:
        self.key = key
        self.id = child.id
        self.handle = handle
        self.ref = handle.ref
        self._report = report

    def __call__(self, _ref: Any, reason: ExitReason) -> None:
        """Report that the incarnation has ended. In the thread where it ended."""
        self._report(self, reason)

    def __repr__(self) -> str:
        return repr(self.handle)


class Handles:
    """The handles of one supervisor's children, until they are released. All O(1), unless noted.

    Lookups are thread-safe.
    """

    def __init__(self, owner: Lifespan) -> None:
        self._owner = owner
        self._by_key: dict[Hashable, RunningChild] = {}
        self._by_ref: dict[Any, RunningChild] = {}
        self._newest: dict[Hashable, Hashable] = {}  # key by child id: dynamic ids need not differ

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, key: Hashable, child: Child) -> ChildHandle:
        """Return the handle of a child that is to be started: a new one, or that of last time."""
        running = self._by_key.get(key)
        if running is not None:
            return running.handle
        kind = WorkerHandle if isinstance(child.start, Worker) else ActorHandle
        return kind(self._owner)

    def add(self, running: RunningChild) -> None:
        """Enter a child that has just started.

        Raises:
            BadChild: its start returned the ref of another child.

        """
        other = self._by_ref.get(running.ref)
        if other is not None and other.key != running.key:
            raise BadChild(
                f"the start of child {brief(running.id)} returned {running!r}, which is child "
                f"{brief(other.id)} already; each start must return a new one"
            )
        before = self._by_key.get(running.key)
        if before is not None:
            self._by_ref.pop(before.ref, None)
        self._by_key[running.key] = self._by_ref[running.ref] = running
        self._newest[running.id] = running.key

    def drop(self, running: RunningChild) -> None:
        """Forget a child."""
        running = self._by_key.pop(running.key, running)
        self._by_ref.pop(running.ref, None)
        if self._newest.get(running.id) == running.key:
            del self._newest[running.id]

    def all(self) -> list[ChildHandle]:
        """Return all handles. O(n)."""
        return [running.handle for running in list(self._by_key.values())]

    def known(self, ref: Any) -> Any:
        """Return the incarnation with that ref; anything else is returned as it is."""
        return self._by_ref.get(ref, ref)

    def worker(self, child_id: Hashable) -> WorkerRef:
        """Return the ref of the newest worker of that id.

        Raises:
            UnknownWorker: there is none. O(n).

        """
        try:
            ref = self._by_key[self._newest[child_id]].ref
        except KeyError:  # unknown, or released by another thread just now
            ref = None
        if isinstance(ref, WorkerRef):
            return ref
        children = list(self._by_key.values())
        raise UnknownWorker(
            child_id, [each.id for each in children if isinstance(each.ref, WorkerRef)]
        )


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
    return actor if pair is None else pair.life


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
