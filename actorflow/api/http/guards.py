"""Middleware of the control application: access checks and size limits."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from actorflow.api.addresses import is_loopback
from actorflow.api.http.routes import Answer
from actorflow.engine.bodies import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

__all__ = ["BodyLimit", "FramingGuard", "LocalGuard", "TokenGuard", "is_local"]


async def _refuse(
    message: str, status: int, scope: Scope, receive: Receive, send: Send, **headers: str
) -> None:
    name = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden"}[status]
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    await Answer({"error": name, "message": message}, status, named)(scope, receive, send)


class FramingGuard:
    """Refuses requests that two servers may read in different ways, and closes the connection.

    A proxy that believes `Content-Length` and a server that believes `Transfer-Encoding` would take
    the rest of one request for another one. Of two headers that grant access, a proxy may check the
    first and a server the last.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 400, or pass the request on."""
        if scope["type"] == "http":
            fault = _fault([name for name, _ in scope["headers"]])
            if fault is not None:
                await _refuse(fault, 400, scope, receive, send, Connection="close")
                return
        await self._app(scope, receive, send)


def _fault(names: list[bytes]) -> str | None:
    """Return why the headers of a request are ambiguous, or None."""
    if b"transfer-encoding" in names and b"content-length" in names:
        return "a request has Content-Length or Transfer-Encoding, not both"
    for name in _SINGLE:
        if names.count(name) > 1:
            return f"a request has one {name.decode().title()} header, not several"
    return None


_SINGLE = (b"authorization", b"host", b"origin", b"sec-fetch-site")


class TokenGuard:
    """Lets only requests with the token pass."""

    def __init__(self, app: Application, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, or pass the request on."""
        if scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            if not given or not secrets.compare_digest(given[0], self._wanted):
                text = "this engine wants its token: Authorization: Bearer TOKEN"
                await _refuse(text, 401, scope, receive, send, WWW_Authenticate="Bearer")
                return
        await self._app(scope, receive, send)


class LocalGuard:
    """Admits programs of this machine, but no pages of other sites in its browser.

    For loopback addresses without a token. A page of another site sends its `Origin` or
    `Sec-Fetch-Site`; one whose host name was made to resolve to this machine sends that name as
    `Host`. An image or a form of another site sends no `Origin` with a GET, only `Sec-Fetch-Site`.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403, or pass the request on."""
        if scope["type"] == "http":
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            origin = headers.get(b"origin")
            hosts = [f"//{headers.get(b'host', '')}", *([] if origin is None else [origin])]
            strange = next((each for each in hosts if not is_local(each)), None)
            if strange is not None:
                text = f"{strange.removeprefix('//')!r} is not this machine: ask with a token"
                await _refuse(text, 403, scope, receive, send)
                return
            site = headers.get(b"sec-fetch-site", "none")
            if site not in _OWN_SITES:
                text = f"Sec-Fetch-Site is {site!r}: pages of other sites may not ask"
                await _refuse(text, 403, scope, receive, send)
                return
        await self._app(scope, receive, send)


_OWN_SITES = ("none", "same-origin")


def is_local(url: str) -> bool:
    """Return whether a URL names a loopback address as its host."""
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
        left = 2 * MAX_BYTES  # JSON is longer than the stored form

        async def counting() -> MutableMapping[str, Any]:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"at most {2 * MAX_BYTES:,} bytes")
            return message

        await self._app(scope, counting, send)
