"""A single row is written by other statements than many rows, and to the same effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actorflow.engine.stores.postgres.store import PostgresStore
from actorflow.engine.stores.postgres.writing.pipe import Pipe
from actorflow.engine.stores.postgres.writing.rows import Statement, with_cells, with_columns
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    NewDead,
    NewExecution,
    NewMessage,
    TaskResult,
    TaskRow,
    TimerRow,
    WatchRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import Postgres


@pytest.fixture
def store(postgres: Postgres) -> Iterator[PostgresStore]:
    made = PostgresStore(postgres.empty_url("rows"))
    yield made
    made.close()


def _task(name: str, kind: str) -> TaskRow:
    return TaskRow(f"{name}-{kind}", name, "tasker", b"work", timeout=3.0, retries=None, priority=2)


def _first(name: str, _rows: list[Any]) -> Change:
    return Change(
        name, kind="k", expected=NEVER_RUN, state=b"state", at=1.0, tags={"name": "value"},
        creates=[NewExecution(f"{name}-child", "k", name)],
        messages=[NewMessage(name, "message", b"1")],
        timers=[TimerRow(name, each, 5.0, b"tick") for each in ("kept",)],
        tasks=[_task(name, "answered")],
        watches=[WatchRow(name, "w", "k", b"watch")],
        history=[b"past"],
        dead=[NewDead(None, name, "message", b"dead", "error")],
    )  # fmt: skip


def _second(name: str, rows: list[Any]) -> Change:
    return Change(
        name, expected=1, state=b" grown", appends=True, at=2.0, consumed=[rows[-1]],
        messages=[NewMessage(name, "message", b"2", "key")],
        fired_timers=[(TimerRow(name, "kept", 5.0, b"tick"), NewMessage(name, "timer", b"tick"))],
        task_results=[TaskResult(f"{name}-answered", NewMessage(name, "answer", b"done"))],
        cancelled_watches=[(name, "w")],
    )  # fmt: skip


def _third(name: str, rows: list[Any]) -> Change:
    return Change(
        name, expected=2, state=b"whole", at=3.0, attempted=[rows[-1]], tags={"name": "another"},
        timers=[TimerRow(name, "t", 7.0, b"tick")],
        tasks=[_task(name, "retried")],
    )  # fmt: skip


def _fourth(name: str, _rows: list[Any]) -> Change:
    again = _task(name, "retried")._replace(attempts=1, due=9.0)
    return Change(name, cancelled_timers=[(name, "t")], retried=[again], epoch=0)


def _last(name: str, _rows: list[Any]) -> Change:
    return Change(
        name, expected=3, state=None, status="done", result=b"result", at=4.0, clear=True,
        finished_tasks=[f"{name}-retried"], purged_letters=[],
    )  # fmt: skip


_STEPS: list[Callable[[str, list[Any]], Change]] = [_first, _second, _third, _fourth, _last]


def _contents(store: PostgresStore, name: str) -> list[Any]:
    """Return the rows of an execution, without its name and without numbers."""
    found = []
    for table, row in store.snapshot():
        if table == "meta" or not any(str(each).startswith(name) for each in row):
            continue
        cells = [str(each).replace(name, "name") for each in row]
        if table in {"messages", "history", "dead"}:
            del cells[0]
        if table == "keys":
            del cells[2]
        found.append((table, cells))
    return sorted(found)


def test_what_one_row_and_what_many_rows_leave_is_the_same(store: PostgresStore) -> None:
    groups = (("first",), ("second", "third"))
    rows: dict[str, list[Any]] = {name: [] for names in groups for name in names}
    for number, step in enumerate(_STEPS):
        for names in groups:
            changes = [step(name, rows[name]) for name in names]
            store.commit(changes)
            for change in changes:
                assert change.committed, (number, change.refusal)
                rows[change.execution] += [row.id for row in change.rows]
        alone = _contents(store, "first")
        assert alone, number
        for name in groups[1]:
            assert _contents(store, name) == alone, number


def test_a_race_is_lost_with_one_row_as_with_many(store: PostgresStore) -> None:
    names = ("a", "b", "c")
    store.commit([Change(name, kind="k", expected=NEVER_RUN, state=b"1") for name in names])
    for group in (("a",), ("b", "c")):
        changes = [Change(name, expected=7, state=b"2", messages=_ONE) for name in group]
        store.commit(changes)
        assert [change.refusal and change.refusal.reason for change in changes] == (
            ["raced"] * len(group)
        )
    assert [row.body for row in store.pending().rows] == []


_ONE = (NewMessage("a", "message", b"1"),)


def test_a_text_without_rows_is_no_statement() -> None:
    with pytest.raises(ValueError, match=r"no \{rows"):
        Statement("SELECT 1")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    row=st.tuples(
        st.one_of(st.none(), st.text(st.characters(exclude_characters="\0", codec="utf-8"))),
        st.one_of(st.none(), st.binary(max_size=50)),
        st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        st.one_of(st.none(), st.floats(allow_nan=False)),
        st.one_of(st.none(), st.booleans()),
    )
)
def test_cells_arrive_as_columns_do(store: PostgresStore, row: tuple[Any, ...]) -> None:
    connection = store._writer.connection()
    pipe = Pipe(connection, "rows", prepare=False)
    for fill in (with_cells, with_columns):
        text = (
            "CREATE TEMP TABLE found AS SELECT v.*"
            " FROM {ordered: text, bytea, bigint, float8, boolean} AS v (a, b, c, d, e, place)"
        )
        pipe.transact([("DROP TABLE IF EXISTS found", []), fill(Statement(text), [row])])
        stored = connection.execute("SELECT * FROM found").fetchall()
        connection.rollback()
        assert stored == [(*row, 1)]
