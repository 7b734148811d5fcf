"""The tasker of plans: it makes the call of a job, in a worker process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.process.packing import unpack

if TYPE_CHECKING:
    from actorflow.engine.tasks.tasker import Task

__all__ = ["do_job"]


def do_job(task: Task) -> Any:
    """Make the call of a job; return its result as it travels."""
    function, args = unpack(task.body["call"], task.body["buffers"])
    return function(*args)
