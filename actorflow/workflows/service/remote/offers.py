"""Tasks of an engine as jobs of its agent."""

from __future__ import annotations

import uuid as uuids
from typing import TYPE_CHECKING, NamedTuple

from actorflow.engine import bodies
from actorflow.engine.tasks.task import TaskAttempt
from actorflow.runtime.errors import BadOption
from actorflow.workflows.agent.jobs import AgentJob, AgentQueue
from actorflow.workflows.agent.wire import task_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actorflow.engine.parts import EngineParts

__all__ = ["Place", "job_of", "stored_job"]

_NAMESPACE = uuids.UUID("0d9e1b6e-6d0c-5f3a-9a51-1f3c6a1b7c11")


class Place(NamedTuple):
    """Where the jobs of a workflow or a task go, and how long their leases are."""

    queue: AgentQueue
    lease: float


def job_of(place: Place, task: TaskAttempt) -> AgentJob:
    """Return an attempt of a task as a job.

    Raises:
        BadOption: it is the task of something else than a workflow.

    """
    body = task.body
    if type(body) is not dict or "step" not in body:
        msg = f"{task.tasker!r} is done by an agent, which only does tasks of workflows"
        raise BadOption(msg)
    uuid, given = _uuid_of(task.id), body["input"]
    answer = {
        "action": "TaskScheduled",
        "uuid": uuid,
        "name": task.tasker,
        "input": given,
        "hash": task_hash(task.tasker, body["step"], given, sync=task.id != task.execution),
    }
    return AgentJob(uuid, *place, task.id, task.execution, task.attempt - 1, answer)


def stored_job(parts: EngineParts, places: Mapping[str, Place], uuid: str) -> AgentJob | None:
    """Return a task that was not offered here, by what workers call it. O(open tasks).

    Another engine has handed it out, which runs elsewhere or was killed before this one started.
    """
    for tasker, place in list(places.items()):
        cursor = None
        while True:
            page = parts.store.open(tasker=tasker, after=cursor)
            for each in page.rows:
                if _uuid_of(each.id) == uuid:
                    row = parts.tasks.row(each.id) or each
                    body, attempt = bodies.decode(row.body), row.attempts + 1
                    return job_of(place, TaskAttempt(row.id, row.execution, tasker, body, attempt))
            cursor = page.after
            if cursor is None:
                break
    return None


def _uuid_of(task: str) -> str:
    """Return what workers call a task: the same for each attempt, to deduplicate by."""
    return str(uuids.uuid5(_NAMESPACE, task))
