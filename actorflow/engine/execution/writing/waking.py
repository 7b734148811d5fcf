"""Callers that are told together wake up one after the other: each wakes the next.

Threads that are all woken at once want the interpreter lock at once. Each of them wakes up, falls
asleep again before that lock, and is woken a second time to get it. A thread that is woken when the
one before it has begun to run finds the lock free, or nearly so.

This is only a matter of speed. Whoever told them wakes those that are left soon afterwards, so
nobody depends on a thread that is slow, or has given up waiting.
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeAlias

from actorflow.runtime.lanes.shelter import in_main_thread
from actorflow.runtime.worker.tickets import ThreadTicket

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
    """The callers that are still to be woken, in order.

    Thread-safe, but only the writer may call `begin` and `finish`.
    """

    def __init__(self) -> None:
        self.waiting: deque[Told] = deque()
        """Callers whose outcome is known, and who have not been woken yet."""
        self._prompt = True

    def ticket(self) -> ThreadTicket:
        """Return what a caller waits for.

        The main thread wakes nobody: an interrupt could strike before it has done so.
        """
        return ThreadTicket() if in_main_thread() else ChainedTicket(self)

    def begin(self, told: list[Told]) -> list[Told]:
        """Return which callers have to be woken at once; these wake the others."""
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
        except IndexError:  # another thread has
            return
        ticket.resolve(error)

    def finish(self) -> None:
        """Wake everybody who is left."""
        while self.waiting:
            self.pass_on()

    def note(self, *, prompt: bool) -> None:
        """Note whether all callers woke up in time.

        Where they did not, because another thread computes and keeps the interpreter lock, each
        turn would have to wait for that thread: the next callers are woken at once.
        """
        self._prompt = prompt
