"""What tests of workflows share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actorflow.workflows.decider import Decider

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["threads", "greenlets"])
def stacks(request: pytest.FixtureRequest) -> str:
    """Return where the code of branches runs."""
    return str(request.param)


@pytest.fixture
def decider(stacks: str) -> Iterator[Decider]:
    decider = Decider(stacks=stacks)
    yield decider
    decider.close()


@pytest.fixture(params=["live", "replayed"])
def way(request: pytest.FixtureRequest) -> str:
    """Return how branches go on: where they were suspended, or replayed from the beginning."""
    return str(request.param)
