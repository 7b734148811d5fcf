"""A transaction is sent at once and answered at once, and reports its first error."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus

from actorflow.engine.stores.postgres.arrays import Blobs, Floats, Longs, Texts
from actorflow.engine.stores.postgres.store import PostgresStore
from actorflow.engine.stores.postgres.writing.pipe import Pipe, ids_of
from actorflow.engine.stores.protocol import Change, NewExecution, NewMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Postgres

SCHEMA = "pipelining"
ADD = "INSERT INTO {s}.numbers SELECT * FROM unnest(%s) RETURNING number"
LENGTH = "SELECT length(%s::text)::bigint"
PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'actorflow_%'"


@pytest.fixture
def connection(postgres: Postgres) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres.server.url) as made:
        made.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        made.execute(f"CREATE SCHEMA {SCHEMA}")
        made.execute(f"CREATE TABLE {SCHEMA}.numbers (number bigint PRIMARY KEY)")
        made.commit()
        yield made


@pytest.fixture(params=[True, False], ids=["prepared", "not prepared"])
def pipe(request: pytest.FixtureRequest, connection: psycopg.Connection[Any]) -> Pipe:
    return Pipe(connection, SCHEMA, prepare=request.param)


def numbers(connection: psycopg.Connection[Any]) -> list[int]:
    rows = connection.execute(f"SELECT number FROM {SCHEMA}.numbers ORDER BY number").fetchall()  # noqa: S608 - ours
    connection.rollback()
    return [row[0] for row in rows]


def idle(connection: psycopg.Connection[Any]) -> bool:
    return connection.info.transaction_status == TransactionStatus.IDLE


def test_a_rollback_of_psycopg_drops_none_of_our_statements(postgres: Postgres) -> None:
    with psycopg.connect(postgres.server.url, prepare_threshold=3) as connection:
        pipe = Pipe(connection, SCHEMA, prepare=True)
        for number in range(6):
            assert ids_of(pipe.transact([(LENGTH, ["four"])])[LENGTH]) == [4]
            connection.execute("SELECT %s::int", (number,))
        connection.rollback()
        assert ids_of(pipe.transact([(LENGTH, ["three"])])[LENGTH]) == [5]


def test_statements_that_the_server_has_dropped_are_prepared_again(postgres: Postgres) -> None:
    with psycopg.connect(postgres.server.url) as connection:
        pipe = Pipe(connection, SCHEMA, prepare=True)
        pipe.transact([(LENGTH, ["four"])])
        connection.execute("DEALLOCATE ALL")
        connection.commit()
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            pipe.transact([(LENGTH, ["four"])])
        connection.rollback()
        assert ids_of(pipe.transact([(LENGTH, ["four"])])[LENGTH]) == [4]


def test_each_text_has_its_result_and_all_is_committed(
    connection: psycopg.Connection[Any], pipe: Pipe
) -> None:
    for first in (0, 10, 20):
        found = pipe.transact([(ADD, [Longs([first, first + 1])]), (LENGTH, ["four"])])
        assert ids_of(found[ADD]) == [first, first + 1]
        assert ids_of(found[LENGTH]) == [4]
        assert idle(connection)
    assert numbers(connection) == [0, 1, 10, 11, 20, 21]


def test_a_transaction_that_was_begun_is_committed_with_it(
    connection: psycopg.Connection[Any], pipe: Pipe
) -> None:
    connection.execute(f"INSERT INTO {SCHEMA}.numbers VALUES (7)")  # noqa: S608 - ours
    pipe.transact([(ADD, [Longs([8])])])
    connection.rollback()
    assert numbers(connection) == [7, 8]


def test_the_first_error_is_raised_nothing_is_committed_and_it_goes_on(
    connection: psycopg.Connection[Any], pipe: Pipe
) -> None:
    pipe.transact([(ADD, [Longs([1])])])
    with pytest.raises(psycopg.errors.UniqueViolation, match="numbers_pkey"):
        pipe.transact([(LENGTH, ["x"]), (ADD, [Longs([2, 1])]), ("SELECT 1 / %s", [0])])
    assert not connection.closed
    connection.rollback()
    assert numbers(connection) == [1]
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipe.transact([("SELECT 1 / %s", [0])])
    connection.rollback()
    found = pipe.transact([(LENGTH, ["xy"]), ("SELECT 1 / %s", [1]), (ADD, [Longs([3])])])
    assert ids_of(found["SELECT 1 / %s"]) == [1]
    assert numbers(connection) == [1, 3]


def test_statements_are_kept_by_the_server_only_where_it_may(
    connection: psycopg.Connection[Any],
) -> None:
    for prepare, kept in ((False, 0), (True, 3)):  # with BEGIN and COMMIT
        pipe = Pipe(connection, SCHEMA, prepare=prepare)
        for _ in range(3):
            pipe.transact([(LENGTH, ["x"])])
        row = connection.execute(PREPARED).fetchone()
        assert row == (kept,)
        connection.rollback()


def test_more_than_a_socket_holds_goes_both_ways(
    connection: psycopg.Connection[Any], pipe: Pipe
) -> None:
    """A server that cannot write stops reading: a client that only sends would wait forever."""
    texts = [f"SELECT {number}, repeat('x', 1000000), length(%s)" for number in range(20)]
    found = pipe.transact([(text, ["y" * 1_000_000]) for text in texts])
    assert [len(found[text].get_value(0, 1) or b"") for text in texts] == [1_000_000] * 20
    assert idle(connection)


def test_a_connection_that_is_lost_is_closed(
    postgres: Postgres, connection: psycopg.Connection[Any], pipe: Pipe
) -> None:
    with psycopg.connect(postgres.server.url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 30000)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        pipe.transact([(LENGTH, ["x"])])
    assert connection.closed


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.text(st.characters(exclude_characters="\0", codec="utf-8"))),
            st.one_of(st.none(), st.binary(max_size=50)),
            st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            st.one_of(st.none(), st.floats(allow_nan=False)),
        ),
        min_size=1,
    )
)
def test_values_arrive_as_they_are(
    connection: psycopg.Connection[Any], rows: list[tuple[Any, ...]]
) -> None:
    name = uuid4()
    pipe = Pipe(connection, SCHEMA, prepare=False)
    text = (
        "CREATE TEMP TABLE found ON COMMIT PRESERVE ROWS AS SELECT %s AS name, v.*"
        " FROM unnest(%s, %s, %s, %s) AS v (a, b, c, d)"
    )
    columns = [make(values) for make, values in zip(
        (Texts, Blobs, Longs, Floats), zip(*rows, strict=True), strict=True
    )]  # fmt: skip
    pipe.transact([("DROP TABLE IF EXISTS found", []), (text, [name, *columns])])
    stored = connection.execute("SELECT * FROM found").fetchall()
    connection.rollback()
    assert stored == [(name, *row) for row in rows]


def test_notices_follow_a_commit_in_a_transaction_of_their_own(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction with a notice keeps a lock of the whole database until it is on the disk."""
    sent: list[tuple[list[str], list[str]]] = []
    transact = Pipe.transact

    def noting(self: Pipe, script: Any, after: Any = ()) -> Any:
        sent.append(([text for text, _ in script], [text for text, _ in after]))
        return transact(self, script, after)

    monkeypatch.setattr(Pipe, "transact", noting)
    store = PostgresStore(postgres.new_url())
    with closing(store):
        store.commit([Change("a", creates=[NewExecution("a", "k")])])
        store.commit([Change("a", messages=[NewMessage("a", "message", b"\xc0")])])
    inside = [text for script, _ in sent for text in script]
    after = [text for _, script in sent for text in script]
    assert inside
    assert not any("pg_notify" in text for text in inside)
    assert any("pg_notify" in text for text in after)


def test_a_commit_stands_if_its_notices_cannot_be_sent(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(postgres.new_url())
    with closing(store):
        with monkeypatch.context() as patch:
            # Postgres takes 8,000 bytes.
            patch.setattr(store._writer, "_notices", lambda _: ["x" * 9_000])
            store.commit([Change("a", creates=[NewExecution("a", "k")])])
        assert "notices were not sent" in caplog.text
        store.commit([Change("b", creates=[NewExecution("b", "k")])])
        assert set(store.executions(["a", "b"])) == {"a", "b"}


def test_a_commit_that_fails_leaves_the_connection_to_the_next_one(postgres: Postgres) -> None:
    """The notices of a transaction that was ended by an error fail with it."""
    with psycopg.connect(postgres.server.url) as connection:
        pipe = Pipe(connection, "public", prepare=True)
        for _ in range(2):
            with pytest.raises(psycopg.errors.DivisionByZero):
                pipe.transact([("SELECT 1 / 0::bigint", ())], [("SELECT pg_notify('x', 'y')", ())])
            connection.rollback()
            found = pipe.transact([("SELECT 2::bigint", ())], [("SELECT pg_notify('x', 'y')", ())])
            assert ids_of(found["SELECT 2::bigint"]) == [2]
