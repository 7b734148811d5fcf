"""`checked_pairs` compares every change of state with the table, on the hot path too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Priority, Queue, Stack, Unique
from actorflow.runtime.worker.pair.accumulator import Accumulator
from actorflow.runtime.worker.pair.states import READY, PairEvent, PairState
from actorflow.testing import checked_pairs

PAIR = Path(af.__file__).parent / "runtime" / "worker" / "pair"


@pytest.mark.parametrize("behaviour", [Queue, Stack, Unique, lambda: Bounded(Queue(), 9), Priority])
def test_m1_every_change_of_state_is_compared_with_the_table(behaviour: type[Queue]) -> None:
    with checked_pairs() as check, af.spawn(lambda batch, state: None, behaviour=behaviour) as one:
        for number in range(100):
            one.push_block((number, number))
    assert check.changes >= 200  # each message has started a batch, and ended it
    assert any("idle -> running (pushed)" in change for change in check.history)
    assert any("running -> idle (done)" in change for change in check.history)
    assert check.history[-1].endswith("(stop asked)")


@pytest.fixture(autouse=True, scope="module")
def table() -> None:
    """Replace the check of all other modules: these tests make mistakes on purpose."""


def test_m2_a_change_that_is_not_in_the_table_is_reported_with_what_came_before() -> None:
    worker = af.spawn(lambda batch, state: None)
    worker.push_block(1)
    with pytest.raises(AssertionError, match=r"idle -> parked .*says running"), checked_pairs():
        worker.actor.enter(PairState.PARKED, PairEvent.PUSHED, READY)
    worker.actor.state = PairState.IDLE
    worker.stop()


def test_m2_an_event_that_the_state_does_not_expect_is_reported() -> None:
    worker = af.spawn(lambda batch, state: None)
    with pytest.raises(AssertionError, match="DONE came in state IDLE"), checked_pairs():
        worker.actor.enter(PairState.IDLE, PairEvent.DONE)
    worker.stop()


def test_checks_nest_and_leave_nothing_behind() -> None:
    before = Accumulator.enter
    with checked_pairs() as outer, checked_pairs() as inner:
        af.spawn(lambda batch, state: None).stop()
    assert outer.changes == inner.changes > 0
    assert Accumulator.enter is before


def test_m1_only_one_method_changes_the_state() -> None:
    writers = []
    for path in PAIR.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                writers += [
                    (path.name, function.name)
                    for node in ast.walk(function)
                    if isinstance(node, ast.Attribute)
                    and node.attr == "state"
                    and isinstance(node.ctx, ast.Store)
                ]
    assert sorted(writers) == [("accumulator.py", "__init__"), ("accumulator.py", "enter")]
