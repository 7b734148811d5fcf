"""Engines for tests of flows, on each store in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import actorflow as af
from tests.servers import store_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite", "postgres", "nats"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[af.Engine]:
    where = store_for(request, tmp_path / "flows.db")
    with af.Engine(where, durability="off") as made:
        yield made
