"""Real servers for tests: one of each for each process that runs tests, started when needed."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import psycopg
import pytest

from actorflow.cluster.server import ServerMissing
from actorflow.engine.stores.nats.server import NatsServer
from actorflow.engine.stores.nats.store import NatsStore
from actorflow.engine.stores.postgres.schema import qualified
from actorflow.engine.stores.postgres.server import PostgresServer
from actorflow.engine.stores.postgres.store import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actorflow.engine.stores.protocol import Store

__all__ = ["Nats", "Postgres", "nats", "postgres", "start_nats", "start_postgres", "store_for"]

TABLES = (
    "executions", "parts", "tags", "messages", "timers", "tasks", "watches", "history", "dead",
    "keys", "sessions",
)  # fmt: skip
QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=32MB")


class Postgres:
    """The server, and schemas on it that are empty."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._numbers = itertools.count()
        self._emptied: set[str] = set()

    def url(self, schema: str, **options: object) -> str:
        """Return the address of a store in a schema."""
        given = "".join(f"&{name}={value}" for name, value in options.items())
        return f"{self.server.url}?schema={schema}{given}"

    def new_url(self, **options: object) -> str:
        """Return the address of a store that does not exist yet."""
        return self.url(f"s{next(self._numbers)}", **options)

    def empty_url(self, schema: str = "shared", **options: object) -> str:
        """Return the address of a store that is emptied now: quicker than to make another one."""
        if schema in self._emptied:
            with psycopg.connect(self.server.url) as connection:
                for text in (
                    *("DELETE FROM {s}." + table for table in TABLES),  # noqa: S608 - ours
                    "UPDATE {s}.register SET seats = '[]', holdings = '[]'",
                    "UPDATE {s}.epochs SET epoch = 0",
                ):
                    connection.execute(qualified(text, schema))
        self._emptied.add(schema)
        return self.url(schema, **options)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Start a server that nobody kills."""
    with start_postgres() as server:
        yield Postgres(server)


class Nats:
    """The server, and names of stores on it that do not exist yet."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self._numbers = itertools.count()

    def new_url(self, **options: object) -> str:
        """Return the address of a store that does not exist yet."""
        given = "&".join(f"{name}={value}" for name, value in options.items())
        return f"{self.server.url}/s{next(self._numbers)}?{given}"


def start_postgres() -> PostgresServer:
    """Start a server; skip the test if it is not installed, except in CI."""
    try:
        return PostgresServer(settings=QUICK)
    except ServerMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def start_nats(*, jetstream: bool = True) -> NatsServer:
    """Start a server; skip the test if it is not installed, except in CI."""
    try:
        return NatsServer(jetstream=jetstream)
    except ServerMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def nats() -> Iterator[Nats]:
    """Start a server that nobody kills."""
    with start_nats() as server:
        yield Nats(server)


def store_for(request: pytest.FixtureRequest, path: Path) -> str | Path | Store:
    """Return the store that the parameter of a fixture asks for: in memory, a file, on a server."""
    if request.param == "memory":
        return ":memory:"
    if request.param == "sqlite":
        return path
    if request.param == "nats":
        broker: Nats = request.getfixturevalue("nats")
        return NatsStore(broker.new_url())
    server: Postgres = request.getfixturevalue("postgres")
    return PostgresStore(server.empty_url())
