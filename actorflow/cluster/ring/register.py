"""The register of a cluster: its members and the owners of its partitions, kept by the store.

`check_in` is what a store does with a request, as a pure function of the rows, the request and the
time of *the store's* clock. A carrier may call it inside a transaction, or do the same in its own
language.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["CheckIn", "Holding", "MemberEntry", "Roll", "View", "check_in"]


class MemberEntry(NamedTuple):
    """A member, as it is registered."""

    name: str
    """Unique for each life of a process: a worker that is started again gets another name."""
    until: float
    """When it counts as dead, by the store's clock."""
    taskers: tuple[str, ...] = ()
    """The taskers that it has."""
    busy: int = 0
    """How many tasks it had when it checked in."""
    number: int = 0
    """The number of its last request."""
    codes: tuple[str, ...] = ()
    """Which code it has, of kinds whose code changes."""
    version: str = ""
    """Of the library that it runs."""


class Holding(NamedTuple):
    """A partition, as it is registered."""

    owner: str | None = None
    epoch: int = 0
    """Grows whenever it is taken; every commit names the one under which it was made."""
    until: float = 0.0
    """When the lease ends, by the store's clock."""


class CheckIn(NamedTuple):
    """What a member asks of the register, all in one write."""

    name: str
    lease: float
    """Seconds from now, by the store's clock."""
    hold: tuple[tuple[int, int], ...] = ()
    """Partitions to renew, each with its epoch."""
    take: tuple[int, ...] = ()
    """Partitions to take if they have no owner."""
    release: tuple[tuple[int, int], ...] = ()
    """Partitions to let go of, each with its epoch."""
    leave: bool = False
    """It is not a member any more, and owns nothing."""
    taskers: tuple[str, ...] = ()
    busy: int = 0
    number: int = 0
    """Grows with each request of a member: one that arrives after a later one does nothing."""
    codes: tuple[str, ...] = ()
    version: str = ""


class View(NamedTuple):
    """The register after a check-in."""

    now: float
    """The time of the store's clock."""
    members: tuple[MemberEntry, ...]
    """The members that are alive, in alphabetical order."""
    holdings: tuple[Holding, ...]
    """The partitions, by their number."""

    @property
    def ring(self) -> tuple[str, ...]:
        """The names of the members that are alive, in alphabetical order."""
        return tuple(member.name for member in self.members)


@dataclass(slots=True)
class Roll:
    """The rows of a register."""

    members: dict[str, MemberEntry] = field(default_factory=dict)
    holdings: list[Holding] = field(default_factory=list)

    @classmethod
    def of(cls, partitions: int) -> Roll:
        """Return the register of a new store."""
        return cls({}, [Holding()] * partitions)

    def view(self, now: float) -> View:
        """Return what it says at a moment of the store's clock."""
        entries = (self.members[name] for name in sorted(self.members))
        alive = tuple(entry for entry in entries if entry.until > now)
        return View(now, alive, tuple(self.holdings))


def check_in(roll: Roll, request: CheckIn, now: float) -> View:
    """Apply a request to the register; return what it says then. O(members + partitions).

    - A request that was overtaken by a later one of the same member changes nothing.
    - A lease is renewed if the member still owns that epoch and it has not ended.
    - A partition is taken if nobody owns it, its lease has ended, or the member owned it without
      knowing. Its epoch grows by one.
    - Members whose time is over are removed. What they owned waits for the end of its lease.

    >>> roll = Roll.of(2)
    >>> check_in(roll, CheckIn("a", 6.0, take=(0, 1)), now=100.0).holdings
    (Holding(owner='a', epoch=1, until=106.0), Holding(owner='a', epoch=1, until=106.0))
    >>> check_in(roll, CheckIn("b", 6.0, take=(1,)), now=105.0).holdings[1].owner
    'a'
    >>> check_in(roll, CheckIn("b", 6.0, take=(1,)), now=106.0).holdings[1]
    Holding(owner='b', epoch=2, until=112.0)
    """
    name, until = request.name, now + request.lease
    entry = roll.members.get(name)
    if entry is not None and 0 < request.number <= entry.number:
        return roll.view(now)  # overtaken: what it asks for may be long given up
    for each in [entry.name for entry in roll.members.values() if entry.until <= now]:
        del roll.members[each]
    holdings = roll.holdings
    given_up = range(len(holdings)) if request.leave else [each for each, _ in request.release]
    epochs = dict(request.release)
    for number in given_up:
        holding = holdings[number]
        if holding.owner == name and epochs.get(number, holding.epoch) == holding.epoch:
            holdings[number] = Holding(None, holding.epoch, now)
    if request.leave:
        roll.members.pop(name, None)
        return roll.view(now)
    roll.members[name] = MemberEntry(
        name, until, request.taskers, request.busy, request.number, request.codes, request.version
    )
    for number, epoch in request.hold:
        holding = holdings[number]
        if holding.owner == name and holding.epoch == epoch and holding.until > now:
            holdings[number] = Holding(name, epoch, until)
    for number in request.take:
        holding = holdings[number]
        if holding.owner is None or holding.owner == name or holding.until <= now:
            holdings[number] = Holding(name, holding.epoch + 1, until)
    return roll.view(now)
