"""Each safeguard of the engine is needed: without it, the simulation fails.

The seed that is noted beside a mutant is tried first, and then all of them. `python -m
tests.cluster.simulation.test_mutants NAME` prints which seed notices a mutant now.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from actorflow.testing.simulation import SimulationFailed
from tests.cluster.simulation.errands import simulate_errands
from tests.cluster.simulation.mutants import MUTANTS
from tests.cluster.simulation.races import RACES

if TYPE_CHECKING:
    from tests.cluster.simulation.mutants import Mutants

SEEDS = 500


def noticed(name: str, mutants: Mutants, patch: pytest.MonkeyPatch) -> SimulationFailed | None:
    """Return how the first history fails that notices a mutant."""
    mutants[name](patch)
    seed, faults = mutants.found[name]
    for each in (seed, *range(SEEDS)):
        try:
            simulate_errands(each, faults=faults(each), shorten=False)
        except SimulationFailed as failed:
            return failed
    return None


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 25
    assert len(RACES) >= 12


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", MUTANTS)
def test_c29_each_mutant_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert noticed(name, MUTANTS, monkeypatch), f"{SEEDS} seeds do not notice {name!r}"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", RACES)
def test_c29_each_race_of_the_past_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert noticed(name, RACES, monkeypatch), f"{SEEDS} seeds do not find {name!r}"


def main(mutants: Mutants, some: str) -> None:
    """Print the seed that notices each mutant whose name has `some` in it."""
    for name in mutants:
        if some in name:
            with pytest.MonkeyPatch.context() as patch:
                failed = noticed(name, mutants, patch)
            sys.stdout.write(f"{name}: {str(failed).splitlines()[0]}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(MUTANTS, sys.argv[1])
    main(RACES, sys.argv[1])
