"""A member of the ring: one worker, as a state machine without side effects."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, assert_never

from actorflow.cluster.ring.events import (
    Action,
    Drained,
    Event,
    Fenced,
    Hinted,
    Registered,
    RingStep,
    Sweep,
)
from actorflow.cluster.ring.leases import Leases
from actorflow.cluster.ring.options import RingOptions
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Member"]


class Member:
    """One worker of a ring.

    `receive` handles an event, `step` does everything that is due. Both return the actions for the
    shell, and both get the time of a monotonic clock. Not thread-safe: one loop calls them.

        member = Member("a-7f3c")
        wait = 0.0
        while True:
            for event in events_within(wait):
                carry_out(member.receive(event, monotonic()))
            step = member.step(monotonic())
            carry_out(step.actions)
            wait = step.wait

    Args:
        name: unique for each life of a process, because a worker that is started again must not be
            taken for the one that died.
        options: all members of a ring use the same.
        version: of the library, for operators.

    Raises:
        BadOption: the name is empty.

    """

    def __init__(self, name: str, options: RingOptions | None = None, *, version: str = "") -> None:
        if not name:
            msg = f"name={name!r}: give a member a name, such as 'host-1-7f3c'"
            raise BadOption(msg)
        self.name = name
        self.options = options or RingOptions()
        self._leases = Leases(name, self.options, version)
        self._sweep_at = -inf

    # State.

    @property
    def ring(self) -> tuple[str, ...]:
        """The members that were alive at the last check-in, in alphabetical order."""
        return self._leases.ring

    @property
    def owned(self) -> dict[int, int]:
        """The partitions that are owned and not being drained, each with its epoch."""
        leases = self._leases
        return {
            number: lease.epoch
            for number, lease in leases.held.items()
            if number not in leases.draining
        }

    def usable(self, now: float) -> tuple[dict[int, int], float]:
        """Return the partitions in which runs may start now, and until when that is the answer."""
        leases = self._leases
        usable = {
            number: lease
            for number, lease in leases.held.items()
            if now < lease.ends and number not in leases.draining
        }
        until = min((lease.ends for lease in usable.values()), default=inf)
        return {number: lease.epoch for number, lease in usable.items()}, until

    @property
    def draining(self) -> frozenset[int]:
        """The partitions that are on their way out, and in which something may still run."""
        return frozenset(self._leases.draining - self._leases.finished)

    def hurries(self, now: float) -> bool:
        """Return whether the next check-in is due at once: to take or release something."""
        return self._leases.hurries(now)

    def serve(self, taskers: Iterable[str], codes: Iterable[str] = ()) -> bool:
        """Announce taskers and code with the next check-in; return whether any of it is new."""
        leases = self._leases
        before = leases.taskers, leases.codes
        leases.taskers, leases.codes = tuple(sorted(taskers)), tuple(sorted(codes))
        return before != (leases.taskers, leases.codes)

    def busy_with(self, tasks: int) -> None:
        """Set the number of tasks that the next check-in announces."""
        self._leases.busy = tasks

    # Steps and events.

    def step(self, now: float) -> RingStep:
        """Do everything that is due. O(partitions)."""
        actions = self._leases.expire(now)
        actions += self._leases.ask(now)
        next_time = self._leases.next_time()
        if self._leases.view is not None:
            if now >= self._sweep_at + self.options.sweep:
                self._sweep_at = now
                actions.append(Sweep())  # also without partitions: it may have been handed tasks
            next_time = min(next_time, self._sweep_at + self.options.sweep)
        return RingStep(actions, max(next_time - now, self.options.idle))

    def receive(self, event: Event, now: float) -> list[Action]:
        """Handle an event; return what the shell has to do. O(partitions)."""
        leases = self._leases
        actions = leases.expire(now)
        match event:
            case Registered(number, view):
                actions += leases.answered(number, view, now)
            case Hinted():
                leases.hurry(now)
            case Drained(partition):
                leases.drained(partition, now)
            case Fenced(partition):
                actions += leases.fenced(partition, now)
            case _:
                assert_never(event)
        return actions
