"""What the administrator of a database does: roles and grants, migrations, copies, failover."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import actorflow as af
from actorflow.engine.errors import StoreBroken, StoreMoved, StoreRefused
from actorflow.engine.stores.opening import open_store
from actorflow.engine.stores.postgres import migrations, schema
from actorflow.engine.stores.postgres.connections import PostgresAddress
from actorflow.engine.stores.postgres.migrations import StoreFacts, read_facts
from actorflow.engine.stores.postgres.server import PostgresServer
from actorflow.engine.stores.postgres.store import PostgresStore
from tests.cluster.processes import until, workers
from tests.cluster.test_commands import run
from tests.servers import QUICK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import Postgres

FLOW = "sequence\n  alice 'a'\n  sleep '0.1s'\n  alice 'b'\n"
PATIENCE = 60.0


@pytest.fixture(scope="module")
def roles(postgres: Postgres) -> Iterator[PostgresServer]:
    """Return a server with a database in which only its owner may make schemas."""
    server = postgres.server
    with psycopg.connect(server.url, autocommit=True) as connection:
        for text in (
            "CREATE ROLE team_owner LOGIN", "CREATE ROLE team_app LOGIN",
            "CREATE ROLE team_reader LOGIN", "CREATE DATABASE team",
            "REVOKE ALL ON DATABASE team FROM PUBLIC",
            "GRANT CONNECT, TEMPORARY ON DATABASE team TO team_owner, team_app, team_reader",
        ):  # fmt: skip
            connection.execute(text.encode())
    yield server
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP DATABASE team WITH (FORCE)")


def as_role(server: PostgresServer, role: str, schema: str, **options: Any) -> str:
    """Return the address of a store for a role."""
    given = "".join(f"&{name}={value}" for name, value in options.items())
    return f"postgresql://{role}@127.0.0.1:{server.port}/team?schema={schema}{given}"


def execute(server: PostgresServer, text: str, database: str = "team") -> None:
    with psycopg.connect(
        f"postgresql://postgres@127.0.0.1:{server.port}/{database}", autocommit=True
    ) as connection:
        connection.execute(text.encode())


def work(url: str) -> None:
    """Let an engine do a bit of everything."""
    with af.Engine(url) as engine:
        engine.tasker("alice", lambda _: {"done": True})
        ledger = engine.worker("ledger", lambda batch, state: state + sum(batch), state=0)
        exid = engine.launch(FLOW)
        ledger.push_block(3, timeout=PATIENCE)
        assert engine.result(exid, timeout=PATIENCE)["done"]
        assert engine.upkeep.purge(before=4e9) == 1


# Roles.


def test_a_schema_that_the_administrator_has_made_needs_no_rights_on_the_database(
    roles: PostgresServer,
) -> None:
    with pytest.raises(StoreRefused, match="actorflow cluster sql"):
        open_store(as_role(roles, "team_app", "made"))
    execute(roles, "CREATE SCHEMA made AUTHORIZATION team_app")
    work(as_role(roles, "team_app", "made"))


def test_the_printed_sql_makes_a_store_for_an_owner_an_application_and_a_reader(
    roles: PostgresServer,
) -> None:
    names = ("--owner", "team_owner", "--app", "team_app", "--reader", "team_reader")
    printed = run("sql", "--schema", "granted", "--partitions", "8", *names)
    assert printed.returncode == 0, printed.stderr
    execute(roles, printed.stdout)
    url = as_role(roles, "team_app", "granted")
    work(url)
    assert open_partitions(url) == 8
    with (
        psycopg.connect(url.partition("?")[0]) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("ALTER TABLE granted.tasks ADD COLUMN mine text")
    reading = as_role(roles, "team_reader", "granted")
    assert run("status", reading).returncode == 0
    listed = run("ps", reading, group=())
    assert (listed.returncode, "ledger" in listed.stdout) == (0, True), listed.stderr
    with (
        pytest.raises(StoreRefused, match="a permission is missing"),
        af.Engine(reading, worker=False) as engine,
    ):
        engine.launch(FLOW)


def open_partitions(url: str) -> int:
    store = open_store(url)
    store.close()
    return store.traits.partitions


def test_names_that_would_be_other_sql_are_refused() -> None:
    done = run("sql", "--owner", "me; DROP TABLE x")
    assert done.returncode == 2
    assert "--owner" in done.stderr


# Versions.


def older(server: PostgresServer, schema: str) -> None:
    """Make tables those of version 2."""
    execute(server, f"DROP TABLE {schema}.journal")
    execute(server, f"DELETE FROM {schema}.meta WHERE key IN ('oldest', 'store', 'home')")  # noqa: S608 - ours
    execute(server, f"UPDATE {schema}.meta SET value = '2' WHERE key = 'version'")  # noqa: S608 - ours


def facts_of(server: PostgresServer, schema: str) -> StoreFacts | None:
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{server.port}/team") as connection:
        return read_facts(connection, schema)


def test_a_migration_can_be_looked_at_before_it_is_done(roles: PostgresServer) -> None:
    execute(roles, "CREATE SCHEMA staged AUTHORIZATION team_app")
    url = as_role(roles, "team_app", "staged")
    open_store(url).close()
    older(roles, "staged")
    shown = run("migrate", url, "--dry-run")
    assert "-- version 2 to 3\nINSERT INTO staged.meta" in shown.stdout
    assert facts_of(roles, "staged") == StoreFacts(2, 2, 64, None, "")
    assert run("migrate", url).returncode == 0
    facts = facts_of(roles, "staged")
    assert facts is not None
    assert (facts.version, facts.oldest, bool(facts.store), bool(facts.home)) == (
        schema.VERSION,
        2,
        True,
        True,
    )
    assert run("migrate", url).stdout == "-- 0 migrations done\n"


def test_what_a_superuser_migrates_belongs_to_the_owner_with_the_grants_of_the_others(
    roles: PostgresServer,
) -> None:
    execute(roles, migrations.definition("lifted", 8, "team_owner"))
    execute(roles, migrations.grants("lifted", "team_owner", "team_app", "team_reader"))
    older(roles, "lifted")
    assert run("migrate", as_role(roles, "postgres", "lifted")).returncode == 0
    work(as_role(roles, "team_app", "lifted"))
    verified = run("verify", as_role(roles, "team_reader", "lifted"), group=())
    assert verified.returncode == 0, verified.stdout + verified.stderr
    with psycopg.connect(as_role(roles, "team_reader", "").partition("?")[0]) as connection:
        owners = connection.execute(
            "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'lifted'"
        ).fetchall()
        noted = connection.execute("SELECT count(*) > 0 FROM lifted.journal").fetchone()
    assert (owners, noted) == ([("team_owner",)], (True,))


def test_code_works_on_tables_of_the_version_before_until_their_owner_migrates_them(
    roles: PostgresServer,
) -> None:
    execute(roles, migrations.definition("behind", 8, "team_owner"))
    execute(roles, migrations.grants("behind", "team_owner", "team_app", "team_reader"))
    older(roles, "behind")
    work(as_role(roles, "team_app", "behind"))
    execute(roles, "UPDATE behind.meta SET value = '1' WHERE key = 'version'")
    with pytest.raises(StoreBroken, match="actorflow cluster migrate"):
        open_store(as_role(roles, "team_app", "behind"))


NEXT = """
ALTER TABLE {s}.executions ADD COLUMN later text;
ALTER TABLE {s}.messages ADD COLUMN later text;
ALTER TABLE {s}.timers ADD COLUMN later text;
ALTER TABLE {s}.tasks ADD COLUMN later text;
ALTER TABLE {s}.watches ADD COLUMN later text;
ALTER TABLE {s}.history ADD COLUMN later text;
ALTER TABLE {s}.dead ADD COLUMN later text;
ALTER TABLE {s}.tags ADD COLUMN later text;
ALTER TABLE {s}.keys ADD COLUMN later text;
ALTER TABLE {s}.parts ADD COLUMN later text;
ALTER TABLE {s}.register ADD COLUMN later text;
ALTER TABLE {s}.sessions ADD COLUMN later text;
ALTER TABLE {s}.journal ADD COLUMN later text;
"""


def test_workers_of_two_versions_share_a_store_during_a_deploy(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers are of this version; this process plays the next one, which adds columns."""
    url = postgres.new_url()
    with workers(url, tmp_path, "a"), af.Engine(url, worker=False) as client:
        first = client.launch("sequence\n  alice 'x'\n  stall _\n")
        until(lambda: effects(tmp_path) >= 1, "the first task was not done")
        monkeypatch.setitem(migrations.MIGRATIONS, schema.VERSION, NEXT)
        monkeypatch.setattr(migrations, "OLDEST_CODE", schema.VERSION)
        monkeypatch.setattr(migrations, "VERSION", schema.VERSION + 1)
        with af.Engine(url) as newer:
            newer.tasker("alice", lambda task: {**task.payload, "n": 1})
            newer.resume()
            with workers(url, tmp_path, "b"):  # an older one that is started again meanwhile
                exids = [client.launch(FLOW) for _ in range(10)]
                assert all(client.result(exid, timeout=PATIENCE)["n"] for exid in exids)
        client.cancel(first)
        monkeypatch.setattr(migrations, "VERSION", schema.VERSION)
        with psycopg.connect(postgres.server.url) as connection:
            text = "UPDATE {s}.meta SET value = '9' WHERE key = 'oldest'"
            connection.execute(schema.qualified(text, PostgresAddress(url).schema))
        with pytest.raises(
            StoreBroken, match=f"and this actorflow knows version {schema.VERSION}:"
        ):
            open_store(url)


