"""A server of our own, from a wheel: to try things, and for tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from actorflow.cluster.guardian import Guardian
from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["LocalServer", "ServerMissing", "ServerProcess", "free_port"]

_PATIENCE = 60.0  # seconds until it must be ready; it is after half a second, or not at all
_LOOK = 0.02
_ENDING = 10.0  # seconds for which processes of a server that was killed may be in the way


class ServerMissing(ActorflowError):
    """No such server is installed here."""


class ServerProcess:
    """The process of a server, and its directory: it ends with this one, also if that is killed.

    Args:
        what: it is, for messages.
        directory: where its data are kept, made if need be; `None`: in a temporary one, which goes
            with it.
        answers: return whether it takes connections.
        stop: the signal that ends it in good order.

    """

    def __init__(
        self,
        what: str,
        directory: str | Path | None,
        answers: Callable[[], bool],
        stop: signal.Signals,
    ) -> None:
        self._what = what
        self._answers = answers
        self._stop = stop
        self._temporary = directory is None
        made = tempfile.mkdtemp(prefix="actorflow-") if directory is None else directory
        self.directory = Path(made).absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = -_ENDING
        self._guardian: Guardian | None = None
        if self._temporary:
            self._guard()  # before there is anything to be removed

    @property
    def pid(self) -> int:
        """The id of the process."""
        return 0 if self._process is None else self._process.pid

    def start(self, command: Sequence[str], **options: Any) -> None:
        """Start it, also after it was killed; return when it answers.

        Raises:
            ActorflowError: it does not start; the message has its log.

        """
        log = self.directory / "log"
        process = self._launch(command, log, options)
        end = monotonic() + _PATIENCE
        while not self._answers():
            if process.poll() is not None and monotonic() < self._killed + _ENDING:
                process = self._launch(command, log, options)
            elif process.poll() is not None or monotonic() > end:
                self.kill()
                self._dismiss()
                text = log.read_text(errors="replace")[-2_000:]
                msg = f"the {self._what} server in {self.directory} does not start: {text}"
                raise ActorflowError(msg)
            sleep(_LOOK)

    def _launch(
        self, command: Sequence[str], log: Path, options: dict[str, Any]
    ) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - a program of a wheel
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, **options,
            )  # fmt: skip
        self._guard().watch(self._process.pid, self._stop)
        return self._process

    def run(self, command: Sequence[str], **options: Any) -> tuple[int, str]:
        """Run a program, which Ctrl-C does not reach; return its exit code and its output."""
        with subprocess.Popen(  # noqa: S603 - a program of a wheel
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, **options,
        ) as process:  # fmt: skip
            self._guard().watch(process.pid, signal.SIGTERM)
            output, _ = process.communicate()
        self._forget(process)
        return process.returncode, output.decode(errors="replace")

    def _guard(self) -> Guardian:
        if self._guardian is None:
            self._guardian = Guardian()
            if self._temporary:
                self._guardian.remove(str(self.directory))
        return self._guardian

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        if self._guardian is not None:
            self._guardian.forget(process.pid)

    def _dismiss(self) -> None:
        if self._guardian is not None:
            self._guardian.close()
            self._guardian = None

    def stop(self) -> None:
        """Stop it in good order."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(self._stop)
            process.wait()
            self._forget(process)

    def kill(self) -> None:
        """Kill it, as a crash of the machine would, with the processes of its group.

        Processes that it has put into groups of their own notice that, and end a moment later.
        """
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._forget(process)
            self._killed = monotonic()

    def close(self) -> None:
        """Stop it, and remove its directory if that was temporary."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
        self._dismiss()


class LocalServer:
    """A server that runs as long as this object is open, or its `with` block."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self.port = free_port()
        """The port on the loopback address that it listens on."""

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self.process.pid

    def stop(self) -> None:
        """Stop it in good order: connections are cut, acknowledged commits are written."""
        self.process.stop()

    def kill(self) -> None:
        """Kill it, as a crash of the machine would: `start` recovers."""
        self.process.kill()

    def close(self) -> None:
        """Stop it, and remove its directory if that was temporary."""
        self.process.close()

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
    """Return a free port of the loopback address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
