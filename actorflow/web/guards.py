"""What stands in front of the control application: who may ask, and how much at a time."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from actorflow.engine.bodies import MAX_BYTES
from actorflow.web.addresses import is_loopback
from actorflow.web.routes.answers import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

__all__ = ["BodyLimit", "LocalGuard", "TokenGuard"]


class TokenGuard:
    """Lets only requests with the token pass."""

    def __init__(self, app: Application, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, or pass the request on."""
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


class LocalGuard:
    """Lets programs of this machine in, but no pages of others that its browser shows.

    For loopback addresses without a token. A page of another site sends its `Origin`; one whose
    host name was made to resolve to this machine sends that name as `Host`.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403, or pass the request on."""
        if scope["type"] == "http":
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            origin = headers.get(b"origin")
            hosts = [f"//{headers.get(b'host', '')}", *([] if origin is None else [origin])]
            strange = next((each for each in hosts if not _is_local(each)), None)
            if strange is not None:
                text = f"{strange.removeprefix('//')!r} is not this machine: ask with a token"
                await Answer({"error": "Forbidden", "message": text}, 403)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_local(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


class BodyLimit:
    """Refuses bodies that could not be stored anyway, before they fill the memory."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with a count of its bytes."""
        left = 2 * MAX_BYTES  # JSON is longer than what is stored

        async def counting() -> MutableMapping[str, Any]:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"at most {2 * MAX_BYTES:,} bytes")
            return message

        await self._app(scope, counting, send)
