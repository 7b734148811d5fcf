"""Leases: the partitions that a member owns or should own, and its next request to the register.

Two clocks: leases end by the store's, and a member relies on one for less than that by its own,
counted from *before* it asked. So it stops before anybody else may begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING

from actorflow.cluster.ring.events import Action, Drain, Hint, Lose, Own, Register
from actorflow.cluster.ring.register import CheckIn, View

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from actorflow.cluster.ring.options import RingOptions

__all__ = ["Lease", "Leases", "desired_owners"]

_FASTEST = 0.05  # seconds between two check-ins, at least
_FAILED = 0.1  # of a lease, after which an unanswered check-in is repeated
_SHED = 8  # at most one partition in eight, or a single one, is drained at the same time


@dataclass(slots=True)
class Lease:
    """A partition that is owned."""

    epoch: int
    ends: float
    """By the member's own clock; nothing may start afterwards."""


class Leases:
    """The partitions of one member."""

    def __init__(self, name: str, options: RingOptions, version: str) -> None:
        self.name = name
        self.version = version
        self.taskers: tuple[str, ...] = ()
        self.codes: tuple[str, ...] = ()
        self.busy = 0
        self.held: dict[int, Lease] = {}
        self.draining: set[int] = set()
        """Partitions that are to be released: nothing starts in them."""
        self.finished: set[int] = set()
        """Draining partitions in which nothing runs any more."""
        self.view: View | None = None
        self.ring: tuple[str, ...] = ()
        """The members that were alive then."""
        self._options = options
        self._received = 0.0  # when the view arrived
        self._number = 0
        self._asked: tuple[int, float, CheckIn] | None = None  # number, when, what
        self._next = -inf  # when to check in
        self._last = -inf

    # Time.

    def store_time(self, now: float) -> float:
        """Return a lower bound of the store's clock; 0 before its first answer."""
        return 0.0 if self.view is None else self.view.now + (now - self._received)

    def next_time(self) -> float:
        """Return when the next step is due if no event arrives."""
        ends = min((lease.ends for lease in self.held.values()), default=inf)
        return min(ends, self._check_in_time())

    def expire(self, now: float) -> list[Action]:
        """Drop the partitions that were not renewed in time."""
        if not self.held or now < min(lease.ends for lease in self.held.values()):
            return []
        over = sorted(number for number, lease in self.held.items() if lease.ends <= now)
        self._next = min(self._next, now)
        return [self._lose(number) for number in over]

    def _lose(self, partition: int) -> Lose:
        del self.held[partition]
        self.draining.discard(partition)
        self.finished.discard(partition)
        return Lose(partition)

    # Asking.

    def hurry(self, now: float) -> None:
        """Check in as soon as possible."""
        self._next = min(self._next, now)

    def hurries(self, now: float) -> bool:
        """Return whether it checks in as soon as possible."""
        return self._next <= now

    def _check_in_time(self) -> float:
        if self._asked is not None:
            return self._asked[1] + self._options.renewal
        return max(self._next, self._last + _FASTEST)

    def ask(self, now: float) -> list[Action]:
        """Check in, if it is time."""
        if now < self._check_in_time():
            return []
        released = self.finished
        self._number += 1
        request = CheckIn(
            self.name,
            self._options.lease,
            hold=tuple(
                (number, lease.epoch)
                for number, lease in sorted(self.held.items())
                if number not in released
            ),
            take=tuple(self._wanted(now)),
            release=tuple((number, self.held[number].epoch) for number in sorted(released)),
            taskers=self.taskers,
            busy=self.busy,
            number=self._number,
            codes=self.codes,
            version=self.version,
        )
        self._asked = self._number, now, request
        self._last = now
        self._next = now + self._options.renewal
        return [Register(self._number, request)]

    def _wanted(self, now: float) -> list[int]:
        """Return the partitions to take: unowned ones that this member should own."""
        view = self.view
        if view is None:
            return []
        time = self.store_time(now)
        owners = desired_owners(self.ring, len(view.holdings))
        return [
            number
            for number, holding in enumerate(view.holdings)
            if owners
            and owners[number] == self.name
            and number not in self.held
            and (holding.owner in (None, self.name) or holding.until <= time)
        ]

    # Answers.

    def answered(self, number: int, view: View | None, now: float) -> list[Action]:
        """Apply the answer of the register; an answer to an older request does not count."""
        asked = self._asked
        if asked is None or asked[0] != number:
            return []
        self._asked = None
        if view is None:
            self._next = now + self._options.lease * _FAILED
            return []
        self.view, self.ring, self._received = view, view.ring, now
        _, sent, request = asked
        actions = self._compare(view, request, sent + self._options.usable, now)
        actions += self._shed(view)
        self._plan(view, now)
        return actions

    def _compare(self, view: View, request: CheckIn, ends: float, now: float) -> list[Action]:
        """Compare the partitions held here with the register."""
        actions: list[Action] = []
        hints: set[Hint] = set()
        asked = dict(request.hold)
        released = dict(request.release)
        for number, holding in enumerate(view.holdings):
            lease = self.held.get(number)
            mine = holding.owner == self.name
            if lease is not None:
                if not mine or holding.epoch != lease.epoch:
                    actions.append(self._lose(number))
                    if number in released and holding.owner is None:
                        hints.update(self._hints(number, view))
                elif asked.get(number) == lease.epoch:
                    lease.ends = max(lease.ends, ends)
            elif mine and number in request.take and now < ends:
                self.held[number] = Lease(holding.epoch, ends)
                actions.append(Own(number, holding.epoch))
        return [*actions, *sorted(hints)]

    def _hints(self, number: int, view: View) -> list[Hint]:
        """Return the hint for the member that should take a partition."""
        heirs = desired_owners(self.ring, len(view.holdings))
        if not heirs or heirs[number] == self.name:
            return []
        return [Hint(heirs[number])]

    def _shed(self, view: View) -> list[Action]:
        """Begin to release partitions that another member should own, a few at a time."""
        owners = desired_owners(self.ring, len(view.holdings))
        room = max(len(self.held) // _SHED, 1) - len(self.draining)
        if room <= 0 or not owners:
            return []
        over = (number for number in sorted(self.held) if owners[number] != self.name)
        return self._drain([number for number in over if number not in self.draining][:room])

    def _drain(self, numbers: Collection[int]) -> list[Action]:
        self.draining.update(numbers)
        return [Drain(number) for number in numbers]

    def _plan(self, view: View, now: float) -> None:
        """Decide when to check in again."""
        if self._wanted(now) or self.finished:
            self.hurry(now)
            return
        owners = desired_owners(self.ring, len(view.holdings))
        ends = [member.until for member in view.members if member.name != self.name]
        ends += [
            holding.until
            for number, holding in enumerate(view.holdings)
            if owners and owners[number] == self.name and holding.owner not in (None, self.name)
        ]
        later = [now + end - view.now for end in ends if end > view.now]
        self._next = min([now + self._options.renewal, *later])

    # Giving up.

    def drained(self, partition: int, now: float) -> None:
        """Release a partition with the next check-in: nothing runs there any more."""
        if partition in self.held and partition in self.draining:
            self.finished.add(partition)
            self.hurry(now)

    def fenced(self, partition: int, now: float) -> list[Action]:
        """Drop a partition that another member owns, as the store says."""
        self.hurry(now)
        return [self._lose(partition)] if partition in self.held else []


def desired_owners(ring: Sequence[str], partitions: int) -> tuple[str, ...]:
    """Return the member that should own each partition; nothing if the ring is empty.

    Every member and every machine comes to the same answer. Shares differ by one at most, and when
    a member joins or leaves, about `partitions / len(ring)` change their owner: rendezvous hashing
    with bounded load. O(n log n) for n members times partitions, once for each ring.

    >>> desired_owners(["a", "b"], 6)
    ('a', 'b', 'b', 'b', 'a', 'a')
    >>> desired_owners(["a"], 3)
    ('a', 'a', 'a')
    """
    return _assigned(tuple(sorted(ring)), partitions)


def _weight(name: str, partition: int) -> bytes:
    return blake2b(f"{partition}/{name}".encode(), digest_size=8).digest()


@lru_cache(maxsize=256)
def _assigned(ring: tuple[str, ...], partitions: int) -> tuple[str, ...]:
    if not ring:
        return ()
    floor, extra = divmod(partitions, len(ring))
    load = dict.fromkeys(ring, 0)
    owners: dict[int, str] = {}
    wishes = sorted(
        ((_weight(name, number), name, number) for name in ring for number in range(partitions)),
        reverse=True,
    )
    for _, name, number in wishes:
        if number in owners or load[name] > floor or (load[name] == floor and not extra):
            continue
        extra -= load[name] == floor
        load[name] += 1
        owners[number] = name
    return tuple(owners[number] for number in range(partitions))
