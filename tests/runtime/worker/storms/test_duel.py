"""Duels: what holds for a worker holds in every order of the steps of two events, or three."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import actorflow as af
from actorflow.runtime.worker.pair.requests import abandon_executor
from actorflow.runtime.worker.spec import launch, make
from actorflow.testing import ManualLane
from tests.runtime.worker.probe import is_locked
from tests.runtime.worker.storms.duel import ACTIONS, STATES, duel
from tests.runtime.worker.storms.interleave import PATIENCE, Paused


@pytest.mark.parametrize("first", ACTIONS)
@pytest.mark.parametrize("state", STATES)
def test_a_duel_leaves_the_worker_whole(state: str, first: str) -> None:
    for number, second in enumerate(ACTIONS):
        assert duel(state, first, second, begin=number, stride=24) == []


@pytest.mark.parametrize("third", ["push", "block", "tell"])
@pytest.mark.parametrize("second", ["drain", "finish", "now", "poison"])
@pytest.mark.parametrize("first", ["push", "push_many", "block", "tell"])
def test_m6_whoever_takes_the_token_of_a_stopped_worker_hides_the_stop_from_nobody(
    first: str, second: str, third: str
) -> None:
    assert duel("idle", first, second, third) == []


@pytest.mark.parametrize("second", ["push", "push_many", "block", "same"])
def test_m16_a_push_while_somebody_looks_leaves_no_negative_count(second: str) -> None:
    assert duel("idle", "look", second) == []


@pytest.mark.soak
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
@pytest.mark.parametrize("first", ACTIONS)
@pytest.mark.parametrize("state", STATES)
def test_a_duel_at_every_single_place(state: str, first: str, opcodes: bool) -> None:  # noqa: FBT001 - a parameter
    for second in ACTIONS:
        assert duel(state, first, second, opcodes=opcodes) == []


def test_m7_an_executor_that_is_replaced_while_it_begins_leaves_the_next_one_whole() -> None:
    for place in range(1_000):
        lane = ManualLane()
        seen: list[str] = []
        worker = make(lambda batch, _, seen=seen: seen.extend(batch), {"executor": lane})
        life = worker.actor.lifecycle
        life.supervise(lambda _reason: None)
        launch(worker)
        worker.push("first")
        paused = Paused(lane.run, place)
        helper = threading.Thread(target=_replace, args=(worker.actor,), daemon=True)
        helper.start()
        if not is_locked(worker.actor.lock):
            helper.join(PATIENCE)
        paused.finish()
        helper.join(PATIENCE)
        worker.push("second")
        lane.run()
        assert worker.status is af.PairState.IDLE, paused.where
        assert seen in (["second"], ["first", "second"]), paused.where
        worker.stop(now=True)
        if paused.where is None:
            return


def _replace(pair: Any) -> None:
    abandon_executor(pair)
    pair.lifecycle.revive()
