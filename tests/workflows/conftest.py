"""What tests of workflows share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actorflow.workflows.decider import Decider

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def decider() -> Iterator[Decider]:
    decider = Decider()
    yield decider
    decider.close()


@pytest.fixture(params=["live", "replayed"])
def way(request: pytest.FixtureRequest) -> str:
    """Return how branches go on: where they were suspended, or replayed from the beginning."""
    return str(request.param)
