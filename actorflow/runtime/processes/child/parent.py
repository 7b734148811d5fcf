"""End with the parent: what a process does so that it is never an orphan."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

__all__ = [
    "adopt_orphans",
    "die_with_parent",
    "has_ended",
    "kill_group",
    "load_prctl",
    "watch_parent",
    "watching_parent",
]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@cache
def load_prctl() -> Any:
    """Return Linux's `prctl`; `None` on other systems."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - only where it is needed

    return getattr(ctypes.CDLL(None), "prctl", None)


def die_with_parent(parent: int, endpoint: socket.socket) -> None:
    """Make the system kill this process when `parent`, the process that started it, ends.

    On Linux the system does that. Elsewhere a thread watches the socket that the parent holds.
    """
    prctl = load_prctl()
    if prctl is None:
        watch_parent(endpoint.fileno())
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before the call
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends. On Linux."""
    prctl = load_prctl()
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1)


def has_ended(pid: int) -> bool:
    """Return whether a child has ended. Its number stays its own until it is waited for."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def kill_group(pid: int) -> None:
    """Kill the processes in the group of a worker process: what its calls have started."""
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def watch_parent(file: int, stop: int | None = None) -> threading.Thread:
    """Start a thread that ends this process when the other end of a socket is closed."""

    def watch() -> None:
        poll = select.poll()
        poll.register(file, 0)  # only hang-ups
        if stop is not None:
            poll.register(stop, select.POLLIN)
        if any(ready == file for ready, _ in poll.poll()):
            os._exit(1)

    thread = threading.Thread(target=watch, name="actorflow-parent", daemon=True)
    thread.start()
    return thread


@contextmanager
def watching_parent(endpoint: socket.socket) -> Iterator[None]:
    """Watch the parent during a block; afterwards there is no thread any more."""
    stop, stopper = os.pipe()
    thread = watch_parent(endpoint.fileno(), stop)
    try:
        yield
    finally:
        os.write(stopper, b"x")
        thread.join()
        os.close(stop)
        os.close(stopper)
