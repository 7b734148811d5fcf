"""Storms and duels can fail: each missing safeguard is noticed by one of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.worker.storms.duel import duel
from tests.runtime.worker.storms.interleave import Yields
from tests.runtime.worker.storms.mutations import MUTATIONS, Mutation
from tests.runtime.worker.storms.storm import run_storm
from tests.runtime.worker.storms.weather import Weather

SEEDS = 400
"""The most storms that a missing safeguard may survive. Usually fewer than a dozen do."""


@pytest.fixture(autouse=True, scope="module")
def table() -> None:
    """Replace the check of all other modules: the storms have to notice the mutations."""


@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if one.storm], ids=str)
def test_a_storm_notices_a_missing_safeguard(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation.apply(monkeypatch)
    weather: dict[str, Any] = {"producers": 3, "messages": 60, "patience": 3.0}
    weather.update(mutation.storm or ())
    for seed in range(SEEDS):
        with Yields(seed):
            if run_storm(Weather(seed=seed, **weather)):
                return
    pytest.fail(f"{SEEDS} storms have not noticed: {mutation}")


@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if one.duel], ids=str)
def test_a_duel_notices_a_missing_safeguard(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mutation.duel is not None
    assert duel(*mutation.duel) == []
    mutation.apply(monkeypatch)
    assert duel(*mutation.duel)
