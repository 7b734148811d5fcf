"""What a member owns, until when, and what it asks of the register next.

Two clocks: leases end by the store's, and a member relies on one for less than that by its own,
counted from *before* it asked. So it stops before anybody else may begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from actorflow.cluster.ring.actions import Action, Drain, Left, Lose, Own, Register, Send
from actorflow.cluster.ring.assignment import desired_owners
from actorflow.cluster.ring.messages import HandedOver
from actorflow.cluster.ring.register import CheckIn, View

if TYPE_CHECKING:
    from collections.abc import Collection

    from actorflow.cluster.ring.options import RingOptions

__all__ = ["Lease", "Leases"]

_FASTEST = 0.05  # seconds between two check-ins, at least
_FAILED = 0.1  # of a lease, after which an unanswered check-in is repeated
_SHED = 8  # one in so many of what is held is on its way out at the same time, or a single one


@dataclass(slots=True)
class Lease:
    """A partition that is owned."""

    epoch: int
    ends: float
    """By the member's own clock; nothing may start afterwards."""


class Leases:
    """The partitions of one member."""

    def __init__(self, name: str, options: RingOptions, taskers: tuple[str, ...]) -> None:
        self.name = name
        self.taskers = taskers
        self.codes: tuple[str, ...] = ()
        self.busy = 0
        self.held: dict[int, Lease] = {}
        self.draining: set[int] = set()
        """Those that are on their way out: nothing starts in them."""
        self.finished: set[int] = set()
        """Those of them in which nothing runs any more."""
        self.view: View | None = None
        self.ring: tuple[str, ...] = ()
        """The members that were alive then."""
        self.leaving = False
        self.left = False
        self._options = options
        self._received = 0.0  # when the view arrived
        self._number = 0
        self._asked: tuple[int, float, CheckIn] | None = None  # number, when, what
        self._next = -inf  # when to check in
        self._last = -inf

    # Time.

    def store_time(self, now: float) -> float:
        """Return what the store's clock says at least; 0 before the first answer."""
        return 0.0 if self.view is None else self.view.now + (now - self._received)

    def owns(self, partition: int, now: float) -> bool:
        """Return whether runs of a partition may start now."""
        lease = self.held.get(partition)
        return lease is not None and now < lease.ends and partition not in self.draining

    def next_time(self) -> float:
        """Return when something is to be done without any event."""
        ends = min((lease.ends for lease in self.held.values()), default=inf)
        return min(ends, self._check_in_time())

    def expire(self, now: float) -> list[Action]:
        """Drop what was not renewed in time."""
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
        if self.left:
            return inf
        if self._asked is not None:
            return self._asked[1] + self._options.renewal
        return max(self._next, self._last + _FASTEST)

    def ask(self, now: float) -> list[Action]:
        """Check in, if it is time."""
        if now < self._check_in_time():
            return []
        released = self.finished if not self.leaving else set()
        leave = self.leaving and self.finished >= self.held.keys()
        self._number += 1
        request = CheckIn(
            self.name,
            self._options.lease,
            hold=tuple(
                (number, lease.epoch)
                for number, lease in sorted(self.held.items())
                if number not in released
            ),
            take=() if self.leaving else tuple(self._wanted(now)),
            release=tuple((number, self.held[number].epoch) for number in sorted(released)),
            leave=leave,
            taskers=self.taskers,
            busy=self.busy,
            number=self._number,
            codes=self.codes,
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
        """Learn what the register says; an answer to an older question does not count."""
        asked = self._asked
        if asked is None or asked[0] != number:
            return []
        self._asked = None
        if view is None:
            self._next = now + self._options.lease * _FAILED
            return []
        self.view, self.ring, self._received = view, view.ring, now
        _, sent, request = asked
        if request.leave:
            return self._gone(view)
        actions = self._compare(view, request, sent + self._options.usable, now)
        if self.leaving:
            return [*actions, *self.drain_all(now)]
        actions += self._shed(view)
        self._plan(view, now)
        return actions

    def _compare(self, view: View, request: CheckIn, ends: float, now: float) -> list[Action]:
        """Bring what is held in line with the register."""
        actions: list[Action] = []
        asked = dict(request.hold)
        released = dict(request.release)
        for number, holding in enumerate(view.holdings):
            lease = self.held.get(number)
            mine = holding.owner == self.name
            if lease is not None:
                if not mine or holding.epoch != lease.epoch:
                    actions.append(self._lose(number))
                    if number in released and holding.owner is None:
                        actions += self._hand_over(number, view)
                elif asked.get(number) == lease.epoch:
                    lease.ends = max(lease.ends, ends)
            elif mine and number in request.take and now < ends and not self.leaving:
                self.held[number] = Lease(holding.epoch, ends)
                actions.append(Own(number, holding.epoch))
        return actions

    def _hand_over(self, number: int, view: View) -> list[Action]:
        ring = [each for each in self.ring if each != self.name or not self.leaving]
        heirs = desired_owners(ring, len(view.holdings))
        if not heirs or heirs[number] == self.name:
            return []
        return [Send(heirs[number], HandedOver(number))]

    def _shed(self, view: View) -> list[Action]:
        """Begin to release partitions that another member should own: few at a time."""
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
        ends = [seat.until for seat in view.seats if seat.name != self.name]
        ends += [
            holding.until
            for number, holding in enumerate(view.holdings)
            if owners and owners[number] == self.name and holding.owner not in (None, self.name)
        ]
        later = [now + end - view.now for end in ends if end > view.now]
        self._next = min([now + self._options.renewal, *later])

    # Giving up.

    def drained(self, partition: int, now: float) -> None:
        """Note that nothing runs in a partition any more: it can be released."""
        if partition in self.held and partition in self.draining:
            self.finished.add(partition)
            if not self.leaving or self.finished >= self.held.keys():
                self.hurry(now)

    def fenced(self, partition: int, now: float) -> list[Action]:
        """Drop a partition that the store says is another's."""
        self.hurry(now)
        return [self._lose(partition)] if partition in self.held else []

    def drain_all(self, now: float) -> list[Action]:
        """Release everything, in good order."""
        self.leaving = True
        if self.finished >= self.held.keys():
            self.hurry(now)
        return self._drain([number for number in sorted(self.held) if number not in self.draining])

    def _gone(self, view: View) -> list[Action]:
        self.left = True
        actions: list[Action] = []
        for number in sorted(self.held):
            actions.append(self._lose(number))
            actions += self._hand_over(number, view)
        return [*actions, Left()]
