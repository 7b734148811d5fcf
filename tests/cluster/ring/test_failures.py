"""Failures of workers and of the network in a simulated cluster."""

from __future__ import annotations

from actorflow.testing.simulation import Fault, Faults, FaultType, Sent, simulate
from tests.cluster.simulation.errands import simulate_errands
from tests.cluster.simulation.kinds import Sum, total


def test_f4_a_split_leaves_the_side_without_the_store_idle_not_wrong() -> None:
    faults = Faults(faults=(Fault(2.0, FaultType.SPLIT, 9.0, ("a",)),))
    sent: list[Sent] = [Sent(f"s{number % 8}", 1, at=number / 4) for number in range(44)]
    history = simulate(Sum, seed=4, messages=sent, faults=faults)
    assert sum(total(history.executions, f"s{number}") for number in range(8)) == 44
    cut_off = [line for line in history.lines if line.who == "a1" and 2.1 < line.at < 11.0]
    assert any(line.who == "a1" and line.what == "commits" for line in history.lines)
    assert not any(line.what == "commits" for line in cut_off)


def test_f6_a_task_whose_dispatch_was_lost_in_a_crash_is_handed_out_by_the_adopter() -> None:
    faults = Faults(
        workers=("a", "b"), faults=tuple(Fault(at, FaultType.KILL, 3.0, ("a",)) for at in (1, 5, 9))
    )
    for seed in range(12):
        simulate_errands(seed, faults=faults)
