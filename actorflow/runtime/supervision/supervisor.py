"""Supervisors: OTP's supervision tree for our actors.

`Supervisor` describes one; `start()` runs it and returns a `SupervisorRef`, which takes requests.
The running actor is in `actor.py`, its decisions are in `family.py`.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pykka

from actorflow.behaviours.errors import brief
from actorflow.runtime.actor.actor import CURRENT, Ref
from actorflow.runtime.clock import SYSTEM, checked_clock
from actorflow.runtime.errors import (
    BadOption,
    RequestRefused,
    StopTimeout,
    WouldDeadlock,
    near,
    refuse_unhashable,
)
from actorflow.runtime.exits import ExitReason, Normal
from actorflow.runtime.registry import take_name
from actorflow.runtime.supervision.actions import RequestRefusal
from actorflow.runtime.supervision.actor import SupervisorActor
from actorflow.runtime.supervision.family import Family
from actorflow.runtime.supervision.handles import IGNORE, is_child, life_of, parent
from actorflow.runtime.supervision.requests import Requests
from actorflow.runtime.supervision.spec import BadChild, Child, ChildType, Flags
from actorflow.runtime.supervision.tree import picture
from actorflow.runtime.tickets import ThreadTicket
from actorflow.runtime.worker.spec import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from types import TracebackType
    from typing import Self

    from actorflow.runtime.clock import Clock
    from actorflow.runtime.lanes.lane import RuntimeLane
    from actorflow.runtime.supervision.children import ChildCounts, ChildInfo
    from actorflow.runtime.supervision.requests import FamilyStatistics
    from actorflow.runtime.supervision.tree import Tree
    from actorflow.runtime.worker.ref import WorkerRef


__all__ = ["IGNORE", "Supervisor", "SupervisorRef"]


class Supervisor:
    """Describe a supervisor and its children; `start()` runs it, and so does a `with` block.

    Children are `Child(id, start, ...)`, or `Worker(id, job, ...)` for a worker with the default
    restart type. `start` may be an `Actor` class, a `Worker`, another `Supervisor`, or a
    function that returns the ref of an actor it has started (or `(ref, extra)`, or `IGNORE`).

    One specification may be started any number of times; each `with` block stops its own.

    Args:
        children: started in this order, stopped in reverse.
        strategy: `"one_for_one"`, `"one_for_all"`, `"rest_for_one"` or `"dynamic"`.
        max_restarts: more restarts than this within `within` seconds end the supervisor.
        within: see `max_restarts`.
        auto_shutdown: `"never"`, `"any_significant"` or `"all_significant"`.
        max_children: the maximum number of children of a dynamic supervisor.
        backoff: how long to wait before each restart; by default there is no wait.
        name: a name to find it by with `whereis`.
        clock: the source of time; tests pass a virtual one.
        lane: where its code runs; tests pass a manual one.

    Raises:
        BadChild, BadFlags: an argument cannot work; the message shows one that can.

    """

    child_type = ChildType.SUPERVISOR

    def __init__(
        self,
        children: Iterable[Child | Worker] = (),
        *,
        name: Hashable | None = None,
        clock: Clock = SYSTEM,
        lane: RuntimeLane | None = None,
        **flags: Any,
    ) -> None:
        for flag in flags:
            if flag not in Flags.__annotations__:
                options = ("name", "clock", "lane", *Flags.__annotations__)
                msg = f"Supervisor has no option {flag!r}{near(flag, options)}"
                raise TypeError(msg)
        self.flags = Flags(**flags)
        self.children = [_as_child(child) for child in _listed(children)]
        refuse_unhashable(name, "name")
        if lane is not None and not callable(getattr(lane, "submit", None)):
            msg = f"lane={brief(lane)} must be a lane, as in lane=ManualLane(), or None"
            raise BadOption(msg)
        self.name = name
        self.clock = checked_clock(clock)
        self.lane = lane
        self._entered: list[tuple[object, SupervisorRef]] = []  # by the open `with` blocks
        Family(self.children, self.flags)  # raises for invalid children or flags, here and now

    def __repr__(self) -> str:
        ids = ", ".join(brief(child.id) for child in self.children)
        return f"Supervisor([{ids}], name={brief(self.name)})"

    def start(self) -> SupervisorRef:
        """Start the supervisor and all its children; return when they are up.

        Raises:
            StartFailed: a child did not start; those before it have been stopped again.
            AlreadyStarted: a worker or supervisor of that name is running.

        """
        actor = SupervisorActor(
            self.children, self.flags, name=self.name, clock=self.clock, lane=self.lane
        )
        ref = actor._ref = SupervisorRef(actor)  # noqa: SLF001
        started = ThreadTicket()
        try:
            if self.name is not None:
                take_name(self.name, ref, starting=True)
            with actor.being_started():
                actor.begin(started)
                actor.lane.wait(started, None)
            if started.error is None:
                return ref
        except BaseException:  # Ctrl-C: without its ref nobody could ever stop it
            actor.kill()
            raise
        raise started.error

    __call__ = start

    def __enter__(self) -> SupervisorRef:
        ref = self.start()
        self._entered.append((_caller(), ref))
        return ref

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the supervisor that this very `with` block has started."""
        own = [entry for entry in self._entered if entry[0] == _caller()]
        # A block may be left in another thread than it was entered in; then the newest is meant.
        entry = own[-1] if own else self._entered[-1]
        self._entered.remove(entry)
        entry[1].stop()


