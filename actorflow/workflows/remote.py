"""Workflows whose code is written in another language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, get_args, get_origin

from actorflow.behaviours.arguments import seconds
from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadOption
from actorflow.workflows.errors import InvalidWorkflow
from actorflow.workflows.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.workflows.workflow import StepInfo

__all__ = ["ENVIRONMENT", "LEASE", "LONGEST", "RemoteWorkflow", "check_lease", "check_place"]

ENVIRONMENT = "default"
"""Where workers look for jobs, unless told otherwise."""
LONGEST = 200
"""Characters of the name of a language or an environment: it is a part of a path."""
LEASE = 60.0
"""Seconds that a worker has for its next request about a job, unless told otherwise."""

R_co = TypeVar("R_co", covariant=True)


class RemoteWorkflow(Workflow[R_co], abstract=True):
    """A workflow whose methods are elsewhere: workers of its language take its decisions.

    A subclass declares it, so that Python can start it, wait for it, and use it as a step:

        class Order(RemoteWorkflow[str], lang="javascript"):
            def __init__(self, order: int) -> None:
                self.order = order

    Its name is that of the workflow there. Without an `__init__` of its own, its arguments are the
    first properties: `Order(order=7)`.

    Args:
        lang: the language, by which workers ask for jobs.
        env: the environment; workers also ask by it.
        lease: seconds that a worker has for its next request about a decision.

    """

    version: ClassVar[str] = "unknown"
    """The version of the remote code, if a subclass declares it."""
    _actorflow_lang: ClassVar[str]
    _actorflow_env: ClassVar[str]
    _actorflow_lease: ClassVar[float]

    def __init_subclass__(
        cls, *, lang: str = "", env: str = ENVIRONMENT, lease: float = LEASE, **options: Any
    ) -> None:
        """Record where its code runs; a subclass of a declared one inherits that."""
        cls._actorflow_keeps_events = False
        if cls.handle is Workflow.handle:
            cls.handle = _elsewhere(_result_of(cls))  # type: ignore[method-assign, assignment]
        super().__init_subclass__(**options)
        if lang:
            cls._actorflow_lang = check_place(lang, "lang", "javascript")
            cls._actorflow_env = check_place(env, "env", "test")
            cls._actorflow_lease = check_lease(lease)
        elif not hasattr(cls, "_actorflow_lang"):
            raise InvalidWorkflow(
                f"{cls.__name__} does not say where its code is: "
                f"class {cls.__name__}(RemoteWorkflow, lang='javascript')"
            )

    def __init__(self, **properties: Any) -> None:
        vars(self).update(properties)

    def on_start(self, step: StepInfo) -> Any:
        """Raise: it is called elsewhere, for every start."""
        _refuse(self)


def _result_of(cls: type[RemoteWorkflow[Any]]) -> Any:
    """Return the declared type of the result of a class."""
    for base in getattr(cls, "__orig_bases__", ()):
        if get_origin(base) is RemoteWorkflow:
            return get_args(base)[0]
    return Any


def _elsewhere(result: Any) -> Callable[[Any], Any]:
    def handle(self: RemoteWorkflow[Any]) -> Any:
        """Raise: it is called elsewhere."""
        _refuse(self)

    handle.__annotations__["return"] = result
    return handle


def _refuse(workflow: RemoteWorkflow[Any]) -> NoReturn:
    lang = workflow._actorflow_lang  # noqa: SLF001 - not to be in the way of a property
    name = type(workflow).__name__
    raise InvalidWorkflow(
        f"the code of {name} is in {lang}: start an agent, and a worker of {lang}"
    )


def check_place(value: Any, name: str, example: str, *, error: type[Exception] = BadOption) -> str:
    """Return a language or an environment that workers can ask for.

    >>> check_place("a/b", "lang", "javascript")
    Traceback (most recent call last):
    ...
    actorflow.runtime.errors.BadOption: lang='a/b': lang must be a printable text of 1 to 200
    characters without '/', as in lang='javascript'

    """
    if (
        type(value) is str
        and 1 <= len(value) <= LONGEST
        and "/" not in value
        and value.isprintable()
    ):
        return value
    raise error(
        f"{name}={brief(value)}: {name} must be a printable text of 1 to {LONGEST} characters "
        f"without '/', as in {name}={example!r}"
    )


def check_lease(given: Any) -> float:
    """Return the seconds of a lease.

    Raises:
        BadOption: it is not a number above 0.

    """
    return seconds(given, "lease", "lease=600.0", zero=False, error=BadOption)
