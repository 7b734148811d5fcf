"""The HTTP application of one engine. Needs the extra `web`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException

from actorflow.api.errors import REPORTED, body_of, status_of
from actorflow.api.http import agent
from actorflow.api.http.guards import BodyLimit, FramingGuard, LocalGuard, TokenGuard
from actorflow.api.http.pending_requests import PendingRequests
from actorflow.api.http.routes import OF_ALL, Answer, metrics, router
from actorflow.engine.operations.metrics import PROBE, EngineCollector, StoreCollector
from actorflow.runtime.errors import ActorflowError, kind_and_text
from actorflow.runtime.log import log
from actorflow.runtime.telemetry.prometheus import Collector

if TYPE_CHECKING:
    from fastapi import Request

    from actorflow.engine.engine import BareEngine

__all__ = ["create_app", "create_monitor"]


def create_app(engine: BareEngine, token: str | None = None, *, local: bool = False) -> FastAPI:
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
    app = FastAPI(title="actorflow", docs_url=None, redoc_url=None, responses=OF_ALL)
    app.state.engine = engine
    app.state.registry = _registry(engine)
    app.state.waits = PendingRequests()
    app.include_router(router)
    app.include_router(agent.router)
    for kind in (*REPORTED, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer)
    app.add_middleware(BodyLimit)
    if token is not None:
        app.add_middleware(TokenGuard, token=token)
    if local:
        app.add_middleware(LocalGuard)
    app.add_middleware(FramingGuard)  # the outermost: also a request without rights is refused
    return app


def create_monitor(engine: BareEngine) -> FastAPI:
    """Return an application that shows how an engine is doing, and can change nothing.

    `/healthz` answers 200 while the process works, also while the engine is being closed.
    `/readyz` answers 200 while the engine is open and its store answers, otherwise 503.
    `/metrics` is for Prometheus.
    """
    app = FastAPI(title="actorflow monitor", docs_url=None, redoc_url=None, responses=OF_ALL)
    app.state.registry = _registry(engine)
    app.state.waits = PendingRequests()
    app.add_api_route("/metrics", metrics)

    @app.get("/healthz")
    def is_healthy() -> Answer:
        """Show that the process works."""
        return Answer({"open": not engine.closed})

    @app.get("/readyz")
    def is_ready() -> Answer:
        """Show whether the engine is open and its store answers."""
        try:
            engine.parts.state.require_open()
            engine.parts.store.execution(PROBE)
        except (ActorflowError, OSError) as error:
            return Answer({"ready": False, "message": kind_and_text(error)}, 503)
        return Answer({"ready": True})

    app.add_middleware(FramingGuard)
    return app


def _registry(engine: BareEngine) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineCollector(engine))
    registry.register(StoreCollector(engine.parts.store))
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
