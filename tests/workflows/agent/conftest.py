"""Engines whose agents are asked over real sockets, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import actorflow as af
from actorflow.testing import VirtualClock
from tests.workflows.agent.worker import Agency

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_000.0)


@pytest.fixture
def engine(tmp_path: Path, clock: VirtualClock) -> Iterator[af.Engine]:
    with af.Engine(tmp_path / "store.db", clock=clock, durability="off", retention=None) as made:
        yield made


@pytest.fixture
def agency(engine: af.Engine) -> Agency:
    return Agency(engine.serve_agent(port=0))
