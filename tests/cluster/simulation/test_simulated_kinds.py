"""Workflows and flows in a simulated cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.behaviours import Bounded, Queue, Unique
from actorflow.engine import bodies
from actorflow.engine.kind import Options, Outcome, Status
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.language.checks import check_text
from actorflow.flows.service.received_messages import launch_body
from actorflow.plans.plan import Plan
from actorflow.plans.service.kind import start_body
from actorflow.plans.service.stored_plan import pack_plan
from actorflow.testing.simulation import (
    Cancel,
    Fault,
    Faults,
    FaultType,
    Sent,
    SimulationFailed,
    simulate,
    simulate_workflows,
)
from actorflow.testing.simulation.simulate import Simulation
from actorflow.workflows.task import task
from actorflow.workflows.workflow import Workflow
from tests.cluster.simulation.kinds import Sum, total
from tests.cluster.simulation.mutants import MUTANTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from actorflow.application import Engine
    from actorflow.engine.kind import Context
    from actorflow.engine.stores.protocol import ExecutionRow

CALLS: Counter[str] = Counter()


@task
def charge(order: str) -> int:
    CALLS[order] += 1
    return 40


@task
def ship(order: str) -> str:
    return f"{order} shipped"


class Parcel(Workflow[str]):
    def __init__(self, order: str) -> None:
        self.order = order

    def handle(self) -> str:
        return self.execute(ship(self.order))


class Order(Workflow[str]):
    def __init__(self, order: str) -> None:
        self.order = order
        self.paid = 0

    def handle(self) -> str:
        amount = self.execute(charge(self.order))
        while self.paid < amount:
            self.wait("paid", seconds=60)
        sent = self.execute(Parcel(self.order))
        self.wait(seconds=2)
        return f"{sent} for {self.paid}"

    def on_event(self, event: Any) -> None:
        self.paid += event.data["amount"]


ORDERS = ["o-1", "o-2", "o-3"]


@pytest.mark.parametrize("seed", range(15))
def test_workflows_end_right_whatever_goes_wrong(seed: int) -> None:
    events = [(name, "paid", {"amount": 10}) for name in ORDERS for _ in range(4)]
    found = simulate_workflows({name: Order(name) for name in ORDERS}, seed=seed, events=events)
    assert found == {name: f"{name} shipped for 40" for name in ORDERS}


def test_a_workflow_whose_task_is_lost_with_an_engine_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hold that workflows are checked as other kinds are."""
    MUTANTS["stored tasks are not handed out"](monkeypatch)

    def caught(seed: int) -> bool:
        try:
            simulate_workflows({name: Order(name) for name in ORDERS}, seed=seed, shorten=False)
        except SimulationFailed:
            return True
        return False

    assert any(caught(seed) for seed in range(100))


def test_what_a_check_of_results_finds_is_reported() -> None:
    def check(results: Mapping[str, Any]) -> None:
        assert results == {}, "there are results"

    with pytest.raises(SimulationFailed, match="seed 5: check: there are results"):
        simulate_workflows({"p-1": Parcel("p-1")}, seed=5, check=check)


def test_an_event_for_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="an event is for 'o-9'; there are o-1"):
        simulate_workflows({"o-1": Order("o-1")}, seed=0, events=[("o-9", "paid", {})])


class Latest(Sum):
    """Adds up the last number of each name in a batch."""

    name = "latest"

    def __init__(self, behaviour: Callable[[], Any]) -> None:
        self._behaviour = behaviour

    def options(self, execution: str) -> Options:
        return Options(behaviour=self._behaviour, bodies=True)

    def run(self, context: Context, state: int, batch: Sequence[Any]) -> Outcome:
        return Outcome(state=state + sum(number for _, number in batch))


@pytest.mark.parametrize("seed", range(5))
def test_a_behaviour_decides_what_a_run_gets(seed: int) -> None:
    sent: list[Sent | Cancel] = [Sent("x", ["a", 2**number], at=3.0) for number in range(12)]

    def unique() -> Latest:
        return Latest(lambda: Unique(key=lambda each: each[0]))

    def bounded() -> Latest:
        return Latest(lambda: Bounded(Queue(), 2))

    some = total(simulate(unique, seed=seed, messages=sent).executions, "x")
    assert 0 < some <= 2**12 - 1
    everything = total(simulate(bounded, seed=seed, messages=sent).executions, "x")
    assert everything == 2**12 - 1, "messages without room wait in the store"


def newer() -> type[Workflow[str]]:
    """Return newer code of `Order`: it charges twice, where the old code has not begun."""

    class Changed(Order):
        def handle(self) -> str:
            if self.patched("charge twice"):
                self.execute(charge(self.order))
            return super().handle()

    Changed.__qualname__ = Order.__qualname__
    return Changed


ROLLING = Faults(faults=(Fault(3.0, FaultType.DEPLOY, 4.0, ("a", "b", "c")),))


