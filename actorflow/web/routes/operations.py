"""Routes for operators: dead letters, purges, figures, health."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import Field

from actorflow.web.routes.answers import Answer, Body, Limit, Steered, refusals
from actorflow.web.routes.reading import JsonRoute
from actorflow.web.steering import LIMIT

__all__ = ["health", "router"]

router = APIRouter(tags=["operations"], route_class=JsonRoute)
health = APIRouter(tags=["operations"], route_class=JsonRoute)
"""Outside of the interface: what monitors look for at the usual places."""


class Letters(Body):
    """Which dead letters: those named, or all, of one execution or of all."""

    execution: str | None = None
    letters: list[Any] | None = Field(default=None, max_length=10_000)


class Purge(Body):
    """How long what has ended is kept."""

    days: float = Field(ge=0)


@router.get("/dead-letters", responses=refusals())
def dead_letters(
    steering: Steered,
    *,
    execution: str | None = None,
    after: int | None = None,
    limit: Limit = LIMIT,
) -> Answer:
    """List dead letters, oldest first."""
    return Answer(steering.dead_letters(execution=execution, after=after, limit=limit))


@router.post("/dead-letters/retry", responses=refusals())
def retry(steering: Steered, given: Letters) -> Answer:
    """Re-queue dead letters."""
    return Answer(steering.retry(execution=given.execution, letters=given.letters))


@router.post("/dead-letters/purge", responses=refusals())
def bury(steering: Steered, given: Letters) -> Answer:
    """Forget dead letters."""
    return Answer(steering.bury(execution=given.execution, letters=given.letters))


@router.post("/purge", responses=refusals())
def purge(steering: Steered, given: Purge) -> Answer:
    """Forget executions that ended longer ago."""
    return Answer(steering.purge(days=given.days))


@router.get("/statistics")
def statistics(steering: Steered) -> Answer:
    """Show the figures of the engine."""
    return Answer(steering.statistics())


@health.get("/health")
def is_healthy(steering: Steered) -> Answer:
    """Show whether the engine runs."""
    return Answer(steering.health())


@health.get("/metrics")
def metrics(request: Request) -> Response:
    """Show the figures of the engine and of all workers, for Prometheus."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)
