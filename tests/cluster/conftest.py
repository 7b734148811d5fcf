"""Stores that several engines share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import Nats, Postgres


@pytest.fixture(params=["postgres", "nats"])
def store_url(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Return what names a store that is empty, on each carrier in turn."""
    if request.param == "nats":
        broker: Nats = request.getfixturevalue("nats")
        return broker.new_url
    server: Postgres = request.getfixturevalue("postgres")
    return partial(server.empty_url, request.module.__name__.rpartition("test_")[2])
