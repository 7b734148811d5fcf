"""Run one history: a seed, a cluster, faults, and checks at the end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.testing.simulation.cluster import Cancel, Cluster, Sent
from actorflow.testing.simulation.faults import Faults
from actorflow.testing.simulation.store import SimulatedStore
from actorflow.testing.simulation.world import HistoryLine, InvariantBroken, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from actorflow.application import Engine
    from actorflow.engine.kind import Kind
    from actorflow.engine.stores.protocol import ExecutionRow
    from actorflow.engine.tasks.task import TaskAttempt
    from actorflow.testing.simulation.process import Process

__all__ = ["TASKER", "History", "Simulation", "SimulationFailed", "simulate"]

_PATIENCE = 60.0  # seconds after the last fault within which all must have come to rest
_WAITED = 10.0  # seconds after that for which timers are waited for
_SHORTENED = 60  # histories that are run to shorten one that fails
TASKER: dict[str, Any] = {"concurrency": 2}
"""The options of simulated taskers."""
_SHOWN = 40  # lines of a history that are shown


@dataclass(frozen=True, slots=True)
class History:
    """What happened in one simulation, line by line."""

    seed: int
    lines: tuple[HistoryLine, ...]
    executions: Mapping[str, ExecutionRow]
    """All executions, as they are stored in the end."""
    seconds: float
    """How long it took, in virtual time."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines))


class SimulationFailed(AssertionError):
    """Something that must hold does not; the text has the seed and a shortened history."""

    def __init__(self, seed: int, broken: InvariantBroken, faults: Faults, text: str) -> None:
        super().__init__(text)
        self.seed = seed
        self.rule = broken.rule
        self.faults = faults
        """The faults that are still needed for the failure."""


def simulate(
    kinds: Callable[[], Kind | Sequence[Kind]],
    *,
    seed: int,
    messages: Sequence[Sent | Cancel | tuple[str, Any]],
    deploys: Sequence[Callable[[], Kind | Sequence[Kind]]] = (),
    taskers: Mapping[str, Callable[[Any], Any]] | None = None,
    check: Callable[[Mapping[str, ExecutionRow]], None] | None = None,
    faults: Faults | None = None,
    store: type[SimulatedStore] = SimulatedStore,
    shorten: bool = True,
) -> History:
    """Run executions on a simulated cluster in which much goes wrong; return what happened.

    Everything follows from the seed: the same one leads to the same history. Afterwards these hold,
    or it raises: no acknowledged message is lost, no message goes into a state twice, each timer
    that is due has fired once, no two workers have committed in the same epoch of a partition, and
    everything has come to rest.

    Args:
        kinds: makes the kinds of execution of one worker; called for each worker that starts.
        seed: of all that is left to chance.
        messages: what clients send: pairs of an execution and a body, `Sent` or `Cancel`.
        deploys: make the kinds of later versions of the code, for faults of the type `DEPLOY`.
        taskers: functions that do the tasks, by the name of the tasker. They may be called more
            than once for a task, as always. A task that raises has failed; it is not tried again.
        check: gets all executions in the end, for conditions of your own.
        faults: a plan of faults; drawn from the seed by default.
        store: what each engine stores in.
        shorten: whether to look for fewer faults that still make it fail.

    Raises:
        SimulationFailed: something does not hold.

    """
    versions = [kinds, *deploys]
    kind = next((each.name for each in _listed(kinds())), None)

    def set_up(engine: Engine, process: Process) -> None:
        for each in _listed(versions[min(process.version, len(deploys))]()):
            engine.register(each)
        for name, function in (taskers or {}).items():
            if process.has_taskers:
                engine.tasker(name, partial(_perform, process, function), **TASKER)

    load = [_sent(each, kind) for each in messages]
    return Simulation(seed, set_up, load, check, store).history(faults, shorten=shorten)


def _listed(made: Kind | Sequence[Kind]) -> Sequence[Kind]:
    return made if isinstance(made, Sequence) else [made]


def _perform(process: Process, function: Callable[[Any], Any], task: TaskAttempt) -> Any:
    process.work()
    return function(task.body)