class SupervisorRef(Ref[SupervisorActor]):
    """The ref of a running supervisor. Thread-safe.

    Requests pass through the supervisor's inbox, one after another, as in OTP. One that is refused
    raises `RequestRefused`, whose `why` is a `RequestRefusal`. All requests and views raise
    `WorkerStopped` if the supervisor has ended, and `WouldDeadlock` if it waits for the caller.
    """

    # Requests.

    def start_child(self, child: Child | Worker) -> Any:
        """Start one more child, last in order; return `Started(ref, extra)` or `Ignored()`."""
        return self._request("start_child", _as_child(child))

    def start_copy(self, *args: Any, **kwargs: Any) -> Any:
        """Start a copy of a dynamic supervisor's template, with these arguments after its own."""
        return self._request("start_copy", *args, kwargs=kwargs)

    def terminate_child(self, child: Hashable) -> None:
        """Stop a child, by its id (dynamic: by its ref); it is kept as stopped."""
        actor = self.actor
        _refuse_deadlock(actor, "terminate_child", child=child)
        if actor.dynamic and isinstance(child, pykka.ActorRef):
            actor.call(partial(actor.terminate_ref, child))
        else:
            self._request("terminate_child", _hashable(child))

    def restart_child(self, child_id: Hashable) -> Any:
        """Start a stopped child; return `Started(ref, extra)` or `Ignored()`."""
        return self._request("restart_child", _hashable(child_id))

    def delete_child(self, child_id: Hashable) -> None:
        """Forget a stopped child."""
        self._request("delete_child", _hashable(child_id))

    # Views.

    def which_children(self) -> list[ChildInfo]:
        """Return all children, the newest first."""
        children: list[ChildInfo] = self._view(lambda asked: asked.which_children())
        return children

    def which_child(self, child_id: Hashable) -> ChildInfo:
        """Return one child, by its id or ref."""
        info: ChildInfo = self._view_child(Requests.which_child, child_id)
        return info

    def get_childspec(self, child_id: Hashable) -> Child:
        """Return a child's specification with its defaults filled in, by its id or ref."""
        child: Child = self._view_child(Requests.get_childspec, child_id)
        return child

    def count_children(self) -> ChildCounts:
        """Return the number of children by kind."""
        counts: ChildCounts = self._view(lambda asked: asked.count_children())
        return counts

    def statistics(self) -> FamilyStatistics:
        """Return a snapshot of the supervisor."""
        snapshot: FamilyStatistics = self._view(lambda asked: asked.statistics())
        return snapshot

    def worker(self, child_id: Hashable) -> WorkerRef:
        """Return the ref of a child that is a worker. It stays the same over restarts. O(1).

        Raises:
            UnknownWorker: there is no worker of that id.

        """
        return self.actor.handles.worker(_hashable(child_id))

    def tree(self) -> Tree:
        """Return a printable picture of the supervisor and all below it."""
        tree: Tree = self._view(lambda _asked: picture(self.actor))
        return tree

    # Ending.

    def stop(  # type: ignore[override]
        self,
        reason: ExitReason | None = None,
        *,
        timeout: float | None = None,
        block: bool = True,
    ) -> bool:
        """Stop the children in reverse order, then the supervisor.

        Returns whether it was still running. `block=False` returns at once.

        Raises:
            StopTimeout: not in time; it goes on stopping.
            WouldDeadlock: called by one of its own descendants, which it would wait for.

        """
        actor = self.actor
        ended = ThreadTicket()
        if actor.exit_reason is not None:
            return False
        if block:
            _refuse_deadlock(actor, "stop", stops=True)
        actor.shut_down(reason or Normal())
        if not block:
            return True
        self.watch(lambda _ref, _reason: ended.resolve())
        if not actor.lane.wait(ended, timeout):
            msg = f"{actor!r} did not stop within {timeout} s; it goes on stopping"
            raise StopTimeout(msg)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _request(self, method: str, *args: Any, **options: Any) -> Any:
        actor = self.actor
        _refuse_deadlock(actor, method)
        return actor.call(partial(actor.request, method, args, options))

    def _view(self, look: Callable[[Requests], Any]) -> Any:
        actor = self.actor
        if CURRENT.get() is actor and actor.exit_reason is None:
            answer = actor.shown(look(actor.family.requests))
        else:
            _refuse_deadlock(actor, "a view")
            answer = actor.call(partial(actor.view, look))
        if isinstance(answer, RequestRefusal):
            raise RequestRefused(answer, of=repr(actor))
        return answer

    def _view_child(self, look: Callable[[Requests, Hashable], Any], child: Hashable) -> Any:
        handles = self.actor.handles
        _hashable(child)
        return self._view(lambda asked: look(asked, handles.known(child)))


