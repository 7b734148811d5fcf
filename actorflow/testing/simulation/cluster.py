"""A simulated cluster: processes, what befalls them, and the clients that send them work."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.engine.errors import ExecutionEnded, UnknownExecution
from actorflow.engine.stores.memory import MemoryStore
from actorflow.runtime.errors import Rejected
from actorflow.testing.simulation.checks import Checks
from actorflow.testing.simulation.faults import FaultType
from actorflow.testing.simulation.process import Process
from actorflow.testing.simulation.store import Network, SimulatedStore
from actorflow.testing.simulation.world import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.application import Engine
    from actorflow.testing.simulation.faults import Fault, Faults
    from actorflow.testing.simulation.world import World

__all__ = ["Cancel", "Cluster", "Sent"]

_AGAIN = 0.3  # seconds after which a client asks again
_LATE = 5.0  # seconds after which a client does not wait for an answer any more


class Sent(NamedTuple):
    """A message from outside. The execution is created if it is not there."""

    execution: str
    body: Any
    kind: str | None = None
    """`None`: the first of the kinds that are simulated."""
    at: float | None = None
    """When it is sent, in seconds since the beginning; drawn from the seed by default."""
    in_order: bool = False
    """It is sent after those before it to the same execution are acknowledged."""


class Cancel(NamedTuple):
    """An execution is ended from outside, whatever it does."""

    execution: str
    at: float | None = None


class _Request:
    """Something that a client asks for until it has an answer."""

    def __init__(
        self,
        cluster: Cluster,
        do: Callable[[Engine], Any],
        told: Callable[[Any], None],
        before: Sequence[_Request] = (),
    ) -> None:
        self._cluster = cluster
        self._do = do
        self._told = told
        self._before = before
        self._tries = 0
        self.done = False

    def begin(self, after: int | None = None) -> None:
        """Ask any process, unless another try was made `after` the one of that number."""
        cluster = self._cluster
        if self.done or after not in (None, self._tries):
            return
        there = [each for each in cluster.processes() if each.engine is not None]
        if not there or not all(each.done for each in self._before):
            cluster.world.after(_AGAIN, self.begin)
            return
        self._tries += 1
        cluster.dice.choice(there).call(self._do, self._answered)
        cluster.world.after(_LATE, partial(self.begin, self._tries))

    def _answered(self, result: Any) -> None:
        if self.done:
            return
        if isinstance(result, Exception) and not isinstance(result, ExecutionEnded):
            self._cluster.world.after(_AGAIN, self.begin)
            return
        self.done = True
        if not isinstance(result, Exception):
            self._told(result)


class _SharedMemoryStore(MemoryStore):
    """What all engines share, as it is: without delay and faults."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._tables, self._lock = network.memory.tables, network.memory.lock


