"""The store on Postgres keeps what the protocol promises, and says clearly what it cannot do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import actorflow as af
from actorflow.engine.errors import OutcomeUnknown, StoreBroken, StoreConflict, StoreRefused
from actorflow.engine.stores.postgres.connections import PostgresAddress
from actorflow.engine.stores.postgres.schema import VERSION, qualified
from actorflow.engine.stores.postgres.store import PostgresStore
from actorflow.engine.stores.postgres.writing.commit_plan import plan_changes
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    MessageRow,
    NewExecution,
    NewMessage,
    Refusal,
    TaskRow,
    TimerRow,
    partition_of,
)
from actorflow.runtime.errors import BadOption
from actorflow.testing.stores import check_store
from actorflow.testing.stores.read_cases import purge_forgets_some_of_what_ended
from tests.cluster.postgres.reused import emptied, reopened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Postgres

PATIENCE = 30.0
_TAKE = "UPDATE {s}.epochs SET epoch = epoch + 1 WHERE number = %s"


@pytest.fixture
def store(postgres: Postgres) -> Iterator[PostgresStore]:
    made = PostgresStore(postgres.empty_url("single"))
    yield made
    made.close()


def joined(url: str) -> PostgresStore:
    store = PostgresStore(url)
    store.join()
    return store


def sql(postgres: Postgres, text: str, schema: str = "single", *values: Any) -> None:
    with psycopg.connect(postgres.server.url) as connection:
        connection.execute(qualified(text, schema), values or None)


# --- the protocol --------------------------------------------------------------------------------


def test_the_store_on_postgres_keeps_every_promise(postgres: Postgres) -> None:
    check_store(emptied(postgres), reopen=reopened(postgres), max_examples=8)


@pytest.mark.soak
@pytest.mark.timeout(1_500)
def test_the_store_keeps_its_promises_for_long(postgres: Postgres) -> None:
    check_store(emptied(postgres), reopen=reopened(postgres), max_examples=500)


def test_a_purge_keeps_its_limit_with_every_plan_of_the_server(postgres: Postgres) -> None:
    """Left with a nested loop alone, a server runs a subquery again for each row."""
    ways = ("hashjoin", "mergejoin", "hashagg", "material", "sort")
    options = "%20".join(f"-c%20enable_{way}%3Doff" for way in ways)
    store = joined(postgres.empty_url("single", options=options))
    try:
        purge_forgets_some_of_what_ended(store)
    finally:
        store.close()


def test_without_prepared_statements_and_listening_all_is_the_same(postgres: Postgres) -> None:
    """As behind a pooler that gives out connections by the transaction."""
    url = postgres.empty_url("single", prepare="off", listen="off", poll="0.05")
    one, two = af.Engine(PostgresStore(url)), af.Engine(PostgresStore(url), worker=False)
    with one, two:
        one.resume()
        exid = two.launch("set f.a 1")
        assert two.wait(exid, timeout=PATIENCE).status == "done"


# --- C1, C5, C7, C24: who may commit -------------------------------------------------------------


def test_c01_partitions_are_fixed_when_the_store_is_created(postgres: Postgres) -> None:
    url = postgres.new_url()
    PostgresStore(url, partitions=7).close()
    again = PostgresStore(url, partitions=99)
    assert again.traits.partitions == 7
    again.close()


def test_c05_an_epoch_that_is_over_commits_nothing(
    postgres: Postgres, store: PostgresStore
) -> None:
    store.join()
    partition = partition_of("a", store.traits.partitions)
    epoch = store.owned()[partition]
    good = Change("a", kind="k", expected=NEVER_RUN, state=b"1", epoch=epoch)
    store.commit([good])
    assert good.committed
    sql(postgres, _TAKE, "single", partition)
    late = Change("a", expected=good.revision, state=b"2", epoch=epoch)
    other = Change("b", kind="k", expected=NEVER_RUN, state=b"1")
    store.commit([late, other])
    assert late.refusal == Refusal("fenced", "a")
    assert other.committed, "one loser takes no other with it"
    row = store.execution("a")
    assert row is not None
    assert row.state == b"1"


def test_c05_a_partition_is_not_taken_in_the_middle_of_a_commit(
    postgres: Postgres, store: PostgresStore
) -> None:
    store.join()
    partition = partition_of("a", store.traits.partitions)
    committing = "SELECT epoch FROM {s}.epochs WHERE number = %s FOR SHARE"
    with psycopg.connect(postgres.server.url) as connection:
        connection.execute(qualified(committing, "single"), (partition,))
        with psycopg.connect(postgres.server.url) as other:
            other.execute(b"SET LOCAL lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute(qualified(_TAKE, "single"), (partition,))


def test_c07_two_writers_race_and_one_wins(postgres: Postgres) -> None:
    url = postgres.empty_url("single")
    one, two = PostgresStore(url), PostgresStore(url)
    first = Change("a", kind="k", expected=NEVER_RUN, state=b"1", at=1.0)
    second = Change("a", kind="k", expected=NEVER_RUN, state=b"2", at=1.0)
    two_others = [Change(name, kind="k", expected=NEVER_RUN, state=b"x") for name in "bc"]
    one.commit([first])
    two.commit([two_others[0], second, two_others[1]])
    assert first.committed
    assert second.refusal == Refusal("raced", "a")
    assert all(change.committed for change in two_others)
    one.close()
    two.close()


def test_c24_many_writers_of_the_same_executions_lose_nothing(postgres: Postgres) -> None:
    """Group commits of several engines that touch the same rows end, and each counts once."""
    url = postgres.empty_url("single")
    names = [f"e{number}" for number in range(8)]
    wins: list[int] = []
    faults: list[BaseException] = []

    def write() -> None:
        store = PostgresStore(url)
        won = 0
        try:
            while won < 40:
                rows = store.executions(names)
                changes = [
                    Change(
                        name, kind="k", state=b"",
                        expected=rows[name].revision if name in rows else NEVER_RUN,
                        messages=[NewMessage(name, "message", b"m")],
                    )
                    for name in names
                ]  # fmt: skip
                store.commit(changes)
                won += sum(change.committed for change in changes)
        except BaseException as error:  # noqa: BLE001 - reported by the thread that waits
            faults.append(error)
        finally:
            wins.append(won)
            store.close()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    store = PostgresStore(url)
    assert sum(row.revision for row in store.executions(names).values()) == sum(wins)
    assert sum(counts.messages for counts in store.counts(names).values()) == sum(wins)
    store.close()


def test_c15_a_key_counts_once_whoever_uses_it(postgres: Postgres) -> None:
    url = postgres.empty_url("single")
    stores = [PostgresStore(url) for _ in range(3)]
    made = []
    for store in stores:
        change = Change("a", messages=[NewMessage("a", "message", b"1", "key")])
        store.commit([change])
        made.append(change.rows[0])
        store.close()
    assert [isinstance(row, MessageRow) for row in made] == [True, False, False]


def test_c14_messages_of_one_sender_keep_the_order_of_its_commits(postgres: Postgres) -> None:
    url = postgres.empty_url("single")
    senders = [PostgresStore(url) for _ in range(2)]
    for number in range(10):
        for sender, store in enumerate(senders):
            body = b"%d-%d" % (sender, number)
            store.commit([Change("a", messages=[NewMessage("a", "message", body)])])
    bodies = [row.body for row in senders[0].pending(execution="a").rows]
    for sender in range(2):
        mine = [body for body in bodies if body.startswith(b"%d-" % sender)]
        assert mine == [b"%d-%d" % (sender, number) for number in range(10)]
    for store in senders:
        store.close()


# --- C26: connections that are lost --------------------------------------------------------------


def cut(postgres: Postgres) -> None:
    """End all connections but the one that does so."""
    sql(
        postgres,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND application_name = 'actorflow'",
    )


def test_c26_a_connection_that_was_cut_is_opened_again(
    postgres: Postgres, store: PostgresStore
) -> None:
    store.commit([Change("a", messages=[NewMessage("a", "message", b"1")])])
    assert store.execution("a") is None
    cut(postgres)
    assert len(store.pending(execution="a").rows) == 1
    change = Change("a", messages=[NewMessage("a", "message", b"2")])
    store.commit([change])
    assert [row.body for row in store.pending(execution="a").rows] == [b"1", b"2"]


@pytest.mark.parametrize("away", [False, True])
def test_c26_a_commit_whose_answer_was_lost_is_not_done_twice(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, *, away: bool
) -> None:
    """The server has committed, and the connection is gone before it can say so."""
    store.commit([Change("z", messages=[NewMessage("z", "message", b"0")])])
    connection = store._writer.connection()
    pipe = store._writer._pipe
    assert pipe is not None
    transact = pipe.transact

    def lost(script: Any, after: Any) -> None:
        transact(script, after)
        connection.close()
        raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(pipe, "transact", lost)
    change = Change(
        "a", kind="k", expected=NEVER_RUN, state=b"1",
        messages=[NewMessage("a", "message", b"1"), NewMessage("b", "message", b"2")],
    )  # fmt: skip
    if away:

        def refuse() -> None:
            raise StoreRefused("the server cannot be reached")

        monkeypatch.setattr(store._writer._address, "connect", refuse)
        with pytest.raises(OutcomeUnknown, match="not known yet"):
            store.commit([change])
        assert not change.committed
    else:
        store.commit([change])
        assert change.committed, "it was found out at once"
    monkeypatch.undo()
    later = Change("c", messages=[NewMessage("c", "message", b"3")])
    store.commit([change, later] if away else [later])
    assert (change.committed, later.committed) == (True, True)
    assert change.revision == 1
    found = store.pending(execution="a").rows + store.pending(execution="b").rows
    assert list(change.rows) == found, "their ids were found out"


@pytest.mark.parametrize("messages", [(), (NewMessage("a", "message", b"1"),)])
def test_c26_a_commit_that_comes_late_is_refused(
    store: PostgresStore, messages: tuple[NewMessage, ...]
) -> None:
    """A dead connection's changes must not be committed after others got the opposite answer."""
    store.commit([Change("a", messages=[NewMessage("a", "message", b"1")])])
    writer = store._writer
    connection = writer.connection()
    plan = plan_changes([Change("a", messages=messages)], None, store.traits.partitions)
    writer._enter(connection)  # as the next connection of the session does
    writer._incarnation -= 1
    assert not writer._write(connection, plan)
    assert len(store.pending(execution="a").rows) == 1
    writer._incarnation += 1
    change = Change("a", messages=[NewMessage("a", "message", b"2")])
    store.commit([change])
    assert change.committed


