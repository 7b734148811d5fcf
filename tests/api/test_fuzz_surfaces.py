"""Every HTTP surface answers as its description says: also the Unix socket and the monitor.

Requests are made from the descriptions, valid and malformed ones. No answer is an error of the
server, and each status is one that the description of the route names.
"""

from __future__ import annotations

import select
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from schemathesis import GenerationMode

import actorflow as af
from actorflow.api.addresses import address_of
from actorflow.api.http.server import open_monitor
from actorflow.cluster.server import free_port
from tests.api.ledger import PATIENCE, Ledger
from tests.api.test_fuzz import WAITS, fuzz

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SURFACES = ("unix socket", "tcp", "agent", "monitor")
NEVER_FAILS = 500


@contextmanager
def bridged(path: Path) -> Iterator[str]:
    """Pass connections to a port on to a Unix socket; yield the URL of the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(str(path))
            other = {client: server, server: client}
            while True:
                for ready in select.select([client, server], [], [], PATIENCE)[0]:
                    data = ready.recv(65_536)
                    if not data:
                        return
                    other[ready].sendall(data)

    def accept() -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(client,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()


@contextmanager
def surface(name: str, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Open an engine with that surface; yield its URL and the headers that requests need."""
    token = "secret" if name == "tcp" else None
    port = f"tcp://127.0.0.1:{free_port()}"
    control: Any = {"unix socket": folder / "s.sock", "tcp": port}.get(name, False)
    with ExitStack() as stack:
        engine = stack.enter_context(
            af.Engine(folder / "store.db", durability="off", control=control, token=token)
        )
        engine.register(Ledger())
        engine.start("ledger", {"hold": "t1"}, id="a")
        engine.launch("stall _", id="f")
        if name == "unix socket":
            yield stack.enter_context(bridged(folder / "s.sock")), {}
        elif name == "tcp":
            (server,) = engine._controls
            yield (
                str(server.address).replace("tcp://", "http://"),
                {"Authorization": f"Bearer {token}"},
            )
        elif name == "agent":
            yield engine.serve_agent(port=0), {}
        else:
            monitor = open_monitor(engine, address_of(port))
            stack.callback(monitor.close)
            yield str(monitor.address).replace("tcp://", "http://"), {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SURFACES)
def test_every_status_is_one_that_the_description_names(name: str, tmp_path: Path) -> None:
    with surface(name, tmp_path) as (url, headers):
        schema = schemathesis.openapi.from_url(
            f"{url}/openapi.json", wait_for_schema=PATIENCE, headers=headers
        )
        found: list[Any] = [*schema.get_all_operations()]
        operations = [each.ok() for each in found]
        assert operations
        undocumented = set()
        for operation in operations:
            named = set(operation.definition.raw["responses"])

            def check(case: Any, named: set[str] = named) -> None:
                wait = WAITS.get(case.operation.path)
                if wait is not None:
                    given = case.query if isinstance(case.query, dict) else {}
                    case.query = {**given, wait: "0"}
                answer = case.call(timeout=PATIENCE, headers=headers)
                label = case.operation.label
                assert answer.status_code < NEVER_FAILS, (case.as_curl_command(), answer.text)
                if str(answer.status_code) not in named:
                    undocumented.add((label, answer.status_code))

            fuzz(operation, GenerationMode.POSITIVE, 2, check)
            if list(operation.iter_parameters()) or operation.body:
                fuzz(operation, GenerationMode.NEGATIVE, 2, check)
        assert undocumented == set()
