"""The code of a branch while it is in memory, and what that code can ask."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from actorflow.workflows.errors import (
    BranchClosed,
    Interrupted,
    InvalidWork,
    NotInWorkflow,
    WorkFailed,
)
from actorflow.workflows.frames import context
from actorflow.workflows.frames.loop import BranchLoop, branch_loop
from actorflow.workflows.frames.properties import capture, load
from actorflow.workflows.frames.work import Work
from actorflow.workflows.instance.canonical import same
from actorflow.workflows.instance.decision import Answer, AnswerStatus, BranchCursor, Until
from actorflow.workflows.instance.state import INTERRUPTED, UNSET

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from actorflow.workflows.frames.threads import CodeThread
    from actorflow.workflows.instance.decision import DecisionSession

__all__ = ["First", "Frame", "frame_of"]

T = TypeVar("T")


class First(Struct, Generic[T], frozen=True):
    """The one of several works that came first."""

    index: int
    """Which one: its place among the arguments."""
    value: T
    """Its result."""


class _Asked:
    """A call of `execute` or `first` whose works are not complete."""

    __slots__ = ("cancel", "future", "missing", "names", "until", "works")

    def __init__(
        self, works: list[Work[Any]], names: list[str], until: Until, *, cancel: bool
    ) -> None:
        self.works = works
        self.names = names
        self.until = until
        self.cancel = cancel
        self.missing = 1 if until is Until.FIRST else len(names)
        self.future: asyncio.Future[Answer] | None = None


class Frame:
    """The code of one branch, from its begin to its end, over many decisions.

    A sync method is held by a thread that parks; an `async def` method by a loop of its own.

    Args:
        cursor: where the code is.
        workflow: the `self` of the method; each branch has its own.
        session: of the decision that is being taken.

    """

    def __init__(self, cursor: BranchCursor, workflow: Any, session: DecisionSession) -> None:
        self.cursor = cursor
        self.workflow = workflow
        self.session = session
        self.thread: CodeThread | None = None
        self.loop: BranchLoop | None = None
        self._main: asyncio.Task[Any] | None = None
        self._asked: dict[str, _Asked] = {}
        self._held: dict[str, Any] | None = None
        """The properties of a method that was parked, until it goes on."""
        self._stored: dict[str, Any] | None = None
        """The same as the instance has them."""
        self._closed = False

    # For whoever runs it.

    def news(self, work: str | None) -> bool:
        """Note that a work is complete; return whether the code can go on."""
        asked = self._asked.get(work or "")
        if asked is None:
            return False
        asked.missing -= 1
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
        """Begin a coroutine, and go through what was complete before; return whether it ended.

        Args:
            coroutine: of the method.
            done: the works of the branch that are complete, in the order in which they were.

        """
        self.loop = branch_loop()
        self._main = self.loop.create_task(coroutine)
        self._run_loop()
        for work in done:
            if self.news(work):
                self.step(work)
        return self._ended(self._main)

    def step(self, work: str) -> bool:
        """Resume a coroutine after a work; return whether it has ended."""
        asked = self._asked[work]
        self._forget(asked)
        answer = self.session.answer(self.cursor, asked.names, asked.until)
        self._load(answer)
        if asked.future is not None and not asked.future.done():
            asked.future.set_result(answer)
        self._run_loop()
        return self._main is not None and self._ended(self._main)

    def _ended(self, main: asyncio.Task[Any]) -> bool:
        if main.done():
            return True
        if not self._asked:
            raise NotInWorkflow(
                "this method awaits something that no work will end, so it would never go on: "
                "await works, or what another task of the method does after one"
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
        works: Sequence[Any],
        until: Until = Until.ALL,
        *,
        raises: bool = False,
        cancel: bool = False,
    ) -> tuple[list[Any], int | None]:
        """Ask for works, and stop here until they are complete. For sync methods.

        Args:
            works: calls of tasks, waits, workflows.
            until: what to wait for.
            raises: raise `WorkFailed` if one fails; otherwise the branch stays here then.
            cancel: stop the works that did not come first.

        """
        self._check_open()
        if self.loop is not None:
            raise NotInWorkflow(
                "an `async def` method would block here: `await self.aexecute(...)`, or await the "
                "work itself"
            )
        asked = self._ask(works, until, raises=raises, cancel=cancel)
        answer = self.session.answer(self.cursor, asked.names, until)
        if answer.status is AnswerStatus.SCHEDULED:
            self._wait_for(asked)
            self._park()
            self._forget(asked)
            answer = self.session.answer(self.cursor, asked.names, until)
        self._load(answer)
        return self._read(asked, answer), answer.winner

    async def execute_async(
        self,
        works: Sequence[Any],
        until: Until = Until.ALL,
        *,
        raises: bool = False,
        cancel: bool = False,
    ) -> tuple[list[Any], int | None]:
        """Like `execute`, but for `async def` methods."""
        self._check_open()
        if self.loop is None:
            raise NotInWorkflow(
                "only an `async def` method can await works: use `self.execute(...)` here"
            )
        asked = self._ask(works, until, raises=raises, cancel=cancel)
        if not asked.names:
            return [], None
        self._wait_for(asked)
        asked.future = self.loop.create_future()
        try:
            answer = await asked.future
        except asyncio.CancelledError:
            self._forget(asked)
            if not self._closed:
                for name in asked.names:
                    self.session.leave(name, cancel=True)
            raise
        return self._read(asked, answer), answer.winner

    def dispatch(self, works: Sequence[Any]) -> None:
        """Ask for works without waiting for them."""
        self._check_open()
        self._ask(works, Until.ALL, sync=False)

    def draw(self, what: str, make: Callable[[Random], Any]) -> Any:
        """Return a value that is the same in every replay."""
        self._check_open()
        position = self.cursor.next_record(what)
        found = self.session.recorded(self.cursor, position)
        if found is UNSET:
            seed = f"{self.session.uuid.rpartition('/')[0]} {self.cursor.key} {position}"
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

    def publish(self, value: Any) -> None:
        """Publish a value of plain data."""
        self._check_open()
        self.session.publish(value)

    def tag(self, values: dict[str, Any]) -> None:
        """Set searchable attributes."""
        self._check_open()
        self.session.tag(values)

    def _check_open(self) -> None:
        if self._closed:
            raise BranchClosed

    def _ask(
        self,
        works: Sequence[Any],
        until: Until,
        *,
        sync: bool = True,
        raises: bool = False,
        cancel: bool = False,
    ) -> _Asked:
        described = [_work(each) for each in works]
        number = self.cursor.next_call()
        calls = [
            work.call(f"{number}.{member}", sync=sync, raises=raises)
            for member, work in enumerate(described)
        ]
        names = self.session.ask(self.cursor, calls)
        return _Asked(described, names, until, cancel=cancel)

    def _wait_for(self, asked: _Asked) -> None:
        if self.loop is None:
            # A coroutine goes through its past work by work; a sync method is past it here.
            asked.missing -= sum(map(self.session.is_complete, asked.names))
        for name in asked.names:
            self._asked[name] = asked

    def _forget(self, asked: _Asked) -> None:
        for name in asked.names:
            self._asked.pop(name, None)

    def _park(self) -> None:
        assert self.thread is not None  # noqa: S101 - set before the method is called
        held = self.properties()
        self._stored = self.session.finish(held)
        self.thread.park()
        self._check_open()
        self._held = held

    def _load(self, answer: Answer) -> None:
        """Show the code what other branches have made of the properties meanwhile."""
        held, self._held = self._held, None
        if answer.properties is None or (held is not None and answer.properties is self._stored):
            return
        if held is None:
            held = self.properties()
        if not same(held, answer.properties):
            load(self.workflow, answer.properties, held)

    def _read(self, asked: _Asked, answer: Answer) -> list[Any]:
        if answer.winner is not None:
            for member, name in enumerate(asked.names):
                if member != answer.winner:
                    self.session.leave(name, cancel=asked.cancel)
        if answer.failed is not None:
            failed = answer.failed
            interrupted = failed.error.get("name") == INTERRUPTED
            raised = Interrupted if interrupted else WorkFailed
            raise raised(failed.work, failed.name, failed.error)
        works = asked.works if answer.winner is None else [asked.works[answer.winner]]
        return [work.read(output) for work, output in zip(works, answer.outputs, strict=True)]


def frame_of(workflow: Any) -> Frame:
    """Return the frame that runs a method of this workflow, in this thread.

    Raises:
        NotInWorkflow: there is none.

    """
    frame = context.current(workflow)
    assert isinstance(frame, Frame)  # noqa: S101 - nothing else enters
    return frame


def _work(given: Any) -> Work[Any]:
    if isinstance(given, Work):
        return given
    make = getattr(type(given), "_actorflow_work", None)
    if make is None:
        raise InvalidWork(
            f"{given!r:.80} is not a work: give the call of a `@task`, a `Wait(...)` or a workflow"
        )
    work: Work[Any] = make(given)
    return work
