"""`batched`: a function that is called with one item and works on many."""

from __future__ import annotations

import copy
import functools
import inspect
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from actorflow.runtime.errors import BadJob
from actorflow.runtime.worker.answers import Answers
from actorflow.runtime.worker.spec import spawn
from behaviours import Queue
from behaviours.base import Base, Behaviour
from behaviours.errors import brief

if TYPE_CHECKING:
    from actorflow.runtime.lanes.lane import Lane
    from actorflow.runtime.worker.ref import WorkerRef

__all__ = ["AsyncBatched", "Batched", "batched"]

A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S")


class _Front(Generic[A, B]):
    """What `batched` makes of a function: a worker in front of it, started when first used."""

    def __init__(
        self, function: Callable[..., Any], options: dict[str, Any], owner: Any = None
    ) -> None:
        self._function = function
        self._options = options
        self._owner = None if owner is None else weakref.ref(owner)
        self._worker: WorkerRef | None = None
        self._bound: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        functools.update_wrapper(self, function)  # type: ignore[arg-type] # called by subclasses

    def __repr__(self) -> str:
        return f"<batched {getattr(self._function, '__qualname__', brief(self._function))}>"

    @property
    def worker(self) -> WorkerRef:
        """The worker that calls the function. Started when first asked for, or after its end."""
        worker = self._worker
        if worker is None or worker.exit_reason is not None:
            worker = self._worker = spawn(self._job(), **self._options)
            owner = None if self._owner is None else self._owner()
            if owner is not None:  # nobody can call it when its object is gone
                weakref.finalize(owner, worker.stop, block=False)
        return worker

    def _job(self) -> Callable[[Any, Any], Any]:
        function, owner = self._function, self._owner

        def call(items: list[Any]) -> Any:
            return function(items) if owner is None else function(owner(), items)

        if inspect.iscoroutinefunction(function):

            async def job(items: list[Any], _state: Any) -> Answers:
                try:
                    return _answers(items, await call(items), function)
                except Exception as error:  # noqa: BLE001 - raised to the callers of this batch
                    return Answers(None, [error] * len(items))
        else:

            def job(items: list[Any], _state: Any) -> Answers:  # type: ignore[misc]
                try:
                    return _answers(items, call(items), function)
                except Exception as error:  # noqa: BLE001 - raised to the callers of this batch
                    return Answers(None, [error] * len(items))

        job.__qualname__ = getattr(function, "__qualname__", "batched function")
        return job

    def _bind(self, owner: Any) -> Any:
        """Return the front of a method for one object: each has its own worker."""
        try:
            bound = self._bound.get(owner)
            if bound is None:
                options = {**self._options, "behaviour": _own(self._options["behaviour"])}
                bound = self._bound[owner] = type(self)(self._function, options, owner)
        except TypeError:
            msg = (
                f"{self!r} keeps a worker for each object, and {brief(owner)} cannot be hashed or "
                "referred to weakly; define __hash__, or add '__weakref__' to __slots__"
            )
            raise BadJob(msg) from None
        return bound

    async def aio(self, item: A) -> B:
        """Return the result for one item, from a task of any event loop."""
        result: B = await self.worker.aask(item)
        return result


class Batched(_Front[A, B]):
    """A function of lists as a function of items. Thread-safe."""

    def __call__(self, item: A) -> B:
        """Return the result for one item; wait until its batch was processed.

        Raises:
            Exception: what the function raised on that batch, or returned for that item.

        """
        result: B = self.worker.ask(item)
        return result

    @overload
    def __get__(self, owner: None, kind: type) -> Batched[A, B]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> Batched[A, B]: ...
    def __get__(self, owner: object | None, kind: type) -> Batched[A, B]:
        """Return the method of an object."""
        return self if owner is None else self._bind(owner)


class AsyncBatched(_Front[A, B]):
    """A coroutine function of lists as a coroutine function of items."""

    def __call__(self, item: A) -> Awaitable[B]:
        """Return an awaitable of the result for one item."""
        return self.aio(item)

    def __get__(self, owner: object | None, kind: type) -> AsyncBatched[A, B]:
        """Return the method of an object."""
        return self if owner is None else self._bind(owner)


class _Decorator:
    """What `batched(...)` returns: apply it to a function or a method."""

    __slots__ = ("_options",)

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    @overload
    def __call__(
        self, function: Callable[[list[A]], Awaitable[Sequence[B]]], /
    ) -> AsyncBatched[A, B]: ...
    @overload
    def __call__(
        self, function: Callable[[S, list[A]], Awaitable[Sequence[B]]], /
    ) -> AsyncBatched[A, B]: ...
    @overload
    def __call__(self, function: Callable[[list[A]], Sequence[B]], /) -> Batched[A, B]: ...
    @overload
    def __call__(self, function: Callable[[S, list[A]], Sequence[B]], /) -> Batched[A, B]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        given: Any = function
        if not callable(given):
            msg = f"@batched(...) goes before a function, not {brief(function)}"
            raise BadJob(msg)
        if inspect.iscoroutinefunction(function):
            return AsyncBatched(function, self._options)
        return Batched(function, self._options)


def batched(
    behaviour: Any = Queue,
    *,
    concurrency: int = 1,
    executor: str | Lane = "pool",
    **options: Any,
) -> _Decorator:
    """Turn a function of lists into a function of items: calls that come together share a batch.

    The function is called with the items of a batch and returns a result for each, in their
    order. An exception among the results is raised to the caller of that item alone.

    Args:
        behaviour: how calls accumulate while the function runs, for example
            `Linger(Queue(), 0.005, size=64)` to wait 5 ms for company.
        concurrency: how many batches may be in flight at once.
        executor: where it runs, as for `spawn`; other options of `spawn` can be given too.

    >>> @batched()
    ... def double(numbers: list[int]) -> list[int]:
    ...     return [2 * number for number in numbers]
    >>> double(21)
    42
    """
    return _Decorator(
        {"behaviour": behaviour, "concurrency": concurrency, "executor": executor, **options}
    )


def _own(behaviour: Any) -> Any:
    """Return a behaviour for one more worker: a copy of an instance, a class as it is."""
    if isinstance(behaviour, (Behaviour, Base)) or hasattr(behaviour, "take"):
        return behaviour if isinstance(behaviour, type) else copy.deepcopy(behaviour)
    return behaviour


def _answers(items: list[Any], results: Any, function: Any) -> Answers:
    if not isinstance(results, Sequence) or isinstance(results, (str, bytes)):
        try:
            results = list(results)
        except TypeError:
            results = brief(results)
    if isinstance(results, str) or len(results) != len(items):
        name = getattr(function, "__qualname__", brief(function))
        got = results if isinstance(results, str) else f"{len(results)} results"
        msg = f"{name} returned {got} for {len(items)} items; return one for each, in their order"
        raise BadJob(msg)
    return Answers(None, results)
