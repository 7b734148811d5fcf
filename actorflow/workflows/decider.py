"""Takes decisions: executes the branches of Python workflows.

The code of a branch stays in memory between decisions, in a *frame*, so that each step costs the
same however long the history is. It is replayed only when there is no frame: after a restart, after
an error, or because the frame was given up for others.
"""

from __future__ import annotations

import inspect
import sys
import threading
import traceback
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from actorflow.behaviours.errors import brief
from actorflow.engine.errors import Cancelled
from actorflow.engine.typed import freeze, thaw
from actorflow.runtime.log import log
from actorflow.workflows.code_errors import HERE, Difference, described
from actorflow.workflows.errors import (
    Failed,
    Interrupted,
    InvalidStep,
    Refused,
    WorkflowModified,
)
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance import state as stored
from actorflow.workflows.instance.decision import BranchCursor, DecisionSession, describe_branch
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import CANCELLED, UNSET, Branch, BranchType, StepType
from actorflow.workflows.nondeterminism import impurities
from actorflow.workflows.suspended.frame import Condition, Frame
from actorflow.workflows.suspended.properties import make
from actorflow.workflows.suspended.stacks import CodeStacks
from actorflow.workflows.suspended.step import UNTIL
from actorflow.workflows.wait import WAIT, Event
from actorflow.workflows.workflow import (
    StepError,
    StepInfo,
    Workflow,
    workflow_name,
    write_result,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.workflows.instance.state import InstanceState
    from actorflow.workflows.suspended.stacks import CodeStack

__all__ = ["BlockedBranch", "Decider", "DeciderStatistics"]

METHODS = {
    BranchType.HANDLE: "handle",
    BranchType.EVENT: "on_event",
    BranchType.START: "on_start",
    BranchType.SUCCESS: "on_success",
    BranchType.FAILURE: "on_failure",
    BranchType.TIMEOUT: "on_timeout",
}


_NOTHING = object()
"""What a method has returned that did not return."""


class BlockedBranch(Struct, frozen=True):
    """A branch that neither waits for a step nor ends."""

    workflow: str
    instance: str
    branch: str
    seconds: float
    stack: str
    """Where its code is, innermost call last."""


class DeciderStatistics(Struct, frozen=True):
    """What a decider holds and has done."""

    decisions: int
    begun: int
    """Branches whose code was begun, replays included."""
    replays: int
    parked: int
    """Sync methods held by a stack."""
    evicted: int
    """Frames that were given up for others."""
    instances: int
    threads: int
    """Threads that were ever started."""


class _GivenUp(BaseException):
    """The frame of a parked method was given up: the stack that held it must touch nothing."""


class _Live:
    """The frames of one instance, and the decision that is being taken on it."""

    def __init__(self, cls: type[Workflow[Any]], id_: str) -> None:
        self.cls = cls
        self.id = id_
        self.frames: dict[int, Frame] = {}
        self.next_index = 0
        """Where the decision that follows the last one begins."""
        self.session: DecisionSession | None = None
        self.stack: CodeStack | None = None
        self.current: Frame | None = None
        self.key = 0
        """The branch that was found: its code is to begin, or to go on."""
        self.conditions: dict[str, Condition] = {}
        """What methods wait for with `until`, by the steps that wait."""
        self.checked: dict[str, Any] | None = None
        """The properties with which no condition holds."""
        self.replaying = False
        """Whether only one branch is to be replayed up to where it waits."""
        self.switches = False
        """Whether its code is held by another stack than the one that found it."""
        self.movable = False
        """Whether its decisions are taken in different threads: see `CodeStacks`."""
        self.finished = False
        self.error: tuple[int, BaseException] | None = None
        self.begun = 0
        self.replays = 0

    def prepare(self, session: DecisionSession) -> None:
        """Begin to take a decision."""
        self.session = session
        self.error = None
        self.switches = self.finished = False

    def seek(self) -> bool:
        """Move on to the next branch that has code to run; return whether there is one.

        Needs no stack: most branches have no user method, or wait on.
        """
        session = self.session
        while session is not None and self._check_conditions(session):
            key = session.next_branch()
            if key is None:
                break
            frame = self.frames.get(key)
            if frame is None:
                branch = session.branch(key)
                if branch.error_name == CANCELLED:
                    continue  # nothing has failed
                name = METHODS[branch.type]
                found = getattr(self.cls, name) is not getattr(Workflow, name)
            else:
                found = frame.news(session.completed_now(), session)
            if found:
                self.key = key
                return True
        self.finished = True
        return False

    def _check_conditions(self, session: DecisionSession) -> bool:
        """End the waits for conditions that hold after a branch; return whether none has raised."""
        if not self.conditions:
            return True
        properties = session.latest_properties
        if properties is self.checked:
            return True
        self.checked = properties
        for step, (frame, holds) in list(self.conditions.items()):
            key = frame.cursor.key
            if self.frames.get(key) is not frame:
                del self.conditions[step]  # it was given up, and is replayed when it is needed
                continue
            try:
                frame.show(properties)
                if holds():
                    del self.conditions[step]
                    session.end_wait(step)
            except BaseException as error:  # noqa: BLE001 - as in `go`
                self.error = (key, error)
                return False
        return True

    def go(self) -> None:
        """Execute branches until all are, or one has to go on on its own stack. Never raises.

        Begins with the branch that was found. Runs on whichever stack has been handed over to; a
        parked method that goes on and ends returns to here, on its own stack, in the midst of a
        later decision.
        """
        going = True
        while going and self.session is not None:
            key = self.key
            frame = self.frames.get(key)
            try:
                if frame is None:
                    self._begin(key, self.session)
                elif frame.loop is None:
                    self.switches = True
                    return
                else:
                    frame.session = self.session
                    self.current = frame
                    self._after(frame, ended=frame.proceed(self.session.completed_now() or ""))
                if self.replaying:
                    return
                going = self.seek()
            except _GivenUp:
                return
            except BaseException as error:  # noqa: BLE001 - whatever the code raises fails the decision
                self.error = (key, self._settled(key, error))
                raised = self.frames.get(key)
                if raised is not None and raised.loop is None:
                    # Its code is over, and the stack is not its own any more.
                    del self.frames[key]
                return

    def _settled(self, key: int, error: BaseException) -> BaseException:
        """Store the properties of a method that ends the instance; return what it has raised."""
        frame = self.frames.get(key)
        if not isinstance(error, Failed) or frame is None:
            return error
        try:
            freeze(error.data, Any, "the data of Failed")
            frame.session.finish(frame.properties())
        except Exception as unstorable:  # noqa: BLE001 - then it cannot end like this
            return unstorable
        return error

    def _begin(self, key: int, session: DecisionSession) -> None:
        branch = session.branch(key)
        name = METHODS[branch.type]
        self.begun += 1
        self.replays += not session.fresh
        frame = Frame(
            BranchCursor(key, branch),
            make(self.cls, session.first_properties(key)),
            session,
            self.conditions,
        )
        self.frames[key] = self.current = frame
        frame.stack = self.stack
        try:
            result = frame.run_sync(getattr(frame.workflow, name), _arguments(branch))
        except BaseException as error:
            if frame.closed:
                raise _GivenUp from None
            if not _ends(branch, error, frame.session):
                raise
            result = _NOTHING
        if frame.closed:
            raise _GivenUp
        if inspect.iscoroutine(result):
            frame.stack = None
            ended = frame.run_async(result, session.completed_before(key))
            self._after(frame, ended=ended)
        else:
            self._end(frame, result)

    def _after(self, frame: Frame, *, ended: bool) -> None:
        if ended:
            try:
                result = frame.result()
            except BaseException as error:
                if not _ends(frame.cursor.branch, error, frame.session):
                    raise
                result = _NOTHING
            frame.close_loop()
            self._end(frame, result)
        else:
            properties = frame.properties()
            if frame.session.compares:
                frame.session.compare(frame.cursor, properties)
            frame.session.finish(properties)

    def _end(self, frame: Frame, result: Any) -> None:
        session, branch = frame.session, frame.cursor.branch
        output = UNSET
        if frame.successor is not None and result is not _NOTHING:
            if result is not frame.successor:
                raise InvalidStep("self.again(...) has no effect alone: `return self.again(...)`")
            session.again(frame.successor.properties)
        elif result is _NOTHING:
            pass
        elif branch.type is BranchType.HANDLE:
            output = write_result(self.cls, result)
        elif result is not None:
            output = freeze(result, Any, f"the result of {METHODS[branch.type]}")
        session.end(frame.cursor)
        properties = frame.properties()
        if session.compares:
            session.compare(frame.cursor, properties)
            session.compare_end(frame.cursor, output)
        session.finish(properties, output)
        del self.frames[frame.cursor.key]


class Decider:
    """Takes the decisions of instances. Thread-safe; one decision per instance at a time.

    Args:
        strict: refuse code that no longer asks for a step that is recorded. Without it, only a step
            that differs is noticed.
        max_parked: how many sync methods may be held by stacks between decisions. The one that has
            waited longest is given up for the next, and replayed when it is needed.
        blocked_after: seconds after which a branch that neither waits nor ends is reported.
        on_blocked: is given the report, in another thread; a warning is logged by default.
        stacks: `"greenlets"` or `"threads"`; chosen automatically by default.

    """

    def __init__(
        self,
        *,
        strict: bool = False,
        max_parked: int = 128,
        blocked_after: float = 2.0,
        on_blocked: Callable[[BlockedBranch], None] | None = None,
        stacks: str | None = None,
    ) -> None:
        self._strict = strict
        self._max_parked = max_parked
        self._blocked_after = blocked_after
        self._on_blocked = on_blocked or _log_blocked
        self._lock = threading.Lock()
        self._live: dict[str, _Live] = {}
        self._parked: OrderedDict[Frame, _Live] = OrderedDict()
        self._stacks = CodeStacks(keep=8, only=stacks)
        self._decisions = 0
        self._begun = 0
        self._replays = 0
        self._evicted = 0

    def decide(self, cls: type[Workflow[Any]], instance: Instance, *, at: float) -> m.Received:
        """Take the ongoing decision of an instance; return what the instance is to receive.

        The instance must receive it, or be given up with `forget`.
        """
        live = self._pin(cls, instance)
        session = DecisionSession(instance, strict=self._strict)
        live.prepare(session)
        if instance.state.waits:
            self._replay_conditions(live, instance, session)
        if live.error is None:
            self._run(live)
        live.next_index = len(instance.state.executions)
        self._release(live)
        if session.misfit is not None and cls._actorflow_on_error == "refuse":
            key, number, misfit = session.misfit
            self.forget(live.id)
            return m.EventRefused(at, session.uuid, number, described(key, misfit))
        failed = live.error
        if failed is None:
            return m.Completed(at, session.uuid, list(session.decisions))
        key, error = failed
        self.forget(live.id)
        if isinstance(error, Failed):
            return m.Completed(
                at, session.uuid, [*session.decisions, m.GiveUp(_given_up(error, key))]
            )
        refused = _refused_event(cls, session, key, error)
        if refused is not None:
            return m.EventRefused(at, session.uuid, refused, described(key, error))
        return m.DecisionBroken(
            at, session.uuid, isinstance(error, WorkflowModified), described(key, error)
        )

    def check(self, cls: type[Workflow[Any]], state: InstanceState) -> Difference | None:
        """Replay all branches of a stored instance with this code; return the first difference.

        Properties, results and published values are compared as well as steps. Calls in the source
        whose result differs in each replay also count as a difference. Nothing is changed or
        scheduled.
        """
        for impurity in impurities(cls):
            return Difference.impure(workflow_name(cls), str(impurity))
        recorded = len(state.executions)
        if state.decision_ongoing or state.decision_mode in stored.BROKEN_MODES:
            recorded = state.ongoing_index or 0
        replayed = stored.decode(stored.encode(state))
        replayed.id = f"{state.id} (check)"
        # One more execution of every branch, when all that is recorded has happened.
        replayed.ongoing_index = len(replayed.executions)
        replayed.executions += range(len(replayed.branches))
        live = self._pin(cls, Instance(replayed))
        live.prepare(DecisionSession(Instance(replayed), strict=True, recorded=recorded))
        self._run(live)
        self._release(live)
        self.forget(live.id)
        if live.error is None:
            return None
        return Difference.of(workflow_name(cls), live.error[1], described(*live.error))

    def forget(self, instance: str) -> None:
        """Drop the frames of an instance; not while a decision is taken on it."""
        with self._lock:
            live = self._live.pop(instance, None)
            frames = list(live.frames.values()) if live else []
            for frame in frames:
                self._parked.pop(frame, None)
        for frame in frames:
            assert live is not None  # noqa: S101 - there are frames
            self._close(frame, live)

    def close(self) -> None:
        """Drop all frames and stop the threads."""
        for instance in list(self._live):
            self.forget(instance)
        self._stacks.close()

    def statistics(self) -> DeciderStatistics:
        """Return what it holds and has done."""
        with self._lock:
            return DeciderStatistics(
                decisions=self._decisions,
                begun=self._begun,
                replays=self._replays,
                parked=len(self._parked),
                evicted=self._evicted,
                instances=len(self._live),
                threads=self._stacks.started,
            )

    def _pin(self, cls: type[Workflow[Any]], instance: Instance) -> _Live:
        """Return the frames of an instance, taken out of reach of others that need a stack."""
        state = instance.state
        live = self._live.get(state.id)
        if live is not None and (live.cls is not cls or live.next_index != state.ongoing_index):
            # Frames of another past are worth nothing: of a decision that was not committed, of
            # other code.
            self.forget(state.id)
        with self._lock:
            self._decisions += 1
            live = self._live.get(state.id)
            if live is None:
                live = self._live[state.id] = _Live(cls, state.id)
            for key, frame in list(live.frames.items()):
                # A frame that has a stack but is not listed is just being given up.
                if frame.stack is not None and self._parked.pop(frame, None) is None:
                    del live.frames[key]
        return live

    def _replay_conditions(self, live: _Live, instance: Instance, session: DecisionSession) -> None:
        """Replay the branches that wait for conditions and are not in memory."""
        for wait in instance.state.waits:
            status = instance.status(wait.step)
            if status is None or status.name != UNTIL or status.branch_key in live.frames:
                continue
            live.key, live.checked, live.replaying = status.branch_key, None, True
            with session.replaying():
                self._begin(live)
            live.replaying = False
            if live.error is not None:
                return

    def _begin(self, live: _Live) -> None:
        """Execute branches, from the one that was found, on a stack that has no job."""
        stack = live.stack = self._stacks.take(movable=live.movable)
        if stack.run(live.go, self._blocked_after, lambda: self._report(live)):
            self._stacks.give_back(stack)

    def _run(self, live: _Live) -> None:
        while live.switches or live.seek():
            live.switches = False
            frame = live.frames.get(live.key)
            if frame is not None and frame.stack is not None and not frame.stack.is_here:
                self._move(live, frame)
                frame = None
            if frame is not None and frame.stack is not None and live.session is not None:
                stack = frame.stack
                frame.session = live.session
                live.stack, live.current = stack, frame
                if stack.resume(self._blocked_after, lambda: self._report(live)):
                    self._stacks.give_back(stack)
            else:
                self._begin(live)
            if live.finished or live.error is not None:
                return

    def _move(self, live: _Live, frame: Frame) -> None:
        """Give up code that this thread cannot resume; it is replayed where every thread can."""
        del live.frames[frame.cursor.key]
        live.movable = True
        self._stacks.moved()
        self._close(frame, live)

    def _release(self, live: _Live) -> None:
        """Release the stacks of the frames, now that the decision is taken."""
        surplus: list[tuple[Frame, _Live]] = []
        with self._lock:
            self._begun += live.begun
            self._replays += live.replays
            live.begun = live.replays = 0
            live.session = live.stack = live.current = None
            for frame in live.frames.values():
                if frame.stack is not None:
                    self._parked[frame] = live
            if not live.frames:
                self._live.pop(live.id, None)
            while len(self._parked) > self._max_parked:
                frame, owner = self._parked.popitem(last=False)
                self._evicted += 1
                surplus.append((frame, owner))
        for frame, owner in surplus:
            self._close(frame, owner)
            with self._lock:
                if owner.frames.get(frame.cursor.key) is frame:
                    del owner.frames[frame.cursor.key]

    def _close(self, frame: Frame, live: _Live) -> None:
        """Unwind the code of a frame that nobody else can reach."""
        if frame.stack is not None:
            frame.close()
            frame.stack.unwind(self._blocked_after, lambda: self._report(live, frame))
            self._stacks.give_back(frame.stack)
            return
        # A coroutine ends in another thread, because this one may run an event loop of its own.
        stack = frame.stack = self._stacks.take(movable=True)
        stack.run(
            lambda: _close_quietly(frame),
            self._blocked_after,
            lambda: self._report(live, frame, stack),
        )
        self._stacks.give_back(stack)

    def _report(
        self, live: _Live, frame: Frame | None = None, held_by: CodeStack | None = None
    ) -> None:
        frame = frame or live.current
        held_by = held_by or (frame and frame.stack) or live.stack
        stack = sys._current_frames().get((held_by and held_by.ident) or 0)  # noqa: SLF001 - documented
        calls = traceback.extract_stack(stack) if stack is not None else []
        theirs = [call for call in calls if not call.filename.startswith(HERE)]
        while theirs and Path(theirs[0].filename).name == "threading.py":
            del theirs[0]
        cursor = frame and frame.cursor
        blocked = BlockedBranch(
            workflow=workflow_name(live.cls),
            instance=live.id,
            branch=describe_branch(cursor.key, cursor.branch) if cursor else "",
            seconds=self._blocked_after,
            stack="".join(traceback.format_list(theirs)),
        )
        try:
            self._on_blocked(blocked)
        except Exception as error:  # noqa: BLE001 - a report must not end the decision
            log.error("a report of a blocked branch failed", error=brief(error), report=blocked)


def _close_quietly(frame: Frame) -> None:
    # Whatever its `finally` blocks raise: it is given up, and nobody would know what to do.
    with suppress(BaseException):
        frame.close_loop()


def _log_blocked(blocked: BlockedBranch) -> None:
    log.warning(
        "a branch of a workflow blocks: move what it waits for into a task",
        workflow=blocked.workflow,
        instance=blocked.instance,
        branch=blocked.branch,
        seconds=blocked.seconds,
        stack=blocked.stack,
    )


def _refused_event(
    cls: type[Workflow[Any]], session: DecisionSession, key: int, error: BaseException
) -> int | None:
    """Return the number of the event that an error refuses; `None` if the error is another one.

    Only the first run of `on_event` can refuse: after a step, its effects are in the past.
    """
    number = session.branch(key).event_number
    if not isinstance(number, int) or session.branch(key).start_index < session.begin:
        return None
    if isinstance(error, WorkflowModified) or not isinstance(error, Exception):
        return None
    if isinstance(error, Refused) or cls._actorflow_on_error == "refuse":
        return number
    return None


def _given_up(error: Failed, key: int) -> dict[str, Any]:
    """Return the failure with which an instance ends."""
    return described(key, error) | {"data": freeze(error.data, Any, "the data of Failed")}


def _ends(branch: Branch, error: BaseException, session: DecisionSession) -> bool:
    """Return whether an error just ends a branch.

    That is `Cancelled` when the instance is cancelled, and an interruption, which only `handle` has
    to catch.
    """
    if session.cancelled and _is_cancelled(error):
        return True
    return isinstance(error, Interrupted) and branch.type is not BranchType.HANDLE


def _is_cancelled(error: BaseException) -> bool:
    """Return whether an error is `Cancelled`, or a group of these, as a `TaskGroup` raises it."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_cancelled, error.exceptions))
    return isinstance(error, Cancelled)


def _arguments(branch: Branch) -> tuple[Any, ...]:
    """Return what the method of a branch is called with."""
    if branch.type is BranchType.HANDLE:
        return ()
    if branch.type is BranchType.EVENT:
        return (_event(branch.event_name, branch.event_input),)
    info = StepInfo(
        type=branch.task_type if isinstance(branch.task_type, StepType) else StepType.TASK,
        name=str(branch.task_name),
        input=thaw(branch.task_input, Any, "an input"),
        step=str(branch.step),
    )
    if branch.type is BranchType.SUCCESS:
        output = branch.task_output
        if info.name == WAIT and info.type is StepType.WAIT and output is not None:
            return info, _event(output["event_name"], output["event_input"])
        return info, thaw(output, Any, "an output")
    if branch.type is BranchType.FAILURE:
        details = dict(thaw(branch.error_input, Any, "an error"))
        message = str(details.pop("message", ""))
        return info, StepError(str(branch.error_name), message, details)
    return (info,)


def _event(name: Any, data: Any) -> Event:
    return Event(str(name), thaw(data, Any, "an event"))
