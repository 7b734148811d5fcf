"""Fixtures for the tests of the runtime: probes on each lane, workers on virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.probe import LANES, Probe

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=LANES)
def probe(request: pytest.FixtureRequest) -> Iterator[Probe]:
    """Return a job in the hand of the test, on each lane in turn."""
    made = Probe(request.param)
    yield made
    made.close()


@pytest.fixture
def pool_probe() -> Iterator[Probe]:
    """Return a job in the hand of the test, on the pool."""
    made = Probe()
    yield made
    made.close()


@pytest.fixture
def lane() -> ManualLane:
    """Return a lane without threads."""
    return ManualLane()


@pytest.fixture
def clock() -> VirtualClock:
    """Return a clock that stands still."""
    return VirtualClock()
