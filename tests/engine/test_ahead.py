"""Messages that come before what is stored already: what a run has left over."""

from __future__ import annotations

import sqlite3
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actorflow.engine import bodies
from actorflow.engine.errors import StoreFull
from actorflow.engine.kind import Outcome
from actorflow.engine.operations.export import export_lines, import_lines
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.stores.protocol import Change, DeadRow
from actorflow.engine.stores.sqlite.store import SqliteStore
from tests.engine.kinds import Script, quiet, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from actorflow.engine.engine import Engine
    from actorflow.engine.stores.protocol import Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db")
    yield made
    made.close()


def commit(store: Store, *texts: str, ahead: int = 0, **fields: Any) -> list[int]:
    messages = [("x", text.encode()) for text in texts]
    change = Change("x", creates=[("x", "k")], messages=messages, ahead=ahead, **fields)
    store.commit([change])
    assert [row.body.decode() for row in change.rows] == list(texts)
    return [row.id for row in change.rows]


def order(store: Store) -> str:
    texts = [row.body.decode() for row in store.rows("messages")]
    assert texts == [row.body.decode() for row in store.pending("k")]
    assert texts == [row.body.decode() for row in store.rows("messages", "x")]
    return " ".join(texts)


def test_they_come_before_all_others_and_the_newest_first(store: Store) -> None:
    commit(store, "a", "b")
    commit(store, "c", "d", "e", ahead=2)
    assert order(store) == "c d a b e"
    commit(store, "f", "g", ahead=2)
    assert order(store) == "f g c d a b e"


def test_they_are_consumed_and_cleared_as_others(store: Store) -> None:
    commit(store, "a", "b")
    first, second = commit(store, "c", "d", ahead=2)
    commit(store, "e", ahead=1, consumed=[first])
    assert order(store) == "e d a b"
    dead = DeadRow(second, "x", b"d", "error", 1.0)
    store.commit([Change("x", consumed=[second], dead=[dead])])
    assert order(store) == "e a b"
    assert [row.id for row in store.rows("dead")] == [second]
    store.commit([Change("x", clear=True)])
    assert order(store) == ""
    assert second not in commit(store, "f", ahead=1)


def test_their_numbers_are_never_used_again(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        store = SqliteStore(tmp_path / "s.db")
        numbers = commit(store, "a", "b", "c", ahead=2)
        store.commit([Change("x", consumed=numbers)])
        store.close()
        seen += numbers
    assert len(set(seen)) == 9


def test_a_commit_that_fails_takes_no_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "s.db")
    before = commit(store, "a", ahead=1)

    def fail(name: str) -> None:
        if name == "commit.inside":
            raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr("actorflow.engine.stores.sqlite.store.failpoint", fail)
        with pytest.raises(StoreFull):
            commit(store, "b", ahead=1)
    assert commit(store, "c", ahead=1) == [before[0] - 1]
    assert order(store) == "c a"
    store.close()


def test_an_export_keeps_the_order(store: Store) -> None:
    commit(store, "a", "b")
    commit(store, "c", "d", ahead=2)
    copy = MemoryStore()
    import_lines(copy, export_lines(store))
    assert order(copy) == "c d a b"


def stubborn(state: Any, message: Any) -> Any:
    """Leave two messages over at the first one; the test lets the engine be closed meanwhile."""
    left = ["left 1", "left 2"] if message == "begin" else []
    return Outcome(state=[*state, message], leftover=left)


# --- files of earlier versions -------------------------------------------------------------------

VERSION_1 = """
CREATE TABLE executions (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, revision INTEGER NOT NULL, status TEXT NOT NULL,
  state BLOB, created REAL NOT NULL, updated REAL NOT NULL, seal INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE messages (
  id INTEGER PRIMARY KEY, execution TEXT NOT NULL, body BLOB NOT NULL, at REAL NOT NULL,
  seal INTEGER NOT NULL
);
CREATE TABLE timers (
  execution TEXT NOT NULL, id TEXT NOT NULL, due REAL NOT NULL, body BLOB NOT NULL,
  seal INTEGER NOT NULL, PRIMARY KEY (execution, id)
) WITHOUT ROWID;
CREATE INDEX timers_due ON timers (due);
CREATE TABLE tasks (
  id TEXT PRIMARY KEY, execution TEXT NOT NULL, tasker TEXT NOT NULL, body BLOB NOT NULL,
  attempts INTEGER NOT NULL, due REAL NOT NULL, seal INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE history (
  number INTEGER PRIMARY KEY, execution TEXT NOT NULL, at REAL NOT NULL, body BLOB NOT NULL,
  seal INTEGER NOT NULL
);
CREATE INDEX history_execution ON history (execution, number);
CREATE TABLE dead (
  id INTEGER PRIMARY KEY, execution TEXT NOT NULL, body BLOB NOT NULL, error TEXT NOT NULL,
  at REAL NOT NULL, seal INTEGER NOT NULL
);
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
PRAGMA application_id = 0x61666C6F;
PRAGMA user_version = 1;
"""


def seal(*values: Any) -> int:
    return zlib.crc32(msgspec.msgpack.encode(values))


def write_version_1(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(VERSION_1)
    state = bodies.encode(["before"])
    connection.execute(
        "INSERT INTO executions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        ("x", "script", 1, "active", state, 5.0, 6.0, seal("x", "script", 1, "active", state, 6.0)),
    )
    for number, text in ((7, "begin"), (9, "later")):
        row = (number, "x", bodies.encode(text), 6.0)
        connection.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", (*row, seal(*row)))
    connection.execute("INSERT INTO meta VALUES ('last_id', 12)")
    connection.close()


def test_a_file_of_version_1_goes_on(tmp_path: Path, reopen: Callable[..., Engine]) -> None:
    write_version_1(tmp_path / "again.db")
    engine = reopen()
    assert [row.id for row in engine.store.rows("messages")] == [7, 9]
    script = Script(stubborn)
    engine.register(script)
    engine.send("x", "new")
    script.wait(5)
    quiet(engine)
    assert engine.row("x").revision > 1
    assert sorted(state_of(engine, "x")) == ["before", "begin", "later", "left 1", "left 2", "new"]
    assert engine.store.execution("x").created == 5.0  # type: ignore[union-attr]


def test_a_file_of_version_1_takes_messages_that_come_first(tmp_path: Path) -> None:
    write_version_1(tmp_path / "s.db")
    store = SqliteStore(tmp_path / "s.db")
    numbers = commit(store, "first", "last", ahead=1)
    assert numbers[1] == 13
    assert [row.id for row in store.rows("messages")] == [numbers[0], 7, 9, 13]
    store.close()