def test_the_statements_of_a_commit_are_planned_once(store: PostgresStore) -> None:
    """Each takes arrays of any length: a plan for each length would cost more than its rows."""
    for number in range(10):
        change = Change(
            "a", kind="k", expected=number, state=b"1",
            messages=[NewMessage("a", "message", b"2")] * (1 + number),
            timers=[TimerRow("a", "t", 1.0, b"3")],
        )  # fmt: skip
        store.commit([change])
        assert change.committed
    rows = store._writer.connection().execute(
        "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements"
        " WHERE statement LIKE '%single.%'"
    )
    found = rows.fetchall()
    store._writer.connection().rollback()
    assert len(found) >= 4, "states, a message, messages and timers"
    assert [(text, custom) for text, generic, custom in found if custom or not generic] == []


# --- C28 and other refusals ----------------------------------------------------------------------


def test_c28_a_newer_schema_is_refused_with_both_versions(postgres: Postgres) -> None:
    url = postgres.new_url()
    schema = PostgresAddress(url).schema
    PostgresStore(url).close()
    sql(postgres, "UPDATE {s}.meta SET value = '999' WHERE key IN ('version', 'oldest')", schema)
    with pytest.raises(
        StoreBroken, match=f"version 999, and this actorflow knows version {VERSION}"
    ):
        PostgresStore(url)


