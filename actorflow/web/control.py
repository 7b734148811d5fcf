"""The control application: one engine, steered over HTTP. Needs the extra `web`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException

from actorflow.engine.operations.metrics import EngineCollector
from actorflow.runtime.log import log
from actorflow.runtime.prometheus import Collector
from actorflow.web.errors import REPORTED, body_of, status_of
from actorflow.web.guards import BodyLimit, LocalGuard, TokenGuard
from actorflow.web.routes import agent, executions, operations, tasks
from actorflow.web.routes.answers import Answer
from actorflow.web.steering import Steering
from actorflow.web.waiting import Waits

if TYPE_CHECKING:
    from fastapi import Request

    from actorflow.engine.engine import Engine

__all__ = ["create_app"]


def create_app(engine: Engine, token: str | None = None, *, local: bool = False) -> FastAPI:
    """Return the application for one engine.

    The interface is below `/api`, beside the routes for workers of other languages; its description
    is at `/openapi.json`; `/health` and `/metrics` are where monitors look for them. An error is
    answered with a status and `{"error": NAME, "message": TEXT}`. Routes run in threads, so that
    none holds up another.

    Args:
        engine: the one to steer.
        token: every request must carry it (`Authorization: Bearer TOKEN`); `None`: anybody may ask,
            for sockets that only their owner can open.
        local: refuse pages that a browser of this machine shows; for loopback without a token.

    """
    app = FastAPI(title="actorflow", docs_url=None, redoc_url=None)
    app.state.steering = Steering(engine)
    app.state.registry = _registry(engine)
    app.state.waits = Waits()
    for module in (executions, tasks, operations):
        app.include_router(module.router, prefix="/api")
    app.include_router(operations.health)
    app.include_router(agent.router)
    for kind in (*REPORTED, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer)
    app.add_middleware(BodyLimit)
    if token is not None:
        app.add_middleware(TokenGuard, token=token)
    if local:
        app.add_middleware(LocalGuard)
    return app


def _registry(engine: Engine) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineCollector(engine))
    registry.register(Collector())
    return registry


async def _answer(request: Request, error: Exception) -> Answer:
    """Return the answer that an error becomes."""
    if isinstance(error, RequestValidationError):
        return Answer({"error": "BadRequest", "message": _complaints(error)}, 422)
    if isinstance(error, HTTPException):
        message = f"{error.detail} ({request.method} {request.url.path})"
        return Answer({"error": "BadRequest", "message": message}, error.status_code)
    status = status_of(error)
    if status == 500:  # noqa: PLR2004 - what we did not expect
        log.error("a request failed", path=request.url.path, exc_info=error)
    return Answer(body_of(error), status)


def _complaints(error: RequestValidationError) -> str:
    found = [
        f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()
    ]
    return "; ".join(found)[:2_000]
