"""What a lane is: where actors run that have something to do.

An actor is submitted by whoever takes its idle token, so it is in a lane at most once at a time,
and never runs in two threads at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from actorflow.runtime.worker.tickets import ThreadTicket

__all__ = ["Lane", "Runnable"]


class Runnable(Protocol):
    """An actor as a lane sees it."""

    def run(self) -> None:
        """Do what there is to do, for a short while. Must not raise."""


class Lane(Protocol):
    """Where actors run."""

    can_help: bool
    """Whether a caller may run an actor of this lane in its own thread instead."""

    def submit(self, runnable: Runnable, /) -> None:
        """Have `runnable.run()` called soon, in one of the lane's threads. Never blocks."""

    def release(self) -> None:
        """Tell the lane that the actor it was made for has ended."""

    def wait(self, ticket: ThreadTicket, timeout: float | None) -> bool:
        """Wait in the calling thread for an actor of the lane; tell whether it was in time."""
