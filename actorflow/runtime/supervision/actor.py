"""A running supervisor: an actor that performs what its `Family` decides.

It starts children, asks them to stop and kills them if they do not, is notified of their ends,
keeps the timers, answers callers and logs. Being an actor, it handles one event after another, on
a lane.

Only `kill` reaches in from outside: it ends the supervisor in the caller's thread, whatever the
supervisor is doing. So code that registers something (a child, a caller, a timer) checks afterwards
whether the supervisor is still alive, and `_clean_up` looks at the registrations after the exit
reason was set. Either way, no registration is forgotten.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs
from pykka._envelope import Envelope

from actorflow.behaviours.errors import brief
from actorflow.runtime.actor.actor import Actor
from actorflow.runtime.actor.lifespan import Lifespan, Mailbox
from actorflow.runtime.errors import RequestRefused, StartFailed, UnknownWorker, WorkerStopped
from actorflow.runtime.exits import (
    Crash,
    ExitReason,
    FailedToStart,
    Killed,
    Normal,
    Shutdown,
)
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.log import log
from actorflow.runtime.registry import ACTORS, forget_name, show_name
from actorflow.runtime.supervision.actions import (
    Answer,
    Exit,
    LogAction,
    LogKind,
    Ready,
    Release,
    Reply,
    RequestDenied,
    RequestRefusal,
    ScheduleRetry,
    StartChild,
    StopChildren,
    Why,
)
from actorflow.runtime.supervision.callers import Caller, PendingCallers
from actorflow.runtime.supervision.children import ChildInfo
from actorflow.runtime.supervision.family import Family
from actorflow.runtime.supervision.handles import IGNORE, handle_for
from actorflow.runtime.supervision.spec import BadChild, Child, Strategy
from actorflow.runtime.worker.ref import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from typing import Self

    from actorflow.runtime.clock import Clock, Timer
    from actorflow.runtime.lanes.lane import RuntimeLane
    from actorflow.runtime.supervision.actions import Action
    from actorflow.runtime.supervision.handles import ChildHandle
    from actorflow.runtime.supervision.requests import Requests
    from actorflow.runtime.supervision.spec import Flags
    from actorflow.runtime.tickets import ThreadTicket

__all__ = ["SupervisorActor"]


class _Event:
    """A function to be called in the supervisor's turn; only code of this module makes one."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call


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


class _Handles:
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
        return handle_for(child, self._owner)

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
            UnknownWorker: no child has that id. O(n).

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


