"""The wake chain: callers resolved by the same commit wake up one after the other.

Problem
    Threads that are all woken at once compete for the interpreter lock. Each of them wakes up,
    blocks on that lock, and is woken a second time to get it.

Approach
    Each thread wakes the next one. A thread that is woken after the one before it has begun to run
    finds the lock free, or nearly so.

The chain is a matter of speed only: the writer wakes the remaining callers soon afterwards, so no
caller depends on a thread that is slow or has given up waiting.
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeAlias

from actorflow.runtime.lanes.uninterruptible import in_main_thread
from actorflow.runtime.tickets import ThreadTicket

__all__ = ["ChainedTicket", "WakeChain"]

Told: TypeAlias = "tuple[Any, Exception | None]"


class ChainedTicket(ThreadTicket):
    """A thread that waits, and wakes the next one when it wakes up."""

    __slots__ = ("_chain",)

    def __init__(self, chain: WakeChain) -> None:
        self._lock, self.outcomes = None, []  # as its base does: one call less for each caller
        self._chain = chain

    def wait(self, timeout: float | None) -> bool:
        """Wait until resolved; return whether it was in time."""
        in_time = super().wait(timeout)
        if self._chain.waiting:
            self._chain.pass_on()
        return in_time


class WakeChain:
    """The callers that still have to be woken, in order.

    Thread-safe, but only the writer may call `begin` and `finish`.
    """

    def __init__(self) -> None:
        self.waiting: deque[Told] = deque()
        """Callers whose outcome is known and that have not been woken yet."""
        self._prompt = True

    def ticket(self) -> ThreadTicket:
        """Return the ticket that a caller waits on.

        The main thread wakes no one: an interrupt could come first.
        """
        return ThreadTicket() if in_main_thread() else ChainedTicket(self)

    def begin(self, told: list[Told]) -> list[Told]:
        """Return the callers to wake at once; these wake the others."""
        if not self._prompt:
            return told
        chained = [each for each in told if type(each[0]) is ChainedTicket]
        if not chained:
            return told
        self.waiting.extend(chained[1:])
        return [chained[0], *(each for each in told if type(each[0]) is not ChainedTicket)]

    def pass_on(self) -> None:
        """Wake the next caller."""
        try:
            ticket, error = self.waiting.popleft()
        except IndexError:  # another thread was faster
            return
        ticket.resolve(error)

    def finish(self) -> None:
        """Wake all remaining callers."""
        while self.waiting:
            self.pass_on()

    def note(self, *, prompt: bool) -> None:
        """Record whether all callers woke up in time.

        If they did not, another thread computes and keeps the interpreter lock. Each link of the
        chain would have to wait for that thread, so the next callers are woken at once.
        """
        self._prompt = prompt
