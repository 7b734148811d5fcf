"""Storms: what holds for one producer holds for eight, whatever they do at once."""

from __future__ import annotations

import sys

import pytest

from tests.runtime.worker.storms.interleave import Yields
from tests.runtime.worker.storms.storm import hasty_switches, run_storm
from tests.runtime.worker.storms.weather import BEHAVIOURS, Weather

STOPS = (None, "drain", "finish", "now")


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_storm_loses_repeats_and_reorders_nothing(behaviour: str, stop: str | None) -> None:
    assert run_storm(Weather(behaviour, seed=1, messages=300, stop=stop, fold_at=None)) == []


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_storm_with_hasty_switches(behaviour: str, stop: str | None) -> None:
    with hasty_switches():
        assert run_storm(Weather(behaviour, seed=2, messages=100, stop=stop)) == []


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_storm_with_yields_at_opcodes(behaviour: str, stop: str | None) -> None:
    for seed in range(2):
        with Yields(seed):
            found = run_storm(Weather(behaviour, seed, messages=40, stop=stop, help=seed == 1))
        assert found == [], f"seed {seed}"


@pytest.mark.parametrize("behaviour", ["queue", "unique", "chunk", "reject", "block"])
def test_a_crash_in_the_storm_is_told_to_every_waiter(behaviour: str) -> None:
    for seed in range(4):
        with Yields(seed):
            found = run_storm(Weather(behaviour, seed, messages=40, crash=True, help=seed == 1))
        assert found == [], f"seed {seed}"


@pytest.mark.parametrize("stop", [*STOPS, "crash"])
@pytest.mark.parametrize("behaviour", ["queue", "unique", "chunk", "reject", "block", "linger"])
def test_m8_a_storm_over_three_batches_in_flight(behaviour: str, stop: str | None) -> None:
    crash = stop == "crash"
    mode = None if crash else stop
    with Yields(5):
        weather = Weather(behaviour, 5, messages=40, stop=mode, crash=crash, concurrency=3)
        assert run_storm(weather) == []


def test_a_storm_with_lulls_leaves_nothing_behind() -> None:
    for seed in range(10):
        with Yields(seed):
            found = run_storm(Weather(seed=seed, producers=3, messages=60, lulls=True))
        assert found == [], f"seed {seed}"


def test_a_storm_without_the_interpreter_lock() -> None:
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        pytest.skip("this Python has an interpreter lock; run the file with a free-threaded one")
    for behaviour in BEHAVIOURS:
        for stop in STOPS:
            assert run_storm(Weather(behaviour, seed=3, messages=2_000, stop=stop)) == []


@pytest.mark.soak
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("behaviour", ["queue", "unique", "drop_oldest", "chunk"])
def test_a_storm_of_eight_million_messages(behaviour: str, stop: str | None) -> None:
    weather = Weather(
        behaviour,
        seed=4,
        messages=1_000_000,
        stop=stop,
        reset_threshold=True,
        fold_at=None,
        patience=1_200.0,
    )
    assert run_storm(weather) == []


@pytest.mark.soak
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_many_storms_with_yields_at_opcodes(behaviour: str, stop: str | None) -> None:
    for seed in range(200):
        with Yields(seed, often=(0.001, 0.004, 0.03)[seed % 3]):
            found = run_storm(Weather(behaviour, seed, messages=60, stop=stop, help=seed % 2 == 1))
        assert found == [], f"seed {seed}"
