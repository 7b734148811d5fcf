"""Supervisors: OTP's supervision tree for our actors.

`Supervisor` describes one; `start()` makes it run and gives a `SupervisorRef`, through which one
asks for things. What runs is in `supervision.py`, what is decided in `strategy.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pykka

from actorflow.runtime.actor.actor import CURRENT, Ref
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import RequestRefused, StopTimeout
from actorflow.runtime.exits import ExitReason, Normal
from actorflow.runtime.registry import take_name
from actorflow.runtime.supervision.actions import Refusal
from actorflow.runtime.supervision.actor import IGNORE, SupervisorActor
from actorflow.runtime.supervision.family import Family
from actorflow.runtime.supervision.spec import BadChild, Child, ChildType, Flags
from actorflow.runtime.worker.ref import Worker, WorkerRef
from actorflow.runtime.worker.tickets import ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from types import TracebackType
    from typing import Self

    from actorflow.runtime.clock import Clock
    from actorflow.runtime.lanes.lane import Lane
    from actorflow.runtime.supervision.actions import ChildInfo, Counts, FamilyStatistics
    from actorflow.runtime.supervision.tree import Tree

__all__ = ["IGNORE", "Supervisor", "SupervisorRef"]


class Supervisor:
    """Describes a supervisor and its children; `start()` makes it run.

    Children are `Child(id, start, ...)`, or `Worker(id, job, ...)` for a worker with the default
    restart type. What can be started: an `Actor` class, a `Worker`, another `Supervisor`, or a
    function that returns the ref of an actor it has started (or `(ref, extra)`, or `IGNORE`).

    Args:
        children: started in this order, stopped in reverse.
        strategy: `"one_for_one"`, `"one_for_all"`, `"rest_for_one"` or `"dynamic"`.
        max_restarts: more restarts than this within `within` seconds end the supervisor.
        within: see `max_restarts`.
        auto_shutdown: `"never"`, `"any_significant"` or `"all_significant"`.
        max_children: the most children of a dynamic supervisor.
        backoff: how long to wait before each restart; not at all by default.
        name: a name to find it by with `whereis`.
        clock: where time comes from; tests give a virtual one.
        lane: where its code runs; tests give a manual one.

    Raises:
        BadChild, BadFlags: something cannot work; the message shows what can.

    """

    child_type = ChildType.SUPERVISOR

    def __init__(
        self,
        children: Iterable[Child | Worker] = (),
        *,
        name: Hashable | None = None,
        clock: Clock = SYSTEM,
        lane: Lane | None = None,
        **flags: Any,
    ) -> None:
        self.flags = Flags(**flags)
        self.children = [_as_child(child) for child in children]
        self.name = name
        self.clock = clock
        self.lane = lane
        Family(self.children, self.flags)  # refuses what cannot work, here and now

    def __repr__(self) -> str:
        return f"Supervisor({[child.id for child in self.children]!r}, name={self.name!r})"

    def start(self) -> SupervisorRef:
        """Start the supervisor and all its children; return when they are up.

        Raises:
            StartFailed: a child did not start; those before it have been stopped again.
            AlreadyStarted: somebody runs under that name.

        """
        actor = SupervisorActor(
            self.children, self.flags, name=self.name, clock=self.clock, lane=self.lane
        )
        ref = actor._ref = SupervisorRef(actor)  # noqa: SLF001
        if self.name is not None:
            take_name(self.name, ref)
        ready = ThreadTicket()
        with actor.being_started():
            actor.begin(ready)
            actor.lane.wait(ready, None)
        if ready.error is not None:
            raise ready.error
        return ref

    __call__ = start

    def __enter__(self) -> SupervisorRef:
        self._running = self.start()
        return self._running

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._running.stop()


class SupervisorRef(Ref[SupervisorActor]):
    """The ref of a running supervisor. Safe in any thread.

    Requests go through the supervisor's inbox, one after another, as in OTP. One that is refused
    raises `RequestRefused`, whose `why` is a `Refusal`.
    """

    # Requests.

    def start_child(self, child: Child | Worker) -> Any:
        """Start one more child, last in order; give `Started(ref, extra)` or `Ignored()`."""
        return self._request("start_child", _as_child(child))

    def start_copy(self, *args: Any, **kwargs: Any) -> Any:
        """Start a copy of a dynamic supervisor's template, with these arguments after its own."""
        return self._request("start_copy", *args, kwargs=kwargs)

    def terminate_child(self, child: Hashable) -> None:
        """Stop a child, by its id (or ref, of a dynamic supervisor); it stays known."""
        actor = self.actor
        actor.refuse_deadlock("terminate_child", child=child)
        if actor.dynamic and isinstance(child, pykka.ActorRef):
            self._await(partial(actor.terminate_ref, child))
        else:
            self._request("terminate_child", _hashable(child))

    def restart_child(self, child_id: Hashable) -> Any:
        """Start a child that is stopped; give `Started(ref, extra)` or `Ignored()`."""
        return self._request("restart_child", _hashable(child_id))

    def delete_child(self, child_id: Hashable) -> None:
        """Forget a child that is stopped."""
        self._request("delete_child", _hashable(child_id))

    # Views.

    def which_children(self) -> list[ChildInfo]:
        """Show all children, the newest first."""
        children: list[ChildInfo] = self._view(lambda family: family.which_children())
        return children

    def which_child(self, child_id: Hashable) -> ChildInfo:
        """Show one child, by its id or ref."""
        info: ChildInfo = self._view_child(Family.which_child, child_id)
        return info

    def get_childspec(self, child_id: Hashable) -> Child:
        """Give a child's specification with its defaults filled in, by its id or ref."""
        child: Child = self._view_child(Family.get_childspec, child_id)
        return child

    def count_children(self) -> Counts:
        """Count the children."""
        counts: Counts = self._view(lambda family: family.count_children())
        return counts

    def statistics(self) -> FamilyStatistics:
        """Take a picture of the supervisor."""
        picture: FamilyStatistics = self._view(lambda family: family.statistics())
        return picture

    def worker(self, child_id: Hashable) -> WorkerRef:
        """Give the ref of a child that is a worker. It stays the same over restarts. O(1).

        Raises:
            UnknownWorker: there is no worker of that id.

        """
        return self.actor.pairs.find(_hashable(child_id))

    def tree(self) -> Tree:
        """Show the supervisor and what is below it: state, restarts, uptime. Print it."""
        picture: Tree = self._view(lambda _family: self.actor.tree())
        return picture

    # Ending.

    def stop(  # type: ignore[override]
        self,
        reason: ExitReason | None = None,
        *,
        timeout: float | None = None,
        block: bool = True,
    ) -> bool:
        """Stop the children in reverse order, then the supervisor; tell whether it was there.

        Raises:
            StopTimeout: not in time; it goes on stopping.
            WouldDeadlock: called by one of its own descendants, which it would wait for.

        """
        actor = self.actor
        ended = ThreadTicket()
        if actor.exit_reason is not None:
            return False
        if block:
            actor.refuse_deadlock("stop", stops=True)
        actor.shut_down(reason or Normal())
        if not block:
            return True
        actor.watch(lambda _actor, _reason: ended.resolve())
        if not actor.lane.wait(ended, timeout):
            msg = f"{actor!r} did not stop within {timeout} s; it goes on stopping"
            raise StopTimeout(msg)
        return True

    def kill(self) -> None:
        """End the supervisor and everything below it at once."""
        self.actor.kill()

    @property
    def exit_reason(self) -> ExitReason | None:
        """Why it ended; `None` while it lives."""
        return self.actor.exit_reason

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
        actor.refuse_deadlock(method)
        return self._await(lambda caller: actor.request(method, caller, args, options))

    def _await(self, event: Callable[[ThreadTicket], None]) -> Any:
        """Have something done in the supervisor's turn, and wait for its answer."""
        actor = self.actor
        caller = ThreadTicket()
        actor.post(partial(event, caller))
        actor.lane.wait(caller, None)
        if caller.error is not None:
            raise caller.error
        return caller.answer

    def _view(self, look: Callable[[Family], Any]) -> Any:
        actor = self.actor
        if CURRENT.get() is actor:
            answer = actor.given_out(look(actor.family))
        else:
            actor.refuse_deadlock("a view")
            answer = self._await(partial(actor.view, look))
        if isinstance(answer, Refusal):
            raise RequestRefused(answer, of=repr(actor))
        return answer

    def _view_child(self, look: Callable[[Family, Hashable], Any], child: Hashable) -> Any:
        pairs = self.actor.pairs
        _hashable(child)
        return self._view(lambda family: look(family, pairs.inward(child)))


def _as_child(given: Any) -> Child:
    if isinstance(given, Worker):
        return Child(given.id, given)
    return given  # type: ignore[no-any-return] # the family refuses what is no child


def _hashable(child: Hashable) -> Hashable:
    """Refuse what cannot be the id of a child, before the supervisor sees it."""
    try:
        hash(child)
    except TypeError:
        raise BadChild(f"{child!r} cannot be the id of a child: it cannot be hashed") from None
    return child
