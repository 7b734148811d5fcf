"""Tasks: functions whose calls are works."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, get_args, overload

from actorflow.engine.identifiers import MAX_LENGTH, check_id
from actorflow.runtime.errors import near
from actorflow.runtime.worker.batched import batched
from actorflow.workflows.errors import InvalidWork
from actorflow.workflows.frames.values import freeze, hints_of, thaw
from actorflow.workflows.frames.work import Work
from actorflow.workflows.instance.state import WorkType
from actorflow.workflows.lease import check_lease
from actorflow.workflows.place import ENVIRONMENT, check_place
from behaviours.arguments import count, seconds
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Task", "TaskOptions", "task"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_ARGUMENT = "the argument {!r} of the task {}"
_RESULT = "the result of the task {}"


class TaskOptions:
    """How a task is executed. Validated once, where the task is defined.

    Args:
        retries: how often a failed call is tried again before `on_failure`.
        backoff: seconds before the first retry; each further one waits twice as long.
        timeout: seconds after the start until `on_timeout`; the task goes on.
        concurrency: how many calls may run at the same time, in all instances: 32 by default, 1,000
            on the loop, and one batch.
        executor: where it runs: "thread", "process" or "loop", which is the default of coroutines.
        batch: a behaviour; the function is then given a list of calls' arguments, and returns a
            list of as many results.
        lang: the language of the workers that do it, if they are not here: the function only
            declares its arguments and result. See `actorflow agent`.
        env: the environment of these workers.
        lease: seconds that one of them has for its next request about the task; 60 by default.

    """

    __slots__ = (
        "backoff", "batch", "concurrency", "env", "executor", "lang", "lease", "retries", "timeout",
    )  # fmt: skip

    EXECUTORS = ("thread", "process", "loop")

    def __init__(
        self,
        *,
        retries: int = 0,
        backoff: float = 1.0,
        timeout: float | None = None,
        concurrency: int | None = None,
        executor: str | None = None,
        batch: Any = None,
        lang: str | None = None,
        env: str = ENVIRONMENT,
        lease: float | None = None,
    ) -> None:
        retries = count(retries, "retries", "task(retries=3)", least=0, error=InvalidWork)
        backoff = seconds(backoff, "backoff", "task(retries=3, backoff=0.5)", error=InvalidWork)
        if timeout is not None:
            timeout = seconds(timeout, "timeout", "task(timeout=30)", zero=False, error=InvalidWork)
        if concurrency is not None:
            concurrency = count(
                concurrency, "concurrency", "task(concurrency=4)", error=InvalidWork
            )
        if batch is not None:
            batched(batch)  # refuses what is no behaviour
        if executor is not None and executor not in self.EXECUTORS:
            raise InvalidWork(f"executor={executor!r}: use one of {', '.join(self.EXECUTORS)}")
        if lang is not None and (executor, batch, concurrency) != (None, None, None):
            raise InvalidWork(
                f"lang={lang!r}: the workers of that language decide how they do it, so leave out "
                "executor, batch and concurrency"
            )
        if lang is None:
            _refuse_place(lease=lease, env=None if env == ENVIRONMENT else env)
        else:
            check_place(lang, "lang", "javascript", error=InvalidWork)
            check_place(env, "env", "test", error=InvalidWork)
        self.lang = lang
        self.env = env
        self.lease = None if lease is None else check_lease(lease)
        self.retries = retries
        self.backoff = backoff
        self.timeout = timeout
        self.concurrency = concurrency
        self.executor = executor
        self.batch = batch


def _refuse_place(**given: Any) -> None:
    """Refuse what only tasks of other languages have."""
    for name, value in given.items():
        if value is not None:
            raise InvalidWork(
                f"{name}={value!r:.80}: only tasks of other languages have one, as in "
                "task(lang='javascript', env='test', lease=600.0)"
            )


def _check_name(name: Any) -> None:
    try:
        check_id(name, "a task")
    except (TypeError, ValueError):
        raise InvalidWork(
            f"name={brief(name)}: name must be a printable text of 1 to {MAX_LENGTH:,} characters, "
            "as in task(name='charge')"
        ) from None


class Task(Generic[P, R]):
    """A function whose calls are works: `self.execute(charge("o-1"))`.

    Args:
        function: sync or async; called by a task executor, possibly more than once per work.
        name: under which works name it. Renaming it modifies running workflows.
        options: how it is executed.

    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        options: TaskOptions | None = None,
    ) -> None:
        given: Any = function
        if not callable(given) or isinstance(given, Task):
            raise InvalidWork(f"@task goes before a function, not {brief(given)}")
        self.function = function
        if name is not None:
            _check_name(name)
        qualname = str(getattr(function, "__qualname__", ""))
        self.name = name or qualname.rpartition("<locals>.")[2]
        if not self.name:
            raise InvalidWork(f"{brief(given)} has no name; write task(name=...) before it")
        self.options = options or TaskOptions()
        self.__doc__ = function.__doc__
        self._signature = inspect.signature(function)
        self._simple = all(
            each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            for each in self._signature.parameters.values()
        )
        if self.options.batch is not None and len(self._signature.parameters) != 1:
            raise InvalidWork(
                f"the task {self.name} takes {len(self._signature.parameters)} arguments: with "
                "batch= it must take one list"
            )

    def __repr__(self) -> str:
        return f"<task {self.name}{self._signature}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Work[R]:
        """Return a work that calls the function with these arguments.

        Raises:
            TypeError: the function does not take these arguments.
            NotStorable: an argument is no plain data.

        """
        hints = self._hints
        given = {
            name: freeze(value, hints[name], _ARGUMENT, name, self.name)
            for name, value in self._bound(args, kwargs).items()
        }
        return Work(
            type=WorkType.TASK,
            name=self.name,
            input=given,
            read=self.read,
            timeout=self.options.timeout,
        )

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by their names."""
        if self._simple and not kwargs and len(args) == len(self._hints):
            return dict(zip(self._hints, args, strict=True))
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}{self._signature}: {error}") from None

    def arguments(self, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments for the function from the input of a work."""
        if self._simple and given.keys() == self._hints.keys():
            return tuple(
                [
                    thaw(given[name], hint, _ARGUMENT, name, self.name)
                    for name, hint in self._hints.items()
                ]
            ), {}
        ordered = OrderedDict(
            (name, thaw(given[name], hint, _ARGUMENT, name, self.name))
            for name, hint in self._hints.items()
            if name in given
        )
        bound = inspect.BoundArguments(self._signature, ordered)
        return bound.args, bound.kwargs

    def write(self, result: Any) -> Any:
        """Return what the function returned as plain data."""
        return freeze(result, self._result_hint, _RESULT, self.name)

    def read(self, output: Any) -> R:
        """Return plain data as what the function returned."""
        value: R = thaw(output, self._result_hint, _RESULT, self.name)
        return value

    @cached_property
    def _hints(self) -> dict[str, Any]:
        """The types of the parameters. Found at the first call: they may be declared later."""
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        hints = hints_of(self.function)
        return {
            name: Any if given.kind in several else self._item(hints.get(name, Any))
            for name, given in self._signature.parameters.items()
        }

    @cached_property
    def _result_hint(self) -> Any:
        return self._item(hints_of(self.function).get("return", Any))

    def _item(self, hint: Any) -> Any:
        """Return the type of one call where the function works on lists."""
        if self.options.batch is None:
            return hint
        items: tuple[Any, ...] = get_args(hint)
        return items[0] if len(items) == 1 else Any


