"""Jobs: the accepted types, and how each is called."""

from __future__ import annotations

import inspect
from functools import lru_cache, partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadJob
from actorflow.runtime.worker.job.executor import Executor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["JobKind", "kind_of"]


class JobKind(NamedTuple):
    """What a job is."""

    asynchronous: bool
    """Its code runs on the event loop."""
    executor: type[Executor] | None = None
    """The class of its executors; `None` for a function."""

    @property
    def has_on_start(self) -> bool:
        """Whether there is an `on_start` to call."""
        return self.executor is not None and self.executor.on_start is not Executor.on_start

    @property
    def has_on_stop(self) -> bool:
        """Whether there is an `on_stop` to call."""
        return self.executor is not None and self.executor.on_stop is not Executor.on_stop


_PLAIN = JobKind(asynchronous=False)
_COROUTINE = JobKind(asynchronous=True)
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_RIGHT = "a job is called as job(batch, state) and returns the new state"
_HOOKS = ("on_start", "handle", "handle_message", "on_idle", "on_stop")


def kind_of(job: Any) -> JobKind:
    """Find out what a job is.

    Raises:
        BadJob: it cannot be called as a job.

    """
    if type(job) is FunctionType and _is_plain(job.__code__):
        return _COROUTINE if _is_async(job) else _PLAIN
    target = job.func if isinstance(job, partial) else job
    if isinstance(target, type) and issubclass(target, Executor):
        return _kind_of_class(target)  # type: ignore[arg-type] # a class can be hashed
    if isinstance(job, Executor):
        msg = (
            f"give spawn the class, not an instance: spawn({type(job).__name__}, ...); "
            f"for arguments use functools.partial({type(job).__name__}, ...)"
        )
        raise BadJob(msg)
    if not callable(job):
        msg = f"{brief(job)} cannot be called; {_RIGHT}, as in spawn(lambda batch, state: state)"
        raise BadJob(msg)
    _check_signature(job)
    _check_runs(target, brief(job), f"{_RIGHT}, without a yield")
    return _COROUTINE if _is_async(target) else _PLAIN


@lru_cache(maxsize=256)
def _kind_of_class(owner: type[Executor]) -> JobKind:
    name = owner.__name__
    if owner.handle is Executor.handle:
        msg = f"{name} must define handle(self, batch)"
        raise BadJob(msg)
    _check_runs(owner.handle, f"{name}.handle", "use no yield in it")
    signature = inspect.signature(owner.handle)
    try:
        signature.bind(None, [])
    except TypeError as error:
        msg = f"{name}.handle{signature}: {error}; write def handle(self, batch): ..."
        raise BadJob(msg) from None
    asynchronous = any(inspect.iscoroutinefunction(getattr(owner, hook)) for hook in _HOOKS)
    return JobKind(asynchronous, owner)


def _is_plain(code: CodeType) -> bool:
    """Return quickly whether a usual function can be a job; others need a closer look."""
    usual = code.co_argcount == 2 and not code.co_kwonlyargcount  # noqa: PLR2004
    return usual and not code.co_flags & _GENERATOR


def _is_async(target: Any) -> bool:
    code = getattr(target, "__code__", None)
    if code is not None:
        return bool(code.co_flags & inspect.CO_COROUTINE)
    call = getattr(target, "__call__", None)  # noqa: B004 - an object may have an async __call__
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call)


def _check_runs(function: Any, name: str, remedy: str) -> None:
    """Refuse a generator function: calling it does nothing yet."""
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & _GENERATOR:
        msg = f"{name} is a generator function, whose code would never run; {remedy}"
        raise BadJob(msg)


def _check_signature(job: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(job)
    except (TypeError, ValueError):
        return  # a builtin that does not say; the first call will
    try:
        signature.bind([], None)
    except TypeError as error:
        name = getattr(job, "__name__", brief(job))
        msg = f"{name}{signature} cannot be a job: {error}; {_RIGHT}: def {name}(batch, state): ..."
        raise BadJob(msg) from None
