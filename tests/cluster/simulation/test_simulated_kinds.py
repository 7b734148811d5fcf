"""Workflows and flows in a simulated cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.kind import Options, Outcome
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.language.checking import check_text
from actorflow.flows.service.incoming import launch_body
from actorflow.flows.service.kind import FlowKind
from actorflow.testing.simulation import (
    Cancel,
    Sent,
    SimulationFailed,
    simulate,
    simulate_workflows,
)
from actorflow.workflows.task import task
from actorflow.workflows.workflow import Workflow
from behaviours import Bounded, Queue, Unique
from tests.cluster.simulation.kinds import Sum, total
from tests.cluster.simulation.mutants import MUTANTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actorflow.engine.kind import Context

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


def test_a_workflow_whose_task_is_lost_with_a_worker_is_noticed() -> None:
    """Hold that workflows are checked as other kinds are."""

    def caught(seed: int) -> bool:
        try:
            simulate_workflows(
                {name: Order(name) for name in ORDERS}, seed=seed, parts=MUTANTS["C20"]
            )
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
    """Adds up the last number of each name, of those that it finds together."""

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
    assert everything == 2**12 - 1, "what has no room waits in the store"


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
    sent = [Sent(f"main-u0-2026.{number}", body) for number in range(5)]
    history = simulate(FlowKind, seed=seed, messages=sent)
    assert {row.status for row in history.executions.values()} == {"done"}
    assert len(history.executions) == 5