def _sent(given: Sent | Cancel | tuple[str, Any], kind: str | None) -> Sent | Cancel:
    each = given if isinstance(given, (Sent, Cancel)) else Sent(*given)
    return each if isinstance(each, Cancel) or each.kind else each._replace(kind=kind)


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulation that can be run with more or fewer faults."""

    seed: int
    set_up: Callable[[Engine, Process], None]
    """Registers what an engine runs."""
    load: Sequence[Sent | Cancel]
    check: Callable[[Mapping[str, ExecutionRow]], None] | None
    store: type[SimulatedStore] = SimulatedStore

    def history(self, faults: Faults | None, *, shorten: bool = True) -> History:
        """Run a history; return it.

        Raises:
            SimulationFailed: something does not hold.

        """
        plan = Faults.drawn(self.seed) if faults is None else faults
        history, broken = self.run(plan)
        if broken is None:
            return history
        if shorten:
            plan, history, broken = _shortened(self, plan, history, broken)
        raise SimulationFailed(self.seed, broken, plan, _report(plan, history, broken)) from broken

    def run(self, plan: Faults) -> tuple[History, InvariantBroken | None]:
        """Run a history with these faults; return it and its failure, if any."""
        with ThreadPoolExecutor(1) as apart, quiet():  # no signal interrupts what it does
            return apart.submit(self._run, plan).result()

    def _run(self, plan: Faults) -> tuple[History, InvariantBroken | None]:
        world = World(self.seed)
        cluster = Cluster(world, plan, self.set_up, self.store)
        broken = None
        try:
            cluster.load(self.load)
            world.run(plan.lasts)
            cluster.heal()
            self._rest(world, cluster, world.now)
            self._rest(world, cluster, world.now + _WAITED)
            cluster.checks.check_end()
            self._check(_executions(cluster))
        except InvariantBroken as error:
            broken = error
        history = History(self.seed, tuple(world.lines), _executions(cluster), world.now)
        cluster.close()
        return history, broken

    def _check(self, rows: Mapping[str, ExecutionRow]) -> None:
        try:
            if self.check is not None:
                self.check(rows)
        except InvariantBroken:
            raise
        except AssertionError as error:
            raise InvariantBroken("check", str(error) or repr(error)) from error

    def _rest(self, world: World, cluster: Cluster, horizon: float) -> None:
        end = world.now + _PATIENCE
        while (what := cluster.unsettled(horizon)) is not None:
            if world.now >= end:
                raise InvariantBroken("settles", f"{_PATIENCE:.0f} s after the last fault {what}")
            world.run(1.0)


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing: engines in trouble log much."""
    logger = logging.getLogger("actorflow")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _executions(cluster: Cluster) -> dict[str, ExecutionRow]:
    return {row.id: row for row in cluster.store.listing(limit=1_000_000).rows}


# A history that fails.


def _shortened(
    run: Simulation, plan: Faults, history: History, broken: InvariantBroken
) -> tuple[Faults, History, InvariantBroken]:
    """Remove the faults that are not needed for the failure."""
    number = 0
    for _ in range(_SHORTENED):
        simpler = list(plan.simpler())[number : number + 1]
        if not simpler:
            break
        shorter, still = run.run(simpler[0])
        if still is not None and still.rule == broken.rule:
            plan, history, broken = simpler[0], shorter, still
        else:
            number += 1
    return plan, history, broken


def _report(plan: Faults, history: History, broken: InvariantBroken) -> str:
    about = set(map(str, broken.about))
    lines = [
        line
        for line in history.lines
        if line.who == "fault" or line.who in about or about & set(map(str, line.about))
    ]
    lines = lines or list(history.lines)
    cut = [f"    ... {len(lines) - _SHOWN} lines before"] if len(lines) > _SHOWN else []
    return "\n".join(
        [
            f"seed {history.seed}: {broken}",
            "  with these faults:",
            *(f"    {each}" for each in plan.describe()),
            "  after this:",
            *cut,
            *(f"    {line}" for line in lines[-_SHOWN:]),
            "  run it again:",
            *(f"    {line}" for line in _program(plan, history.seed)),
        ]
    )


def _program(plan: Faults, seed: int) -> list[str]:
    """Return the lines of code that lead to a history."""
    given = ", ".join(
        f"{each.name}={getattr(plan, each.name)!r}"
        for each in fields(plan)
        if getattr(plan, each.name) != getattr(Faults(), each.name)
    )
    return [
        "from actorflow.testing.simulation import Fault, Faults, FaultType, Skew, simulate",
        f"faults = Faults({given})",
        f"simulate(..., seed={seed}, faults=faults)",
    ]
