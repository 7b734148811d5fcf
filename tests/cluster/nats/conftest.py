"""A real NATS server for tests: one for each process that runs tests, started when needed."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from actorflow.cluster.nats.server import NatsServer, ServerMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_numbers = itertools.count()


def start(*, jetstream: bool = True) -> NatsServer:
    """Start a server; skipped where there is none, but not in CI."""
    try:
        return NatsServer(jetstream=jetstream)
    except ServerMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsServer]:
    with start() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    """Start a server that may be killed."""
    with start() as server:
        yield server


@pytest.fixture
def new_url(nats: NatsServer) -> Callable[..., str]:
    """Return what names a store that does not exist yet."""

    def url(**options: object) -> str:
        given = "&".join(f"{name}={value}" for name, value in options.items())
        return f"{nats.url}/s{next(_numbers)}?{given}"

    return url
