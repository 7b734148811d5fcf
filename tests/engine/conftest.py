"""Engines for tests: on each store, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.engine import BareEngine
from actorflow.testing import VirtualClock
from tests.servers import store_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


SERVERS = [pytest.param(name, marks=pytest.mark.soak) for name in ("postgres", "nats")]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_000.0)


@pytest.fixture
def opens() -> type[BareEngine]:
    """Return which engine is tested: the bare one here, that of users in other folders."""
    return BareEngine


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
def engine(
    request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock, opens: type[BareEngine]
) -> Iterator[BareEngine]:
    """Yield an engine on each store in turn."""
    where = store_for(request, tmp_path / "store.db")
    with opens(where, clock=clock, durability="off", retention=None) as made:
        yield made


@pytest.fixture
def reopen(
    tmp_path: Path, clock: VirtualClock, opens: type[BareEngine]
) -> Iterator[Callable[..., BareEngine]]:
    """Return what opens an engine on the same file again, closing the one before."""
    made: list[BareEngine] = []

    def again(**options: Any) -> BareEngine:
        if made:
            made[-1].close()
        made.append(
            opens(
                tmp_path / "again.db",
                **{"clock": clock, "durability": "off", "retention": None, **options},
            )
        )
        return made[-1]

    yield again
    if made:
        made[-1].close()