def test_c28_an_older_schema_is_brought_forward_with_all_that_it_holds(postgres: Postgres) -> None:
    url = postgres.new_url()
    schema = PostgresAddress(url).schema
    task = TaskRow("t", "a", "tasker", b"body")
    store = PostgresStore(url)
    store.commit([Change("a", creates=[NewExecution("a", "k")], tasks=[task])])
    store.close()
    sql(postgres, "ALTER TABLE {s}.tasks DROP COLUMN worker", schema)
    sql(postgres, "DROP TABLE {s}.journal", schema)
    sql(postgres, "UPDATE {s}.meta SET value = '1' WHERE key = 'version'", schema)
    store = PostgresStore(url)
    assert store.open().rows == [task]
    store.commit([Change("a", retried=[task._replace(worker="w")])])
    assert store.lent("w") == store.lent() == [task._replace(worker="w")]
    assert store.lent("v") == []
    store.close()


def test_a_schema_of_somebody_else_is_left_alone(postgres: Postgres) -> None:
    url = postgres.new_url()
    schema = PostgresAddress(url).schema
    sql(postgres, "CREATE SCHEMA {s}; CREATE TABLE {s}.theirs (x int)", schema)
    with pytest.raises(StoreBroken, match="'theirs', which is not ours"):
        PostgresStore(url)


