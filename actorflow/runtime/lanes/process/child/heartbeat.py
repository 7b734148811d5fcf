"""Heartbeats: how a function in a worker process asks whether it is still wanted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Beating", "bound_heartbeat", "heartbeat", "install"]


class Beating(Protocol):
    """The worker process, seen from here."""

    sequence: int
    """The call in hand; 0 between calls."""

    def beat(self, sequence: int) -> bool:
        """Ask the parent whether a call is still wanted; `False` when it has ended."""


_present: Beating | None = None


def install(process: Beating) -> None:
    """Say which process this is, once."""
    global _present  # noqa: PLW0603 - there is one in each process
    _present = process


def heartbeat() -> bool:
    """Report that the call in hand goes on; return whether it is still wanted.

    `Call.heartbeat` answers in the parent. Without one, and outside a worker process, it is `True`.
    Thread-safe.
    """
    return bound_heartbeat()()


def bound_heartbeat() -> Callable[[], bool]:
    """Return the `heartbeat` of the call in hand: it returns `False` once that call has ended."""
    if _present is None:
        return _wanted
    return partial(_present.beat, _present.sequence)


def _wanted() -> bool:
    return True
