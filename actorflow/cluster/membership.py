"""A member of the ring in production: one thread that drives the pure `Member`.

It knows no server. A carrier gives it a register to check in at, a way to reach other members, and
is told whenever there may be something to look at.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from actorflow.cluster.ring import (
    Drained,
    Event,
    Fenced,
    HandedOver,
    Member,
    Received,
    Register,
    Registered,
    Send,
)
from actorflow.cluster.timekeeping import StoreTime
from actorflow.engine.stores.protocol import Peer
from actorflow.runtime.bell import Bell
from actorflow.runtime.errors import ActorflowError
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from actorflow.cluster.ring import Action, CheckIn, RingOptions, Status, View

__all__ = ["Carrier", "Membership"]

_FIRST = 2  # answers of the register: one says what is free, the next what was taken
_FRESH = 0.02  # seconds for which an answer about what is owned is used again
_LOG_EVERY = 60.0  # seconds between two lines about a store that cannot be reached


class Carrier(Protocol):
    """What a membership needs of the store that carries the cluster."""

    def check_in(self, request: CheckIn) -> View:
        """Pass a request to the register. Raises an `ActorflowError` if that cannot be reached."""

    def hint(self, member: str) -> None:
        """Ask another member to check in soon; the request may be lost."""

    def look(self) -> None:
        """Look at all partitions that are owned now: there may be more of them, or fewer."""


class Membership:
    """Takes part in a ring until it leaves. Thread-safe.

    Args:
        name: unique for each life of a process.
        carrier: the store.
        options: all members of a ring use the same.

    """

    def __init__(self, name: str, carrier: Carrier, options: RingOptions) -> None:
        self.name = name
        self.options = options
        self.time = StoreTime()
        """Of the store's clock."""
        self._carrier = carrier
        self._member = Member(name, options)
        self._lock = threading.Lock()  # of the member, which is not thread-safe
        self._events: deque[Event | None] = deque()
        self._bell = Bell()
        self._owned: dict[int, int] = {}
        self._until = 0.0  # what is noted in `_owned` holds so long
        self._view: View | None = None
        self._peers: Sequence[Peer] = ()
        self._inherited: set[int] = set()
        self._stopped = threading.Event()
        self._failing_since: float | None = None
        self._logged = 0.0
        self._thread = threading.Thread(
            target=self._run, name=f"actorflow-member-{name}", daemon=True
        )

    # Any thread.

    def join(self) -> None:
        """Become a member, take what is free, and go on in a thread.

        Raises:
            ActorflowError: the register cannot be reached.

        """
        answers, wants = 0, True
        while wants and answers < _FIRST and not self._owned:
            with self._lock:
                step = self._member.step(monotonic())
            for action in step.actions:
                if isinstance(action, Register):
                    self._receive(Registered(action.number, self._asked(action.request)))
                    answers += 1
                    wants = self._member.hurries(monotonic())  # something is free
            self._stopped.wait(_FRESH)
        self._thread.start()

    def owned(self) -> Mapping[int, int]:
        """Return the partitions in which runs may start now, each with its epoch. O(1) mostly."""
        now = monotonic()
        if now >= self._until:
            with self._lock:
                self._remember(now)
        return self._owned

    def inherited(self, partition: int) -> bool:
        """Return whether the owner before us ended without handing a partition over."""
        return partition in self._inherited

    def draining(self) -> frozenset[int]:
        """Return the partitions in which nothing starts any more, but something may run."""
        with self._lock:
            return self._member.draining

    def drained(self, partition: int) -> None:
        """Say that nothing of a partition runs here any more."""
        self._tell(Drained(partition))

    def fenced(self, partition: int) -> None:
        """Say that the store has refused a commit: somebody else has taken the partition."""
        self._tell(Fenced(partition))

    def serve(self, taskers: Collection[str], busy: int, codes: Collection[str] = ()) -> None:
        """Announce which taskers and which code are here, and how many tasks they have."""
        with self._lock:
            changed = self._member.serve(taskers, codes)
            self._member.busy_with(busy)
        if changed:
            self.hurry()

    def peers(self) -> Sequence[Peer]:
        """Return the members that were alive when the register was last asked: the same list."""
        return self._peers

    def hurry(self) -> None:
        """Check in soon: another member has handed something over."""
        self._tell(Received(HandedOver(0)))

    def status(self) -> Status:
        """Return a picture of the member."""
        with self._lock:
            return self._member.status()

    def stop(self) -> None:
        """Stop at once: what is owned falls to others when its lease is over."""
        if self._thread.ident is not None:
            self._tell(None)
            if threading.current_thread() is not self._thread:
                self._thread.join()
        with self._lock:
            self._owned, self._until = {}, float("inf")

    def _tell(self, event: Event | None) -> None:
        self._events.append(event)
        self._bell.ring()

    # The thread.

    def _run(self) -> None:
        wait = 0.0
        while True:
            self._bell.wait(wait)
            while self._events:
                event = self._events.popleft()
                if event is None:
                    return
                self._receive(event)
            with self._lock:
                step = self._member.step(monotonic())
                self._remember(monotonic())
            self._carry_out(step.actions)
            wait = 0.0 if step.actions else step.wait  # an answer may have led to more to do

    def _receive(self, event: Event) -> None:
        with self._lock:
            actions = self._member.receive(event, monotonic())
            self._remember(monotonic())
        self._carry_out(actions)

    def _remember(self, now: float) -> None:
        """Cache what is owned, for frequent callers. Under the lock."""
        member = self._member
        self._owned = {
            partition: epoch
            for partition, epoch in member.owned.items()
            if member.may_start(partition, now)
        }
        self._until = now + _FRESH
        self._inherited.intersection_update(self._owned)

    def _carry_out(self, actions: Iterable[Action]) -> None:
        look = False
        for action in actions:
            match action:
                case Register(number, request):
                    self._check_in(number, request)
                case Send(to, HandedOver()):
                    self._hint(to)
                case _:  # what is owned has changed, or it is time to sweep
                    look = True
        if look:
            self._carrier.look()

    def _check_in(self, number: int, request: CheckIn) -> None:
        try:
            view: View | None = self._asked(request)
        except ActorflowError as error:
            view = None
            self._log(error)
        else:
            if self._failing_since is not None:
                log.info("the register answers again", member=self.name)
                self._failing_since = None
        self._receive(Registered(number, view))

    def _asked(self, request: CheckIn) -> View:
        """Check in; note the partitions taken from an owner that did not release them."""
        asked = monotonic()
        view = self._carrier.check_in(request)
        self.time.note(asked=asked, said=view.now, heard=monotonic())
        before, self._view = self._view, view
        self._peers = [Peer(seat.name, seat.taskers, seat.busy, seat.codes) for seat in view.seats]
        if before is not None:
            self._inherited.update(n for n in request.take if before.holdings[n].owner is not None)
        return view

    def _hint(self, member: str) -> None:
        try:
            self._carrier.hint(member)
        except ActorflowError as error:
            self._log(error)

    def _log(self, error: ActorflowError) -> None:
        """Log once a minute that the store cannot be reached."""
        now = monotonic()
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._logged < _LOG_EVERY:
            return
        self._logged = now
        lasted = round(now - self._failing_since)
        log.warning(
            "the register does not answer", member=self.name, for_s=lasted, error=str(error)
        )
