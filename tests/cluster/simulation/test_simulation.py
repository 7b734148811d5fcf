"""The simulation of a cluster: it holds for many seeds, it can fail, and it says why."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.cluster.ring import CheckIn
from actorflow.engine.stores.protocol import (
    Change,
    NewExecution,
    NewMessage,
    TimerRow,
    partition_of,
)
from actorflow.testing.simulation import (
    Cancel,
    Fault,
    Faults,
    FaultType,
    Sent,
    SharedStore,
    SimulationFailed,
    simulate,
)
from actorflow.testing.simulation.runs import timer_message
from actorflow.testing.simulation.world import World
from actorflow.testing.stores import check_store
from tests.cluster.simulation.kinds import Sum, total
from tests.cluster.simulation.mutants import MUTANTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actorflow.engine.stores.protocol import ExecutionRow

SEEDS = 240
SOAKED = 10_000


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_c29_every_seed_holds(first: int) -> None:
    for seed in range(first, first + 20):
        simulate(seed=seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAKED, 100))
def test_c29_every_seed_holds_in_the_long_run(first: int) -> None:
    for seed in range(first, first + 100):
        simulate(seed=seed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_c29_each_mutant_is_caught(mutant: str, record_property: Any) -> None:
    for seed in range(500):
        try:
            simulate(seed=seed, parts=MUTANTS[mutant], shorten=False)
        except SimulationFailed as failed:
            record_property("seed", seed)
            sys.stdout.write(f"{mutant}: noticed by {str(failed).splitlines()[0]}\n")
            return
    pytest.fail(f"nobody notices the mutant {mutant!r} in 500 seeds")


# One seed, one history.


def test_the_same_seed_leads_to_the_same_history() -> None:
    first, again = simulate(seed=11), simulate(seed=11)
    assert str(first) == str(again)
    assert first.executions == again.executions
    assert str(simulate(seed=12)) != str(first)


def test_a_plan_has_every_kind_of_fault_in_some_seeds() -> None:
    plans = [Faults.drawn(seed) for seed in range(100)]
    drawn = {fault.type for plan in plans for fault in plan.faults}
    assert drawn == set(FaultType)
    for name in ("loss", "duplication", "store_loss", "unheard"):
        assert any(getattr(plan, name) for plan in plans), name
        assert not all(getattr(plan, name) for plan in plans), name
    assert any(skew.rate != 1.0 for plan in plans for _, skew in plan.skews)


def test_a_failing_seed_prints_its_number_and_a_shortened_history() -> None:
    parts = MUTANTS["compare-and-set"]
    failed = None
    for seed in range(500):
        try:
            simulate(seed=seed, parts=parts)
        except SimulationFailed as error:
            failed = error
            break
    assert failed is not None
    text = str(failed)
    assert text.startswith(f"seed {failed.seed}: {failed.rule}")
    assert f"seed={failed.seed}" in text
    assert len(text.splitlines()) < 70
    assert len(failed.faults.faults) <= len(Faults.drawn(failed.seed).faults)
    with pytest.raises(SimulationFailed, match=re.escape(f"seed {failed.seed}: {failed.rule}")):
        simulate(seed=failed.seed, parts=parts, faults=failed.faults)


# Kinds of a user's own.


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


# The simulated store.


def owned_store() -> SharedStore:
    store = SharedStore(World(0), 4, viewer="me")
    store.check_in(CheckIn("me", 1e9, take=(0, 1, 2, 3)))
    return store


def test_the_simulated_store_is_a_store() -> None:
    check_store(owned_store, max_examples=20)


def appended(store: SharedStore, name: str) -> None:
    store.commit([Change(creates=(NewExecution(name, "sum"),),
                  messages=(NewMessage(name, "message", b"\x01"),))])  # fmt: skip


def test_c5_the_store_refuses_an_epoch_that_is_over() -> None:
    world = World(0)
    store = SharedStore(world, 4)
    appended(store, "x")
    mine = partition_of("x", 4)
    store.check_in(CheckIn("a", 3.0, take=(mine,)))
    old = Change("x", kind="sum", expected=0, state=b"old", epoch=1)
    world.run(3.0)
    store.check_in(CheckIn("b", 3.0, take=(mine,)))
    store.commit([old, new := Change("x", kind="sum", expected=0, state=b"new", epoch=2)])
    assert old.refusal is not None
    assert old.refusal.reason == "fenced"
    assert new.committed
    row = store.execution("x")
    assert row is not None
    assert row.state == b"new"


def test_c7_the_store_refuses_a_run_on_an_older_revision_in_the_same_epoch() -> None:
    store = owned_store()
    appended(store, "x")
    first, second = (
        Change("x", kind="sum", expected=0, state=state, epoch=1) for state in (b"1", b"2")
    )
    store.commit([first])
    store.commit([second])
    assert first.committed
    assert second.refusal is not None
    assert second.refusal.reason == "raced"


def test_c17_one_commit_removes_a_timer_and_stores_its_message_once() -> None:
    store = owned_store()
    timer = TimerRow("x", "t", 5.0, b"\xc0")
    store.commit([Change("x", creates=(NewExecution("x", "sum"),), timers=(timer,))])
    changes = [Change("x", epoch=1, fired=[(timer, timer_message(timer))]) for _ in range(2)]
    for change in changes:
        store.commit([change])
    assert [len(change.extra) for change in changes] == [1, 0]
    assert store.due() == []
    assert [row.type for row in store.pending().rows] == ["timer"]


def test_the_simulated_store_shows_a_viewer_only_its_partitions() -> None:
    store = SharedStore(World(0), 2, viewer="me")
    for number in range(8):
        appended(store, f"x{number}")
    assert store.pending().rows == []
    store.check_in(CheckIn("me", 3.0, take=(1,)))
    assert store.owned() == {1: 1}
    seen = {row.execution for row in store.pending().rows}
    assert seen == {name for name in map("x{}".format, range(8)) if partition_of(name, 2) == 1}
