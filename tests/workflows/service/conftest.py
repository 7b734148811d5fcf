"""Engines for tests of workflows: on each store, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actorflow.application import Engine
from tests.engine.conftest import clock, reopen
from tests.servers import store_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actorflow.testing import VirtualClock

__all__ = ["clock", "opens", "reopen"]


@pytest.fixture
def opens() -> type[Engine]:
    """Return the engine that knows workflows."""
    return Engine


@pytest.fixture(params=["memory", "sqlite", "postgres", "nats"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> Iterator[Engine]:
    """Yield an engine on each store in turn."""
    where = store_for(request, tmp_path / "store.db")
    with Engine(where, clock=clock, durability="off", retention=None) as made:
        yield made
