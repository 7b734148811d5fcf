"""Jobs: what may be one, what makes its executors, and where these run."""

from __future__ import annotations

import inspect
from functools import lru_cache, partial
from types import CodeType, CoroutineType, FunctionType
from typing import TYPE_CHECKING, Any

from actorflow.runtime.actor.actor import Stop
from actorflow.runtime.errors import BadJob, BadOption, near
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.lanes.thread import ThreadLane
from actorflow.runtime.worker.executor import Executor

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.lanes.lane import Lane

__all__ = ["CoroutineExecutor", "FunctionExecutor", "executor_maker", "lane_for"]


class FunctionExecutor(Executor):
    """A job that is a function `(batch, state) -> state`."""

    def __init__(self, job: Callable[[Any, Any], Any]) -> None:
        self._job = job

    def __repr__(self) -> str:
        return f"job {getattr(self._job, '__qualname__', repr(self._job))}"

    def handle(self, batch: Any) -> Any:
        """Call the function and keep what it returns as the new state."""
        outcome = self._job(batch, self.state)
        if isinstance(outcome, Stop):
            return outcome
        if type(outcome) is CoroutineType:
            outcome.close()
            msg = (
                f"{self!r} is a plain function that returned a coroutine, which nobody awaits; "
                "give the coroutine function itself, or make the job an async def"
            )
            raise BadJob(msg)
        self.state = outcome
        return None


class CoroutineExecutor(FunctionExecutor):
    """A job that is a coroutine function `(batch, state) -> state`."""

    async def handle(self, batch: Any) -> Any:
        """Await the function and keep what it returns as the new state."""
        outcome = await self._job(batch, self.state)
        if isinstance(outcome, Stop):
            return outcome
        self.state = outcome
        return None


_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_RIGHT = "a job is called as job(batch, state) and returns the new state"


def executor_maker(job: Any) -> Callable[[Any], Executor]:
    """Find what makes the executors of a job, one now and another after a crash: `make(job)`.

    Raises:
        BadJob: it cannot be called as a job.

    """
    if type(job) is FunctionType and _is_plain(job.__code__):
        return CoroutineExecutor if _is_async(job) else FunctionExecutor
    target = job.func if isinstance(job, partial) else job
    if isinstance(target, type) and issubclass(target, Executor):
        if target.handle is Executor.handle:
            msg = f"{target.__name__} must define handle(self, batch)"
            raise BadJob(msg)
        _check_handle(target.handle, target.__name__)
        return _make_own
    if isinstance(job, Executor):
        msg = (
            f"give spawn the class, not an instance: spawn({type(job).__name__}, ...); "
            f"for arguments use functools.partial({type(job).__name__}, ...)"
        )
        raise BadJob(msg)
    if not callable(job):
        msg = f"{job!r} cannot be called; {_RIGHT}, as in spawn(lambda batch, state: state)"
        raise BadJob(msg)
    _check_signature(job)
    _check_runs(target, repr(job), f"{_RIGHT}, without a yield")
    return CoroutineExecutor if _is_async(target) else FunctionExecutor


def _is_plain(code: CodeType) -> bool:
    """Tell of the usual function, quickly, that it can be a job; others need a closer look."""
    usual = code.co_argcount == 2 and not code.co_kwonlyargcount  # noqa: PLR2004
    return usual and not code.co_flags & _GENERATOR


def _is_async(target: Any) -> bool:
    code = getattr(target, "__code__", None)
    if code is not None:
        return bool(code.co_flags & inspect.CO_COROUTINE)
    call = getattr(target, "__call__", None)  # noqa: B004 - an object may have an async __call__
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call)


def _make_own(job: Any) -> Executor:
    executor: Executor = job()
    return executor


def _check_runs(function: Any, name: str, remedy: str) -> None:
    """Refuse a generator function: calling it does nothing yet."""
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & _GENERATOR:
        msg = f"{name} is a generator function, whose code would never run; {remedy}"
        raise BadJob(msg)


@lru_cache(maxsize=256)
def _check_handle(handle: Callable[..., Any], owner: str) -> None:
    """Refuse a class whose `handle` cannot be called with one batch."""
    _check_runs(handle, f"{owner}.handle", "use no yield in it")
    signature = inspect.signature(handle)
    try:
        signature.bind(None, [])
    except TypeError as error:
        msg = f"{owner}.handle{signature}: {error}; write def handle(self, batch): ..."
        raise BadJob(msg) from None


def _check_signature(job: Any) -> None:
    try:
        signature = inspect.signature(job)
    except (TypeError, ValueError):
        return  # a builtin that does not say; the first call will
    try:
        signature.bind([], None)
    except TypeError as error:
        name = getattr(job, "__name__", repr(job))
        msg = f"{name}{signature} cannot be a job: {error}; {_RIGHT}: def {name}(batch, state): ..."
        raise BadJob(msg) from None


_LANES = ("pool", "thread")


def lane_for(executor: str | Lane, job: Any, make: Any, name: object) -> Lane:
    """Find the lane for `executor="pool"` or `"thread"`; coroutine jobs go to the event loop.

    Raises:
        BadOption: an unknown word, or a thread for a coroutine job.

    """
    if isinstance(executor, str) and executor not in _LANES:
        msg = f"executor={executor!r} is not a way to run a job{near(executor, _LANES)}"
        raise BadOption(msg)
    made: Any = make
    if make is _make_own:
        made = job.func if isinstance(job, partial) else job
    if made._asynchronous:  # noqa: SLF001
        if executor != "pool":
            msg = f"a coroutine job runs on the event loop: leave executor={executor!r} out"
            raise BadOption(msg)
        return LOOP
    if not isinstance(executor, str):
        if not callable(getattr(executor, "submit", None)):
            msg = f"executor={executor!r} is not a way to run a job; write 'pool' or 'thread'"
            raise BadOption(msg)
        return executor
    if executor == "pool":
        return POOL
    return ThreadLane(str(name or getattr(job, "__name__", "worker")))