def effects(directory: Path) -> int:
    found = directory / "effects"
    return found.read_text().count("\n") if found.exists() else 0


# Copies.


def test_a_copied_database_runs_nothing_until_somebody_says_what_it_is(
    postgres: Postgres,
) -> None:
    server = postgres.server
    execute(server, "CREATE DATABASE original", "postgres")
    original = f"postgresql://postgres@127.0.0.1:{server.port}/original"
    done: list[str] = []
    with af.Engine(original) as engine:
        engine.worker("ledger", lambda batch, state: [*state, *batch], state=[]).push_block(1)
        engine.launch("sequence\n  sleep '1d'\n  alice 'later'\n", id="sleeps")
        engine.tasker("alice", lambda _: af.HOLD)
        engine.launch("alice 'now'", id="waits")
        until(lambda: bool(engine.parts.store.open().rows), "no task was stored")
    execute(server, "CREATE DATABASE clone TEMPLATE original", "postgres")
    clone = original.replace("/original", "/clone")

    def run_on(url: str) -> None:
        with af.Engine(url) as engine:
            engine.tasker("alice", lambda task: done.append(task.execution))
            ledger = engine.worker("ledger", lambda batch, state: [*state, *batch], state=[])
            ledger.push_block(2, timeout=PATIENCE)
            assert ledger.state() == [1, 2]

    with pytest.raises(StoreMoved, match="actorflow cluster adopt"):
        run_on(clone)
    with af.Engine(clone, worker=False) as looking:
        assert looking.execution("sleeps").status == "active"
    adopted = run("adopt", clone, "--as-copy")
    assert adopted.returncode == 0, adopted.stderr
    assert "1 row of timers deleted" in adopted.stdout
    assert "1 row of tasks deleted" in adopted.stdout
    run_on(clone)
    assert done == []
    run_on(original)
    assert done == ["waits"]
    assert id_of(original) != id_of(clone)


