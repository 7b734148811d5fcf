"""NATS servers that tests may kill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers import start_nats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actorflow.engine.stores.nats.server import NatsServer
    from tests.servers import Nats


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    """Start a server that may be killed."""
    with start_nats() as server:
        yield server


@pytest.fixture
def new_url(nats: Nats) -> Callable[..., str]:
    """Return what names a store that does not exist yet."""
    return nats.new_url
