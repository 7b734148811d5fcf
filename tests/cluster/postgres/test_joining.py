"""C23: starts and messages that join a user's transaction happen with it, or not at all."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row

import actorflow as af
from actorflow.engine.errors import ExecutionEnded, KindMismatch, UnknownExecution
from actorflow.engine.stores.postgres.store import PostgresStore
from actorflow.runtime.errors import BadOption
from tests.engine.kinds import Script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Postgres

PATIENCE = 40.0


class Greeting(af.Workflow[str]):
    """Says hello."""

    def __init__(self, name: str) -> None:
        self.name = name

    def handle(self) -> str:
        return f"hello {self.name}"


@pytest.fixture
def engine(postgres: Postgres) -> Iterator[af.Engine]:
    with af.Engine(PostgresStore(postgres.empty_url("joining"))) as made:
        made.resume()
        yield made


@pytest.fixture
def connection(postgres: Postgres) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres.server.url) as made:
        yield made
        made.rollback()


def test_c23_a_start_that_is_rolled_back_never_happened(
    engine: af.Engine, connection: psycopg.Connection[Any]
) -> None:
    exid = engine.launch("set f.a 1", id="o-1", connection=connection)
    connection.rollback()
    with pytest.raises(UnknownExecution):
        engine.execution(exid)
    assert engine.parts.store.pending(execution=exid).rows == []


def test_c23_a_start_runs_once_it_is_committed(
    engine: af.Engine, connection: psycopg.Connection[Any]
) -> None:
    exid = engine.launch("set f.a 1", id="o-1", connection=connection)
    assert engine.launch("set f.a 2", id="o-1", connection=connection) == exid, "once, by its id"
    with pytest.raises(UnknownExecution):
        engine.execution(exid)
    connection.commit()
    engine.parts.store.look()  # type: ignore[attr-defined] # the notice may be on its way
    assert engine.wait(exid, PATIENCE).status == "done"
    assert engine.result(exid)["a"] == 1


def test_c23_a_message_joins_too(engine: af.Engine, connection: psycopg.Connection[Any]) -> None:
    pushed: list[Any] = []
    done = threading.Event()

    def job(batch: list[Any], state: Any) -> Any:
        pushed.extend(batch)
        if "last" in batch:
            done.set()
        return state

    engine.worker("w", job)
    engine.send("w", "lost", connection=connection)
    connection.rollback()
    engine.send("w", "kept", kind="worker", key="k", connection=connection)
    engine.send("w", "again", kind="worker", key="k", connection=connection)
    connection.commit()
    engine.send("w", "last", kind="worker", connection=connection)
    connection.commit()
    assert done.wait(PATIENCE)
    assert pushed == ["kept", "last"]


def test_c23_workflows_and_kinds_join_as_well(
    engine: af.Engine, connection: psycopg.Connection[Any]
) -> None:
    order = engine.start(Greeting("Ann"), id="w-1", connection=connection)
    engine.register(Script())
    engine.start("script", 1, id="s-1", connection=connection)
    connection.commit()
    assert order.result(PATIENCE) == "hello Ann"
    asyncio.run(alike(engine, connection))


async def alike(engine: af.Engine, connection: psycopg.Connection[Any]) -> None:
    exid = await engine.alaunch("set f.a 1", connection=connection)
    await engine.asend("s-1", 2, connection=connection)
    connection.commit()
    assert (await engine.await_(exid, PATIENCE)).status == "done"


def test_c23_connections_that_return_other_rows_are_fine(
    engine: af.Engine, postgres: Postgres
) -> None:
    with psycopg.connect(postgres.server.url, row_factory=dict_row, autocommit=True) as connection:
        exid = engine.launch("set f.a 1", connection=connection)
    assert engine.wait(exid, PATIENCE).status == "done"


def test_c23_eight_clients_at_the_same_time(engine: af.Engine, postgres: Postgres) -> None:
    """Half of the transactions are rolled back; the table of the user and the engine agree."""
    with psycopg.connect(postgres.server.url) as connection:
        connection.execute(b"DROP TABLE IF EXISTS public.orders")
        connection.execute(b"CREATE TABLE public.orders (id text PRIMARY KEY)")
    faults: list[BaseException] = []

    def client(number: int) -> None:
        try:
            with psycopg.connect(postgres.server.url) as connection:
                for order in range(10):
                    name = f"o-{number % 4}-{order}"  # two clients race for each
                    text = b"INSERT INTO public.orders VALUES (%s) ON CONFLICT DO NOTHING"
                    connection.execute(text, (name,))
                    engine.launch("set f.a 1", id=name, connection=connection)
                    if order % 2:
                        connection.rollback()
                    else:
                        connection.commit()
        except BaseException as error:  # noqa: BLE001 - reported by the thread that waits
            faults.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    with psycopg.connect(postgres.server.url) as connection:
        rows = connection.execute(b"SELECT id FROM public.orders ORDER BY id").fetchall()
    names = [row[0] for row in rows]
    assert len(names) == 20
    for name in names:
        assert engine.wait(name, PATIENCE).status == "done"
    assert [each.id for each in engine.executions()] == names


def test_what_cannot_join_is_refused(
    engine: af.Engine, connection: psycopg.Connection[Any]
) -> None:
    with pytest.raises(BadOption, match=r"is not a psycopg\.Connection"):
        engine.launch("set f.a 1", connection="postgresql://")
    with pytest.raises(UnknownExecution, match="nosuch"):
        engine.send("nosuch", 1, connection=connection)
    exid = engine.launch("set f.a 1", id="done")
    engine.wait(exid, PATIENCE)
    with pytest.raises(ExecutionEnded, match="has ended"):
        engine.send("done", 1, connection=connection)
    with pytest.raises(KindMismatch, match="is of kind 'flow'"):
        engine.send("done", 1, kind="worker", connection=connection)
    with pytest.raises(BadOption, match="a plan is stored"):
        engine.start(af.Plan(), connection=connection)  # type: ignore[call-overload]
    with af.Engine() as other, pytest.raises(BadOption, match="MemoryStore is in none"):
        other.launch("set f.a 1", connection=connection)
