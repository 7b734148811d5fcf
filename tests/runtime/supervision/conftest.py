"""Fixtures for the tests of running supervisors: a stage, and no actor left at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actorflow.runtime.registry import ACTORS
from tests.runtime.supervision.kit import Stage
from tests.runtime.worker.probe import until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def no_actor_left_behind() -> Iterator[None]:
    """Fail a test whose actors have not all ended: nothing leaks, however a tree ends."""
    before = set(ACTORS._members)
    yield
    until(
        lambda: not set(ACTORS._members) - before,
        f"actors left: {set(ACTORS._members) - before}",
    )


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Return a lane, a clock and scripted children; stop the remaining ones at the end."""
    made = Stage()
    yield made
    made.close()
