"""The pool, for actors of which one wakes the next as the last thing it does.

A thread of the pool that has declared itself `free` keeps the next runnable that it submits, and
runs it after the current one. So a chain of actors stays in one thread: no other thread has to wake
up, and no two of them compete for the interpreter. Where others wait for a thread, it keeps nothing
and lines up behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.pool import HERE, POOL

if TYPE_CHECKING:
    from actorflow.runtime.lanes.lane import Runnable
    from actorflow.runtime.worker.tickets import ThreadTicket

__all__ = ["RELAY", "Relay"]


class Relay:
    """A lane in the pool. It has no state: what is kept belongs to the threads."""

    can_help = True

    def submit(self, runnable: Runnable, /) -> None:
        """Keep a runnable in a thread that is free, or submit it to the pool."""
        seat = HERE.seat
        if seat is not None and seat.free and seat.next is None and not POOL.has_waiting:
            seat.next = runnable
        else:
            POOL.submit(runnable)

    def claim(self, idle: list[Any]) -> bool:
        """Like `submit`, for the token in `idle`; return whether there was one."""
        seat = HERE.seat
        if seat is None or not seat.free or seat.next is not None or POOL.has_waiting:
            return POOL.claim(idle)
        try:
            seat.next = idle.pop()  # not the main thread: no interrupt separates the two
        except IndexError:
            return False
        return True

    def free(self) -> None:
        """Declare that what this thread runs now ends soon, and calls no more code of users."""
        seat = HERE.seat
        if seat is not None:
            seat.free = True

    def busy(self) -> None:
        """Declare that what this thread runs now may take long: others run what it has kept."""
        seat = HERE.seat
        if seat is not None:
            seat.free = False
            if seat.next is not None:
                runnable, seat.next = seat.next, None
                POOL.submit(runnable)

    def release(self) -> None:
        """Do nothing: the pool serves other actors too."""

    def wait(self, ticket: ThreadTicket, timeout: float | None) -> bool:
        """Wait for an actor; return whether it was in time."""
        return POOL.wait(ticket, timeout)


RELAY = Relay()
"""The lane of executions and of taskers."""
