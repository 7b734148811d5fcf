"""The control application: one engine, steered over HTTP. Needs the extra `web`."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException

from actorflow.engine.bodies import MAX_BYTES
from actorflow.engine.operations.metrics import EngineCollector
from actorflow.runtime.log import log
from actorflow.runtime.prometheus import Collector
from actorflow.web.errors import REPORTED, body_of, status_of
from actorflow.web.routes import executions, operations, tasks
from actorflow.web.routes.answers import Answer
from actorflow.web.steering import Steering

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from fastapi import Request

    from actorflow.engine.engine import Engine

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

__all__ = ["create_app"]


def create_app(engine: Engine, token: str | None = None) -> FastAPI:
    """Return the application for one engine.

    The interface is below `/api`, its description at `/openapi.json`; `/health` and `/metrics` are
    where monitors look for them. An error is answered with a status and
    `{"error": NAME, "message": TEXT}`. Routes run in threads, so that none holds up another.

    Args:
        engine: the one to steer.
        token: every request must bear it (`Authorization: Bearer TOKEN`); `None`: anybody may ask,
            for sockets that only their owner can open.

    """
    app = FastAPI(title="actorflow", docs_url=None, redoc_url=None)
    app.state.steering = Steering(engine)
    app.state.registry = _registry(engine)
    for module in (executions, tasks, operations):
        app.include_router(module.router, prefix="/api")
    app.include_router(operations.health)
    for kind in (*REPORTED, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer)
    app.add_middleware(_Limit)
    if token is not None:
        app.add_middleware(_Guard, token=token)
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


class _Guard:
    """Lets only those in who bear the token."""

    def __init__(self, app: Application, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not secrets.compare_digest(given, self._wanted):
                text = "this engine wants its token: Authorization: Bearer TOKEN"
                answer = Answer(
                    {"error": "Unauthorized", "message": text}, 401, {"WWW-Authenticate": "Bearer"}
                )
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Limit:
    """Refuses bodies that could not be stored anyway, before they fill the memory."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = 2 * MAX_BYTES  # JSON is longer than what is stored

        async def counting() -> MutableMapping[str, Any]:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"at most {2 * MAX_BYTES:,} bytes")
            return message

        await self._app(scope, counting, send)
