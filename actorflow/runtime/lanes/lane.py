"""The protocol of lanes: where actors run that have something to do.

An actor is submitted by the thread that takes its idle token, so it is in a lane at most once at a
time and never runs in two threads at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from actorflow.runtime.worker.tickets import ThreadTicket

__all__ = ["Lane", "Runnable"]


class Runnable(Protocol):
    """An actor as a lane sees it."""

    def run(self) -> None:
        """Do what there is to do, for a short while. Must not raise."""


class Lane(Protocol):
    """A place where actors run."""

    can_help: bool
    """Whether a caller may run an actor of this lane in its own thread instead."""

    def submit(self, runnable: Runnable, /) -> None:
        """Schedule one call of `runnable.run()` in a thread of the lane. Thread-safe.

        Never blocks, never raises, and never loses the runnable: where the system refuses a
        thread, the runnable waits until there is one.
        """

    def claim(self, idle: list[Any]) -> bool:
        """Move a token from `idle` to the lane, which runs it; return whether there was one.

        The token is the runnable itself. No interrupt can separate the two steps. Thread-safe.
        """

    def release(self) -> None:
        """End what the lane holds for its only actor, which has ended."""

    def wait(self, ticket: ThreadTicket, timeout: float | None) -> bool:
        """Block the calling thread until the ticket is resolved; return whether it was in time."""