def _refuse_deadlock(
    supervisor: SupervisorActor, what: str, *, child: Any = None, stops: bool = False
) -> None:
    """Refuse a call that would wait for the actor that makes it.

    A child that is being started must not wait for the supervisor, which waits for the start;
    no actor can wait for the end of the supervisor, or the `child`, that it belongs to itself.

    Raises:
        WouldDeadlock: it would.

    """
    if supervisor.exit_reason is not None:
        return  # it answers at once
    below: Any = None
    actor: Any = CURRENT.get()
    starting = actor is supervisor
    while actor is not None and actor is not supervisor:
        below, starting = actor, life_of(actor).starter is not None
        actor = parent(actor)
    if actor is None:
        return
    own = below is not None and child is not None and is_child(below, child)
    if starting or stops or own:
        where = "the start of" if starting else "within"
        msg = (
            f"{what} of {supervisor!r} from {where} one of its own children would wait for itself; "
            "call it from another thread, or stop(block=False)"
        )
        raise WouldDeadlock(msg)


def _listed(children: Any) -> list[Any]:
    """Return the children as a list; show the brackets that are missing if it is not one."""
    if not isinstance(children, str | bytes | Child | Worker | Supervisor | type):
        try:
            return list(children)
        except TypeError:
            pass
    kind = "Worker" if isinstance(children, Worker) else "Child"
    raise BadChild(
        f"Supervisor({brief(children)}) takes a list of children; "
        f"write Supervisor([{kind}(...)]) with brackets"
    )


def _as_child(given: Any) -> Child:
    if isinstance(given, Worker):
        return Child(given.id, given)
    return given  # type: ignore[no-any-return] # the family refuses anything but a child


def _hashable(child: Hashable) -> Hashable:
    """Refuse an unhashable id of a child, before the supervisor sees it."""
    try:
        hash(child)
    except TypeError:
        raise BadChild(f"{brief(child)} cannot be the id of a child: not hashable") from None
    return child


def _caller() -> object:
    """Return what runs this code: the current task, or else the current thread."""
    asyncio: Any = sys.modules.get("asyncio")  # it is slow to import, and has no task if it is not
    try:
        task = asyncio and asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        task = None
    return task or threading.get_ident()
