"""Where an agent listens, to whom, and how workers wait for jobs."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.runtime.errors import BadOption
from tests.workflows.agent.orders import refused
from tests.workflows.agent.worker import PATIENCE, Agency

if TYPE_CHECKING:
    from pathlib import Path

    import actorflow as af


def test_z51_a_job_wakes_a_worker_that_waits_for_it(engine: af.Engine, agency: Agency) -> None:
    order = engine.workflows.remote("Order", lang="test")
    with ThreadPoolExecutor(3) as threads:
        polls = [threads.submit(agency.job, PATIENCE) for _ in range(3)]
        pollers = engine.workflows.agent._pollers
        while len(pollers) < 3:
            pass
        for number in range(3):
            engine.start(order(), id=f"o-{number}")
        found = [poll.result() for poll in polls]
    assert {each["action"] for each in found} == {"DecisionScheduled"}
    assert len({each["uuid"] for each in found}) == 3


def test_z51_closing_the_engine_sends_waiting_workers_away(
    engine: af.Engine, agency: Agency
) -> None:
    with ThreadPoolExecutor(1) as threads:
        poll = threads.submit(agency.job, PATIENCE)
        while not len(engine.workflows.agent._pollers):
            pass
        engine.close()
        assert poll.result() == {"action": "None"}


def test_without_a_token_only_loopback_is_served(engine: af.Engine) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):  # noqa: S104 - refused
        with pytest.raises(BadOption, match="add token="):
            engine.serve_agent(host=host, port=0)


def test_with_a_token_every_route_wants_it(engine: af.Engine) -> None:
    url = engine.serve_agent(host="0.0.0.0", port=0, token="secret-7")  # noqa: S104, S106 - a test
    url = url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - a test
    stranger, friend = Agency(url), Agency(url, token="secret-7")  # noqa: S106 - a test
    routes = (
        ("GET", "/env/default/lang/test/job?wait=0"),
        ("GET", "/decisions/x/branch"),
        ("POST", "/decisions/x/branch"),
        ("POST", "/decisions/x/execute"),
        ("POST", "/decisions/x/error"),
        ("POST", "/tasks/x"),
        ("GET", "/openapi.json"),
    )
    for method, path in routes:
        assert refused(401, stranger.request, method, path)["error"] == "Unauthorized"
    assert friend.job(wait=0) == {"action": "None"}


def test_a_page_in_a_browser_of_this_machine_is_refused(engine: af.Engine, agency: Agency) -> None:
    own = dict(agency._headers)
    for headers in (
        {"Host": "evil.example"},
        {"Host": "evil.example:4001"},
        {"Host": ""},
        {"Host": "[::1"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        agency._headers = own | headers
        assert refused(403, agency.job, 0)["error"] == "Forbidden", headers
    agency._headers = own | {"Origin": "http://localhost:3000"}
    assert agency.job(0) == {"action": "None"}


def raw(url: str, *lines: str) -> str:
    """Send a request line by line; return the whole answer."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall("\r\n".join((*lines, "", "")).encode())
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    return answer.decode()


def test_a_request_with_two_tokens_is_refused(engine: af.Engine) -> None:
    url = engine.serve_agent(port=0, token="secret-7")  # noqa: S106 - a test
    token = "Authorization: Bearer secret-7"  # noqa: S105 - a test
    ask = "GET /openapi.json HTTP/1.1", "Host: localhost", "Connection: close"
    assert raw(url, *ask, token).startswith("HTTP/1.1 200")
    assert raw(url, *ask, token, "Authorization: Bearer other").startswith("HTTP/1.1 400")
    assert raw(url, *ask, "Authorization: Bearer other", token).startswith("HTTP/1.1 400")


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(
    engine: af.Engine,
) -> None:
    url = engine.serve_agent(port=0)
    answer = raw(
        url,
        "POST /tasks/x HTTP/1.1",
        "Host: localhost",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "",
        "0",
        "",
        "GET /openapi.json HTTP/1.1",
        "Host: localhost",
    )
    assert answer.startswith("HTTP/1.1 400")
    assert answer.count("HTTP/1.1") == 1


def test_a_job_may_be_asked_for_with_post(agency: Agency) -> None:
    found = agency.request("POST", "/env/default/lang/test/job?wait=0")
    assert found == {"action": "None"}


def test_the_description_names_every_route(agency: Agency) -> None:
    paths = agency.request("GET", "/openapi.json")["paths"]
    assert {
        "/env/{env}/lang/{lang}/job": ["get", "post"],
        "/decisions/{uuid}/branch": ["get", "post"],
        "/decisions/{uuid}/execute": ["post"],
        "/decisions/{uuid}/error": ["post"],
        "/tasks/{uuid}": ["post"],
    }.items() <= {path: sorted(found) for path, found in paths.items()}.items()


def test_a_port_that_is_in_use_is_named(engine: af.Engine, tmp_path: Path) -> None:
    url = engine.serve_agent(port=0)
    with pytest.raises(BadOption, match="cannot be opened"):
        engine.serve_agent(port=int(url.rpartition(":")[2]))


@pytest.mark.parametrize("port", [-1, 70_000, "4001", True])
def test_what_is_no_port_is_named(engine: af.Engine, port: Any) -> None:
    with pytest.raises(BadOption, match=rf"port={port!r}: port must be .* from 0 to 65535"):
        engine.serve_agent(port=port)


def test_answers_leave_at_once(engine: af.Engine, agency: Agency) -> None:
    """Only on sockets that name their protocol asyncio turns off Nagle's algorithm."""
    (server,) = engine._controls
    assert server._socket.proto == socket.IPPROTO_TCP


def test_a_worker_that_leaves_while_it_waits_gets_no_job(engine: af.Engine, agency: Agency) -> None:
    """Its connection is closed: the job goes to the next, before any lease runs out."""
    pollers = engine.workflows.agent._pollers
    with socket.create_connection((agency._host, agency._port or 0)) as line:
        line.sendall(b"GET /env/default/lang/test/job HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not len(pollers):
            pass
    order = engine.workflows.remote("Order", lang="test")
    with ThreadPoolExecutor(1) as threads:
        poll = threads.submit(agency.job, PATIENCE)
        while len(pollers) < 2:
            pass
        engine.start(order(), id="o")
        assert poll.result()["action"] == "DecisionScheduled"
