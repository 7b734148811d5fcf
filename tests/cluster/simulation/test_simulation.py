"""The simulation of a cluster: it holds for many seeds, it can fail, and it says why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from actorflow.engine.errors import OutcomeUnknown, StoreRefused
from actorflow.testing.simulation import (
    Cancel,
    Fault,
    Faults,
    FaultType,
    Sent,
    SimulatedStore,
    SimulationFailed,
    simulate,
)
from tests.cluster.simulation.errands import simulate_errands
from tests.cluster.simulation.kinds import Sum, total
from tests.cluster.simulation.mutants import MUTANTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.engine.stores.protocol import Change, ExecutionRow

ROOT = Path(__file__).parents[3]

SEEDS = 300
SOAKED = 10_000


@pytest.mark.parametrize("first", range(0, SEEDS, 25))
def test_c29_every_seed_holds(first: int) -> None:
    for seed in range(first, first + 25):
        simulate_errands(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAKED, 100))
def test_c29_every_seed_holds_in_the_long_run(first: int) -> None:
    for seed in range(first, first + 100):
        simulate_errands(seed)


# One seed, one history.


def test_the_same_seed_leads_to_the_same_history() -> None:
    first, again = simulate_errands(11), simulate_errands(11)
    assert str(first) == str(again)
    assert first.executions == again.executions
    assert str(simulate_errands(12)) != str(first)


ANOTHER_PROCESS = """
import sys
from tests.cluster.simulation.errands import simulate_errands
sys.stdout.write(str(simulate_errands(11)))
"""


def test_the_history_of_a_seed_is_the_same_in_another_process() -> None:
    """Hold that nothing depends on the order of sets of texts, which differs between processes."""
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", ANOTHER_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == str(simulate_errands(11))


def test_a_plan_has_every_kind_of_fault_in_some_seeds() -> None:
    plans = [Faults.drawn(seed) for seed in range(100)]
    drawn = {fault.type for plan in plans for fault in plan.faults}
    assert drawn == set(FaultType)
    for name in ("loss", "duplication", "store_loss", "code", "unskilled"):
        assert any(getattr(plan, name) for plan in plans), name
        assert not all(getattr(plan, name) for plan in plans), name
    assert any(skew.rate != 1.0 for plan in plans for _, skew in plan.skews)


def test_a_failing_seed_prints_few_faults_and_the_code_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    MUTANTS["no compare and set"](monkeypatch)
    failed = None
    for seed in range(500):
        try:
            simulate_errands(seed)
        except SimulationFailed as error:
            failed = error
            break
    assert failed is not None
    text = str(failed)
    assert text.startswith(f"seed {failed.seed}: {failed.rule}")
    assert len(text.splitlines()) < 70
    assert len(failed.faults.faults) <= len(Faults.drawn(failed.seed).faults)
    code = [line.strip() for line in text[text.index("run it again:") :].splitlines()[1:]]
    program = "\n".join(code).replace(
        "simulate(..., seed=", "simulate_errands(shorten=False, seed="
    )
    with pytest.raises(SimulationFailed, match=re.escape(f"seed {failed.seed}: {failed.rule}")):
        exec(program, {"simulate_errands": simulate_errands})  # noqa: S102 - it is the printed program


# Custom kinds.


@pytest.mark.parametrize("seed", range(10))
def test_a_kind_of_ones_own_is_simulated(seed: int) -> None:
    sent = [(f"s{number % 3}", number) for number in range(30)]

    def check(rows: Mapping[str, ExecutionRow]) -> None:
        assert sum(total(rows, name) for name in rows) == sum(range(30))

    simulate(Sum, seed=seed, messages=sent, check=check)


def test_what_a_check_of_ones_own_finds_is_reported() -> None:
    def check(rows: Mapping[str, ExecutionRow]) -> None:
        assert total(rows, "s0") == 7, "it is not seven"

    with pytest.raises(SimulationFailed, match="seed 3: check: it is not seven"):
        simulate(Sum, seed=3, messages=[("s0", 1)], check=check)


def test_a_message_that_makes_a_run_raise_becomes_a_dead_letter_alone() -> None:
    sent: list[Sent | Cancel] = [Sent("s0", body, at=0.1) for body in (1, "no number", 2)]
    history = simulate(Sum, seed=1, messages=sent, faults=Faults())
    assert total(history.executions, "s0") == 3


def test_an_execution_is_cancelled_from_outside() -> None:
    sent: list[Sent | Cancel] = [Sent("s0", 1, at=0.1), Cancel("s0", at=3.0), Sent("s0", 2, at=4.0)]
    history = simulate(Sum, seed=1, messages=sent, faults=Faults())
    assert history.executions["s0"].status == "cancelled"
    assert total(history.executions, "s0") == 1


def test_a_worker_that_dies_is_replaced() -> None:
    faults = Faults(faults=(Fault(3.0, FaultType.KILL, 30.0, ("a",)),))
    sent: list[Sent | Cancel] = [Sent(f"s{number}", 1, at=number / 2) for number in range(20)]
    history = simulate(Sum, seed=1, messages=sent, faults=faults)
    assert all(total(history.executions, f"s{number}") == 1 for number in range(20))
    assert "is killed" in str(history)


# What the engines see.


class Noted(SimulatedStore):
    """Notes the answers that engines get to their commits."""

    told: ClassVar[Counter[str]] = Counter()

    def commit(self, changes: Sequence[Change]) -> None:
        try:
            super().commit(changes)
        except (StoreRefused, OutcomeUnknown) as error:
            self.told[type(error).__name__] += 1
            raise
        self.told["committed"] += 1


def test_the_store_is_full_down_and_loses_answers() -> None:
    for seed in range(12):
        simulate_errands(seed, store=Noted)
    assert {"StoreRefused", "StoreFull", "OutcomeUnknown", "committed"} <= Noted.told.keys()


def test_a_task_that_takes_long_is_done_by_another_engine() -> None:
    faults = Faults(code=1.0, unskilled=("a", "b"))
    history = simulate_errands(4, faults=faults)
    assert history.executions
