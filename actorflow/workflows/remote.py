"""Workflows whose code is written in another language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, get_args, get_origin

from actorflow.workflows.errors import InvalidWorkflow
from actorflow.workflows.lease import LEASE, check_lease
from actorflow.workflows.place import ENVIRONMENT, check_place
from actorflow.workflows.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.workflows.workflow import WorkInfo

__all__ = ["RemoteWorkflow"]

R_co = TypeVar("R_co", covariant=True)


class RemoteWorkflow(Workflow[R_co], abstract=True):
    """A workflow whose methods are elsewhere: workers of its language take its decisions.

    A subclass declares it, so that Python can start it, wait for it, and use it as a work:

        class Order(RemoteWorkflow[str], lang="javascript"):
            def __init__(self, order: int) -> None:
                self.order = order

    Its name is that of the workflow there. Without an `__init__` of its own, its arguments are the
    first properties: `Order(order=7)`.

    Args:
        lang: the language, by which workers ask for jobs.
        env: the environment, by which they ask, too.
        lease: seconds that a worker has for its next request about a decision.

    """

    version: ClassVar[str] = "unknown"
    """Of the code there; a subclass may know it."""
    _actorflow_lang: ClassVar[str]
    _actorflow_env: ClassVar[str]
    _actorflow_lease: ClassVar[float]

    def __init_subclass__(
        cls, *, lang: str = "", env: str = ENVIRONMENT, lease: float = LEASE, **options: Any
    ) -> None:
        """Note where its code runs; a subclass of a declared one inherits that."""
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

    def on_start(self, work: WorkInfo) -> Any:
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
