"""Workflows whose code is written in another language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from actorflow.workflows.errors import InvalidWorkflow
from actorflow.workflows.workflow import Workflow

if TYPE_CHECKING:
    from actorflow.workflows.workflow import WorkInfo

__all__ = ["ENVIRONMENT", "RemoteWorkflow"]

R_co = TypeVar("R_co", covariant=True)

ENVIRONMENT = "default"
"""Where workers look for jobs, unless told otherwise."""


class RemoteWorkflow(Workflow[R_co], abstract=True):
    """A workflow whose methods are elsewhere: workers of its language take its decisions.

    A subclass declares it, so that Python can start it, wait for it and use it as a work. Its name
    is that of the workflow there, and its attributes are the first properties. Annotate `handle` to
    say what it returns:

        class Order(RemoteWorkflow[str], lang="javascript"):
            def __init__(self, order: str) -> None:
                self.order = order

    Args:
        lang: the language, which workers ask for jobs by.
        env: the environment, which they ask by, too.

    """

    _actorflow_lang: ClassVar[str]
    _actorflow_env: ClassVar[str]

    def __init_subclass__(cls, *, lang: str = "", env: str = ENVIRONMENT, **options: Any) -> None:
        """Note where its code runs; a subclass of a declared one inherits that."""
        super().__init_subclass__(**options)
        if lang:
            cls._actorflow_lang, cls._actorflow_env = lang, env
        elif not hasattr(cls, "_actorflow_lang"):
            raise InvalidWorkflow(
                f"{cls.__name__} does not say where its code is: "
                f"class {cls.__name__}(RemoteWorkflow, lang='javascript')"
            )

    def handle(self) -> R_co:
        """Raise: it is called elsewhere."""
        self._actorflow_refuse()

    def on_start(self, work: WorkInfo) -> None:
        """Raise: it is called elsewhere."""
        self._actorflow_refuse()

    def _actorflow_refuse(self) -> NoReturn:
        raise InvalidWorkflow(
            f"the code of {type(self).__name__} is in {self._actorflow_lang}: start an agent, and "
            "a worker of that language"
        )
