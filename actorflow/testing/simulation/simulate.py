"""Run one history: a seed, a cluster, faults; and what must hold at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import StoreConflict
from actorflow.testing.simulation.checks import Broken
from actorflow.testing.simulation.client import Cancel, Sent
from actorflow.testing.simulation.cluster import Cluster, Parts
from actorflow.testing.simulation.errands import TASKERS, Errands, check_errands, errands
from actorflow.testing.simulation.faults import Faults
from actorflow.testing.simulation.world import Line, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actorflow.engine.kind import Kind
    from actorflow.engine.stores.protocol import ExecutionRow

__all__ = ["History", "SimulationFailed", "simulate"]

_PATIENCE = 60.0  # seconds after the last fault within which all must have come to rest
_WAITED = 10.0  # seconds after that for which timers are waited for
_SHORTENED = 40  # histories that are run to shorten one that fails
_SHOWN = 40  # lines of a history that are shown


@dataclass(frozen=True, slots=True)
class History:
    """What happened in one simulation, line by line."""

    seed: int
    lines: tuple[Line, ...]
    executions: Mapping[str, ExecutionRow]
    """All executions, as they are stored in the end."""
    seconds: float
    """How long it took, in virtual time."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines))


class SimulationFailed(AssertionError):
    """Something that must hold does not; the text has the seed and a shortened history."""

    def __init__(self, seed: int, broken: Broken, faults: Faults, text: str) -> None:
        super().__init__(text)
        self.seed = seed
        self.rule = broken.rule
        self.faults = faults
        """What is left of the faults: with these it fails, too."""


def simulate(
    kinds: Callable[[], Kind | Sequence[Kind]] | None = None,
    *,
    seed: int,
    messages: Sequence[Sent | Cancel | tuple[str, Any]] | None = None,
    taskers: Mapping[str, Callable[[Any], Any]] | None = None,
    check: Callable[[Mapping[str, ExecutionRow]], None] | None = None,
    faults: Faults | None = None,
    parts: Parts | None = None,
    shorten: bool = True,
) -> History:
    """Run executions on a simulated cluster in which much goes wrong; return what happened.

    Everything follows from the seed: the same one leads to the same history. Afterwards these hold,
    or it raises: no acknowledged message is lost, no message goes into a state twice, each timer
    that is due has fired once, no two workers have committed in the same epoch of a partition, and
    everything has come to rest.

    Args:
        kinds: makes the kinds of execution of one worker; called for each worker that starts. The
            simulation has a kind of its own that is run by default.
        seed: of all that is left to chance.
        messages: what clients send: pairs of an execution and a body, `Sent` or `Cancel`.
        taskers: functions that do the tasks, by the name of the tasker. They may be called more
            than once for a task, as always. A task that raises has failed; it is not tried again.
        check: gets all executions in the end; for what must hold of yours.
        faults: what goes wrong; drawn from the seed by default.
        parts: what the cluster is made of.
        shorten: whether to look for fewer faults that still make it fail.

    Raises:
        SimulationFailed: something does not hold.

    >>> print(simulate(seed=1).executions["e0"].status)
    active
    """
    plan = Faults.drawn(seed) if faults is None else faults
    own = kinds is None
    load = errands(seed) if messages is None else [_sent(each) for each in messages]
    run = _Simulation(
        seed,
        Errands if kinds is None else kinds,
        load,
        TASKERS if taskers is None else taskers,
        check,
        parts or Parts(),
        is_errands=own and messages is None,
    )
    history, broken = run.history(plan)
    if broken is None:
        return history
    if shorten:
        plan, history, broken = _shortened(run, plan, history, broken)
    raise SimulationFailed(seed, broken, plan, _report(plan, history, broken)) from broken


def _sent(given: Sent | Cancel | tuple[str, Any]) -> Sent | Cancel:
    return given if isinstance(given, (Sent, Cancel)) else Sent(*given)


@dataclass(frozen=True, slots=True)
class _Simulation:
    seed: int
    kinds: Callable[[], Any]
    load: Sequence[Sent | Cancel]
    taskers: Mapping[str, Callable[[Any], Any]]
    check: Callable[[Mapping[str, ExecutionRow]], None] | None
    parts: Parts
    is_errands: bool

    def _make_kinds(self) -> Sequence[Kind]:
        made = self.kinds()
        return made if isinstance(made, Sequence) else [made]

    def history(self, plan: Faults) -> tuple[History, Broken | None]:
        """Run a history with these faults; return it, and what is wrong with it."""
        world = World(self.seed)
        cluster = Cluster(world, plan, self._make_kinds, self.taskers, self.parts)
        broken = None
        try:
            cluster.load(self.load, next(iter(cluster.kinds())))
            world.run(plan.lasts)
            cluster.heal()
            self._settle(world, cluster)
            cluster.checks.check_end()
            rows = _executions(cluster)
            if self.is_errands:
                check_errands(self.load, rows)
            if self.check is not None:
                self._check(rows)
        except Broken as error:
            broken = error
        except StoreConflict as error:  # a run has stored something that was there already
            broken = Broken("stored once", str(error))
        return History(self.seed, tuple(world.lines), _executions(cluster), world.now), broken

    def _check(self, rows: Mapping[str, ExecutionRow]) -> None:
        assert self.check is not None
        try:
            self.check(rows)
        except AssertionError as error:
            raise Broken("check", str(error) or repr(error)) from error

    def _settle(self, world: World, cluster: Cluster) -> None:
        self._rest(world, cluster, world.now)
        self._rest(world, cluster, world.now + _WAITED)

    def _rest(self, world: World, cluster: Cluster, horizon: float) -> None:
        end = world.now + _PATIENCE
        while (what := cluster.unsettled(horizon)) is not None:
            if world.now >= end:
                raise Broken("settles", f"{_PATIENCE:.0f} s after the last fault {what}")
            world.run(1.0)


def _executions(cluster: Cluster) -> dict[str, ExecutionRow]:
    return {row.id: row for row in cluster.store.listing(limit=1_000_000).rows}


# A history that fails.


def _shortened(
    run: _Simulation, plan: Faults, history: History, broken: Broken
) -> tuple[Faults, History, Broken]:
    """Leave out faults as long as it fails without them."""
    left = _SHORTENED
    number = 0
    while number < len(plan.faults) and left:
        left -= 1
        less = plan.without(number)
        shorter, still = run.history(less)
        if still is not None and still.rule == broken.rule:
            plan, history, broken = less, shorter, still
        else:
            number += 1
    return plan, history, broken


def _report(plan: Faults, history: History, broken: Broken) -> str:
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
            f"  run it again: simulate(..., seed={history.seed})",
        ]
    )
