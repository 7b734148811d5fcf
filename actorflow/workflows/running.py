"""The task that runs here, for its function."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from actorflow.engine.tasks.tasker import Task

__all__ = ["current_task", "leave_task", "run_task"]

_running: ContextVar[Task | None] = ContextVar("actorflow_task", default=None)


def current_task() -> Task:
    """Return the task whose function calls this.

    Its `id` is the same each time that the task is begun: give it to others to deduplicate by. Its
    `heartbeat()` returns whether the task is still wanted.

    Raises:
        ActorflowError: no task of a workflow runs here, or it runs in a batch or another process.

    """
    task = _running.get()
    if task is None:
        raise ActorflowError(
            "no task of a workflow runs here: call current_task() in the function of a `@task`, in "
            "the thread or coroutine that it was called in, without batch= or executor='process'"
        )
    return task


def run_task(task: Task) -> Token[Task | None]:
    """Make a task the current one of this thread or coroutine until `leave_task`."""
    return _running.set(task)


def leave_task(token: Token[Task | None]) -> None:
    """Clear the current task."""
    _running.reset(token)
