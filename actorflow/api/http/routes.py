"""The routes: one for each verb, with its part of the OpenAPI description; health and metrics.

Parameters go into the query of a GET and the JSON body of a POST, never into the path: ids may hold
slashes.
"""

from __future__ import annotations

import inspect
import json
import math
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from actorflow.api.errors import BadParameters
from actorflow.api.verbs.table import Access, Verb, all_verbs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["OF_ALL", "Answer", "Body", "JsonRoute", "refusals", "router"]


class Answer(JSONResponse):
    """JSON of what a verb returns, or of an error."""

    def render(self, content: Any) -> bytes:
        """Return ASCII bytes, because error messages may contain what UTF-8 cannot encode."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Body(BaseModel):
    """The body of a request: fields that nobody reads are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ErrorBody(BaseModel):
    """Why a request was refused."""

    error: str
    message: str


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the answers that report an error."""
    return {status: {"model": ErrorBody} for status in (*statuses, 422)}


OF_ALL: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (400, 401, 403, 413, 503, 504)
}
"""The answers that any request may get: it is malformed, lacks the token, comes from a page of
another site or is too large; or the store does not answer, or not in time."""


class _JsonRequest(Request):
    async def json(self) -> Any:
        """Return the body. 422 for `NaN`, `Infinity` and numbers that no float can hold."""
        return json.loads(await self.body(), parse_constant=_refuse, parse_float=_finite)


class JsonRoute(APIRoute):
    """A route that refuses NaN and Infinity, which no answer in JSON could contain."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise HTTPException(422, f"{text:.40} is not a JSON number: send null or a string instead")


router = APIRouter(route_class=JsonRoute)


def _endpoint(verb: Verb) -> Callable[..., Any]:
    async def answer(request: Request) -> Response:
        if verb.rights is Access.READ:
            parameters = verb.read(_query(verb, request), from_text=True)
        else:
            parameters = verb.read(await _body(request))
        engine, waits = request.app.state.engine, request.app.state.waits
        if inspect.iscoroutinefunction(verb.run):
            return Answer(await waits.wait(verb.apply(engine, parameters)))
        return Answer(await run_in_threadpool(verb.apply, engine, parameters))

    answer.__name__ = verb.name
    return answer


def _query(verb: Verb, request: Request) -> dict[str, Any]:
    """Return the query parameters; a repeated one keeps its last value, unless it is a list."""
    lists = {each.name for each in verb.parameters if isinstance(each.default, list)}
    query = request.query_params
    return {name: query.getlist(name) if name in lists else query[name] for name in query}


async def _body(request: Request) -> dict[str, Any]:
    try:
        found = await request.json()
    except (ValueError, RecursionError) as error:
        raise BadParameters(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        msg = f"the body is a JSON object with the parameters, not {found!r:.80}"
        raise BadParameters(msg)
    return found


def _described(verb: Verb) -> dict[str, Any]:
    """Return the part of the OpenAPI description that says what the parameters are."""
    _, parts = msgspec.json.schema_components([verb.struct], ref_template="#/{name}")
    schema = parts[verb.struct.__name__]
    schema.pop("title", None)
    rights = {"x-rights": str(verb.rights)}
    if verb.rights is Access.WRITE:
        content = {"application/json": {"schema": schema}}
        return {"requestBody": {"required": True, "content": content}, **rights}
    required = schema.get("required", [])
    parameters = [
        {"name": name, "in": "query", "required": name in required, "schema": _not_null(each)}
        for name, each in schema["properties"].items()
    ]
    return {"parameters": parameters, **rights}


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter of a query, which is left out instead of being null."""
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    found = {**schema, **kinds[0]} if kinds else dict(schema)
    found.pop("anyOf", None)
    if found.get("default", ...) is None:
        del found["default"]
    return found


def _add(verb: Verb) -> None:
    statuses = [404] if any(each.name != "limit" for each in verb.parameters) else []
    statuses += [409] if verb.rights is Access.WRITE else []
    statuses += [408] if verb.waits else []
    router.add_api_route(
        verb.path if verb.name != "health" else "/health",
        _endpoint(verb),
        methods=[verb.method],
        summary=verb.help.partition("\n")[0],
        description=verb.help,
        operation_id=verb.name,
        responses=refusals(*statuses) if verb.parameters else None,
        openapi_extra=_described(verb),
        tags=[str(verb.rights)],
    )


for _verb in all_verbs().values():
    _add(_verb)


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """Show the figures of the engine and of all workers, for Prometheus."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)
