"""Start threads where the system may refuse them.

A process can be at a limit (of threads, of processes, of memory) for a while. A part of the runtime
that needs a thread then keeps its work, and asks with `retry_later` for another attempt. Attempts
are made by whichever thread comes by: our own between two things to do, callers that wait, and the
next submit. So no thread is needed to notice that a thread is missing.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from actorflow.runtime.fork import after_fork

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AGENTS",
    "PENDING",
    "RETRY_EVERY",
    "retry",
    "retry_later",
    "start_thread",
]

RETRY_EVERY = 0.05
"""Seconds between two attempts of a thread that waits while attempts are pending."""

PENDING: dict[Callable[[], None], None] = {}
"""Attempts to make again, each once. Empty unless the system has refused a thread."""

AGENTS: list[Callable[[], None]] = []
"""Called when an attempt becomes pending: each makes a thread that may be idle come by."""

after_fork(PENDING.clear)


def start_thread(target: Callable[..., None], *args: object, name: str) -> bool:
    """Start a daemon thread; return whether the system let it start."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return False
    return True


def retry_later(attempt: Callable[[], None]) -> None:
    """Call `attempt` again some time later. An attempt that fails again asks again."""
    PENDING[attempt] = None
    for poke in AGENTS:
        poke()


def retry() -> None:
    """Make each pending attempt once. Thread-safe; not for the main thread, if avoidable."""
    for attempt in list(PENDING):
        if PENDING.pop(attempt, attempt) is None:  # no other thread makes it
            attempt()
