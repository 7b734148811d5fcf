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

from actorflow.engine.errors import text_of
from actorflow.runtime.log import log
from actorflow.workflows.difference import Difference
from actorflow.workflows.errors import Interrupted, WorkflowModified
from actorflow.workflows.frames.frame import Frame
from actorflow.workflows.frames.properties import make
from actorflow.workflows.frames.threads import CodeThread, CodeThreads
from actorflow.workflows.frames.values import freeze, thaw
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance import state as stored
from actorflow.workflows.instance.decision import BranchCursor, DecisionSession, describe_branch
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import UNSET, Branch, BranchType, WorkType
from actorflow.workflows.wait import Event
from actorflow.workflows.workflow import (
    WorkError,
    Workflow,
    WorkInfo,
    workflow_name,
    write_result,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.workflows.instance.state import InstanceState

__all__ = ["BlockedBranch", "Decider", "DeciderStatistics"]

HERE = str(Path(__file__).parent)

METHODS = {
    BranchType.HANDLE: "handle",
    BranchType.EVENT: "on_event",
    BranchType.START: "on_start",
    BranchType.SUCCESS: "on_success",
    BranchType.FAILURE: "on_failure",
    BranchType.TIMEOUT: "on_timeout",
}


class BlockedBranch(Struct, frozen=True):
    """A branch that neither waits for a work nor ends."""

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
    """Sync methods held by a thread."""
    evicted: int
    """Frames that were given up for others."""
    instances: int
    threads: int
    """Threads that were ever started."""


class _GivenUp(BaseException):
    """The frame of a parked method was given up: the thread that held it must touch nothing."""


class _Live:
    """The frames of one instance, and the decision that is being taken on it."""

    def __init__(self, cls: type[Workflow[Any]], id_: str) -> None:
        self.cls = cls
        self.id = id_
        self.frames: dict[int, Frame] = {}
        self.next_index = 0
        """Where the decision that follows the last one begins."""
        self.session: DecisionSession | None = None
        self.thread: CodeThread | None = None
        self.current: Frame | None = None
        self.key = 0
        """The branch that was found: its code is to begin, or to go on."""
        self.switches = False
        """Whether its code is held by another thread than the one that found it."""
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

        Needs no code thread: most branches have no method of the user's, or wait on.
        """
        session = self.session
        while session is not None and (key := session.next_branch()) is not None:
            frame = self.frames.get(key)
            if frame is None:
                name = METHODS[session.branch(key).type]
                found = getattr(self.cls, name) is not getattr(Workflow, name)
            else:
                found = frame.news(session.completed_now())
            if found:
                self.key = key
                return True
        self.finished = True
        return False

    def go(self) -> None:
        """Execute branches until all are, or one has to go on in its own thread. Never raises.

        Begins with the branch that was found. Runs in whichever code thread has been handed over
        to; a parked method that goes on and ends returns to here, in its own thread, in the midst
        of a later decision.
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
                    self._after(frame, ended=frame.step(self.session.completed_now() or ""))
                going = self.seek()
            except _GivenUp:
                return
            except BaseException as error:  # noqa: BLE001 - whatever the code raises fails the decision
                self.error = (key, error)
                raised = self.frames.get(key)
                if raised is not None and raised.loop is None:
                    # Its code is over, and the thread is not its own any more.
                    del self.frames[key]
                return

    def _begin(self, key: int, session: DecisionSession) -> None:
        branch = session.branch(key)
        name = METHODS[branch.type]
        self.begun += 1
        self.replays += not session.fresh
        frame = Frame(
            BranchCursor(key, branch), make(self.cls, session.first_properties(key)), session
        )
        self.frames[key] = self.current = frame
        frame.thread = self.thread
        try:
            result = frame.run_sync(getattr(frame.workflow, name), _arguments(branch))
        except BaseException as error:
            if frame.closed:
                raise _GivenUp from None
            if not _ends(branch, error):
                raise
            result = None
        if frame.closed:
            raise _GivenUp
        if inspect.iscoroutine(result):
            frame.thread = None
            ended = frame.run_async(result, session.completed_before(key))
            self._after(frame, ended=ended)
        else:
            self._end(frame, result)

    def _after(self, frame: Frame, *, ended: bool) -> None:
        if ended:
            try:
                result = frame.result()
            except Interrupted as error:
                if not _ends(frame.cursor.branch, error):
                    raise
                result = None
            frame.close_loop()
            self._end(frame, result)
        else:
            frame.session.finish(frame.properties())

    def _end(self, frame: Frame, result: Any) -> None:
        session, branch = frame.session, frame.cursor.branch
        output = UNSET
        if branch.type is BranchType.HANDLE:
            output = write_result(self.cls, result)
        elif result is not None:
            output = freeze(result, Any, f"the result of {METHODS[branch.type]}")
        session.end(frame.cursor)
        session.finish(frame.properties(), output)
        del self.frames[frame.cursor.key]


class Decider:
    """Takes the decisions of instances. Thread-safe; one decision per instance at a time.

    Args:
        strict: refuse code that no longer asks for a work that is recorded. Without it, only a work
            that differs is noticed.
        max_parked: how many sync methods may be held by threads between decisions. The one that has
            waited longest is given up for the next, and replayed when it is needed.
        blocked_after: seconds after which a branch that neither waits nor ends is reported.
        on_blocked: is given the report, in the thread that waits; a warning is logged by default.

    """

    def __init__(
        self,
        *,
        strict: bool = False,
        max_parked: int = 128,
        blocked_after: float = 2.0,
        on_blocked: Callable[[BlockedBranch], None] | None = None,
    ) -> None:
        self._strict = strict
        self._max_parked = max_parked
        self._blocked_after = blocked_after
        self._on_blocked = on_blocked or _log_blocked
        self._lock = threading.Lock()
        self._live: dict[str, _Live] = {}
        self._parked: OrderedDict[Frame, _Live] = OrderedDict()
        self._threads = CodeThreads(keep=8)
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
        self._run(live)
        live.next_index = len(instance.state.executions)
        self._release(live)
        failed = live.error
        if failed is None:
            return m.Completed(at, session.uuid, list(session.decisions))
        key, error = failed
        self.forget(live.id)
        return m.DecisionBroken(
            at, session.uuid, isinstance(error, WorkflowModified), _error(key, error)
        )

    def check(self, cls: type[Workflow[Any]], state: InstanceState) -> Difference | None:
        """Replay all branches of a stored instance with this code; return the first difference.

        Nothing is changed or scheduled.
        """
        replayed = stored.decode(stored.encode(state))
        replayed.id = f"{state.id} (check)"
        # One more execution of every branch, when all that is recorded has happened.
        replayed.ongoing_index = len(replayed.executions)
        replayed.executions += range(len(replayed.branches))
        live = self._pin(cls, Instance(replayed))
        live.prepare(DecisionSession(Instance(replayed), strict=True))
        self._run(live)
        self._release(live)
        self.forget(live.id)
        if live.error is None:
            return None
        return Difference.of(workflow_name(cls), live.error[1], _error(*live.error))

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
        self._threads.close()

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
                threads=self._threads.started,
            )

    def _pin(self, cls: type[Workflow[Any]], instance: Instance) -> _Live:
        """Return the frames of an instance, taken out of reach of others that need a thread."""
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
                # A frame that has a thread but is not listed is just being given up.
                if frame.thread is not None and self._parked.pop(frame, None) is None:
                    del live.frames[key]
        return live

    def _run(self, live: _Live) -> None:
        while live.switches or live.seek():
            live.switches = False
            frame = live.frames.get(live.key)
            if frame is not None and frame.thread is not None and live.session is not None:
                thread = frame.thread
                frame.session = live.session
                live.thread, live.current = thread, frame
                ended = thread.resume(self._blocked_after, lambda: self._report(live))
            else:
                thread = self._threads.take()
                live.thread = thread
                ended = thread.run(live.go, self._blocked_after, lambda: self._report(live))
            if ended:
                self._threads.give_back(thread)
            if live.finished or live.error is not None:
                return

    def _release(self, live: _Live) -> None:
        """Release the threads of the frames, now that the decision is taken."""
        surplus: list[tuple[Frame, _Live]] = []
        with self._lock:
            self._begun += live.begun
            self._replays += live.replays
            live.begun = live.replays = 0
            live.session = live.thread = live.current = None
            for frame in live.frames.values():
                if frame.thread is not None:
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
        if frame.thread is not None:
            frame.close()
            frame.thread.unwind(self._blocked_after, lambda: self._report(live, frame))
            self._threads.give_back(frame.thread)
            return
        # A coroutine ends in a code thread, because this one may run an event loop of its own.
        thread = self._threads.take()
        thread.run(
            lambda: _close_quietly(frame),
            self._blocked_after,
            lambda: self._report(live, frame, thread),
        )
        self._threads.give_back(thread)

    def _report(
        self, live: _Live, frame: Frame | None = None, thread: CodeThread | None = None
    ) -> None:
        frame = frame or live.current
        thread = thread or (frame and frame.thread) or live.thread
        stack = sys._current_frames().get((thread and thread.ident) or 0)  # noqa: SLF001 - documented
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
            log.error("a report of a blocked branch failed", error=repr(error), report=blocked)


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


