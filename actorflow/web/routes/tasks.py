"""Routes for tasks that taskers hold."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from actorflow.web.routes.answers import Answer, Body, Limit, Steered, refusals
from actorflow.web.routes.reading import JsonRoute
from actorflow.web.steering import LIMIT

__all__ = ["router"]

router = APIRouter(tags=["tasks"], route_class=JsonRoute)


class Return(Body):
    """The result of a task."""

    task: str
    value: Any = None


class Fail(Body):
    """Why a task failed."""

    task: str
    error: str


@router.get("/tasks", responses=refusals())
def tasks(
    steering: Steered,
    *,
    execution: str | None = None,
    tasker: str | None = None,
    after: int | None = None,
    limit: Limit = LIMIT,
) -> Answer:
    """List the tasks that have not ended, oldest first."""
    return Answer(steering.tasks(execution=execution, tasker=tasker, after=after, limit=limit))


@router.post("/return-task", responses=refusals())
def return_task(steering: Steered, given: Return) -> Answer:
    """Return a task with its result; `wanted` says whether somebody still waited for it."""
    return Answer(steering.return_task(given.task, given.value))


@router.post("/fail-task", responses=refusals())
def fail_task(steering: Steered, given: Fail) -> Answer:
    """Fail a task; `wanted` says whether somebody still waited for it."""
    return Answer(steering.fail_task(given.task, given.error))