class _Decorator:
    def __init__(self, name: str | None, options: TaskOptions) -> None:
        self._name = name
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        return Task(function, self._name, self._options)


class _BatchDecorator(_Decorator):
    @overload  # type: ignore[override]
    def __call__(self, function: Callable[[list[T]], Awaitable[list[R]]]) -> Task[[T], R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], list[R]]) -> Task[[T], R]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        return Task(function, self._name, self._options)


@overload
def task(function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    batch: None = None,
    name: str | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    timeout: float | None = None,
    concurrency: int | None = None,
    executor: str | None = None,
    lang: str | None = None,
    env: str = "default",
    lease: float | None = None,
) -> _Decorator: ...
@overload
def task(
    *,
    batch: object,
    name: str | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    timeout: float | None = None,
    concurrency: int | None = None,
    executor: str | None = None,
) -> _BatchDecorator: ...
def task(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any
) -> Any:
    """Make a function a task: its calls are works, for `execute` and `dispatch`.

    The options are those of `TaskOptions`.

    >>> @task(retries=3, timeout=30)
    ... def charge(order: str, amount: int) -> str:
    ...     return f"charged {amount}"
    >>> charge("o-1", 40)
    <task charge({'order': 'o-1', 'amount': 40})>
    """
    if function is not None:
        return Task(function, name)
    for option in options:
        if option not in TaskOptions.__slots__:
            raise InvalidWork(f"task has no option {option!r}{near(option, TaskOptions.__slots__)}")
    if name is not None:
        _check_name(name)
    made = TaskOptions(**options)
    return (_Decorator if made.batch is None else _BatchDecorator)(name, made)