class Cluster:
    """Everything that takes part in one history."""

    def __init__(
        self,
        world: World,
        faults: Faults,
        set_up: Callable[[Engine, Process], None],
        store: type[SimulatedStore] = SimulatedStore,
    ) -> None:
        self.world = world
        self.faults = faults
        self.dice = world.dice("client")
        self.network = Network(world, faults)
        self.store = _SharedMemoryStore(self.network)
        self.checks = Checks(world, self.network, self.store)
        self.requests: list[_Request] = []
        self._set_up = set_up
        self._make_store = partial(store, self.network)
        self._lives = 0
        self._versions = dict.fromkeys(faults.workers, 0)
        self._processes: dict[str, Process] = {}
        self.all: list[Process] = []
        """All lives of all processes."""
        for place in faults.workers:
            self._start(place)
        for fault in faults.faults:
            world.after(fault.at, partial(self._strike, fault))

    def processes(self) -> list[Process]:
        """Return the processes that are alive and stay."""
        found = self._processes.values()
        return [each for each in found if each.alive and not (each.leaving or each.paused)]

    # Load.

    def load(self, sent: Sequence[Sent | Cancel]) -> None:
        """Plan what clients do, over the time in which things go wrong."""
        dice = self.world.dice("load")
        bursts = [dice.uniform(0.0, self.faults.lasts) for _ in range(dice.choice((1, 3, 1_000)))]
        for number, each in enumerate(sent):
            drawn = min(dice.choice(bursts) + dice.uniform(0.0, 0.5), self.faults.lasts)
            request = self._cancel(each) if isinstance(each, Cancel) else self._send(
                number, each, sent[:number]
            )  # fmt: skip
            self.requests.append(request)
            self.world.after(drawn if each.at is None else each.at, request.begin)

    def _send(self, number: int, sent: Sent, earlier: Sequence[Sent | Cancel]) -> _Request:
        keys = [f"client {number}"]

        def send(engine: Engine) -> str:
            key = keys[-1]
            try:
                engine.send(sent.execution, sent.body, kind=sent.kind, key=key)
            except Rejected:  # it is a dead letter now, and its key is used
                if key == keys[-1]:
                    keys.append(f"client {number} again {len(keys)}")
                raise
            return key

        def told(key: str) -> None:
            row = self.network.memory.tables.keys.get((sent.execution, key))
            if row is None:
                what = f"the key {key!r} of {sent.execution!r} is not stored"
                raise self.world.fail(InvariantBroken("C15", what))
            self.world.note("client", "got the acknowledgement:", row.id, sent.execution)
            self.checks.acked[row.id] = sent.execution

        before = [
            self.requests[at]
            for at, other in enumerate(earlier)
            if sent.in_order and other.execution == sent.execution
        ]
        return _Request(self, send, told, before)

    def _cancel(self, cancel: Cancel) -> _Request:
        def end(engine: Engine) -> bool:
            try:
                return engine.cancel(cancel.execution)
            except UnknownExecution:
                return False

        def told(ended: bool) -> None:  # noqa: FBT001 - an answer
            if ended:
                self.world.note("client", "got the cancellation confirmed:", cancel.execution)
                self.checks.cancelled.add(cancel.execution)

        return _Request(self, end, told)

    # Faults.

    def _start(self, place: str) -> None:
        self._lives += 1
        name = f"{place}{self._lives}"
        self.world.note(name, "starts at", place)
        process = Process(self.world, place, name, self.faults, self._make_store, self._register)
        process.version = self._versions[place]
        self._processes[place] = process
        self.all.append(process)

    def _register(self, engine: Engine, process: Process) -> None:
        self._set_up(engine, process)
        for kind in engine.parts.kinds.values():
            self.checks.watch(engine, kind)

    def _kill(self, process: Process) -> None:
        self.world.note(process.name, "is killed")
        self.world.kill(process)

    def _strike(self, fault: Fault) -> None:
        self.world.note("fault", str(fault.type), *fault.workers, f"for {fault.lasts:.2f} s")
        network, after = self.network, self.world.after
        match fault.type:
            case FaultType.SPLIT:
                cut = network.cut(fault.workers)
                after(fault.lasts, lambda: network.mend(cut))
            case FaultType.STORE_DOWN | FaultType.STORE_SLOW | FaultType.STORE_FULL:
                name = {"store down": "down", "store slow": "slow"}.get(fault.type, "full")
                self._count(name, 1)
                after(fault.lasts, partial(self._count, name, -1))
            case FaultType.DEPLOY:
                each = fault.lasts / len(fault.workers)
                for number, place in enumerate(fault.workers):
                    after(number * each, partial(self._deploy, place, each))
            case _:
                for place in fault.workers:
                    self._strike_process(fault, self._processes[place])

    def _count(self, name: str, by: int) -> None:
        setattr(self.network, name, max(getattr(self.network, name) + by, 0))

    def _strike_process(self, fault: Fault, process: Process) -> None:
        if not process.alive or process.leaving:
            return
        match fault.type:
            case FaultType.KILL:
                self._kill(process)
            case FaultType.PAUSE:
                self.world.note(process.name, "is stopped")
                process.paused = True
                self.world.after(fault.lasts, lambda: self._resume(process))
                return
            case FaultType.LEAVE:
                process.leave()
        self.world.after(fault.lasts, lambda: self._replace(process))

    def _deploy(self, place: str, lasts: float) -> None:
        self._versions[place] += 1
        process = self._processes[place]
        self._resume(process)
        if process.alive and not process.leaving:
            process.leave()
            self.world.after(lasts, lambda: self._replace(process))

    def _resume(self, process: Process) -> None:
        if process.alive and process.paused:
            self.world.note(process.name, "goes on")
            self.world.resume(process)

    def _replace(self, process: Process) -> None:
        """Restart a process that has ended, or does not end although it was asked to."""
        if self._processes[process.place] is not process:
            return
        if process.alive:
            self._kill(process)
        self._start(process.place)

    def heal(self) -> None:
        """End all faults."""
        self.network.heal()
        for process in list(self._processes.values()):
            self._resume(process)
            if not process.alive or process.leaving:
                self._replace(process)

    # Rest.

    def unsettled(self, horizon: float) -> str | None:
        """Return a description of unfinished work, except timers due after `horizon`."""
        waiting = sum(not each.done for each in self.requests)
        if waiting:
            return f"{waiting} requests of clients are not acknowledged"
        return self.checks.unsettled([each.name for each in self.processes()], horizon)

    def close(self) -> None:
        """End everything."""
        self.world.close()
        for process in self.all:
            process.dispose()
