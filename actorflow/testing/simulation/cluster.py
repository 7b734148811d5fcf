"""A simulated cluster: workers, a store, a network, clients, and the faults that befall them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actorflow.cluster.ring import Member, Post, Received, RingOptions
from actorflow.testing.simulation.checks import Checks
from actorflow.testing.simulation.client import Cancel, Client, Sent
from actorflow.testing.simulation.driver import Driver
from actorflow.testing.simulation.faults import FaultType
from actorflow.testing.simulation.network import STORE, Network
from actorflow.testing.simulation.store import SharedStore
from actorflow.testing.simulation.worker import Worker
from actorflow.testing.simulation.world import START

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actorflow.engine.kind import Kind
    from actorflow.testing.simulation.faults import Fault, Faults
    from actorflow.testing.simulation.world import World

__all__ = ["OPTIONS", "Cluster", "Parts"]

OPTIONS = RingOptions(lease=3.0, sweep=1.5, cycle=0.6, clock=0.3, grace=0.5)
"""Short times, so that much happens in a short history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a cluster is made of. Tests of the simulation itself put broken parts in."""

    member: type[Member] = Member
    driver: type[Driver] = Driver
    store: type[SharedStore] = SharedStore


class Cluster:
    """Everything that takes part in one history."""

    def __init__(
        self,
        world: World,
        faults: Faults,
        make_kinds: Callable[[], Sequence[Kind]],
        taskers: Mapping[str, Callable[[Any], Any]],
        parts: Parts,
    ) -> None:
        self.world = world
        self.faults = faults
        self.options = OPTIONS
        self.taskers = taskers
        self.parts = parts
        self._make_kinds = make_kinds
        self.store = parts.store(world, faults.partitions)
        self.checks = Checks(world, self.store)
        self.network = Network(world, faults, self.store)
        self.client = Client(self)
        self._lives = 0
        self._workers: dict[str, Worker] = {}
        self._by_name: dict[str, Worker] = {}
        for place in faults.workers:
            self._start(place)
        for fault in faults.faults:
            world.after(fault.at, lambda fault=fault: self._strike(fault))  # type: ignore[misc]

    def kinds(self) -> dict[str, Kind]:
        """Return new kinds, as another process would have them."""
        return {kind.name: kind for kind in self._make_kinds()}

    def find(self, name: str) -> Worker | None:
        """Return a worker that is alive."""
        found = self._by_name.get(name)
        return found if found is not None and found.alive else None

    def notify(self, execution: str) -> None:
        """Wake the owner of a partition, as a store does after a commit from outside."""
        partition = self.store.partition(execution)
        owner = self.find(self.store.roll.holdings[partition].owner or "")
        if owner is not None and self.network.is_heard():
            self._lives += 1
            post = Post(f"store/{self._lives}", partition, execution, creates=True)
            self.network.send(STORE, owner.place, lambda: owner.hear(Received(post)))

    # Load.

    def load(self, sent: Sequence[Sent | Cancel], kind: str) -> None:
        """Plan what clients do, over the time in which things go wrong."""
        dice = self.world.dice("load")
        self.client.plan(sent)
        bursts = [dice.uniform(0.0, self.faults.lasts) for _ in range(dice.choice((1, 3, 1_000)))]
        for number, each in enumerate(sent):
            drawn = min(dice.choice(bursts) + dice.uniform(0.0, 0.5), self.faults.lasts)
            at = drawn if each.at is None else each.at
            if isinstance(each, Cancel):
                self.world.after(at, lambda each=each: self.client.cancel(each.execution))  # type: ignore[misc]
            else:
                name = kind if each.kind is None else each.kind
                self.world.after(
                    at,
                    lambda number=number, each=each, name=name: self.client.send(  # type: ignore[misc]
                        number, each, name
                    ),
                )

    # Faults.

    def _start(self, place: str) -> None:
        self._lives += 1
        name = f"{place}{self._lives}"
        self.world.note(name, "starts at", place)
        self._workers[place] = self._by_name[name] = Worker(self, place, name)

    def _strike(self, fault: Fault) -> None:
        self.world.note("fault", str(fault.type), *fault.workers, f"for {fault.lasts:.2f} s")
        network, after = self.network, self.world.after
        match fault.type:
            case FaultType.SPLIT:
                cut = network.cut(fault.workers)
                after(fault.lasts, lambda: network.mend(cut))
            case FaultType.STORE_DOWN:
                network.store_down += 1
                after(fault.lasts, self._store_up)
            case FaultType.STORE_SLOW:
                network.store_slow += 1
                after(fault.lasts, self._store_fast)
            case _:
                for place in fault.workers:
                    self._strike_worker(fault, place)

    def _store_up(self) -> None:
        self.network.store_down = max(self.network.store_down - 1, 0)

    def _store_fast(self) -> None:
        self.network.store_slow = max(self.network.store_slow - 1, 0)

    def _strike_worker(self, fault: Fault, place: str) -> None:
        worker = self._workers[place]
        if not worker.alive or worker.leaving:
            return
        match fault.type:
            case FaultType.KILL:
                worker.kill()
                self.world.after(fault.lasts, lambda: self._start(place))
            case FaultType.PAUSE:
                worker.pause()
                self.world.after(fault.lasts, worker.go_on)
            case FaultType.LEAVE:
                worker.leave()
                self.world.after(fault.lasts, lambda: self._replace(place, worker))

    def _replace(self, place: str, worker: Worker) -> None:
        """Start a worker again that has left, or was asked to and takes too long."""
        if worker.alive:
            worker.kill()
        self._start(place)

    def heal(self) -> None:
        """End all faults."""
        self.network.heal()
        for place, worker in self._workers.items():
            worker.go_on()
            if not worker.alive or worker.leaving:
                self._replace(place, worker)

    # Rest.

    def unsettled(self, horizon: float) -> str | None:
        """Return what has not come to rest; a timer that is due later than that may stay."""
        if self.client.waiting:
            return f"{self.client.waiting} requests of clients are not acknowledged"
        alive = [worker for worker in self._workers.values() if worker.alive]
        ring = tuple(sorted(worker.name for worker in alive))
        owned = {number: worker.name for worker in alive for number in sorted(worker.member.owned)}
        return self.checks.unsettled(ring, dict(sorted(owned.items())), START + horizon)
