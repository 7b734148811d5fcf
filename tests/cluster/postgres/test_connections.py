"""How many connections an engine on Postgres opens."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

import actorflow as af
from actorflow.engine.errors import StoreRefused
from actorflow.engine.stores.postgres import connections
from actorflow.engine.stores.postgres.connections import PostgresAddress, PostgresReaders
from actorflow.runtime.errors import BadOption
from tests.cluster.processes import until

if TYPE_CHECKING:
    from tests.servers import Postgres


def count(postgres: Postgres, name: str) -> int:
    """Return how many connections of an application the server has."""
    with psycopg.connect(postgres.server.url) as connection:
        text = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        row = connection.execute(text, (name,)).fetchone()
    assert row is not None
    return int(row[0])


def test_many_threads_that_read_share_a_few_connections(postgres: Postgres) -> None:
    readers = PostgresReaders(
        PostgresAddress(postgres.url("x", connections=7, application_name="many"))
    )
    most: list[int] = []
    started = threading.Barrier(50)

    def read(number: int) -> int:
        started.wait()
        rows = readers.read(b"SELECT %s::int, pg_sleep(0.01)", (number,))
        if number % 10 == 0:
            most.append(count(postgres, "many"))
        return int(rows[0][0])

    with ThreadPoolExecutor(50) as pool:
        assert sorted(pool.map(read, range(50))) == list(range(50))
    assert max(most) <= 4
    readers.close()


def test_a_thread_that_gets_no_connection_is_refused_and_hears_of_the_option(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_CROWDED", 0.05)
    readers = PostgresReaders(PostgresAddress(postgres.url("x", connections=4)))
    with psycopg.connect(postgres.server.url) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT pg_advisory_xact_lock(77)")
        waits = pool.submit(readers.read, b"SELECT pg_advisory_xact_lock(77)")
        until(lambda: readers._free._value == 0, "nobody reads")
        with pytest.raises(StoreRefused, match=r"in use for 0\.05 s; raise connections=4"):
            readers.read(b"SELECT 1")
        other.rollback()
        waits.result()
    assert readers.read(b"SELECT 1::int") == [(1,)]
    readers.close()


def test_an_idle_worker_holds_three_connections(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_UNUSED", 0.2)
    url = postgres.empty_url("idle", poll=0.1, application_name="idle")
    with af.Engine(url) as engine:
        engine.worker("sum", lambda batch, state: state + sum(batch), state=0).push_block(1)
        until(lambda: count(postgres, "idle") == 3, "some are left")


@pytest.mark.parametrize("given", ["3", "0", "-1", "many", "1.5"])
def test_too_few_connections_are_refused(given: str) -> None:
    with pytest.raises(BadOption, match="is not a number above 3"):
        PostgresAddress(f"postgresql://db/orders?connections={given}")
