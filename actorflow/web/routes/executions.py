"""Routes for executions of any kind, for workflows and for flows.

Ids go into the query or the body, never into the path: they may hold slashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field

from actorflow.web.routes.answers import Answer, Body, Limit, Steered, refusals
from actorflow.web.routes.reading import JsonRoute
from actorflow.web.steering import LIMIT

if TYPE_CHECKING:
    from actorflow.web.waiting import Waits

__all__ = ["router"]

router = APIRouter(tags=["executions"], route_class=JsonRoute)

_LONGEST = 3_600.0  # seconds that one request may wait


class Start(Body):
    """What starts an execution."""

    kind: str
    body: Any = None
    id: str | None = None


class StartWorkflow(Body):
    """What starts a workflow: its name, and its first properties."""

    workflow: str
    properties: dict[str, Any] | None = None
    id: str | None = None


class Launch(Body):
    """What launches a flow."""

    flow: str
    payload: dict[str, Any] | None = None
    vars: dict[str, Any] | None = None
    domain: str | None = None
    id: str | None = None


class Send(Body):
    """A message to an execution."""

    execution: str
    body: Any = None
    kind: str | None = None
    key: str | None = None


class Cancel(Body):
    """Which execution is to end, or which part of it."""

    execution: str
    target: Any = None


class Signal(Body):
    """A signal to a flow."""

    execution: str
    name: str = Field(min_length=1)
    payload: dict[str, Any] | None = None


@router.get("/executions", responses=refusals())
def executions(
    steering: Steered,
    *,
    kind: str | None = None,
    status: str | None = None,
    parent: str | None = None,
    tag: Annotated[
        list[str] | None, Query(description="`NAME=VALUE`; several: all of them.")
    ] = None,
    after: str | None = None,
    limit: Limit = LIMIT,
) -> Answer:
    """List executions in the order of their ids; `after` is where the last answer ended."""
    return Answer(
        steering.executions(
            kind=kind, status=status, parent=parent, tag=tag or (), after=after, limit=limit
        )
    )


@router.get("/execution", responses=refusals(404))
def execution(steering: Steered, id: str, limit: Limit = LIMIT) -> Answer:  # noqa: A002
    """Show all that is stored of an execution."""
    return Answer(steering.execution(id, limit=limit))


@router.get("/wait", responses=refusals(404, 408))
async def wait(
    request: Request,
    steering: Steered,
    id: str,  # noqa: A002
    timeout: Annotated[float, Query(ge=0, le=_LONGEST)] = 30.0,
) -> Answer:
    """Answer when an execution has ended, or failed."""
    waits: Waits = request.app.state.waits
    return Answer(await waits.wait(steering.wait(id, timeout)))


@router.post("/start", responses=refusals(404, 409))
def start(steering: Steered, given: Start) -> Answer:
    """Start an execution of a kind."""
    return Answer(steering.start(given.kind, given.body, id=given.id))


@router.post("/start-workflow", responses=refusals(404, 409))
def start_workflow(steering: Steered, given: StartWorkflow) -> Answer:
    """Start a workflow by its name."""
    return Answer(steering.start_workflow(given.workflow, given.properties, id=given.id))


@router.post("/send", responses=refusals(404, 409))
def send(steering: Steered, given: Send) -> Answer:
    """Send a message to an execution."""
    return Answer(steering.send(given.execution, given.body, kind=given.kind, key=given.key))


@router.post("/cancel", responses=refusals(404))
def cancel(steering: Steered, given: Cancel) -> Answer:
    """Cancel an execution, or a part of it."""
    return Answer(steering.cancel(given.execution, given.target))


@router.post("/launch", responses=refusals(409))
def launch(steering: Steered, given: Launch) -> Answer:
    """Launch a flow."""
    return Answer(
        steering.launch(
            given.flow, given.payload, vars=given.vars, domain=given.domain, id=given.id
        )
    )


@router.post("/signal", responses=refusals(404, 409))
def signal(steering: Steered, given: Signal) -> Answer:
    """Send a signal to a flow."""
    return Answer(steering.signal(given.execution, given.name, given.payload))