def id_of(url: str) -> str | None:
    store = PostgresStore(url)
    store.close()
    return store.id


def test_a_restored_database_goes_on_once_it_is_adopted(postgres: Postgres) -> None:
    server = postgres.server
    execute(server, "CREATE DATABASE before", "postgres")
    url = f"postgresql://postgres@127.0.0.1:{server.port}/before"
    with af.Engine(url) as engine:
        engine.tasker("alice", lambda _: af.HOLD)
        engine.launch("alice 'now'", id="waits")
        until(lambda: bool(engine.parts.store.open().rows), "no task was stored")
    made = id_of(url)
    execute(server, "ALTER DATABASE before RENAME TO old", "postgres")
    execute(server, "CREATE DATABASE before TEMPLATE old", "postgres")
    assert run("adopt", url).stdout == f"store {made}\n"
    with af.Engine(url) as engine:
        engine.tasker("alice", lambda _: {"done": True})
        assert engine.result("waits", timeout=PATIENCE)["done"]


def test_the_original_is_not_taken_for_a_copy(postgres: Postgres) -> None:
    url = postgres.new_url()
    open_store(url).close()
    refused = run("adopt", url, "--as-copy")
    assert (refused.returncode, "nothing was deleted" in refused.stderr) == (1, True)
    assert run("adopt", url, "--as-copy", "--force").returncode == 0


def test_an_import_as_a_copy_leaves_out_what_would_run_twice(tmp_path: Path) -> None:
    original = tmp_path / "orders.db"
    with af.Engine(original) as engine:
        engine.worker("ledger", lambda batch, state: state + len(batch), state=0).push_block("x")
        exid = engine.launch("sequence\n  sleep '1d'\n")
        until(lambda: bool(engine.parts.store.due()), "no timer was stored")
    lines = run("export", str(original), group=()).stdout
    copy = tmp_path / "copy.db"
    command = [sys.executable, "-m", "actorflow.cli", "import", str(copy), "--as-copy"]
    subprocess.run(command, input=lines, text=True, capture_output=True, check=True)
    with af.Engine(copy) as engine:
        assert engine.parts.store.due() == []
        assert engine.execution(exid).status == "active"
        assert engine.worker("ledger", lambda _, state: state, state=0).state() == 1


# Failover.


def test_the_address_finds_the_server_that_takes_writes(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.new_url()
    open_store(url).close()
    with PostgresServer(settings=(*QUICK, "default_transaction_read_only=on")) as standby:
        ports = f"127.0.0.1:{standby.port},127.0.0.1:{postgres.server.port}"
        both = url.replace(f"127.0.0.1:{postgres.server.port}", ports)
        work(f"{both}&target_session_attrs=read-write")
        with pytest.raises(StoreRefused, match="target_session_attrs=read-write"):
            open_store(standby.url)
