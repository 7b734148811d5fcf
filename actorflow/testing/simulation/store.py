"""The store of a simulated process, behind a network on which much goes wrong."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from actorflow.cluster.ring import RingOptions
from actorflow.engine.errors import OutcomeUnknown, StoreFull, StoreRefused
from actorflow.engine.stores.memory.shared import SharedMemory, SharedMemoryStore
from actorflow.engine.stores.protocol import NEVER_RUN
from actorflow.testing.simulation.world import START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.cluster.ring import CheckIn, View
    from actorflow.engine.stores.protocol import Change
    from actorflow.testing.simulation.faults import Faults
    from actorflow.testing.simulation.process import Process
    from actorflow.testing.simulation.world import World

__all__ = ["LEASE", "Network", "SimulatedStore"]

LEASE = 3.0
"""Seconds that a lease lasts: short, so that much happens in a short history."""

_ANSWER = ("committed", "refusal", "revision", "rows", "resulting_messages")
_SLOW = 20.0  # times longer


class Network:
    """The network between the processes and their shared memory. Faults apply until `heal()`."""

    def __init__(self, world: World, faults: Faults) -> None:
        self.world = world
        self.faults = faults
        self.memory = SharedMemory(faults.partitions, time=lambda: START + world.now)
        self.dice = world.dice("network")
        self.observers: list[Callable[[Change, str], None]] = []
        """Called with each change that was applied, and who had asked for it."""
        self._cut: dict[int, frozenset[str]] = {}
        self._cuts = 0
        self.healed = False
        self.heard: dict[str, tuple[float, float]] = {}
        """When the register has answered each engine, the last two times."""
        self.down = self.slow = self.full = 0

    def heal(self) -> None:
        """End all faults."""
        self.healed = True
        self._cut.clear()
        self.down = self.slow = self.full = 0

    def cut(self, places: Iterable[str]) -> int:
        """Cut some processes off from the others and from the store; return a number for `mend`."""
        self._cuts += 1
        self._cut[self._cuts] = frozenset(places)
        return self._cuts

    def mend(self, number: int) -> None:
        """Connect them again."""
        self._cut.pop(number, None)

    def require(self, place: str) -> None:
        """Raise `StoreRefused` if the store cannot be reached."""
        if self.down:
            msg = "the store is down"
            raise StoreRefused(msg)
        if any(place in side for side in self._cut.values()):
            msg = f"{place} cannot reach the store"
            raise StoreRefused(msg)

    def connects(self, one: str, other: str) -> bool:
        """Return whether notices get from one process to another."""
        return all((one in side) == (other in side) for side in self._cut.values())

    def delay(self) -> None:
        """Wait for as long as a request takes one way."""
        least, most = self.faults.store_delay
        if self.healed:
            most = least
        share = self.dice.random() ** 2  # most are quick
        if share > 0.25 or self.slow:  # noqa: PLR2004 - the quickest take no time at all
            self.world.sleep((least + (most - least) * share) * (_SLOW if self.slow else 1.0))

    def loses_answer(self) -> bool:
        """Return whether the answer to a request is lost."""
        return not self.healed and self.dice.random() < self.faults.store_loss

    def carry(self, source: str, target: Process, deliver: Callable[[], None]) -> None:
        """Carry a notice: it may be lost, late, doubled or overtaken."""
        dice, faults = self.dice, self.faults
        copies = 1
        if not self.healed:
            if not self.connects(source, target.place) or dice.random() < faults.loss:
                return
            copies += dice.random() < faults.duplication
        least, most = (0.001, 0.01) if self.healed else faults.delay
        for _ in range(copies):
            self.world.after(least + (most - least) * dice.random() ** 2, deliver, target)


class SimulatedStore(SharedMemoryStore):
    """A store in shared memory that is sometimes slow, full or down, and that loses answers.

    Args:
        network: on the way to it.
        process: whose store it is.
        membership: makes what takes part in the ring.

    """

    def __init__(self, network: Network, process: Process, membership: Callable[..., Any]) -> None:
        self._network = network
        self._unknown: list[tuple[Change, list[Any]]] = []  # what happened to the last commit
        self.process = process
        options = RingOptions(lease=LEASE, sweep=1.5)
        super().__init__(network.memory, process.name, options, membership=membership)
        self.traits = replace(self.traits, decides=True)

    def _require_open(self) -> None:
        super()._require_open()
        self._network.require(self.process.place)

    # Writing.

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply the changes, unless something goes wrong."""
        network = self._network
        network.delay()
        self._require_open()
        if network.full:
            msg = "the store is full"
            raise StoreFull(msg)
        self._find_out()
        left = [change for change in changes if not change.committed]
        self.apply(left)
        for change in left:
            if change.committed:
                for observe in network.observers:
                    observe(change, self.name)
        network.delay()
        if network.loses_answer():
            self._lose_answer(changes)

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply the changes. Mutants of the tests replace this."""
        super().commit(changes)

    def _lose_answer(self, changes: Sequence[Change]) -> None:
        """Lose the answer; the next commit finds out, as on Postgres."""
        self._unknown = [(each, [getattr(each, name) for name in _ANSWER]) for each in changes]
        for change in changes:
            change.committed, change.refusal, change.revision = False, None, NEVER_RUN
            change.rows = change.resulting_messages = ()
        msg = "no answer: whether this was stored is not known; the next commit finds out"
        raise OutcomeUnknown(msg)

    def _find_out(self) -> None:
        unknown, self._unknown = self._unknown, []
        for change, answer in unknown:
            for name, value in zip(_ANSWER, answer, strict=True):
                setattr(change, name, value)

    def check_in(self, request: CheckIn) -> View:
        """Pass a request to the register."""
        network = self._network
        network.delay()
        self._require_open()
        view = super().check_in(request)
        heard = network.world.now
        network.delay()
        if network.loses_answer():
            msg = "no answer from the register"
            raise StoreRefused(msg)
        network.heard[self.name] = network.heard.get(self.name, (heard, heard))[1], heard
        return view

    def close(self) -> None:
        """Close the store; partitions that cannot be released pass on when their lease expires."""
        with suppress(StoreRefused):
            super().close()

    def forget(self) -> None:
        """Take no part any more: the engine could not begin."""
        self._membership.stop()
        if self in self._network.memory.stores:  # else the engine has closed it
            self._network.memory.stores.remove(self)

    def notify(self, store: SharedMemoryStore, deliver: Callable[[], None]) -> None:
        """Carry a notice to the store of another engine, if it gets there."""
        assert isinstance(store, SimulatedStore)  # noqa: S101 - a failed check
        if store.process.alive:
            self._network.carry(self.process.place, store.process, deliver)
