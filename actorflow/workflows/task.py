"""Tasks: functions whose calls are steps."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from contextvars import ContextVar, Token
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    get_args,
    overload,
)

import msgspec

from actorflow.behaviours.arguments import count, flag, seconds
from actorflow.behaviours.errors import brief
from actorflow.engine.errors import BadResult
from actorflow.engine.ids import MAX_LENGTH, check_id
from actorflow.engine.kinds.lane import Lane
from actorflow.engine.tasks.attempt_rules import exceptions
from actorflow.engine.tasks.task import HELD
from actorflow.engine.typed import freeze, hints_of, thaw
from actorflow.runtime.errors import ActorflowError, near
from actorflow.runtime.restarts import Backoff
from actorflow.runtime.worker.batched import batched
from actorflow.workflows.errors import InvalidStep
from actorflow.workflows.instance.state import StepType
from actorflow.workflows.remote import ENVIRONMENT, check_lease, check_place
from actorflow.workflows.suspended.step import Step

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actorflow.engine.tasks.task import TaskAttempt as EngineTask

__all__ = ["Task", "TaskOptions", "current_task", "leave_task", "run_task", "task"]

Exceptions: TypeAlias = "type[BaseException] | tuple[type[BaseException], ...]"
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_LONGEST = 3_600.0  # seconds between two attempts
_ARGUMENT = "the argument {!r} of the task {}"
_RESULT = "the result of the task {}"


class TaskOptions:
    """How a task is executed. Validated once, where the task is defined.

    Args:
        retries: how often a failed attempt is tried again before `on_failure`.
        backoff: seconds before the first retry, and each further one waits twice as long; or an
            `af.Backoff(initial=1.0, factor=2.0, maximum=60.0, jitter=0.1)`.
        timeout: seconds after the start of the first attempt; then the attempt that is under way
            ends, and the task has failed with a `TaskTimeout`. `on_timeout` is called as well.
        attempt_timeout: seconds for each attempt; then it ends, and counts as failed.
        heartbeat: seconds that an attempt has for its next `current_task().progress(x)` or
            `current_task().heartbeat()`; else it ends, and counts as failed.
        retry_on: exception classes: only these are tried again; all, if not given.
        give_up_on: exception classes that are not tried again.
        concurrency: how many calls may run at the same time, in all instances: 32 by default, 1,000
            on the loop, and one batch.
        executor: where it runs: "thread", "process" or "loop", which is the default of coroutines.
        batch: a behaviour; the function is then given a list of calls' arguments, and returns a
            list of as many results.
        pure: the function computes its result from its arguments and has no other effect. It may
            be called before the decision that asks for it is stored, and is stored with it.
        lane: an `af.Lane` in which calls wait until its limits let them begin, in all instances and
            engines; or a function of the arguments that returns one.
        lang: the language of the workers that do it, if they are not here: the function only
            declares its arguments and result. See `actorflow agent`.
        env: the environment of these workers.
        lease: seconds that one of them has for its next request about the task; 60 by default.

    """

    __slots__ = (
        "attempt_timeout", "backoff", "batch", "concurrency", "env", "executor", "give_up_on",
        "heartbeat", "lane", "lang", "lease", "pure", "retries", "retry_on", "timeout",
    )  # fmt: skip

    EXECUTORS = ("thread", "process", "loop")

    def __init__(
        self,
        *,
        retries: int = 0,
        backoff: float | Backoff = 1.0,
        timeout: float | None = None,
        attempt_timeout: float | None = None,
        heartbeat: float | None = None,
        retry_on: Any = None,
        give_up_on: Any = (),
        concurrency: int | None = None,
        executor: str | None = None,
        batch: Any = None,
        pure: bool = False,
        lane: Lane | Callable[..., Lane] | None = None,
        lang: str | None = None,
        env: str = ENVIRONMENT,
        lease: float | None = None,
    ) -> None:
        retries = count(retries, "retries", "task(retries=3)", least=0, error=InvalidStep)
        if not isinstance(backoff, Backoff):
            first = seconds(backoff, "backoff", "task(retries=3, backoff=0.5)", error=InvalidStep)
            backoff = Backoff(initial=first, maximum=max(_LONGEST, first), jitter=0.1)
        timeout = _positive(timeout, "timeout")
        attempt_timeout = _positive(attempt_timeout, "attempt_timeout")
        heartbeat = _positive(heartbeat, "heartbeat")
        retry_on = None if retry_on is None else exceptions(retry_on, "retry_on", InvalidStep)
        give_up_on = exceptions(give_up_on, "give_up_on", InvalidStep)
        if concurrency is not None:
            concurrency = count(
                concurrency, "concurrency", "task(concurrency=4)", error=InvalidStep
            )
        if batch is not None:
            batched(batch)  # raises unless it is a behaviour
        if executor is not None and executor not in self.EXECUTORS:
            raise InvalidStep(f"executor={executor!r}: use one of {', '.join(self.EXECUTORS)}")
        if lang is not None and (executor, batch, concurrency) != (None, None, None):
            raise InvalidStep(
                f"lang={lang!r}: the workers of that language decide how they do it, so leave out "
                "executor, batch and concurrency"
            )
        if flag(pure, "pure", "task(pure=True)", error=InvalidStep):
            _refuse_with_pure(
                timeout=timeout, attempt_timeout=attempt_timeout, heartbeat=heartbeat,
                executor=executor, batch=batch, lang=lang, lane=lane,
            )  # fmt: skip
        if lang is None:
            _refuse_place(lease=lease, env=None if env == ENVIRONMENT else env)
        else:
            check_place(lang, "lang", "javascript", error=InvalidStep)
            check_place(env, "env", "test", error=InvalidStep)
        if lane is not None and not isinstance(lane, Lane) and not callable(lane):
            raise InvalidStep(
                f"lane={lane!r:.80} is not a lane: task(lane=af.Lane('stripe', rate=(5, 30)))"
            )
        self.lane = lane
        self.lang = lang
        self.env = env
        self.lease = None if lease is None else check_lease(lease)
        self.retries = retries
        self.backoff = backoff
        self.timeout = timeout
        self.attempt_timeout = attempt_timeout
        self.heartbeat = heartbeat
        self.retry_on = retry_on
        self.give_up_on = give_up_on
        self.concurrency = concurrency
        self.executor = executor
        self.batch = batch
        self.pure = pure


def _positive(given: float | None, name: str) -> float | None:
    """Return seconds, if given."""
    if given is None:
        return None
    return seconds(given, name, f"task({name}=30)", zero=False, error=InvalidStep)


def _refuse_with_pure(**given: Any) -> None:
    """Refuse what a task that is done within a decision cannot have."""
    for name, value in given.items():
        if value is not None:
            raise InvalidStep(
                f"pure=True, {name}={value!r:.80}: a pure task is quick and is done where the "
                f"decision is taken; leave out pure or {name}"
            )


def _refuse_place(**given: Any) -> None:
    """Refuse what only tasks of other languages have."""
    for name, value in given.items():
        if value is not None:
            raise InvalidStep(
                f"{name}={value!r:.80}: only tasks of other languages have one, as in "
                "task(lang='javascript', env='test', lease=600.0)"
            )


def _check_name(name: Any) -> None:
    try:
        check_id(name, "a task")
    except (TypeError, ValueError):
        raise InvalidStep(
            f"name={brief(name)}: name must be a printable text of 1 to {MAX_LENGTH:,} characters, "
            "as in task(name='charge')"
        ) from None


class Task(Generic[P, R]):
    """A function whose calls are steps: `self.execute(charge("o-1"))`.

    Args:
        function: sync or async; called by a task executor, possibly more than once per step.
        name: under which steps name it. Renaming it modifies running workflows.
        options: how it is executed.

    """

    definitions: ClassVar[int] = 0
    """How many tasks have been defined: while it is unchanged, no search is needed."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        options: TaskOptions | None = None,
    ) -> None:
        Task.definitions += 1
        given: Any = function
        if not callable(given) or isinstance(given, Task):
            raise InvalidStep(f"@task goes before a function, not {brief(given)}")
        self.function = function
        if name is not None:
            _check_name(name)
        qualname = str(getattr(function, "__qualname__", ""))
        self.name = name or qualname.rpartition("<locals>.")[2]
        if not self.name:
            raise InvalidStep(f"{brief(given)} has no name; write task(name=...) before it")
        self.options = options or TaskOptions()
        self.__doc__ = function.__doc__
        self._signature = inspect.signature(function)
        self._simple = all(
            each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            for each in self._signature.parameters.values()
        )
        if self.options.pure and inspect.iscoroutinefunction(function):
            raise InvalidStep(
                f"the task {self.name} is a coroutine function, and a pure task never waits: make "
                "it a plain `def`, or leave out pure=True"
            )
        if self.options.batch is not None and len(self._signature.parameters) != 1:
            raise InvalidStep(
                f"the task {self.name} takes {len(self._signature.parameters)} arguments: with "
                "batch= it must take one list"
            )

    def __repr__(self) -> str:
        return f"<task {self.name}{self._signature}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Step[R]:
        """Return a step that calls the function with these arguments.

        Raises:
            TypeError: the function does not take these arguments.
            NotStorable: an argument is not plain data.

        """
        hints = self._hints
        given = {
            name: freeze(value, hints[name], _ARGUMENT, name, self.name)
            for name, value in self._bound(args, kwargs).items()
        }
        return Step(
            type=StepType.TASK,
            name=self.name,
            input=given,
            read=self.read,
            timeout=self.options.timeout,
            ends=True,
            lane=None if self.options.lane is None else self._lane(args, kwargs),
        )

    def _lane(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the lane of a call, as it is stored."""
        lane: Any = self.options.lane
        if not isinstance(lane, Lane):
            lane = lane(*args, **kwargs)
        if not isinstance(lane, Lane):
            raise InvalidStep(f"lane= of {self.name} has returned {lane!r:.80}, not an af.Lane")
        return {"to": lane.execution, "body": lane.entry("")}

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by their names."""
        if self._simple and not kwargs and len(args) == len(self._hints):
            return dict(zip(self._hints, args, strict=True))
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}{self._signature}: {error}") from None

    def arguments(self, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments for the function from the input of a step."""
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
        """Return what the function returned as plain data.

        Raises:
            BadResult: it is not of the declared type.
            NotStorable: it is not plain data, and no type is declared.

        """
        if result is HELD:
            return result
        hint = self._result_hint
        plain = freeze(result, hint, _RESULT, self.name)
        if hint is Any or hint is type(plain):
            return plain
        try:
            thaw(plain, hint, _RESULT, self.name)
        except TypeError as error:
            raise BadResult(f"{error}; it returned {result!r:.80}") from None
        return plain

    def check(self, output: Any) -> Any:
        """Return a result from outside, as plain data.

        Raises:
            BadResult: it is not of the declared type.

        """
        hint = self._result_hint
        try:
            return freeze(thaw(output, hint, _RESULT, self.name), hint, _RESULT, self.name)
        except TypeError as error:
            raise BadResult(f"{error}; it was given {output!r:.80}") from None

    def describe(self) -> dict[str, Any]:
        """Return what its results are: the docstring, and their JSON schema, if they have one."""
        try:
            schema = {} if self._result_hint is Any else msgspec.json.schema(self._result_hint)
        except (TypeError, NameError):  # of a type that only pydantic or numpy can describe
            schema = {}
        return {"help": inspect.getdoc(self.function) or "", "schema": schema}

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


class _TaskDecorator:
    def __init__(self, name: str | None, options: TaskOptions) -> None:
        self._name = name
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        return Task(function, self._name, self._options)


class _BatchDecorator(_TaskDecorator):
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
    backoff: float | Backoff = 1.0,
    timeout: float | None = None,
    attempt_timeout: float | None = None,
    heartbeat: float | None = None,
    retry_on: Exceptions | None = None,
    give_up_on: Exceptions = (),
    concurrency: int | None = None,
    executor: str | None = None,
    pure: bool = False,
    lane: Lane | Callable[..., Lane] | None = None,
    lang: str | None = None,
    env: str = "default",
    lease: float | None = None,
) -> _TaskDecorator: ...
@overload
def task(
    *,
    batch: object,
    name: str | None = None,
    retries: int = 0,
    backoff: float | Backoff = 1.0,
    timeout: float | None = None,
    attempt_timeout: float | None = None,
    heartbeat: float | None = None,
    retry_on: Exceptions | None = None,
    give_up_on: Exceptions = (),
    concurrency: int | None = None,
    executor: str | None = None,
    lane: Lane | Callable[..., Lane] | None = None,
) -> _BatchDecorator: ...
def task(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any
) -> Any:
    """Make a function a task: its calls are steps, for `execute` and `dispatch`.

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
            raise InvalidStep(f"task has no option {option!r}{near(option, TaskOptions.__slots__)}")
    if name is not None:
        _check_name(name)
    made = TaskOptions(**options)
    return (_TaskDecorator if made.batch is None else _BatchDecorator)(name, made)


_running: ContextVar[EngineTask | None] = ContextVar("actorflow_task", default=None)


def current_task() -> EngineTask:
    """Return the task whose function calls this.

    Its `id` is the same each time that the task is begun: give it to others to deduplicate by. Its
    `heartbeat()` returns whether the task is still wanted, and `progress(x)` also notes how far it
    has come: the next attempt finds the last value in `last_progress`. In a function with `batch=`
    it is the task of the first item, and its `batch` has the tasks of all items, in their order.

    Raises:
        ActorflowError: no task of a workflow runs here.

    """
    task = _running.get()
    if task is None:
        raise ActorflowError(
            "no task of a workflow runs here: call current_task() in the function of a `@task`, in "
            "the thread or coroutine that it was called in"
        )
    return task


def run_task(task: EngineTask | None) -> Token[EngineTask | None]:
    """Make a task the current one of this thread or coroutine until `leave_task`."""
    return _running.set(task)


def leave_task(token: Token[EngineTask | None]) -> None:
    """Clear the current task."""
    _running.reset(token)
