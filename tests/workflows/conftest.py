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
