"""A running supervisor: it performs what its `Family` decides.

It starts children, tells them to stop and kills those that do not, hears of their ends, keeps the
time, answers callers and logs. It is itself an actor: one event after another, on a lane.

Only `kill` reaches in from outside: it ends the supervisor in the killer's thread, whatever that
is doing. So whoever registers something (a child, a caller) looks afterwards whether the
supervisor still lives, and whoever kills looks at what is registered after saying so.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import pykka
from pykka._envelope import Envelope

from actorflow.runtime.actor.actor import CURRENT, FrameworkActor, Ref
from actorflow.runtime.errors import RequestRefused, StartFailed, WorkerStopped, WouldDeadlock
from actorflow.runtime.exits import (
    Crash,
    ExitReason,
    FailedToStart,
    Killed,
    Normal,
    Shutdown,
)
from actorflow.runtime.log import log
from actorflow.runtime.registry import ROSTER, forget_name
from actorflow.runtime.supervision.actions import (
    Answer,
    Exit,
    Log,
    LogKind,
    Ready,
    Refusal,
    Refused,
    Reply,
    Retry,
    StartChild,
    StopChildren,
    Why,
)
from actorflow.runtime.supervision.family import Family
from actorflow.runtime.supervision.handles import Pair, Pairs
from actorflow.runtime.supervision.spec import BadChild, Child, Strategy
from actorflow.runtime.supervision.tree import Tree
from actorflow.runtime.worker.ref import Worker, WorkerRef
from actorflow.runtime.worker.tickets import ThreadTicket
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from actorflow.runtime.clock import Clock
    from actorflow.runtime.lanes.lane import Lane
    from actorflow.runtime.supervision.actions import Action
    from actorflow.runtime.supervision.spec import Flags

__all__ = ["IGNORE", "SupervisorActor"]


class _Ignore:
    """What a child's start returns to say that there is nothing to run."""

    def __repr__(self) -> str:
        return "IGNORE"


IGNORE = _Ignore()
"""Return this from a child's start function if the child is not to run."""


class _Event:
    """Something to be done in the supervisor's turn; only the supervisor's own code makes one."""

    __slots__ = ("do",)

    def __init__(self, do: Callable[[], None]) -> None:
        self.do = do