def test_two_engines_may_create_the_tables_at_the_same_time(postgres: Postgres) -> None:
    url = postgres.new_url()
    faults: list[BaseException] = []

    def create() -> None:
        try:
            PostgresStore(url).close()
        except BaseException as error:  # noqa: BLE001 - reported by the thread that waits
            faults.append(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "cannot be reached"),
        ("postgresql://me:secret@127.0.0.1:1/none", "me@127.0.0.1:1/none cannot be reached"),
    ],
)
def test_a_server_that_is_not_there_is_named_without_the_password(url: str, words: str) -> None:
    with pytest.raises(StoreRefused, match=words) as caught:
        PostgresStore(url)
    assert "secret" not in str(caught.value)


def test_a_database_that_is_not_there_is_named(postgres: Postgres) -> None:
    url = postgres.server.url.removesuffix("/postgres") + "/nosuch"
    with pytest.raises(StoreRefused, match="no such database, create it first"):
        PostgresStore(url)


def test_wrong_credentials_are_named(postgres: Postgres) -> None:
    url = postgres.server.url.replace("postgres@", "stranger@")
    with pytest.raises(StoreRefused, match="stranger"):
        PostgresStore(url)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("schema=Two%20Words", "schema='Two Words' is not a valid name"),
        ("schema=pg_mine", "is not a valid name"),
        ("prepare=maybe", "prepare='maybe' in the URL of a store is neither 'on' nor 'off'"),
        ("poll=often", "poll='often' in the URL of a store is not a number of seconds"),
        ("lease=-1", "lease='-1'"),
        ("nonsense=1", "nonsense"),
    ],
)
def test_urls_that_make_no_sense_are_refused(query: str, words: str) -> None:
    with pytest.raises(BadOption, match=words):
        PostgresAddress(f"postgresql://localhost/db?{query}")


def test_options_of_libpq_keep_their_spaces() -> None:
    address = PostgresAddress("postgresql://host/db?schema=x&options=-c%20work_mem%3D8MB")
    given = psycopg.conninfo.conninfo_to_dict(address.dsn)
    assert given["options"] == "-c work_mem=8MB"


def test_tables_that_are_gone_are_named(postgres: Postgres) -> None:
    url = postgres.new_url()
    store = PostgresStore(url)
    sql(postgres, "DROP SCHEMA {s} CASCADE", store.address.schema)
    with pytest.raises(StoreBroken, match="are gone"):
        store.execution("a")
    store.close()


def test_what_postgres_cannot_store_is_a_conflict(store: PostgresStore) -> None:
    with pytest.raises(StoreConflict, match="cannot store a value"):
        store.commit([Change("a", messages=[NewMessage("a\0b", "message", b"")])])
    assert store.pending(execution="a").rows == []


def test_nothing_is_left_of_a_session_that_was_closed(postgres: Postgres) -> None:
    url = postgres.empty_url("single")
    store = joined(url)
    store.commit([Change("a", timers=[TimerRow("a", "t", 1.0, b"")])])
    store.close()
    with psycopg.connect(postgres.server.url) as connection:
        rows: list[Any] = connection.execute(b"SELECT * FROM single.sessions").fetchall()
        seats: Any = connection.execute(b"SELECT seats FROM single.register").fetchone()
    assert (rows, seats) == ([], ([],))
