"""The protocol of lanes, where actors run, and calls of users' code in a lane.

An actor is submitted by the thread that takes its idle token, so it is in a lane at most once at a
time and never runs in two threads at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Runnable", "RuntimeLane", "Waiter", "call_in"]


class Runnable(Protocol):
    """An actor as a lane sees it."""

    def run(self) -> None:
        """Do the pending work for a short while. Must not raise."""


class Waiter(Protocol):
    """A thread that waits, as a lane sees it."""

    @property
    def resolved(self) -> bool:
        """Whether the wait is over."""
        ...

    def wait(self, timeout: float | None) -> bool:
        """Block the calling thread until it is resolved; return whether it was in time."""


class RuntimeLane(Protocol):
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

    def wait(self, ticket: Waiter, timeout: float | None) -> bool:
        """Block the calling thread until the ticket is resolved; return whether it was in time."""


@dataclass(slots=True)
class _Call:
    """A call that a lane makes."""

    what: str
    call: Callable[[], Any]

    def run(self) -> None:
        """Make the call. Only the lane does so."""
        try:
            self.call()
        except BaseException as error:  # noqa: BLE001 - code of a user must not end a lane
            log.error(f"{self.what} failed", exc_info=error)


def call_in(lane: RuntimeLane, what: str, call: Callable[[], Any]) -> None:
    """Schedule a call in a lane; `what` names it in the log if it raises. Thread-safe."""
    lane.submit(_Call(what, call))
