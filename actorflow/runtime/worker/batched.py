"""`batched`: a function that is called with one item and works on many."""

from __future__ import annotations

import copy
import functools
import inspect
import weakref
from _thread import allocate_lock
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from actorflow.behaviours import Queue, adapt
from actorflow.behaviours.adapt import Base
from actorflow.behaviours.behaviour import Behaviour
from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadBehaviour, BadJob, LoopBlocked, traceback_of
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from actorflow.runtime.processes.packed import main_is_importable
from actorflow.runtime.tickets import refuse_in_event_loop
from actorflow.runtime.worker.job.answers import Answers
from actorflow.runtime.worker.job.failure import failure_policy
from actorflow.runtime.worker.options import Settings, check_executor, runs_elsewhere
from actorflow.runtime.worker.spec import spawn

if TYPE_CHECKING:
    from typing import Self

    from actorflow.runtime.lanes.lane import RuntimeLane
    from actorflow.runtime.worker.job.limit import Limit
    from actorflow.runtime.worker.process.options import Processes
    from actorflow.runtime.worker.ref import WorkerRef

__all__ = ["AsyncBatched", "Batched", "batched"]

A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S")


class _Source:
    """The worker behind a function, or behind a method of one object; started when first used."""

    __slots__ = ("__weakref__", "_function", "_lock", "_options", "_owner", "_worker")

    def __init__(
        self, function: Callable[..., Any], options: dict[str, Any], owner: Any = None
    ) -> None:
        self._function = function
        self._options = options
        # Weak, because the worker must not keep the object alive: it ends with it.
        self._owner = None if owner is None else weakref.ref(owner)
        self._worker: WorkerRef | None = None
        self._lock = allocate_lock()

    @property
    def worker(self) -> WorkerRef:
        """The worker that calls the function."""
        worker = self._worker
        if worker is None or worker.exit_reason is not None:
            with self._lock:
                worker = self._worker
                if worker is None or worker.exit_reason is not None:
                    worker = self._worker = self._start()
        return worker

    def _start(self) -> WorkerRef:
        options = {**self._options, "behaviour": _own(self._options["behaviour"])}
        worker = spawn(self._job(), **options)
        # Nobody can call it when the function, or the object of a method, is gone. The collector
        # may run in a thread that holds the worker's lock.
        stop = functools.partial(worker.stop, block=False)
        weakref.finalize(self, UNINTERRUPTIBLE.post, stop).atexit = False
        return worker

    def _job(self) -> Callable[[Any, Any], Any]:
        """Return the job of the worker, which must not refer to this source."""
        function, of = self._function, self._owner
        call = function if of is None else functools.partial(_call_method, function, of)
        # A batch searched for poison has to raise; else each caller of the batch is answered.
        raises = failure_policy(self._options.get("on_failure", "drop")).buries
        if runs_elsewhere(self._options["executor"]):
            if self._owner is not None:
                msg = (
                    f"{_name(function)} is a method, whose object is here and not in the worker "
                    "process; use executor='pool', or batch a function"
                )
                raise BadJob(msg)
            return _Elsewhere(function, raises=raises)

        if inspect.iscoroutinefunction(function):

            async def job(items: list[Any], _state: Any) -> Answers:
                try:
                    return _answers(items, await call(items), function)
                except Exception as error:
                    if raises:
                        raise
                    return Answers(None, [error] * len(items))
        else:

            def job(items: list[Any], _state: Any) -> Answers:  # type: ignore[misc]
                try:
                    return _answers(items, call(items), function)
                except Exception as error:
                    if raises:
                        raise
                    return Answers(None, [error] * len(items))

        job.__qualname__ = _name(function)
        return job

    def bound_to(self, owner: Any) -> _Source:
        """Return the same for a method of one object, with a behaviour of its own."""
        return _Source(self._function, self._options, owner)


def _call_method(function: Callable[..., Any], of: weakref.ref[Any], items: list[Any]) -> Any:
    owner = of()
    if owner is None:
        msg = f"the object whose method {_name(function)} was to be called is gone"
        raise ReferenceError(msg)
    return function(owner, items)


