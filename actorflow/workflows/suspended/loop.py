"""An event loop of one branch: no clock, no sockets, the same order of steps in every replay."""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from actorflow.engine.errors import Cancelled
from actorflow.runtime.log import log
from actorflow.workflows.errors import BranchClosed, NotInWorkflow

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
    from contextvars import Context

__all__ = ["BranchLoop", "branch_loop"]

T = TypeVar("T")

_FEW = 16  # tasks that are kept although they may be done
_CANCELS = 10  # times that a task is asked to end
_STUBBORN: list[asyncio.Task[Any]] = []  # tasks that did not end: never to be garbage collected


class _Task(asyncio.Task[T]):
    """A task whose hash is its number: sets of tasks have the same order in every replay."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, T], **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _Future(asyncio.Future[T]):
    """A future whose hash is its number: see `_Task`."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class LoopTimers(Protocol):
    """Keeps the timers of a loop, across restarts."""

    def time(self) -> float:
        """Return the time, the same in every replay."""

    def set_timer(self, handle: asyncio.TimerHandle) -> None:
        """Let `fire(handle)` be called at `handle.when()`."""

    def clear_timer(self, handle: asyncio.TimerHandle) -> None:
        """Forget a timer."""


class BranchLoop(asyncio.AbstractEventLoop):
    """Runs ready callbacks, in order, and returns when none is left.

    Whatever would make the branch depend on something else than its history is refused: threads,
    sockets. One thread at a time uses it, but not always the same.

    Args:
        timers: makes its timers durable.

    """

    def __init__(self, timers: LoopTimers) -> None:
        self._timers = timers
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self._room = _FEW
        self._number = 0
        self._running = False
        self._closed = False
        self.steps = 0
        """How many callbacks it has run."""

    def run_until_idle(self) -> None:
        """Run all that is ready, and what becomes ready by that."""
        before = events._get_running_loop()  # noqa: SLF001 - what loops are to call
        hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(self)  # noqa: SLF001
        sys.set_asyncgen_hooks(finalizer=self._close_generator)
        self._running = True
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    self.steps += 1
                    handle._run()  # noqa: SLF001 - the loop's part of a handle
        finally:
            self._running = False
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(before)  # noqa: SLF001

    def cancel_all(self) -> None:
        """End all tasks by cancelling them, so that none is left to be garbage collected.

        What a coroutine does when it is collected would happen in the midst of other code.
        """
        for _ in range(_CANCELS):
            pending = self._pending()
            if not pending:
                return
            for task in pending:
                task.cancel()
            self.run_until_idle()
        _STUBBORN.extend(self._pending())

    def _pending(self) -> list[asyncio.Task[Any]]:
        return [task for task in self._tasks if not task.done()]

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close an asynchronous generator that its code has left, as the loops of asyncio do.

        One that is found anywhere else than in the running code is dropped.
        """
        if events._get_running_loop() is self and not self._closed:  # noqa: SLF001 - see above
            self.create_task(generator.aclose())

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback after the ready ones."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Return a new future."""
        self._number += 1
        return _Future(self._number, loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **more: Any
    ) -> asyncio.Task[Any]:
        """Return a task that runs a coroutine, or executes a step, in this loop."""
        _refuse_unordered()
        if not asyncio.iscoroutine(coro) and hasattr(coro, "__await__"):
            coro = _await(coro)
        self._number += 1
        options = more if context is None else {"context": context, **more}
        task = _Task(self._number, coro, loop=self, name=name, **options)
        self._tasks.append(task)
        if len(self._tasks) > self._room:
            self._tasks = self._pending()
            self._room = _FEW + 2 * len(self._tasks)
        return task

    def is_running(self) -> bool:
        """Return whether it runs something."""
        return self._running

    def is_closed(self) -> bool:
        """Return whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Drop ready callbacks."""
        self._closed = True
        self._ready.clear()

    def get_debug(self) -> bool:
        """Return that it does not debug."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log errors that nobody retrieves; tasks that end with their branch are none."""
        error = context.get("exception")
        if error is not None and not isinstance(error, (BranchClosed, Cancelled)):
            log.error("a task of a workflow failed, and nobody awaited it", exc_info=error)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Run a callback after some seconds: a recorded wait, which survives restarts."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Run a callback at a time: a recorded wait, which survives restarts."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers.set_timer(handle)
        return handle

    def time(self) -> float:
        """Return the time, in seconds since the epoch: the same in every replay."""
        return self._timers.time()

    def fire(self, handle: asyncio.TimerHandle) -> None:
        """Run the callback of a timer after the ready ones."""
        self._ready.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers.clear_timer(handle)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> NoReturn:
        """Refuse: results of other threads are not recorded."""
        raise _no_threads()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> NoReturn:
        """Refuse: results of other threads are not recorded."""
        raise _no_threads()


async def _await(step: Awaitable[T]) -> T:
    return await step


def _refuse_unordered() -> None:
    """Refuse a task that `asyncio.as_completed` makes: it makes them in the order of a set.

    Raises:
        NotInWorkflow: a replay could make them in another order.

    """
    frame = sys._getframe(2)  # noqa: SLF001 - nothing else says who calls
    while frame.f_back is not None and frame.f_globals.get("__name__") == "asyncio.tasks":
        if frame.f_code.co_qualname.startswith(("as_completed", "_AsCompletedIterator")):
            raise NotInWorkflow(
                "asyncio.as_completed starts what it is given in no certain order, so that a "
                "replay would not find its steps again: give it tasks that have been started, as "
                "in `as_completed([asyncio.ensure_future(step) for step in steps])`"
            )
        frame = frame.f_back


def branch_loop(timers: LoopTimers) -> BranchLoop:
    """Return a new loop."""
    # Abstract only to type checkers; the omitted methods raise NotImplementedError.
    return BranchLoop(timers)  # type: ignore[abstract]


def _no_threads() -> NotInWorkflow:
    return NotInWorkflow(
        "what other threads do is not recorded: make the function a `@task` and await its call"
    )
