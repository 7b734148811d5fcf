"""Whatever is sent to a control socket: it is answered, and never with a 5xx."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import actorflow as af
from actorflow.api.client import Client
from tests.api.ledger import PATIENCE, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GETS = ("/api/executions", "/api/execution", "/api/wait", "/api/tasks", "/api/dead")
POSTS = (
    "/api/start",
    "/api/send",
    "/api/cancel",
    "/api/start",
    "/api/return-task",
    "/api/fail-task",
    "/api/retry",
    "/api/bury",
    "/api/purge",
)
FIELDS = (
    "execution", "id", "kind", "body", "key", "target", "flow", "payload", "vars", "domain", "name",
    "task", "value", "error", "letters", "days", "status", "after", "limit", "parent", "tasker",
    "timeout", "strange",
)  # fmt: skip

texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["a", "f", "ledger", "worker", "-1", "1e9"])
)
numbers = st.one_of(
    st.integers(), st.sampled_from([2**63, -(2**63), 2**64, 10**400]), st.floats(allow_nan=True)
)
data = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(FIELDS), data, max_size=6)
queries = st.dictionaries(
    st.sampled_from([each for each in FIELDS if each != "timeout"]), texts, max_size=5
)
bodies = st.one_of(
    objects.map(json.dumps).map(str.encode),
    data.map(json.dumps).map(str.encode),
    st.binary(max_size=40),
)


@pytest.fixture(scope="module")
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("m") / "c.sock"
    store = path.parent / "s.db"
    with af.Engine(store, durability="off", control=str(path)) as engine:
        engine.register(Ledger())
        engine.start("ledger", {"raise": "once"}, id="a")
        engine.launch("stall _", id="f")
        yield path


def ask(path: Path, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = Client(path).connection(PATIENCE)
    try:
        connection.request(method, target, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def check(status: int, answer: bytes) -> None:
    assert status < 500, answer
    told: Any = json.loads(answer)
    if status >= 400:
        assert set(told) == {"error", "message"}


bounded = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@bounded
@given(target=st.sampled_from(GETS), query=queries)
@example(target="/api/executions", query={"after": "\x00", "limit": "9" * 400})
@example(target="/api/wait", query={"id": "a", "timeout": "nan"})
@example(target="/api/tasks", query={"after": str(2**80)})
def test_any_query_is_answered(socket_path: Path, target: str, query: dict[str, str]) -> None:
    if target == "/api/wait":
        query = {"timeout": "0", **query}
    check(*ask(socket_path, "GET", f"{target}?{urlencode(query, errors='surrogatepass')}"))


@bounded
@given(target=st.sampled_from(POSTS), body=bodies)
@example(target="/api/send", body=b'{"execution": "a", "body": NaN}')
@example(target="/api/send", body=b'{"execution": "a", "body": "\\ud800"}')
@example(target="/api/send", body=b'{"execution": "\\ud800", "body": 1}')
@example(target="/api/send", body=b'{"execution": "a", "body": ' + b"[" * 100_000)
@example(target="/api/send", body=b'{"execution": "a", "body": ' + b"[" * 500 + b"]" * 500 + b"}")
@example(target="/api/send", body=b"\xff\xfe\x00")
@example(target="/api/start", body=b'{"flow": "sequence\\n  \\ud800"}')
@example(target="/api/start", body=b'{"flow": "", "id": "x"}')
@example(target="/api/start", body=b'{"flow": "stall _", "payload": {"x": 1e999}}')
@example(target="/api/send", body=b'{"execution": "a", "event": "go"}')
@example(target="/api/send", body=b'{"execution": "f", "event": "\\ud800"}')
@example(target="/api/cancel", body=b'{"execution": "f", "target": [1]}')
@example(target="/api/cancel", body=b'{"execution": "a", "target": {"x": NaN}}')
@example(target="/api/purge", body=b'{"days": 1e308}')
@example(target="/api/retry", body=b'{"letters": [9223372036854775808]}')
def test_any_body_is_answered(socket_path: Path, target: str, body: bytes) -> None:
    check(*ask(socket_path, "POST", target, body))


@bounded
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]),
    target=st.text(max_size=20),
)
def test_any_path_is_answered(socket_path: Path, method: str, target: str) -> None:
    path = quote(target, errors="surrogatepass")
    check(*ask(socket_path, method, f"/{path.lstrip('/')}", b"{}"))


@bounded
@given(garbage=st.binary(min_size=1, max_size=200))
@example(garbage=b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n")
@example(garbage=b"POST /api/send HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
def test_what_is_not_http_disturbs_nobody(socket_path: Path, garbage: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE)
        line.connect(str(socket_path))
        line.sendall(garbage)
        line.shutdown(socket.SHUT_WR)
        while line.recv(1_000):
            pass
    assert Client(socket_path).health()["status"] == "ok"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "[-1e999]"])
def test_numbers_that_json_does_not_have_are_422(socket_path: Path, number: str) -> None:
    body = f'{{"kind": "ledger", "body": {number}}}'.encode()
    status, answer = ask(socket_path, "POST", "/api/start", body)
    assert status == 422
    assert f"{number.strip('[]')} is not a JSON number" in json.loads(answer)["message"]
