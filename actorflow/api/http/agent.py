"""Routes for workers of other languages: jobs, the branches of a decision, the ends of tasks.

The paths and the names of the fields are those of Zenaton's agent.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field

from actorflow.api.http.routes import Answer, Body, JsonRoute, refusals
from actorflow.api.plain import plain
from actorflow.runtime.errors import BadOption
from actorflow.workflows.agent.jobs import AgentQueue
from actorflow.workflows.instance.state import UNSET
from actorflow.workflows.service.remote.agent import Agent

__all__ = ["router"]

router = APIRouter(tags=["agent"], route_class=JsonRoute)

_LONGEST = 300.0  # seconds that one request may wait
_AGES = 1e10  # seconds: 300 years


def _agent(request: Request) -> Agent:
    workflows = getattr(request.app.state.engine, "workflows", None)
    if workflows is None:
        msg = "this engine runs no workflows: open it as actorflow.Engine"
        raise BadOption(msg)
    found: Agent = workflows.agent
    return found


TheAgent = Annotated[Agent, Depends(_agent)]
Name = Annotated[str, Path(min_length=1, max_length=200)]
Uuid = Annotated[str, Path(max_length=200)]
Seconds = Annotated[float, Field(gt=0, le=_AGES, allow_inf_nan=False)]


class Duration(Body):
    """A wait that ends after some seconds."""

    duration: Annotated[float, Field(ge=0, le=_AGES, allow_inf_nan=False)]


class Timestamp(Body):
    """A wait that ends at a moment, in seconds since the epoch."""

    timestamp: Annotated[float, Field(ge=0, le=_AGES, allow_inf_nan=False)]


class Work(Body):
    """A work that a branch asks for."""

    name: str = Field(min_length=1, max_length=200)
    position: str = Field(pattern=r"^[0-9]{1,9}\.[0-9]{1,9}$")
    """`<call>.<member>`: which call of the branch it is, and which work of that call."""
    input: Any = None
    timeout: Seconds | Duration | Timestamp | None = None
    """Of a task or flow: seconds until `onTimeout`. Of a wait: when it ends without its event."""
    sync: bool = True
    """Whether the branch waits for it."""
    type: Literal["task", "wait", "flow"] = "task"
    event: str | None = Field(default=None, min_length=1)
    """Of a wait: the name of the event that ends it."""
    raises: bool = False
    """Of a task or flow: whether its failure is raised in the branch, which otherwise waits."""


class Finished(Body):
    """How a branch has left the properties; its output, if it has come to its end."""

    properties: dict[str, Any]
    output: Any = None


class BrokenDecision(Body):
    """Why a decision cannot be taken."""

    kind: Literal["failed", "modified"] = "failed"
    branch_key: int | None = None
    name: str | None = None
    message: str | None = None
    stacktrace: str | None = None
    code: int | str | None = None


class Error(Body):
    """Why a task failed."""

    name: str | None = None
    message: str | None = None
    stacktrace: str | None = None
    code: int | str | None = None


class CompletedTask(Body):
    """A task is done."""

    status: Literal["completed"]
    output: Any = None


class FailedTask(Body):
    """A task has failed."""

    status: Literal["failed"]
    error: Error


class Running(Body):
    """A task takes longer: its lease is renewed."""

    status: Literal["running"]


# GET is the route of the original protocol; POST says that the answer leases a job.
@router.get("/env/{env}/lang/{lang}/job", responses=refusals(), operation_id="get_job")
@router.post("/env/{env}/lang/{lang}/job", responses=refusals(), operation_id="lease_job")
async def job(
    agent: TheAgent,
    request: Request,
    env: Name,
    lang: Name,
    wait: Annotated[float, Query(ge=0, le=_LONGEST)] = 20.0,
) -> Answer:
    """Answer with the next decision or task, once there is one; after `wait` seconds with none."""
    found = await agent.job(AgentQueue(env, lang), wait, request.is_disconnected)
    return Answer({"action": "None"} if found is None else plain(found))


@router.get("/decisions/{uuid}/branch", responses=refusals(409, 410))
def next_branch(agent: TheAgent, uuid: Uuid) -> Answer:
    """Answer with the next branch to execute; with `{}` when the decision is taken and stored."""
    return Answer(plain(agent.next_branch(uuid)))


@router.post("/decisions/{uuid}/branch", responses=refusals(409, 410))
def finish_branch(agent: TheAgent, uuid: Uuid, given: Finished) -> Answer:
    """Take the end of the execution of a branch."""
    output = given.output if "output" in given.model_fields_set else UNSET
    return Answer(agent.finish_branch(uuid, given.properties, output))


@router.post("/decisions/{uuid}/execute", responses=refusals(409, 410))
def execute(agent: TheAgent, uuid: Uuid, works: list[Work]) -> Answer:
    """Schedule works, or answer with their outcome: completed, scheduled, failed, modified."""
    return Answer(plain(agent.execute(uuid, [each.model_dump() for each in works])))


@router.post("/decisions/{uuid}/error", responses=refusals(410))
def break_decision(agent: TheAgent, uuid: Uuid, given: BrokenDecision) -> Answer:
    """Discard a decision: the code has raised, or was modified. The instance waits for a fix."""
    return Answer(agent.break_decision(uuid, given.model_dump(exclude_none=True)))


@router.post("/tasks/{uuid}", responses=refusals(410))
def end_task(
    agent: TheAgent,
    uuid: Uuid,
    given: Annotated[CompletedTask | FailedTask | Running, Field(discriminator="status")],
) -> Answer:
    """Take the end of a task, or renew its lease."""
    if isinstance(given, CompletedTask):
        return Answer(agent.complete_task(uuid, given.output))
    if isinstance(given, FailedTask):
        return Answer(agent.fail_task(uuid, given.error.model_dump()))
    return Answer(agent.renew_task(uuid))
