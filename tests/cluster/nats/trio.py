"""Three NATS servers that replicate the log."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from actorflow.cluster.server import free_port
from actorflow.engine.errors import StoreBroken, StoreRefused
from actorflow.engine.stores.nats.server import NatsServer
from actorflow.engine.stores.nats.store import NatsStore
from tests.servers import start_nats

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Trio"]

_NAMES = ("n1", "n2", "n3")
_PATIENCE = 60.0


class Trio:
    """A cluster of servers that has a stream, so that it also has a leader."""

    def __init__(self) -> None:
        start_nats(jetstream=False).close()  # skips the test without a server
        ports = {name: free_port() for name in _NAMES}
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports.values())
        self._stack = ExitStack()
        self._servers = {
            name: self._stack.enter_context(
                NatsServer(
                    settings=[
                        f"server_name: {name}",
                        f"cluster {{ name: trio, listen: 127.0.0.1:{port}, routes: [{routes}] }}",
                    ]
                )
            )
            for name, port in ports.items()
        }
        self._killed: NatsServer | None = None
        self._opened().close()

    @property
    def url(self) -> str:
        """The address of the store."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self._servers.values())
        return f"nats://{hosts}/x?replicas=3"

    def _opened(self) -> NatsStore:
        """Open the store as soon as the servers have chosen a leader."""
        pause = threading.Event()
        for _ in range(int(_PATIENCE / 0.2)):
            try:
                return NatsStore(self.url)
            except (StoreRefused, StoreBroken):
                pause.wait(0.2)
        pytest.fail("the servers found no leader")

    def kill(self) -> None:
        """Kill the server that leads the stream."""
        store = self._opened()
        log = store._log
        info = log.connection.call(log.js.stream_info(store.address.stream))
        store.close()
        assert info.cluster is not None
        self._killed = self._servers[str(info.cluster.leader)]
        self._killed.kill()

    def start(self) -> None:
        """Start the killed server again."""
        assert self._killed is not None
        self._killed.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()
