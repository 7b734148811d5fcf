"""Engines that are steered through real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.api.client import Client
from actorflow.runtime.telemetry.observe import snapshot
from tests.api.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[af.Engine]:
    """Yield an engine with a control socket, on each store in turn."""
    where = ":memory:" if request.param == "memory" else tmp_path / "store.db"
    with af.Engine(where, durability="off", control=str(tmp_path / "control.sock")) as made:
        made.register(Ledger())
        made.tasker("desk", lambda _: af.HOLD)
        yield made


@pytest.fixture
def client(engine: af.Engine, tmp_path: Path) -> Client:
    return Client(tmp_path / "control.sock")


@pytest.fixture
def only_own_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the workers of tests that ran before in this process."""
    before = set(snapshot()["workers"])

    def without_others() -> dict[str, Any]:
        found = snapshot()
        found["workers"] = {
            name: each for name, each in found["workers"].items() if name not in before
        }
        return found

    monkeypatch.setattr("actorflow.api.verbs.process.snapshot", without_others)
