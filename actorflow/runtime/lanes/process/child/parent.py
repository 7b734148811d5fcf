"""End with the parent: what a process does so that it is never an orphan."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

__all__ = ["die_with_parent", "load_prctl", "watch_parent", "watching_parent"]

_PR_SET_PDEATHSIG = 1


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
