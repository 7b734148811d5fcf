"""Ends processes whose starter has died, even if that was killed.

A guardian is a small process beside them that reads a pipe. As long as its starter lives, nothing
is written but the processes to watch; when it dies, however that happens, the pipe ends.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal

__all__ = ["Guardian"]

# It runs without site-packages, so that it starts at once and needs little memory.
_PROGRAM = """
import os, shutil, signal, sys, time

def send(pid, number, group=False):
    try:
        (os.killpg if group and hasattr(os, "killpg") else os.kill)(pid, number)
        return True
    except OSError:
        return False

watched, directories = {}, []
for line in sys.stdin:
    verb, *rest = line.rstrip("\\n").split(" ", 2)
    if verb == "watch":
        watched[int(rest[0])] = int(rest[1])
    elif verb == "forget":
        watched.pop(int(rest[0]), None)
    elif verb == "remove":
        directories.append(" ".join(rest))
    elif verb == "end":
        sys.exit()
for pid, number in watched.items():
    send(pid, number)
end = time.monotonic() + 5.0
while time.monotonic() < end and any(send(pid, 0) for pid in watched):
    time.sleep(0.05)
for pid in watched:
    number = getattr(signal, "SIGKILL", signal.SIGTERM)
    send(pid, number, group=True) or send(pid, number)
for directory in directories:
    shutil.rmtree(directory, ignore_errors=True)
"""


class Guardian:
    """Watches processes, and ends them in the order of `watch`. Not thread-safe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - ours
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            stdin=subprocess.PIPE, text=True, bufsize=1, cwd="/", start_new_session=True,
        )  # fmt: skip

    def watch(self, pid: int, stop: signal.Signals) -> None:
        """End a process by a signal when this one dies, and kill its group after 5 s."""
        self._say(f"watch {pid} {int(stop)}")

    def forget(self, pid: int) -> None:
        """Leave a process alone: it has ended."""
        self._say(f"forget {pid}")

    def remove(self, directory: str) -> None:
        """Remove a directory when this process dies, after the processes."""
        self._say(f"remove {directory}")

    def _say(self, line: str) -> None:
        pipe = self._process.stdin
        if pipe is not None and not pipe.closed:
            with suppress(BrokenPipeError):  # it was killed: nobody watches then
                pipe.write(f"{line}\n")

    def close(self) -> None:
        """Watch nothing any more."""
        self._say("end")
        pipe = self._process.stdin
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
        self._process.wait()
