"""Workers as processes of their own, which tests kill, stop and replace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PATIENCE", "ROOT", "Worker", "until", "workers"]

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 100.0


class Worker:
    """A worker process, whose clock may be wrong by `skew` seconds, and that may run an `app`."""

    def __init__(
        self, url: str, name: str, directory: Path, *, skew: int = 0, app: str = ""
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/cluster/worker.py"), url, name, str(directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SKEW": str(skew), "APP": app},
        )  # fmt: skip

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def send(self, number: signal.Signals) -> None:
        """Send a signal. A process that is stopped by it stands still when this returns.

        It does so only once one of its threads has had a processor; until then the others go on.
        """
        self.process.send_signal(number)
        if number is signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def leave(self) -> None:
        """End in good order."""
        self.process.communicate("\n", timeout=PATIENCE)


@contextmanager
def workers(
    url: str, directory: Path, *names: str, skew: int = 0, app: str = ""
) -> Iterator[list[Worker]]:
    """Start workers; end the remaining ones."""
    with ExitStack() as stack:
        made = [Worker(url, name, directory, skew=skew, app=app) for name in names]
        for each in made:
            stack.callback(each.kill)
            stack.callback(each.send, signal.SIGCONT)
        for each in made:
            each.wait_until_ready()
        yield made


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does."""
    end = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < end, what
        sleep(0.02)
