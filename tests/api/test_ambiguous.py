"""Requests that two servers may read in different ways are refused on every surface."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import actorflow as af
from actorflow.api.addresses import TcpAddress
from actorflow.api.http.server import open_monitor
from tests.api.ledger import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "a-token-that-is-long-enough"  # noqa: S105 - of this test only
TOGETHER = "Content-Length: 5\r\nTransfer-Encoding: chunked"
TWICE = (
    "Authorization: Bearer a\r\nAuthorization: Bearer b",
    "Origin: http://other.example\r\nOrigin: http://127.0.0.1",
    "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Site: none",
)


@pytest.fixture(scope="module")
def surfaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | int]]:
    folder: Path = tmp_path_factory.mktemp("surfaces")
    with ExitStack() as stack:
        engine = stack.enter_context(af.Engine(folder / "s.db", control=folder / "socket"))
        open_, guarded = engine.serve_agent(port=0), engine.serve_agent(port=0, token=TOKEN)
        monitor = open_monitor(engine, TcpAddress("127.0.0.1", 0))
        stack.callback(monitor.close)
        assert isinstance(monitor.address, TcpAddress)
        yield {
            "agent": int(open_.rpartition(":")[2]),
            "agent with a token": int(guarded.rpartition(":")[2]),
            "Unix socket": str(folder / "socket"),
            "monitor": monitor.address.port,
        }


def ask(where: str | int, headers: str, rest: str = "") -> str:
    """Send a request; return all that is answered until the server closes the connection."""
    family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET
    with socket.socket(family) as end:
        end.settimeout(PATIENCE)
        end.connect(where if isinstance(where, str) else ("127.0.0.1", where))
        path = "/env/prod/lang/node/job?wait=0"
        end.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n\r\n{rest}".encode())
        found = b""
        while data := end.recv(65_536):
            found += data
    return found.decode()


@pytest.mark.parametrize("name", ["agent", "agent with a token", "Unix socket", "monitor"])
@pytest.mark.parametrize("headers", [TOGETHER, *TWICE])
def test_an_ambiguous_request_ends_its_connection(
    name: str, headers: str, surfaces: dict[str, str | int]
) -> None:
    second = "0\r\n\r\nGET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    found = ask(surfaces[name], headers, second if headers == TOGETHER else "")
    assert found.count("HTTP/1.1") == 1
    assert found.startswith("HTTP/1.1 400 ")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "CROSS-SITE", ""])
def test_a_page_of_another_site_gets_no_job(site: str, surfaces: dict[str, str | int]) -> None:
    found = ask(surfaces["agent"], f"Sec-Fetch-Site: {site}\r\nConnection: close")
    assert found.startswith("HTTP/1.1 403 ")
