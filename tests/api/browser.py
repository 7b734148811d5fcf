"""A browser for tests: HTTP over a real socket, with cookies, without following redirects."""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlencode

import uvicorn

from tests.api.ledger import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Page(NamedTuple):
    """An answer."""

    status: int
    text: str
    headers: dict[str, str]


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class Browser:
    """Asks one server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.base = f"http://127.0.0.1:{port}/"
        self.cookies: dict[str, str] = {}

    @classmethod
    @contextmanager
    def of(cls, app: Any) -> Iterator[Self]:
        """Serve an application on a free port of this machine during a block."""
        server = _Server(
            uvicorn.Config(
                app,
                port=0,
                log_config=None,
                ws="none",
                lifespan="off",
                http="h11",
                timeout_graceful_shutdown=1,
            )
        )
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            assert server.ready.wait(PATIENCE)
            yield cls(server.servers[0].sockets[0].getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()

    def get(self, path: str, headers: Mapping[str, str] | None = None, **query: str) -> Page:
        """Return a page."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, headers)

    def first_event(self, path: str) -> Page:
        """Return the first event of a stream, or the whole answer if it is not a stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            lines = list(
                takewhile(lambda line: line not in (b"", b"\n"), iter(answer.readline, None))
            )
        finally:
            connection.close()
        text = b"".join(line.removeprefix(b"data: ") for line in lines).decode()
        return Page(answer.status, text, dict(answer.getheaders()))

    def post(
        self, path: str, form: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Page:
        """Submit a form."""
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._ask("POST", path, {**kind, **(headers or {})}, urlencode(form))

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str] | None, body: str | None = None
    ) -> Page:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            connection.request(
                method, path, body, {**({"Cookie": cookies} if cookies else {}), **(headers or {})}
            )
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        found = {name.lower(): value for name, value in answer.getheaders()}
        if "set-cookie" in found:
            name, _, value = found["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        return Page(answer.status, text, found)


def until(true: Callable[[], Any]) -> None:
    """Wait until something is true that other threads bring about."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