class _Elsewhere:
    """The job of a function that runs in worker processes: it can be sent there."""

    def __init__(self, function: Callable[..., Any], *, raises: bool) -> None:
        self._function = function
        self._raises = raises
        self.__qualname__ = _name(function)

    def __call__(self, items: list[Any], _state: Any) -> Answers:
        """Call the function. In the worker process."""
        try:
            results = self._function(items)
            if inspect.iscoroutine(results):
                from asyncio import run  # noqa: PLC0415 - only for coroutine functions

                results = run(results)
            return _answers(items, results, self._function)
        except Exception as error:
            if self._raises:
                raise
            # A note travels with the error, unlike its traceback.
            error.add_note(f"in a worker process:\n{traceback_of(error).rstrip()}")
            return Answers(None, [error] * len(items))

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the function by its name where that leads to it, through its decorator."""
        module, name = self._function.__module__, self._function.__qualname__
        try:
            known = module != "__main__" or main_is_importable()
            by_name = known and _undecorated(module, name) is self._function
        except (AttributeError, ImportError):
            by_name = False
        if by_name:
            return _named, (module, name, self._raises)
        return _made, (self._function, self._raises)


def _undecorated(module: str, name: str) -> Any:
    """Return the function that stands in a module under a name, decorated or not."""
    found = functools.reduce(getattr, name.split("."), import_module(module))
    return found.__wrapped__ if isinstance(found, _Front) else found


def _named(module: str, name: str, raises: bool) -> _Elsewhere:  # noqa: FBT001 - for pickle
    return _Elsewhere(_undecorated(module, name), raises=raises)


def _made(function: Any, raises: bool) -> _Elsewhere:  # noqa: FBT001 - for pickle
    return _Elsewhere(function, raises=raises)


class _Front(Generic[A, B]):
    """What `batched` makes of a function: callers see this, and it asks the worker."""

    __name__: str
    __qualname__: str

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._source = _Source(function, options)
        self._owner: Any = None
        """The object of a method: it lives as long as a call of the method."""
        # By identity: objects that are equal are not the same, and many cannot be hashed.
        self._bound: dict[int, _Source] = {}
        self._binding = allocate_lock()
        decorated: Any = self
        functools.update_wrapper(decorated, function)

    def __repr__(self) -> str:
        of = "" if self._owner is None else f" of {brief(self._owner)}"
        return f"<batched {getattr(self, '__qualname__', 'function')}{of}>"

    @property
    def worker(self) -> WorkerRef:
        """The worker that calls the function. Started when first asked for, or after its end.

        It is stopped when the function is dropped, or the object of a method.
        """
        return self._source.worker

    def _bind(self, owner: Any) -> Self:
        """Return the front of a method for one object: each has its own worker."""
        key = id(owner)
        source = self._bound.get(key)
        if source is None:
            with self._binding:
                source = self._bound.get(key) or self._new_source(owner)
        bound = type(self).__new__(type(self))
        bound.__dict__.update(self.__dict__, _source=source, _owner=owner)
        return bound

    def _new_source(self, owner: Any) -> _Source:
        try:
            source = self._source.bound_to(owner)
        except TypeError:
            msg = (
                f"{self!r} keeps a worker for each object, and {brief(owner)} cannot be referred "
                "to weakly; add '__weakref__' to its __slots__"
            )
            raise BadJob(msg) from None
        key = id(owner)
        # Called before another object can have that id.
        weakref.finalize(owner, self._bound.pop, key, None).atexit = False
        self._bound[key] = source
        return source

    async def aio(self, item: A) -> B:
        """Return the result for one item, from a task of any event loop."""
        result: B = await self.worker.aask(item)
        return result


class Batched(_Front[A, B]):
    """A function of lists as a function of items. Thread-safe."""

    def __call__(self, item: A) -> B:
        """Return the result for one item; wait until its batch was processed.

        Raises:
            LoopBlocked: called in a thread that runs an event loop: use `aio`.
            Exception: what the function raised on that batch, or returned for that item.

        """
        try:
            result: B = self.worker.ask(item)
        except LoopBlocked:  # of this call, unless the function itself has met it
            refuse_in_event_loop(self, f"{getattr(self, '__name__', 'function')}.aio(item)")
            raise
        return result

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
    concurrency: int | Limit = 1,
    executor: str | RuntimeLane | Processes = "pool",
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
    given = {"behaviour": behaviour, "concurrency": concurrency, "executor": executor, **options}
    _check(given)
    return _Decorator(given)


def _check(options: dict[str, Any]) -> None:
    """Validate options at the decorator, although the worker starts with the first call.

    Raises:
        BadBehaviour, BadOption: something cannot work; the message shows the right call.

    """
    check_executor(options["executor"])
    settled: Any = {**options, "executor": "pool"}  # a lane is made for the worker only
    behaviour = settled.pop("behaviour")
    Settings(lambda _items, _state: None, settled, "batched")
    if isinstance(behaviour, type) or not callable(behaviour):  # what a factory makes is its own
        adapt(_own(behaviour))
    elif inspect.isroutine(behaviour) and _needs_arguments(behaviour):
        name = _name(behaviour)
        msg = f"{name} is not a behaviour; write @af.batched() before {name}"
        raise BadBehaviour(msg)


def _needs_arguments(function: Callable[..., Any]) -> bool:
    """Return whether a function cannot be called without arguments, as a factory is."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # written in C, and silent about its arguments
        return False
    return False


def _own(behaviour: Any) -> Any:
    """Return a behaviour for one more worker: a copy of an instance, a class as it is."""
    if isinstance(behaviour, (Behaviour, Base)) or hasattr(behaviour, "take"):
        return behaviour if isinstance(behaviour, type) else copy.deepcopy(behaviour)
    return behaviour


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or brief(function))


def _answers(items: list[Any], results: Any, function: Any) -> Answers:
    """Make answers of what the function returned: any iterable but a string."""
    if isinstance(results, (str, bytes)):
        got = brief(results)
    elif isinstance(results, Sequence) and len(results) == len(items):
        return Answers(None, results)
    else:
        try:
            results = list(results)
        except TypeError:
            got = brief(results)
        else:
            if len(results) == len(items):
                return Answers(None, results)
            got = f"{len(results)} results"
    msg = f"{_name(function)} returned {got} for {len(items)} items; return one for each, in order"
    raise BadJob(msg)
