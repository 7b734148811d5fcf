"""The code of a branch while it is in memory, and what that code can ask."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from msgspec import Struct

from actorflow.engine.errors import Cancelled
from actorflow.runtime.log import log
from actorflow.workflows.errors import (
    BranchClosed,
    Interrupted,
    InvalidStep,
    NotInWorkflow,
    StepFailed,
)
from actorflow.workflows.instance.canonical import same
from actorflow.workflows.instance.decision import (
    AnswerStatus,
    BranchCursor,
    StepsOutcome,
    Until,
    describe_branch,
)
from actorflow.workflows.instance.messages import Send, StartOther
from actorflow.workflows.instance.state import CANCELLED, INTERRUPTED, UNSET, BranchType
from actorflow.workflows.suspended import context
from actorflow.workflows.suspended.loop import BranchLoop, branch_loop
from actorflow.workflows.suspended.properties import capture, load
from actorflow.workflows.suspended.step import Step, TimerStep, UntilStep

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from actorflow.workflows.instance.decision import DecisionSession
    from actorflow.workflows.suspended.stacks import CodeStack

__all__ = ["Condition", "First", "Frame", "NextRun", "frame_of"]

T = TypeVar("T")

_is_typed = attrgetter("typed")
_STUBBORN = 100  # requests of code that is given up, after which it will never end


class First(Struct, Generic[T], frozen=True):
    """The one of several steps that came first."""

    index: int
    """The index of the step among the arguments."""
    value: T
    """Its result."""


class Condition(NamedTuple):
    """What the code of a frame waits for."""

    frame: Frame
    holds: Callable[[], Any]


class NextRun(NamedTuple):
    """The value that `handle` returns to start a new run."""

    properties: dict[str, Any]


class _Asked:
    """A call of `execute` or `first` whose steps are not complete."""

    __slots__ = ("cancel", "future", "missing", "names", "steps", "timer", "typed", "until")

    def __init__(
        self, steps: list[Step[Any]], names: list[str], until: Until, *, cancel: bool
    ) -> None:
        self.steps = steps
        self.names = names
        self.until = until
        self.typed = any(map(_is_typed, steps))
        self.cancel = cancel
        self.missing = 1 if until is Until.FIRST else len(names)
        self.future: asyncio.Future[StepsOutcome] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Frame:
    """The code of one branch, from its begin to its end, over many decisions.

    A sync method is held by a stack that parks; an `async def` method by a loop of its own.

    Args:
        cursor: where the code is.
        workflow: the `self` of the method; each branch has its own.
        session: of the decision that is being taken.
        conditions: of the instance, by the steps that wait for them; the frame adds its own.

    """

    def __init__(
        self,
        cursor: BranchCursor,
        workflow: Any,
        session: DecisionSession,
        conditions: dict[str, Condition],
    ) -> None:
        self._conditions = conditions
        self.cursor = cursor
        self.workflow = workflow
        self.session = session
        self.stack: CodeStack | None = None
        self.loop: BranchLoop | None = None
        self._main: asyncio.Task[Any] | None = None
        self._asked: dict[str, _Asked] = {}
        self._held: dict[str, Any] | None = None
        """The properties of a method that was parked, until it goes on."""
        self._stored: dict[str, Any] | None = None
        """The same as the instance has them."""
        self._begun: float | None = None
        """When the code first asked for the time of its loop."""
        self._closed = False
        self.successor: NextRun | None = None
        """The value that `handle` must return after it has called `again`."""
        self._refused = 0  # requests after that

    # For the code that runs it.

    def news(self, step: str | None, session: DecisionSession) -> bool:
        """Record that a step is complete in a decision; return whether the code can go on."""
        asked = self._asked.get(step or "")
        if asked is None:
            return False
        asked.missing -= 1
        if asked.typed:
            self._check_events(asked, session)
        if asked.until is Until.FAILURE and session.has_failed(step or ""):
            return True
        return asked.missing <= 0

    def run_sync(self, method: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Run a method in this thread until it returns; it parks in between.

        An `async def` method returns at once, with a coroutine for `run_async`.
        """
        context.enter(self)
        try:
            return method(*arguments)
        finally:
            context.leave()

    def run_async(self, coroutine: Coroutine[Any, Any, Any], done: Iterable[str]) -> bool:
        """Begin a coroutine, and replay its complete steps; return whether it ended.

        Args:
            coroutine: of the method.
            done: the steps of the branch that are complete, in the order in which they were.

        """
        self.loop = branch_loop(self)
        self._main = self.loop.create_task(coroutine)
        self._run_loop()
        for step in done:
            if step in self._asked and self.news(step, self.session):
                self.proceed(step)
        return self._ended(self._main)

    def proceed(self, step: str) -> bool:
        """Resume a coroutine after a step; return whether it has ended."""
        asked = self._asked[step]
        self._forget(asked)
        answer = self.session.answer(self.cursor, asked.names, asked.until)
        self._load(answer)
        if asked.timer is not None and self.loop is not None:
            self._fire(asked.timer, answer)
        elif asked.future is not None and not asked.future.done():
            asked.future.set_result(answer)
        self._run_loop()
        return self._main is not None and self._ended(self._main)

    def _ended(self, main: asyncio.Task[Any]) -> bool:
        if main.done():
            return True
        if not self._asked:
            raise NotInWorkflow(
                "this method awaits something that no step will end, so it would never go on: "
                "await steps, or what another task of the method does after one"
            )
        return False

    def result(self) -> Any:
        """Return what a coroutine that has ended returned, or raise what it raised."""
        return None if self._main is None else self._main.result()

    def _run_loop(self) -> None:
        assert self.loop is not None  # noqa: S101 - only called for coroutines
        context.enter(self)
        try:
            self.loop.run_until_idle()
        finally:
            context.leave()

    def show(self, properties: dict[str, Any]) -> None:
        """Show the current properties to the code that waits, and to its conditions."""
        held = self.properties() if self._held is None else self._held
        if not same(held, properties):
            load(self.workflow, properties, held)
        if self._held is not None:
            self._held = self._stored = properties

    def close_loop(self) -> None:
        """Abandon a coroutine, or the tasks that it has left: their `finally` blocks run.

        They can ask for nothing.
        """
        self._closed = True
        if self.loop is not None:
            context.enter(self)
            try:
                self.loop.cancel_all()
            finally:
                context.leave()
                self.loop.close()

    def close(self) -> None:
        """Refuse further requests of the code: it is being unwound."""
        self._closed = True

    @property
    def closed(self) -> bool:
        """Whether the frame was given up."""
        return self._closed

    def properties(self) -> dict[str, Any]:
        """Return the properties as the code has left them."""
        return capture(self.workflow)

    # For the code.

    def execute(
        self,
        steps: Sequence[Any],
        until: Until = Until.ALL,
        *,
        raises: bool = False,
        cancel: bool = False,
    ) -> tuple[list[Any], int | None]:
        """Ask for steps, and stop here until they are complete. For sync methods.

        Args:
            steps: calls of tasks, waits, workflows.
            until: what to wait for.
            raises: raise `StepFailed` if one fails; otherwise the branch stays here then.
            cancel: stop the steps that did not come first.

        """
        self._check_open()
        if self.loop is not None:
            raise NotInWorkflow(
                "an `async def` method would block here: `await self.aexecute(...)`, or await the "
                "step itself"
            )
        return self._result(self._ask(steps, until, raises=raises, cancel=cancel))

    def _result(self, asked: _Asked) -> tuple[list[Any], int | None]:
        answer = self.session.answer(self.cursor, asked.names, asked.until)
        if answer.status is AnswerStatus.SCHEDULED:
            self._wait_for(asked)
            self._park()
            self._forget(asked)
            answer = self.session.answer(self.cursor, asked.names, asked.until)
        self._load(answer)
        return self._read(asked, answer), answer.winner

    async def execute_async(
        self,
        steps: Sequence[Any],
        until: Until = Until.ALL,
        *,
        raises: bool = False,
        cancel: bool = False,
    ) -> tuple[list[Any], int | None]:
        """Like `execute`, but for `async def` methods."""
        self._check_open()
        if self.loop is None:
            raise NotInWorkflow(
                "only an `async def` method can await steps: use `self.execute(...)` here"
            )
        asked = self._ask(steps, until, raises=raises, cancel=cancel)
        if not asked.names:
            return [], None
        return await self._aresult(asked, self.loop)

    async def _aresult(self, asked: _Asked, loop: BranchLoop) -> tuple[list[Any], int | None]:
        self._wait_for(asked)
        asked.future = loop.create_future()
        try:
            answer = await asked.future
        except asyncio.CancelledError:
            self._forget(asked)
            if not self._closed:
                for name in asked.names:
                    self.session.leave(name, cancel=True)
            raise
        return self._read(asked, answer), answer.winner

    def until(self, condition: Callable[[], Any], wait: UntilStep) -> bool:
        """Stop here until a condition holds; return whether it does. For sync methods."""
        self._check_open()
        if self.loop is not None:
            raise NotInWorkflow("an `async def` method would block here: `await self.auntil(...)`")
        while not self._holds(condition):
            asked = self._ask_until(condition, wait)
            if not self._result(asked)[0][0]:
                return self._holds(condition)
            # Another branch may have changed what the condition depends on.
            wait = UntilStep(timestamp=self.session.deadline(asked.names[0]))
        return True

    async def until_async(self, condition: Callable[[], Any], wait: UntilStep) -> bool:
        """Like `until`, but for `async def` methods."""
        self._check_open()
        if self.loop is None:
            raise NotInWorkflow(
                "only an `async def` method can await this: use `self.until(...)` here"
            )
        while not self._holds(condition):
            asked = self._ask_until(condition, wait)
            if not (await self._aresult(asked, self.loop))[0][0]:
                return self._holds(condition)
            wait = UntilStep(timestamp=self.session.deadline(asked.names[0]))
        return True

    def _ask_until(self, condition: Callable[[], Any], wait: UntilStep) -> _Asked:
        asked = self._ask([wait], Until.ALL)
        self._conditions[asked.names[0]] = Condition(self, condition)
        return asked

    def _holds(self, condition: Callable[[], Any]) -> bool:
        """Return whether a condition holds. It is not part of the branch: no steps."""
        context.leave()
        try:
            return bool(condition())
        finally:
            context.enter(self)

    # Timers of asyncio, for the loop.

    def time(self) -> float:
        """Return the time at which the code goes on, the same in every replay."""
        if self._begun is None:
            self._begun = self.draw("time", lambda _: self.session.now)
        return max(float(self._begun), self.cursor.happened)

    def set_timer(self, handle: asyncio.TimerHandle) -> None:
        """Begin a wait at the end of which a timer fires."""
        self._check_open()
        asked = self._ask([TimerStep(handle.when())], Until.ALL)
        asked.timer = handle
        self._wait_for(asked)

    def clear_timer(self, handle: asyncio.TimerHandle) -> None:
        """Leave the wait of a timer that is not needed any more."""
        asked = next((each for each in self._asked.values() if each.timer is handle), None)
        if asked is not None:
            self._forget(asked)
            if not self._closed:
                self.session.leave(asked.names[0], cancel=True)

    def _fire(self, handle: asyncio.TimerHandle, answer: StepsOutcome) -> None:
        """Let a timer fire; if the instance is cancelled, its code gets that where it sleeps."""
        assert self.loop is not None  # noqa: S101 - only coroutines have timers
        if answer.failed is None:
            self.loop.fire(handle)
            return
        sleeps: Any = handle._args[0] if handle._args else None  # noqa: SLF001 - what asyncio gives to the callbacks of its own sleeps
        if isinstance(sleeps, asyncio.Future) and not sleeps.done():
            sleeps.set_exception(Cancelled(answer.failed.error["message"]))

    def dispatch(self, steps: Sequence[Any]) -> None:
        """Ask for steps without waiting for them."""
        self._check_open()
        self._ask(steps, Until.ALL, sync=False)

    def draw(self, what: str, make: Callable[[Random], Any]) -> Any:
        """Return a value that is the same in every replay."""
        self._check_open()
        position = self.cursor.next_record(what)
        found = self.session.recorded(self.cursor, position)
        if found is UNSET:
            seed = f"{self.session.seed} {self.cursor.key} {position}"
            found = make(Random(seed))  # noqa: S311 - no secrets
            self.session.record(self.cursor, position, found)
        return found

    def patched(self, name: str) -> bool:
        """Return whether this branch came here with the new code."""
        self._check_open()
        position = f"patched.{name}"
        if self.session.recorded(self.cursor, position) is not UNSET:
            return True
        if self.session.is_replaying(self.cursor):
            return False
        self.session.record(self.cursor, position, True)  # noqa: FBT003 - the value
        return True

    def again(self, workflow: Any) -> NextRun:
        """Return the value that starts a new run when `handle` returns it."""
        self._check_open()
        cls = type(self.workflow)
        if type(workflow) is not cls:
            raise InvalidStep(
                f"again({workflow!r:.80}): an instance of {cls.__name__} goes on as one, so give a "
                f"{cls.__name__}(...)"
            )
        if self.cursor.branch.type is not BranchType.HANDLE:
            raise InvalidStep("only `handle` can return self.again(...)")
        self.successor = NextRun(capture(workflow))
        return self.successor

    def send(self, to: str, name: str, data: Any) -> None:
        """Send an event to another instance."""
        self._check_open()
        self.session.send_once(self.cursor, "send", lambda _: Send(to, name, data))

    def start(self, workflow: Any, id_: str | None) -> str:
        """Start an instance of its own; return its id."""
        self._check_open()
        step = _step(workflow)
        sent = self.session.send_once(
            self.cursor,
            "start",
            lambda name: StartOther(name if id_ is None else id_, step.name, step.input or {}),
        )
        assert isinstance(sent, StartOther)  # noqa: S101 - what the function has made
        return sent.id

    def publish(self, value: Any) -> None:
        """Publish a value of plain data."""
        self._check_open()
        self.session.publish(self.cursor, value)

    def tag(self, values: dict[str, Any]) -> None:
        """Set searchable attributes."""
        self._check_open()
        self.session.tag(values)

    def _check_open(self) -> None:
        if not self._closed:
            return
        self._refused += 1
        if self._refused > _STUBBORN and self.stack is not None:
            log.warning(
                "abandoned code of a workflow catches everything; it stays suspended",
                branch=describe_branch(self.cursor.key, self.cursor.branch),
                workflow=type(self.workflow).__name__,
            )
            self.stack.abandon()
        raise BranchClosed

    def _ask(
        self,
        steps: Sequence[Any],
        until: Until,
        *,
        sync: bool = True,
        raises: bool = False,
        cancel: bool = False,
    ) -> _Asked:
        described = [_step(each) for each in steps]
        if raises and until is Until.ALL:
            until = Until.FAILURE
        number = self.cursor.next_call()
        calls = [
            step.call(f"{number}.{member}", sync=sync, raises=raises)
            for member, step in enumerate(described)
        ]
        names = self.session.ask(self.cursor, calls)
        return _Asked(described, names, until, cancel=cancel)

    def _wait_for(self, asked: _Asked) -> None:
        if self.loop is None:
            # A coroutine goes through its past step by step; a sync method is past it here.
            asked.missing -= sum(map(self.session.is_complete, asked.names))
            if asked.typed:
                self._check_events(asked, self.session)
        for name in asked.names:
            self._asked[name] = asked

    def _check_events(self, asked: _Asked, session: DecisionSession) -> None:
        """Have events refused that are not of the types for which waits have asked."""
        for step, name in zip(asked.steps, asked.names, strict=True):
            if step.typed:
                session.check_event(self.cursor, name, step.read)

    def _forget(self, asked: _Asked) -> None:
        for name in asked.names:
            self._asked.pop(name, None)
            self._conditions.pop(name, None)

    def _park(self) -> None:
        assert self.stack is not None  # noqa: S101 - set before the method is called
        self._held = self.properties()
        if self.session.compares:
            self.session.compare(self.cursor, self._held)
        self._stored = self.session.finish(self._held)
        context.leave()  # a thread may run other code meanwhile
        try:
            self.stack.park()
        finally:
            context.enter(self)
        self._check_open()

    def _load(self, answer: StepsOutcome) -> None:
        """Show the code what other branches have made of the properties meanwhile."""
        held, self._held = self._held, None
        if self.session.compares and answer.properties is not None:
            self.session.compare(self.cursor, self.properties(), self.cursor.before)
        if answer.properties is None or (held is not None and answer.properties is self._stored):
            return
        if held is None:
            held = self.properties()
        if not same(held, answer.properties):
            load(self.workflow, answer.properties, held)

    def _read(self, asked: _Asked, answer: StepsOutcome) -> list[Any]:
        if answer.winner is not None:
            for member, name in enumerate(asked.names):
                if member != answer.winner:
                    self.session.leave(name, cancel=asked.cancel)
        if answer.failed is not None:
            failed = answer.failed
            for name in asked.names:
                if asked.until is Until.FAILURE and name != failed.step:
                    self.session.leave(name)
            if failed.error.get("name") == CANCELLED:
                raise Cancelled(failed.error["message"])
            interrupted = failed.error.get("name") == INTERRUPTED
            raised = Interrupted if interrupted else StepFailed
            raise raised(failed.step, failed.name, failed.error)
        if asked.typed:
            self._check_events(asked, self.session)
        steps = asked.steps if answer.winner is None else [asked.steps[answer.winner]]
        return [step.read(output) for step, output in zip(steps, answer.outputs, strict=True)]


def frame_of(workflow: Any) -> Frame:
    """Return the frame that runs a method of this workflow, in this thread.

    Raises:
        NotInWorkflow: no frame runs here.

    """
    frame = context.current(workflow)
    assert isinstance(frame, Frame)  # noqa: S101 - nothing else enters
    return frame


def _step(given: Any) -> Step[Any]:
    if isinstance(given, Step):
        return given
    make = getattr(type(given), "_actorflow_step", None)
    if make is None:
        raise InvalidStep(
            f"{given!r:.80} is not a step: give the call of a `@task`, a `Wait(...)` or a workflow"
        )
    step: Step[Any] = make(given)
    return step