@pytest.mark.parametrize("seed", range(5))
def test_workflows_go_on_with_newer_code_while_it_is_deployed(seed: int) -> None:
    found = simulate_workflows(
        {name: Order(name) for name in ORDERS},
        seed=seed,
        events=[(name, "paid", {"amount": 10}) for name in ORDERS for _ in range(4)],
        deploys=[[newer()]],
        faults=ROLLING,
    )
    assert found == {name: f"{name} shipped for 40" for name in ORDERS}


class NewSum(Sum):
    """Newer code, whose state older code cannot read."""

    version = 2

    def upgrade(self, data: bytes, version: int) -> bytes:
        assert version == 1
        return bodies.encode([bodies.decode(data)])

    def decode(self, data: bytes | None) -> int:
        return 0 if data is None else int(bodies.decode(data)[0])

    def encode(self, state: int) -> bytes:
        return bodies.encode([state])


@pytest.mark.parametrize("seed", range(5))
def test_states_are_upgraded_while_newer_code_is_deployed(seed: int) -> None:
    sent = [Sent(f"s{number % 3}", 1, at=number / 4) for number in range(36)]
    history = simulate(Sum, seed=seed, messages=sent, deploys=[NewSum], faults=ROLLING)
    rows = history.executions.values()
    assert sum(NewSum().decode(row.state) for row in rows) == 36
    assert {row.version for row in rows} == {2}


def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("seed", range(5))
def test_plans_end_right_whatever_goes_wrong(seed: int, tmp_path: Path) -> None:
    plan = Plan()
    first = plan.job(double, 3)
    added = plan.job(max, *(plan.job(double, first) for _ in range(4)))
    plan.job(double, added)
    options = {
        "directory": str(tmp_path), "workers": 2, "on_failure": "stop", "retries": 3,
        "crashes_max": 9, "offered": True, "resources": {},
    }  # fmt: skip

    def set_up(engine: Engine, _process: object) -> None:
        engine.plans.workers(2, executor="pool", kills=False)  # in lanes of the simulation

    sent = [Sent(f"p{n}", start_body(pack_plan(plan.blueprint), options), "plan") for n in range(3)]
    history = Simulation(seed, set_up, sent, None).history(None)
    assert [row.status for row in history.executions.values()] == ["done"] * 3


class Ends(Sum):
    """Adds up numbers until it gets 0."""

    name = "ends"

    def run(self, context: Context, state: int, batch: Sequence[Any]) -> Outcome:
        outcome = super().run(context, state, batch)
        if any(each.body == 0 for each in batch):
            outcome.status = Status.DONE
        return outcome


def test_only_what_has_ended_is_purged() -> None:
    kept = 0

    def set_up(engine: Engine, _process: object) -> None:
        engine.register(Ends())
        engine.parts.retention._seconds = 2.0  # engines purge when they begin

    def check(rows: Mapping[str, ExecutionRow]) -> None:
        assert total(rows, "stays") == 10
        assert all(total(rows, name) == 1 for name in rows if name != "stays")

    sent = [Sent("stays", 1, "ends") for _ in range(10)]
    for number in range(10):
        sent += [Sent(f"e{number}", 1, "ends", at=1.0), Sent(f"e{number}", 0, "ends", at=2.0)]
    for seed in range(5):
        kept += len(Simulation(seed, set_up, sent, check).history(None).executions)
    assert 5 <= kept < 5 * 11


FLOW = """
sequence
  concurrence
    sleep '1s'
    sleep '3s'
  set f.done true
"""


@pytest.mark.parametrize("seed", range(5))
def test_flows_end_right_whatever_goes_wrong(seed: int) -> None:
    body = launch_body(launch_message("", check_text(FLOW)), "main", "u0")
    body["payload"] = {}
    sent = [Sent(f"main-u0-2026.{number}", body, "flow") for number in range(5)]
    history = simulate(list, seed=seed, messages=sent)  # the engine has its own kind of flows
    assert {row.status for row in history.executions.values()} == {"done"}
    assert len(history.executions) == 5


@pytest.mark.parametrize("seed", range(5))
def test_durable_workers_count_every_message_once(seed: int) -> None:
    def add(batch: list[int], state: int) -> int:
        return state + sum(batch)

    def set_up(engine: Engine, _process: object) -> None:
        for name in ("w0", "w1"):
            engine.worker(name, add, state=0)

    def check(rows: Mapping[str, ExecutionRow]) -> None:
        states = {name: bodies.decode(row.state or b"") for name, row in rows.items()}
        assert states == {"w0": 45, "w1": 90}, states

    sent = [Sent("w0", number, "worker") for number in range(10)]
    sent += [Sent("w1", 2 * number, "worker") for number in range(10)]
    Simulation(seed, set_up, sent, check).history(None)