class SupervisorActor(Lifespan, Actor):  # type: ignore[override] # pykka declares fields
    """A running supervisor. See the module.

    Actor and lifespan are one object, so that it decides itself how it is ended. Its namespace is
    therefore not free, but no user derives from it.
    """

    def __init__(
        self,
        children: Iterable[Child],
        flags: Flags,
        *,
        name: Hashable | None,
        clock: Clock,
        lane: RuntimeLane | None,
    ) -> None:
        self.lane = POOL if lane is None else lane
        self.mailbox = Mailbox()
        self.name = name
        self.clock = clock
        self.flags = flags
        self.family = Family(children, flags)
        self.handles = _Handles(self)
        self.dynamic = flags.strategy is Strategy.DYNAMIC
        self.why: Why | None = None
        """Which decision ended it."""
        self._starters: list[ThreadTicket] = []  # atomic: the thread that pops it resolves it
        self.callers = PendingCallers()
        self._round = 0  # the round of stops that `_deadlines` belong to
        self._deadlines: list[Timer] = []
        self._retries: dict[Hashable, Timer] = {}
        self.watch(self._clean_up)  # the first watcher: the others find the children ended

    @property
    def actor(self) -> Self:  # type: ignore[override]
        """The actor whose hooks are called: this one."""
        return self

    @property
    def _actorflow(self) -> Self:  # type: ignore[override]
        return self

    def __repr__(self) -> str:
        name = self.__dict__.get("child_id") if self.name is None else self.name
        return f"supervisor {self.actor_urn[9:17]}" if name is None else f"supervisor {brief(name)}"

    # Events: all of them pass through the inbox.

    def begin(self, starter: ThreadTicket) -> None:
        """Start the children; `starter` is resolved when they are up. Called once."""
        self._starters.append(starter)
        ACTORS.add(self)
        self.mailbox.open()
        self._post(self._begin)

    def _begin(self) -> None:
        self._perform(self.family.begin(now=self.clock.now()))

    def on_receive(self, message: Any) -> Any:
        """Perform an event; anything else was sent by a user."""
        if type(message) is _Event:
            message.call()
            return None
        return super().on_receive(message)

    def _post(self, event: Callable[[], None]) -> None:
        """Call a function in the supervisor's turn, unless it has ended. Thread-safe."""
        with contextlib.suppress(WorkerStopped):
            self.put(Envelope(_Event(event)))

    def shut_down(self, reason: ExitReason) -> None:
        """Stop the children, then end with this reason. Thread-safe."""
        self._post(partial(self._leave, reason))

    def _leave(self, reason: ExitReason) -> None:
        self._perform(self.family.shutdown(reason))

    def _finish_stop(self) -> None:
        """Stop the children, also on pykka's stop message."""
        self._leave(self._stopping or Normal())

    def _child_ended(self, running: RunningChild, reason: ExitReason) -> None:
        """Handle the exit notice of a child. In the thread where it ended."""
        self._post(partial(self._exited, running, reason))

    def _exited(self, running: RunningChild, reason: ExitReason) -> None:
        actions = self.family.exited(running, reason, now=self.clock.now())
        if self._deadlines and self.family.round != self._round:
            self._cancel_deadlines()
        self._perform(actions)

    def _retry(self, retry: ScheduleRetry) -> None:
        self._retries.pop(retry.key, None)
        self._perform(self.family.retry(retry, now=self.clock.now()))

    # Callers.

    def call(self, event: Callable[[Caller], None]) -> Any:
        """Call `event(caller)` in the supervisor's turn and wait for the answer. Thread-safe.

        Raises:
            WorkerStopped: the supervisor has ended.
            Exception: what the caller was answered with.

        """
        caller = self.callers.add()
        try:
            self.put(Envelope(_Event(partial(event, caller))))
            if self.exit_reason is not None:
                self.callers.refuse(self.dead_error)
            self.lane.wait(caller, None)
        finally:
            self.callers.discard(caller)
        if caller.error is not None:
            raise caller.error
        return caller.answer

    def request(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any], caller: Caller
    ) -> None:
        """Pass a request to the family, which answers it with a `Reply`."""
        caller.asked = (method, args)
        try:
            actions = getattr(self.family.requests, method)(*args, caller=caller, **options)
        except Exception as error:  # noqa: BLE001 - the caller's mistake
            self.callers.answer(caller, error=error)
        else:
            self._perform(actions)

    def terminate_ref(self, ref: Any, caller: Caller) -> None:
        """Stop the child with that ref; of a worker, whichever executor it has by now."""
        known = self.handles.known(ref)
        # One of its children that is not known any more has ended, whatever ended it.
        unknown = self.family.requests.which_child(known) is RequestRefusal.NOT_FOUND
        options = {"alive": unknown and ref.is_alive()}
        self.request("terminate_ref", (known,), options, caller)

    def view(self, look: Callable[[Requests], Any], caller: Caller) -> None:
        """Answer a question about the family."""
        try:
            answer = self.shown(look(self.family.requests))
        except Exception as error:  # noqa: BLE001 - the caller's mistake
            self.callers.answer(caller, error=error)
        else:
            self.callers.answer(caller, answer)

    def shown(self, answer: Any) -> Any:
        """Return an answer of the family with refs in place of incarnations."""
        if isinstance(answer, list):
            return [self.shown(each) for each in answer]
        running = getattr(answer, "ref", None)
        if not isinstance(running, RunningChild):
            return answer
        replace = dataclasses.replace if isinstance(answer, ChildInfo) else structs.replace
        return replace(answer, ref=running.ref)

    def _reply(self, caller: Caller, answer: Answer) -> None:
        answer = self.shown(answer)
        if not isinstance(answer, RequestDenied):
            self.callers.answer(caller, answer)
            return
        method, args = caller.asked
        asked = f"{method}({', '.join(brief(getattr(arg, 'id', arg)) for arg in args)})"
        refused = RequestRefused(
            answer.why, ref=answer.ref, reason=answer.reason, asked=asked, of=repr(self)
        )
        if answer.reason is not None:
            refused.__cause__ = _cause(answer.reason)
        self.callers.answer(caller, error=refused)

    # Actions.

    def _perform(self, actions: list[Action]) -> None:
        todo = deque(actions)
        while todo and self.exit_reason is None:
            action = todo.popleft()
            match action:
                case StartChild(key, child):
                    todo.extendleft(reversed(self._start_child(key, child)))
                case StopChildren():
                    self._stop_children(action)
                case Release(running, reason):
                    self.handles.drop(running)
                    running.handle.stop(reason, final=True)
                case ScheduleRetry():
                    self._schedule(action)
                case Reply(caller, answer):
                    self._reply(caller, answer)
                case Ready():
                    self._resolve_starter(None)
                case Exit(reason, why):
                    self._end(reason, why)
                case LogAction():
                    self._log(action)

    def _start_child(self, key: Hashable, child: Child) -> list[Action]:
        """Start a child in this thread, and report the outcome to the family."""
        reason: ExitReason
        handle = self.handles.of(key, child)
        try:
            extra = handle.start(child)
            if extra is IGNORE:
                return self.family.start_ignored(key, now=self.clock.now())
            running = RunningChild(key, child, handle, self._child_ended)
            self.handles.add(running)
        except StartFailed as error:
            reason = _failure(error)
        except BaseException as error:  # noqa: BLE001 - the strategy decides what it means
            reason = Crash(error)
        else:
            actions = self.family.started(key, running, extra, now=self.clock.now())
            handle.watch(running)
            if self.exit_reason is not None:  # killed while the child was starting
                self._kill_children()
            return actions
        return self.family.start_failed(key, reason, now=self.clock.now())

    def _stop_children(self, stop: StopChildren) -> None:
        if stop.shutdown == "brutal_kill":
            for running in stop.refs:
                running.handle.kill()
            return
        for running in stop.refs:
            running.handle.stop(stop.reason, final=stop.final)
        if stop.shutdown < math.inf:
            # The timer refers to the round, not the children, so that ended ones can be freed.
            self._round = self.family.round
            overdue = partial(self._overdue, stop.shutdown, self._round)
            timer = self.clock.call_at(
                self.clock.now() + stop.shutdown, partial(self._post, overdue)
            )
            self._deadlines.append(timer)
            self._cancel_if_ended()

    def _overdue(self, shutdown: float, number: int) -> None:
        """Kill the children that did not stop in time."""
        if number == self.family.round:
            for running in self.family.stopping(shutdown):
                running.handle.kill()

    def _schedule(self, retry: ScheduleRetry) -> None:
        event = partial(self._retry, retry)
        if retry.after <= 0:
            self._post(event)
            return
        before = self._retries.pop(retry.key, None)
        if before is not None:
            before.cancel()
        when = self.clock.now() + retry.after
        self._retries[retry.key] = self.clock.call_at(when, partial(self._post, event))
        self._cancel_if_ended()

    def _cancel_deadlines(self) -> None:
        timers, self._deadlines = self._deadlines, []
        for timer in timers:
            timer.cancel()

    def _cancel_if_ended(self) -> None:
        """Cancel all timers if the supervisor was killed: they would keep it in memory."""
        if self.exit_reason is not None:
            self._cancel_deadlines()
            for timer in list(self._retries.values()):
                timer.cancel()

    def _resolve_starter(self, error: BaseException | None) -> None:
        try:
            starter = self._starters.pop()
        except IndexError:
            return
        if self.name is not None and error is None:
            show_name(self.name)
        starter.resolve(error)

    def _end(self, reason: ExitReason, why: Why) -> None:
        self.why = why
        starters: list[ThreadTicket] = []
        if why is Why.START_FAILED:
            # Taken now, so that `_clean_up` leaves them to the better error below.
            starters, self._starters = self._starters, starters
        self.die(reason)
        for starter in starters:
            failure = StartFailed(self.title, reason.describe())
            failure.reason = reason
            failure.__cause__ = _cause(reason)
            starter.resolve(failure)

    def _log(self, event: LogAction) -> None:
        level, write, text = _LOG[event.kind]
        if event.requested:
            level, write = logging.DEBUG, log.debug
        if not log.enabled(level):
            return  # the facts below cost more than the rest of a start
        facts: dict[str, Any] = {
            "supervisor": self.title,
            "child": _plain(event.child.id),
            "restart": event.child.restart.value,
            "restarts": event.restarts,
        }
        if event.reason is not None:
            facts["reason"] = event.reason.describe()
        if event.ref is not None:
            facts["ref"] = repr(event.ref)
        with contextlib.suppress(Exception):  # raised by a log handler: the supervisor goes on
            write(text, **facts)

    # Ending.

    def kill(self) -> None:
        """End at once, with everything below. Thread-safe."""
        self.die(Killed())

    def _clean_up(self, _ref: Any, _reason: ExitReason) -> None:
        """End the remaining children, which exist only after a kill or a crash. Thread-safe."""
        if self.name is not None:
            forget_name(self.name, self.actor_ref)
        self._cancel_if_ended()
        self._kill_children()
        self.callers.refuse(self.dead_error)
        self._resolve_starter(self.dead_error())

    def _kill_children(self) -> None:
        reason = self.exit_reason or Normal()
        for handle in self.handles.all():
            handle.kill()
            handle.stop(reason, final=True)