class SupervisorActor(FrameworkActor):
    """A running supervisor: performs what its `Family` decides."""

    def __init__(
        self,
        children: Iterable[Child],
        flags: Flags,
        *,
        name: Hashable | None,
        clock: Clock,
        lane: Lane | None,
    ) -> None:
        super().__init__(lane=lane)
        self.name = name
        self.clock = clock
        self.flags = flags
        self.family = Family(children, flags)
        self.dynamic = flags.strategy is Strategy.DYNAMIC
        self.why: Why | None = None
        """Why it ended, in a word."""
        self.pairs = Pairs(self, self._notice_pair)
        self._ready: list[ThreadTicket] = []  # who waits for the start
        self._callers: set[ThreadTicket] = set()  # who takes one out answers it

    def __repr__(self) -> str:
        name = self.__dict__.get("child_id") if self.name is None else self.name
        return f"supervisor {self.actor_urn[9:17]}" if name is None else f"supervisor {name!r}"

    # Events: all of them come through the inbox.

    def begin(self, ready: ThreadTicket) -> None:
        """Start the children. Called once, by whoever starts the supervisor."""
        self._ready.append(ready)
        ROSTER.add(self)
        self.mailbox.open()
        self._try_post(self._begin)

    def _begin(self) -> None:
        self._perform(self.family.begin(now=self.clock.now()))

    def post(self, event: Callable[[], None]) -> None:
        """Have something done in the supervisor's turn. Any thread.

        Raises:
            WorkerStopped: it has ended.

        """
        self.put(Envelope(_Event(event)))

    def on_receive(self, message: Any) -> Any:
        """Do what was posted; anything else is a stranger's message."""
        if type(message) is _Event:
            message.do()
            return None
        return super().on_receive(message)

    def request(
        self, method: str, caller: ThreadTicket, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """Hand a request to the family; its answer comes as a `Reply`."""
        asked = ", ".join(brief(getattr(arg, "id", arg)) for arg in args)
        caller.answer = f"{method}({asked})"  # until there is another: an error can name it
        self._callers.add(caller)
        if self.exit_reason is not None:
            self._refuse_callers()
            return
        try:
            actions = getattr(self.family, method)(*args, caller=caller, **options)
        except Exception as error:  # noqa: BLE001 - the caller's mistake
            self._tell(caller, error)
        else:
            self._perform(actions)

    def terminate_ref(self, ref: Any, caller: ThreadTicket) -> None:
        """Stop the child with that ref; of a worker, whichever executor it has by now."""
        known = self.pairs.inward(ref)
        # One of ours that is gone when its turn comes has ended, whoever stopped it.
        stranger = self.family.which_child(known) is Refusal.NOT_FOUND
        options = {"alive": stranger and ref.is_alive()}
        self.request("terminate_ref", caller, (known,), options)

    def view(self, look: Callable[[Family], Any], caller: ThreadTicket) -> None:
        """Answer a question about the family."""
        try:
            caller.answer = self.given_out(look(self.family))
        except Exception as error:  # noqa: BLE001 - the caller's mistake
            caller.resolve(error)
        else:
            caller.resolve()

    def shut_down(self, reason: ExitReason) -> None:
        """Stop the children, then end with this reason. Any thread."""
        self._try_post(partial(self._leave, reason))

    def _leave(self, reason: ExitReason) -> None:
        self._perform(self.family.shutdown(reason))

    def _finish_stop(self) -> None:
        """End on pykka's stop message, as on any other."""
        self._leave(self._stopping or Normal())

    def _notice(self, ref: Any, _ref: Any, reason: ExitReason) -> None:
        """Hear that a child has ended. In the thread where it ended."""
        self._try_post(partial(self._exited, ref, reason))

    def _notice_pair(self, pair: Pair, reason: ExitReason) -> None:
        """Hear that a worker's accumulator has ended; its executor may be at work still."""
        self._try_post(partial(self._pair_ended, pair, reason))

    def _pair_ended(self, pair: Pair, reason: ExitReason) -> None:
        self._exited(pair.incarnation, reason)

    def _exited(self, ref: Any, reason: ExitReason) -> None:
        self.pairs.exited(ref)
        self._perform(self.family.exited(ref, reason, now=self.clock.now()))

    def _retry(self, retry: Retry) -> None:
        self._perform(self.family.retry(retry, now=self.clock.now()))

    # Actions.

    def _perform(self, actions: list[Action]) -> None:
        todo = deque(actions)
        while todo and self.exit_reason is None:
            action = todo.popleft()
            match action:
                case StartChild(key, child):
                    todo.extendleft(reversed(self._start_child(key, child)))
                case StopChildren(refs, grace, final):
                    self._stop_children(refs, grace, final=final)
                case Retry():
                    self._schedule(action)
                case Reply(caller, answer):
                    self._reply(caller, answer)
                case Ready():
                    self._become_ready(None)
                case Exit(reason, why):
                    self._end(reason, why)
                case Log():
                    self._log(action)
        if self.pairs.is_loose and self.family.is_settled:
            self.pairs.settle(self.family)

    def _start_child(self, key: Hashable, child: Child) -> list[Action]:
        """Start a child in this thread, and report what came of it."""
        reason: ExitReason
        try:
            outcome = self._call_start(key, child)
            ref, extra = outcome if _is_pair(outcome) else (outcome, None)
            if ref is not IGNORE and not _is_ours(ref):
                raise BadChild(_no_child(child, outcome))  # noqa: TRY301 - one way to fail
        except StartFailed as error:
            reason = _why_not(error)
        except BaseException as error:  # noqa: BLE001 - the strategy decides what it means
            reason = Crash(error)
        else:
            now = self.clock.now()
            if ref is IGNORE:
                return self.family.start_ignored(key, now=now)
            ref.lifespan.__dict__.update(supervisor=self, child_id=child.id)
            actions = self.family.started(key, ref, extra, now=now)
            ref.watch(partial(self._notice, ref))
            if self.exit_reason is not None:  # killed while the child was starting
                self._kill_all()
            return actions
        return self.family.start_failed(key, reason, now=self.clock.now())

    def _call_start(self, key: Hashable, child: Child) -> Any:
        start = child.start
        if isinstance(start, Worker):
            if child.args:
                raise BadChild(_no_arguments(child))
            spec = start.with_options(**child.kwargs) if child.kwargs else start
            return self.pairs.start(key, child.id, spec)
        if isinstance(start, type) and issubclass(start, pykka.Actor):
            return start.start(*child.args, **child.kwargs)
        return start(*child.args, **child.kwargs)

    def _stop_children(self, refs: tuple[Any, ...], grace: float | str, *, final: bool) -> None:
        if grace == "brutal_kill":
            self._kill(refs)
            return
        for ref in refs:
            if not self.pairs.stop(ref, final=final):
                ref.lifespan.shut_down(Shutdown())
        if float(grace) < math.inf:
            when = self.clock.now() + float(grace)
            self.clock.call_at(when, partial(self._overdue, refs))

    def _overdue(self, refs: tuple[Any, ...]) -> None:
        """Kill who has not obeyed in time. In the clock's thread."""
        alive = tuple(ref for ref in refs if ref.is_alive())
        if alive:
            self._try_post(partial(self._kill, alive))

    def _kill(self, refs: Iterable[Any]) -> None:
        for ref in refs:
            if ref.is_alive() and not self.pairs.kill(ref):
                ref.kill()

    def _schedule(self, retry: Retry) -> None:
        if retry.after > 0:
            again = partial(self._try_post, partial(self._retry, retry))
            self.clock.call_at(self.clock.now() + retry.after, again)
        else:
            self._try_post(partial(self._retry, retry))

    def _try_post(self, event: Callable[[], None]) -> None:
        try:
            self.post(event)
        except WorkerStopped:
            return

    def _reply(self, caller: Any, answer: Answer) -> None:
        if isinstance(answer, Refused):
            ref = self.pairs.outward(answer.ref)
            refused = RequestRefused(
                answer.why, ref=ref, reason=answer.reason, asked=caller.answer, of=repr(self)
            )
            if answer.reason is not None:
                refused.__cause__ = _cause(answer.reason)
            self._tell(caller, refused)
        else:
            caller.answer = self.given_out(answer)
            self._tell(caller)

    def _tell(self, caller: ThreadTicket, error: BaseException | None = None) -> None:
        """Let a caller go on, unless somebody else has."""
        try:
            self._callers.remove(caller)
        except KeyError:
            return
        caller.resolve(error)

    def _become_ready(self, error: BaseException | None) -> None:
        try:
            ready = self._ready.pop()
        except IndexError:
            return
        ready.resolve(error)

    def _end(self, reason: ExitReason, why: Why) -> None:
        self.why = why
        if why is Why.START_FAILED:
            ready, self._ready = self._ready, []
            failure = StartFailed(repr(self), reason.describe())
            failure.reason = reason
            failure.__cause__ = _cause(reason)
            self.die(reason)
            for starter in ready:
                starter.resolve(failure)
        else:
            self.die(reason)

    def _log(self, event: Log) -> None:
        facts: dict[str, Any] = {
            "supervisor": repr(self),
            "child": event.child.id,
            "restart": event.child.restart.value,
            "restarts": event.restarts,
        }
        if event.reason is not None:
            facts["reason"] = event.reason.describe()
        if event.ref is not None:
            facts["ref"] = repr(event.ref)
        if event.kind is LogKind.PROGRESS:
            (log.debug if event.requested else log.info)("child started", **facts)
        else:
            log.error(_EVENTS[event.kind], **facts)

    # Ending.

    def kill(self) -> None:
        """End at once, with everything below. Any thread."""
        self.die(Killed())

    def _crash(self, error: BaseException) -> None:
        log.critical("supervisor crashed", supervisor=repr(self), exc_info=error)
        self.die(Crash(error))

    def _cut_off(self) -> None:
        super()._cut_off()
        if self.name is not None:
            forget_name(self.name, self._ref)
        self._kill_all()
        self._refuse_callers()
        self._become_ready(self.dead_error())

    def _kill_all(self) -> None:
        """End what is left, which is something only after a kill or a crash. Any thread."""
        for ref in self.family.refs():
            if ref.is_alive():
                ref.kill()
        self.pairs.end_all(self.exit_reason or Normal())

    def _refuse_callers(self) -> None:
        for caller in list(self._callers):
            self._tell(caller, self.dead_error())

    def _refuse_inbox(self) -> None:
        """Tell those whose requests have not been looked at."""
        while (event := self.mailbox.next()) is not None:
            caller = _caller_of(event.message)
            if caller is not None:
                caller.resolve(self.dead_error())
            elif event.reply_to is not None:
                event.reply_to.set(None)

    # Seeing it.

    def refuse_deadlock(self, what: str, *, child: Any = None, stops: bool = False) -> None:
        """Refuse a call that would wait for the very actor that makes it.

        Whoever is being started must not wait for the supervisor, which waits for the start;
        nobody can wait for the end of the supervisor, or the `child`, that it belongs to itself.

        Raises:
            WouldDeadlock: it would.

        """
        below: Any = None
        actor: Any = CURRENT.get()
        starting = actor is self
        while actor is not None and actor is not self:
            below, starting = actor, actor.starter is not None
            actor = _above(actor)
        if actor is None or not (starting or stops or _is_child(below, child)):
            return
        where = "the start of" if starting else "within"
        msg = (
            f"{what} of {self!r} from {where} one of its own children would wait for itself; "
            "call it from another thread, or stop(block=False)"
        )
        raise WouldDeadlock(msg)

    def given_out(self, answer: Any) -> Any:
        """Show a worker by its own ref, not by its executor's."""
        if isinstance(answer, list):
            return [self.given_out(each) for each in answer]
        ref = getattr(answer, "ref", None)
        shown = ref if ref is None else self.pairs.outward(ref)
        return answer if shown is ref else dataclasses.replace(answer, ref=shown)

    def tree(self) -> Tree:
        """Describe this supervisor and what is below it."""
        now = self.clock.now()
        branches = []
        for info in reversed(self.family.which_children()):
            actor = None if info.ref is None else info.ref.actor
            if isinstance(actor, SupervisorActor):
                branch = actor.tree()
                name = branch.name
            else:
                branch, name = None, repr(info.id)
            status = info.state.name.lower()
            shown = None if info.ref is None else self.pairs.outward(info.ref)
            pair = shown if isinstance(shown, WorkerRef) else None
            if pair is not None and pair.is_alive():
                status = pair.status.value
            branches.append(
                Tree(
                    name=name if branch is None else f"{info.id!r} {branch.name}",
                    status=status,
                    restarts=info.restarts,
                    uptime=None if info.started_at is None else now - info.started_at,
                    depth=None if pair is None else len(pair),
                    branches=() if branch is None else branch.branches,
                )
            )
        return Tree(
            name=f"{self!r} {self.flags.strategy.value}",
            status=self.family.phase.name.lower(),
            restarts=self.family.statistics().restarts,
            branches=tuple(branches),
        )


_EVENTS = {
    LogKind.CHILD_TERMINATED: "child terminated",
    LogKind.START_ERROR: "child did not start",
    LogKind.SHUTDOWN_ERROR: "child did not stop as told",
    LogKind.TOO_MANY_RESTARTS: "too many restarts",
}


def _is_pair(outcome: Any) -> bool:
    return isinstance(outcome, tuple) and len(outcome) == len(("ref", "extra"))


def _is_ours(ref: Any) -> bool:
    return isinstance(ref, Ref)


def _no_child(child: Child, outcome: Any) -> str:
    if isinstance(outcome, pykka.ActorRef):
        return (
            f"child {child.id!r} is {outcome!r}, a plain pykka actor, which tells nobody when it "
            "dies; derive it from actorflow.Actor"
        )
    return (
        f"the start of child {child.id!r} returned {outcome!r:.200}; it must return the ref of an "
        "actor that it has started, (ref, extra), or IGNORE"
    )


def _no_arguments(child: Child) -> str:
    return (
        f"child {child.id!r} is a Worker, which takes no arguments but options: write for example "
        f"Child({child.id!r}, Worker(...), kwargs={{'state': 0}}), or start_copy(state=0)"
    )


def _above(actor: Any) -> Any:
    """Give who waits for the start of the actor, or else its supervisor."""
    pair = getattr(actor, "_accumulator", None)  # an executor's
    return actor.starter or actor.supervisor or (pair and pair.supervisor)


def _is_child(actor: Any, child: Any) -> bool:
    """Tell whether the actor, which is a child, is the one meant: by its id or its ref."""
    if child is None or actor is None:
        return False
    pair = getattr(actor, "_accumulator", actor)
    if isinstance(child, pykka.ActorRef):
        return child in {actor.actor_ref, pair.actor_ref}
    return child in {actor.child_id, pair.child_id}


def _why_not(error: StartFailed) -> ExitReason:
    """Give the reason of a failed start: of a supervisor's, the way down to who failed."""
    if isinstance(error.reason, Shutdown):
        return error.reason
    return Crash(error.__cause__ or error)


def _cause(reason: ExitReason) -> BaseException | None:
    """Find the exception at the bottom of a failed start."""
    while isinstance(reason, Shutdown) and isinstance(reason.detail, FailedToStart):
        reason = reason.detail.reason
    return reason.exception if isinstance(reason, Crash) else None


def _caller_of(event: Any) -> ThreadTicket | None:
    for argument in getattr(getattr(event, "do", None), "args", ()):
        if isinstance(argument, ThreadTicket):
            return argument
    return None