def _ends(branch: Branch, error: BaseException) -> bool:
    """Return whether an error just ends a branch: only `handle` has to catch an interruption."""
    return isinstance(error, Interrupted) and branch.type is not BranchType.HANDLE


def _arguments(branch: Branch) -> tuple[Any, ...]:
    """Return what the method of a branch is called with."""
    if branch.type is BranchType.HANDLE:
        return ()
    if branch.type is BranchType.EVENT:
        return (_event(branch.event_name, branch.event_input),)
    info = WorkInfo(
        type=branch.task_type if isinstance(branch.task_type, WorkType) else WorkType.TASK,
        name=str(branch.task_name),
        input=thaw(branch.task_input, Any, "an input"),
        work=str(branch.work),
    )
    if branch.type is BranchType.SUCCESS:
        output = branch.task_output
        if info.type is WorkType.WAIT and output is not None:
            return info, _event(output["event_name"], output["event_input"])
        return info, thaw(output, Any, "an output")
    if branch.type is BranchType.FAILURE:
        details = dict(thaw(branch.error_input, Any, "an error"))
        message = str(details.pop("message", ""))
        return info, WorkError(str(branch.error_name), message, details)
    return (info,)


def _event(name: Any, data: Any) -> Event:
    return Event(str(name), thaw(data, Any, "an event"))