_LOG: dict[LogKind, tuple[int, Callable[..., None], str]] = {
    LogKind.PROGRESS: (logging.INFO, log.info, "child started"),
    LogKind.CHILD_TERMINATED: (logging.ERROR, log.error, "child terminated"),
    LogKind.START_ERROR: (logging.ERROR, log.error, "child did not start"),
    LogKind.SHUTDOWN_ERROR: (logging.ERROR, log.error, "child did not stop as expected"),
    LogKind.TOO_MANY_RESTARTS: (logging.ERROR, log.error, "too many restarts"),
}


def _plain(child_id: Hashable) -> Hashable:
    """Return an id as a fact for the log: as it is, or as text whatever its `repr` does."""
    return child_id if isinstance(child_id, str | int) else brief(child_id)


def _failure(error: StartFailed) -> ExitReason:
    """Return the reason of a failed start; a supervisor's names the child that failed."""
    if isinstance(error.reason, Shutdown):
        return error.reason
    return Crash(error.__cause__ or error)


def _cause(reason: ExitReason) -> BaseException | None:
    """Return the exception at the bottom of a failed start."""
    while isinstance(reason, Shutdown) and isinstance(reason.detail, FailedToStart):
        reason = reason.detail.reason
    return reason.exception if isinstance(reason, Crash) else None
