"""Heartbeats: how a function in a worker process asks whether it is still wanted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Beating", "bound_heartbeat", "heartbeat", "install"]


class Beating(Protocol):
    """The current worker process."""

    sequence: int
    """The current call; 0 between calls."""

    def beat(self, sequence: int, *values: Any) -> bool:
        """Ask the parent whether a call is still wanted; `False` when it has ended."""


_present: Beating | None = None


def install(process: Beating) -> None:
    """Set the current process, once."""
    global _present  # noqa: PLW0603 - there is one in each process
    _present = process


def heartbeat(*values: Any) -> bool:
    """Report that the current call continues; return whether it is still wanted.

    `Call.heartbeat` answers in the parent, and gets the values. Without one, and outside a worker
    process, it is `True`. Thread-safe.
    """
    return bound_heartbeat()(*values)


def bound_heartbeat() -> Callable[..., bool]:
    """Return the `heartbeat` of the current call: it returns `False` once that call has ended."""
    if _present is None:
        return _wanted
    return partial(_present.beat, _present.sequence)


def _wanted(*_values: Any) -> bool:
    return True
