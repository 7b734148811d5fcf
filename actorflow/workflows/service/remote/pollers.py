"""Workers that wait for a job: one is woken for each, the one that has waited longest first."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from actorflow.runtime.tickets import AsyncTicket

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.workflows.agent.jobs import AgentQueue

__all__ = ["Pollers"]


class Pollers:
    """Workers that wait for a job, by queue. Thread-safe; they may be on any event loop.

    Args:
        has_job: whether there is a job in a queue. Called under a lock.

    """

    def __init__(self, has_job: Callable[[AgentQueue], bool]) -> None:
        self.closed = False
        self._has_job = has_job
        self._lock = threading.Lock()
        self._tickets: dict[AgentQueue, dict[AsyncTicket, None]] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._tickets.values()))

    async def wait(self, queue: AgentQueue, seconds: float) -> None:
        """Wait until it is this one's turn to look for a job, or the time is up."""
        ticket = AsyncTicket()
        with self._lock:
            if self.closed or self._has_job(queue):
                return
            self._tickets.setdefault(queue, {})[ticket] = None
        try:
            await ticket.wait(seconds)
        except BaseException:
            with self._lock:
                woken = not self._withdraw(queue, ticket)
            if woken:  # it does not look: somebody else must
                self.wake(queue)
            raise
        with self._lock:
            self._withdraw(queue, ticket)

    def wake(self, queue: AgentQueue) -> None:
        """Make one poller look for a job, if there is one."""
        with self._lock:
            tickets = self._tickets.get(queue)
            if tickets and self._has_job(queue):
                ticket = next(iter(tickets))
                self._withdraw(queue, ticket)
                ticket.resolve()

    def close(self) -> None:
        """Dismiss all workers, and later ones on arrival."""
        with self._lock:
            self.closed = True
            waiting = [ticket for tickets in self._tickets.values() for ticket in tickets]
            self._tickets.clear()
        for ticket in waiting:
            ticket.resolve()

    def _withdraw(self, queue: AgentQueue, ticket: AsyncTicket) -> bool:
        """Take a ticket back; return whether it was still there."""
        tickets = self._tickets.get(queue, {})
        there = ticket in tickets
        tickets.pop(ticket, None)
        if not tickets:
            self._tickets.pop(queue, None)
        return there
