"""Three NATS servers that replicate the log: one of them dies, and nobody notices."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

import actorflow as af
from actorflow.cluster.nats.server import NatsServer
from actorflow.cluster.nats.store import NatsStore
from actorflow.cluster.server import free_port
from actorflow.engine.errors import StoreBroken, StoreRefused
from tests.servers import start_nats

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60.0
NAMES = ("n1", "n2", "n3")


@contextmanager
def trio() -> Iterator[dict[str, NatsServer]]:
    """Start three servers that form a cluster."""
    start_nats(jetstream=False).close()  # skipped where there is none
    ports = {name: free_port() for name in NAMES}
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports.values())
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                NatsServer(
                    settings=[
                        f"server_name: {name}",
                        f"cluster {{ name: trio, listen: 127.0.0.1:{port}, routes: [{routes}] }}",
                    ]
                )
            )
            for name, port in ports.items()
        }


def opened(url: str) -> NatsStore:
    """Open a store as soon as the servers have chosen a leader."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.2)):
        try:
            return NatsStore(url)
        except (StoreRefused, StoreBroken):
            pause.wait(0.2)
    pytest.fail("the servers found no leader")


def leader_of(store: NatsStore) -> str:
    """Return the server that leads the stream."""
    info = store._log.connection.call(store._log.js.stream_info(store.address.stream))
    assert info.cluster is not None
    assert info.cluster.leader is not None
    return info.cluster.leader


@af.task
def double(number: int) -> int:
    return 2 * number


class Steps(af.Workflow[int]):
    def __init__(self, number: int) -> None:
        self.number = number

    def handle(self) -> int:
        for _ in range(5):
            self.number = self.execute(double(self.number))
        return self.number


@pytest.mark.timeout(180)
def test_the_leader_dies_and_every_workflow_ends_right() -> None:
    with trio() as servers:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers.values())
        url = f"nats://{hosts}/x?replicas=3&lease=10"
        with af.Engine(opened(url)) as one, af.Engine(opened(url)) as two:
            for engine in (one, two):
                engine.workflows.register(Steps)
                engine.resume()
            handles = [(one, two)[n % 2].start(Steps(n), id=f"w{n}") for n in range(30)]
            store = one.core.store
            assert isinstance(store, NatsStore)
            servers[leader_of(store)].kill()
            more = [two.start(Steps(n), id=f"w{n}") for n in range(30, 40)]
            results = [each.result(timeout=PATIENCE) for each in [*handles, *more]]
            assert results == [32 * n for n in range(40)]
        with af.Engine(opened(url)) as three:
            three.workflows.register(Steps)
            assert [three.result(f"w{n}", timeout=PATIENCE) for n in range(40)] == results
