"""Which branch the code of this thread belongs to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.workflows.errors import NotInWorkflow

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

__all__ = ["Code", "current", "enter", "leave"]


class Code(Protocol):
    """The code of a branch, as a step sees it."""

    workflow: Any

    def execute_async(
        self, steps: Sequence[Any]
    ) -> Coroutine[Any, Any, tuple[list[Any], int | None]]:
        """Ask for steps and await them."""


_here = threading.local()


def enter(frame: Code) -> None:
    """Make a frame the current one of this thread until `leave`."""
    _here.frame = frame


def leave() -> None:
    """Clear the current frame of this thread."""
    _here.frame = None


def current(workflow: Any = None) -> Code:
    """Return the frame that runs in this thread.

    Raises:
        NotInWorkflow: no workflow runs here, or another one does.

    """
    frame: Code | None = getattr(_here, "frame", None)
    if frame is None:
        raise NotInWorkflow(
            "steps are executed by methods of a running workflow, in the thread that runs them: "
            "start the workflow on an engine, and call `execute` from `handle` or an `on_` method"
        )
    if workflow is not None and frame.workflow is not workflow:
        raise NotInWorkflow(
            f"{type(workflow).__name__} is not the workflow that runs here, which is "
            f"{type(frame.workflow).__name__}: use its own `self`"
        )
    return frame
