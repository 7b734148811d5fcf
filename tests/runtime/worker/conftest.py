"""Every test of workers compares what they do with the table of states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actorflow.testing import checked_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="module")
def table() -> Iterator[None]:
    """Fail if any worker of the module changes its state as the table does not."""
    with checked_pairs():
        yield
