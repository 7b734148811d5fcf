"""Who may see the dashboard, and who may act: rights, cookies, headers."""

from __future__ import annotations

import secrets
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders

from actorflow.api.http.guards import is_local

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from starlette.requests import Request

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

__all__ = [
    "COOKIE",
    "FRAMED",
    "HeadersGuard",
    "Rights",
    "TokenAccess",
    "read_only_here",
    "same_site",
]

COOKIE = "actorflow_token"

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; frame-src 'self'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

FRAMED = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; "
        "frame-ancestors 'self'; base-uri 'none'; sandbox"
    ),
    "X-Frame-Options": "SAMEORIGIN",
}
"""The headers of a file that others have written: it has its own look, but no scripts or forms, and
a page of the dashboard may show it in a frame. The browser gives it no origin."""


class Rights(IntEnum):
    """The rights of a request.

    >>> Rights("write"), Rights(None)
    (<Rights.WRITE: 2>, <Rights.NONE: 0>)
    """

    NONE = 0
    READ = 1
    WRITE = 2

    @classmethod
    def _missing_(cls, value: object) -> Rights | None:
        """Return the rights with a name, and none for `None`: what functions of users return."""
        if value is None:
            return cls.NONE
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


class TokenAccess:
    """Grants rights to requests that carry the token in a cookie or in the link of the start.

    Args:
        token: `None` grants reading to programs of this machine.
        write: whether the token grants acting as well.

    """

    def __init__(self, token: str | None, *, write: bool) -> None:
        self._token = token
        self._granted = Rights.WRITE if write else Rights.READ

    def __call__(self, request: Request) -> Rights:
        """Return the rights of a request."""
        if self._token is None:
            return read_only_here(request)
        for given in (request.cookies.get(COOKIE), request.query_params.get("token")):
            if given is not None and self.knows(given):
                return self._granted
        return Rights.NONE

    def knows(self, given: str) -> bool:
        """Return whether a text is the token, in a time that does not depend on the text."""
        wanted = self._token
        if wanted is None:
            return False
        return secrets.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def read_only_here(request: Request) -> Rights:
    """Grant reading to requests that name this machine as their host.

    A page whose host name was made to resolve to this machine sends that name.
    """
    return Rights.READ if is_local(f"//{request.headers.get('host', '')}") else Rights.NONE


def same_site(request: Request) -> bool:
    """Return whether a request comes from a page of the dashboard, or from no page at all."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


class HeadersGuard:
    """Adds the headers that keep other pages, scripts and frames out."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the headers to the answer."""

        async def adding(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, adding)
