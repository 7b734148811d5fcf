"""The membership: one thread that drives the pure `Member` of the ring.

Approach
    `Member` decides; this class has the lock, the clock and the thread. It passes check-ins to the
    register and hints to other members through a `Carrier` (a store), reports the answers as
    events, and asks the carrier to look at the stored rows when partitions or members change.

Invariants
    1. The member is touched only under the lock, and the lock is never held during a request.
    2. `owned` is exact without the lock: `_usable` is one tuple, replaced as a whole after each
       event. It carries the time until which it is valid, the end of the first lease.
    3. A lease counts from *before* the request was sent, by this machine's steady clock. So this
       process stops before another one may take the partition, however long the answer took.
    4. A failed check-in is an answer without a view: leases run out, and nothing else changes.

Threads
    Events of other threads (`drained`, `fenced`, `hurry`) are appended to a deque, and the thread
    of the membership handles them. Only `join` runs the first steps in the caller's thread, so that
    an engine owns partitions when it has opened.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from actorflow.cluster.ring import (
    Drained,
    Event,
    Fenced,
    Hint,
    Hinted,
    Member,
    Register,
    Registered,
)
from actorflow.cluster.store_clock import StoreTime
from actorflow.runtime.environment import PROCESS
from actorflow.runtime.errors import ActorflowError
from actorflow.runtime.telemetry.outages import outage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from actorflow.cluster.ring import Action, CheckIn, RingOptions, View
    from actorflow.runtime.environment import Environment

__all__ = ["Carrier", "Membership", "Peer"]

_FIRST = 2  # answers of the register: one lists the free partitions, the next those taken
_PAUSE = 0.02  # seconds between two check-ins while joining


class Peer(NamedTuple):
    """A member of the cluster, and what it can do for the others."""

    name: str
    taskers: Collection[str] = ()
    busy: int = 0
    """How many tasks it had when it was last heard of."""
    codes: Collection[str] = ()
    """The `code` of those of its kinds that have one."""


class Carrier(Protocol):
    """The part of a store that a membership needs."""

    def check_in(self, request: CheckIn) -> View:
        """Pass a request to the register. Raises an `ActorflowError` if that cannot be reached."""

    def hint(self, member: str) -> None:
        """Ask another member to check in soon; the request may be lost."""

    def look(self) -> None:
        """Look at everything that is stored in the partitions owned now.

        Called at each sweep, and when the partitions owned here or the other members have changed.
        """


class Membership:
    """Takes part in a ring until it leaves. Thread-safe.

    Args:
        name: unique for each life of a process.
        carrier: the store.
        options: all members of a ring use the same.
        environment: its clock and its thread.

    """

    def __init__(
        self,
        name: str,
        carrier: Carrier,
        options: RingOptions,
        environment: Environment = PROCESS,
    ) -> None:
        self.name = name
        self.options = options
        self._environment = environment
        self._now = environment.clock.now
        self.time = StoreTime(self._now, environment.wall)
        """The estimated time of the store's clock."""
        self._carrier = carrier
        # Importing it would reach all layers above.
        version = sys.modules["actorflow"].__version__
        self._member = Member(name, options, version=version)
        self._lock = threading.Lock()  # of the member, which is not thread-safe
        self._events: deque[Event] = deque()
        # The partitions in which runs may start, and until when. One attribute, replaced as a whole
        # after each event, so that `owned` needs no lock.
        self._usable: tuple[Mapping[int, int], float] = ({}, inf)
        self._busy: Callable[[], int] = int
        self._view: View | None = None
        self._peers: Sequence[Peer] = ()
        self._peers_changed = False  # since the carrier looked
        self._inherited: set[int] = set()
        self._loop = environment.loop(f"actorflow-member-{name}", self._turn)

    # Any thread.

    def join(self) -> None:
        """Become a member, take the free partitions, and go on in a thread.

        Raises:
            ActorflowError: the register cannot be reached.

        """
        answers, wants = 0, True
        while wants and answers < _FIRST and not self._usable[0]:
            with self._lock:
                step = self._member.step(self._now())
            for action in step.actions:
                if isinstance(action, Register):
                    self._receive(Registered(action.number, self._asked(action.request)))
                    answers += 1
                    wants = self._member.hurries(self._now())  # something is free
            self._environment.sleep(_PAUSE)
        self._loop.start()

    def owned(self) -> Mapping[int, int]:
        """Return the partitions in which runs may start now, each with its epoch. O(1) mostly.

        Do not cache the result: it is valid until the first of its leases ends.
        """
        usable, until = self._usable
        if self._now() < until:
            return usable
        with self._lock:
            return self._remember(self._now())

    def inherited(self, partition: int) -> bool:
        """Return whether the owner before us ended without handing a partition over."""
        return partition in self._inherited

    def draining(self) -> frozenset[int]:
        """Return the partitions in which nothing starts any more, but something may run."""
        with self._lock:
            return self._member.draining

    def drained(self, partition: int) -> None:
        """Report that nothing of a partition runs here any more."""
        self._tell(Drained(partition))

    def fenced(self, partition: int) -> None:
        """Report that the store has refused a commit: another member has taken the partition."""
        self._tell(Fenced(partition))

    def serve(
        self, taskers: Collection[str], busy: Callable[[], int], codes: Collection[str] = ()
    ) -> None:
        """Announce the taskers and the code of this process; `busy` counts its tasks."""
        self._busy = busy
        with self._lock:
            changed = self._member.serve(taskers, codes)
        if changed:
            self.hurry()

    def peers(self) -> Sequence[Peer]:
        """Return the members that were alive when the register was last asked: the same list."""
        return self._peers

    def hurry(self) -> None:
        """Check in soon: another member has handed something over."""
        self._tell(Hinted())

    def stop(self) -> None:
        """Stop at once. The partitions fall to others when their leases end."""
        self._loop.stop()
        with self._lock:
            self._usable = {}, inf

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._loop.wake()

    # The thread.

    def _turn(self) -> float:
        """Do everything that is due; return the seconds until there may be more."""
        while self._events:
            self._receive(self._events.popleft())
        with self._lock:
            self._member.busy_with(self._busy())
            step = self._member.step(self._now())
            self._remember(self._now())
        self._carry_out(step.actions)
        return 0.0 if step.actions else step.wait  # an answer may have led to more to do

    def _receive(self, event: Event) -> None:
        with self._lock:
            actions = self._member.receive(event, self._now())
            self._remember(self._now())
        self._carry_out(actions)

    def _remember(self, now: float) -> Mapping[int, int]:
        """Note and return the partitions in which runs may start. Under the lock."""
        self._usable = usable, _ = self._member.usable(now)
        self._inherited.intersection_update(usable)
        return usable

    def _carry_out(self, actions: Iterable[Action]) -> None:
        look = False
        for action in actions:
            match action:
                case Register(number, request):
                    self._check_in(number, request)
                case Hint(to):
                    self._hint(to)
                case _:  # the partitions have changed, or it is time to sweep
                    look = True
        if look:
            self._carrier.look()

    def _check_in(self, number: int, request: CheckIn) -> None:
        try:
            view: View | None = self._asked(request)
        except ActorflowError as error:
            view = None
            outage_of(self._carrier).failed(error, "a check-in failed")
        else:
            outage_of(self._carrier).ended()
        self._receive(Registered(number, view))
        if self._peers_changed:
            self._peers_changed = False
            self._carrier.look()

    def _asked(self, request: CheckIn) -> View:
        """Check in; note the partitions taken from an owner that did not release them."""
        asked = self._now()
        view = self._carrier.check_in(request)
        self.time.note(asked=asked, said=view.now, heard=self._now())
        before, self._view = self._view, view
        peers = [Peer(each.name, each.taskers, each.busy, each.codes) for each in view.members]
        abilities = [(peer.name, peer.taskers, peer.codes) for peer in peers]
        self._peers_changed |= abilities != [(p.name, p.taskers, p.codes) for p in self._peers]
        self._peers = peers
        if before is not None:
            self._inherited.update(n for n in request.take if before.holdings[n].owner is not None)
        return view

    def _hint(self, member: str) -> None:
        try:
            self._carrier.hint(member)
        except ActorflowError as error:
            outage_of(self._carrier).failed(error, "a hint cannot be sent")