def _error(key: int, error: BaseException) -> dict[str, Any]:
    """Return an error as plain data: where, what, and the user's part of the traceback."""
    modified = isinstance(error, WorkflowModified)
    return {
        "branch_key": key,
        "kind": "modified" if modified else "failed",
        "name": type(error).__name__,
        "message": "; ".join([text_of(error), *map(_named, _inner(error))]),
        "stacktrace": "".join(_stack(error)),
    }


_CHAINED = 8
"""Errors behind an error that are shown."""


def _inner(error: BaseException) -> list[BaseException]:
    """Return the first errors in a group, such as a task group raises: its own text hides them."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting and len(found) < _CHAINED:
        each = waiting.pop(0)
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        elif each is not error:
            found.append(each)
    return found


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of(error)}"


def _stack(error: BaseException) -> list[str]:
    """Return the user's part of the traceback, and of those of the errors behind it."""
    lines = _calls(error)
    for each in _inner(error):
        lines += [f"of which {_named(each)}\n", *_calls(each)]
    seen = [error]
    while len(seen) < _CHAINED:
        last = seen[-1]
        cause = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if cause is None or any(cause is each for each in seen):
            break
        lines += [f"after {_named(cause)}\n", *_calls(cause)]
        seen.append(cause)
    return lines


def _calls(error: BaseException) -> list[str]:
    calls = traceback.extract_tb(error.__traceback__)
    return traceback.format_list([call for call in calls if not call.filename.startswith(HERE)])
