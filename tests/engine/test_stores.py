"""Both stores, step by step, against a naive model; and what the file is worth when it is hurt."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from actorflow.engine.errors import StoreBroken, StoreBusy, StoreRefused
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.stores.protocol import (
    Change,
    DeadRow,
    ExecutionRow,
    MessageRow,
    TaskRow,
    TimerRow,
)
from actorflow.engine.stores.sqlite import store as module
from actorflow.engine.stores.sqlite.store import SqliteStore
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLES = ("executions", "messages", "timers", "tasks", "history", "dead")
NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.lists(st.integers(-6, 12).filter(bool), max_size=4).map(tuple)
BODY = st.sampled_from([b"", b"x", b"y" * 40])


def kind_of(execution: str) -> str:
    return "odd" if execution == "b" else "even"


@st.composite
def changes(draw: st.DrawFn) -> Change:
    name = draw(NAMES)
    messages = draw(st.lists(st.tuples(NAMES, BODY), max_size=3))
    return Change(
        name,
        kind=kind_of(name),
        expected=draw(st.none() | st.integers(0, 3)),
        state=draw(st.none() | BODY),
        status=draw(st.sampled_from(["active", "failed", "done", "cancelled"])),
        at=float(draw(st.integers(0, 9))),
        consumed=draw(NUMBERS),
        messages=messages,
        ahead=draw(st.integers(0, len(messages))),
        creates=[(each, kind_of(each)) for each in draw(st.lists(NAMES, max_size=2))],
        timers=[
            TimerRow(name, each, float(due), b"t")
            for each, due in draw(st.dictionaries(NAMES, st.integers(0, 9), max_size=2)).items()
        ],
        cancelled_timers=[(name, each) for each in draw(st.lists(NAMES, max_size=2))],
        tasks=[TaskRow(each, name, "t", b"", 0, 0.0) for each in draw(st.sets(NAMES, max_size=2))],
        finished_tasks=draw(st.lists(NAMES, max_size=2)),
        history=draw(st.lists(BODY, max_size=2)),
        dead=[
            DeadRow(number, name, b"d", "error", 1.0)
            for number in draw(st.sets(st.integers(0, 4), max_size=2))
        ],
        buried=draw(NUMBERS),
        clear=draw(st.booleans()),
    )


class Model:
    """The contract, in the plainest way: lists that are searched."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Any]] = {table: [] for table in TABLES}
        self.first = self.last = 0
        self.entries = 0

    def find(self, name: str) -> ExecutionRow | None:
        for row in self.tables["executions"]:
            if row.id == name:
                found: ExecutionRow = row
                return found
        return None

    def drop(self, table: str, *keys: Any) -> None:
        self.tables[table] = [row for row in self.tables[table] if key(table, row) not in keys]

    def add(self, table: str, row: Any) -> None:
        self.drop(table, key(table, row))
        self.tables[table].append(row)

    def apply(self, change: Change) -> bool:  # noqa: C901 - one step for each field
        name = change.execution
        if change.expected is not None:
            row = self.find(name)
            if (row.revision if row else 0) != change.expected:
                return False
            created = row.created if row else change.at
            kind, revision = row.kind if row else change.kind, change.expected + 1
            self.add(
                "executions",
                ExecutionRow(name, kind, revision, change.status, change.state, created, change.at),
            )
        for each, kind in change.creates:
            if self.find(each) is None:
                row = ExecutionRow(each, kind, 0, "active", None, change.at, change.at)
                self.add("executions", row)
        if change.clear:
            for table in ("messages", "timers", "tasks"):
                self.tables[table] = [r for r in self.tables[table] if r.execution != name]
        self.drop("messages", *change.consumed)
        self.drop("dead", *change.buried)
        self.drop("timers", *change.cancelled_timers)
        self.drop("tasks", *change.finished_tasks)
        for to, body in reversed(change.messages[: change.ahead]):
            self.first -= 1
            self.add("messages", MessageRow(self.first, to, body, change.at))
        for to, body in change.messages[change.ahead :]:
            self.last += 1
            self.add("messages", MessageRow(self.last, to, body, change.at))
        for timer in change.timers:
            self.add("timers", timer)
        for task in change.tasks:
            self.add("tasks", task)
        for dead in change.dead:
            number = dead.id or self.last + 1
            self.last = max(self.last, number)
            self.add("dead", dead._replace(id=number))
        for body in change.history:
            self.entries += 1
            self.tables["history"].append((self.entries, name, change.at, body))
        return True

    def purge(self, before: float) -> int:
        gone = {
            row.id
            for row in self.tables["executions"]
            if row.status in {"done", "cancelled"} and row.updated < before
        }
        self.drop("executions", *gone)
        self.tables["history"] = [
            row for row in self.tables["history"] if row[2] >= before and row[1] not in gone
        ]
        return len(gone)


def key(table: str, row: Any) -> Any:
    return tuple(row[:2]) if table == "timers" else row[0]


def order(table: str) -> Any:
    return (lambda row: (row[2], row[0], row[1])) if table == "timers" else lambda row: row[0]


class Stores(RuleBasedStateMachine):
    """Drives both stores and the model with the same changes."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.model = Model()
        self.stores: list[Any] = [MemoryStore(), self.open()]

    def open(self) -> SqliteStore:
        return SqliteStore(self.folder / "store.db", durability="off")

    @rule(batch=st.lists(changes(), min_size=1, max_size=4))
    def commit(self, batch: list[Change]) -> None:
        seen = []
        for store in self.stores:
            for change in batch:
                change.committed, change.rows = False, []
            store.commit(batch)
            seen.append([(change.committed, [tuple(r) for r in change.rows]) for change in batch])
        assert seen[0] == seen[1]
        assert [committed for committed, _ in seen[0]] == [self.model.apply(c) for c in batch]

    @rule(before=st.integers(0, 10))
    def purge(self, before: int) -> None:
        counts = {store.purge(before=float(before)) for store in self.stores}
        assert counts == {self.model.purge(float(before))}

    @rule()
    def reopen(self) -> None:
        self.stores[1].close()
        self.stores[1] = self.open()
        # What a store that is opened knows of its history is what there is of it.
        self.model.entries = max([0, *(row[0] for row in self.model.tables["history"])])
        self.stores[0]._numbers = iter(range(self.model.entries + 1, 10_000))

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "stores"):
            return
        for table in TABLES:
            expected = sorted(map(tuple, self.model.tables[table]), key=order(table))
            for store in self.stores:
                assert [tuple(row) for row in store.rows(table)] == expected, (table, store)
                assert [tuple(row) for row in store.rows(table, limit=1)] == expected[:1]
        for store in self.stores:
            assert [tuple(row) for row in store.pending("odd")] == [
                row
                for row in sorted(self.model.tables["messages"])
                if row[1] == "b" and self.model.find("b")
            ]

    def teardown(self) -> None:
        if hasattr(self, "stores"):
            for store in self.stores:
                store.close()
            shutil.rmtree(self.folder)


TestStores = Stores.TestCase
TestStores.settings = settings(stateful_step_count=8)


# --- the file ------------------------------------------------------------------------------------


def filled(path: Path, count: int = 50) -> None:
    store = SqliteStore(path, durability="off")
    store.commit(
        [
            Change(
                f"execution-{number}",
                kind="k",
                expected=0,
                state=b"state" * 20,
                at=1.0,
                messages=[(f"execution-{number}", b"body" * 20)],
                timers=[TimerRow(f"execution-{number}", "t", 5.0, b"tick" * 10)],
                tasks=[TaskRow(f"task-{number}", f"execution-{number}", "t", b"work", 0, 0.0)],
                history=[b"past" * 10],
                dead=[DeadRow(0, f"execution-{number}", b"dead", "error", 1.0)],
            )
            for number in range(count)
        ]
    )
    store.close()


def contents(path: Path) -> list[Any]:
    store = SqliteStore(path)
    try:
        return [list(store.rows(table)) for table in TABLES]
    finally:
        store.close()


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "s.db")
    with pytest.raises(StoreBusy, match="open for writing in another engine"):
        SqliteStore(tmp_path / "s.db")
    reader = SqliteStore(tmp_path / "s.db", read_only=True)
    first.commit([Change("a", kind="k", expected=0, state=b"1")])
    found = reader.execution("a")
    assert found is not None
    assert found.revision == 1
    with pytest.raises(StoreRefused):
        reader.commit([Change("a")])
    reader.close()
    first.close()
    SqliteStore(tmp_path / "s.db").close()


def test_a_closed_store_can_be_read(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 3)
    reader = SqliteStore(tmp_path / "s.db", read_only=True)
    assert len(list(reader.rows("executions"))) == 3
    reader.close()


@pytest.mark.parametrize(
    "content", [b"", b"no database at all", b"SQLite format 3\x00" + b"\xff" * 5_000]
)
def test_what_is_not_a_store_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.db").write_bytes(content)
    with pytest.raises(StoreBroken):
        SqliteStore(tmp_path / "s.db")
    assert (tmp_path / "s.db").read_bytes() == content


def test_a_database_of_somebody_else_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("CREATE TABLE mine (a)")
    connection.close()
    with pytest.raises(StoreBroken, match="not a store of actorflow's"):
        SqliteStore(tmp_path / "s.db")


def test_a_log_without_its_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.db-wal").write_bytes(b"frames")
    with pytest.raises(StoreBroken, match="its log"):
        SqliteStore(tmp_path / "s.db")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    filled(path)
    whole = path.read_bytes()
    for size in range(0, len(whole), max(len(whole) // 23, 1)):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreBroken):
            SqliteStore(path)


def flips(path: Path, places: Sequence[tuple[int, int]]) -> int:
    """Flip one bit at each place in turn; count the refusals. What opens must be unharmed."""
    before = contents(path)
    whole = path.read_bytes()
    refused = 0
    for place, bit in places:
        hurt = bytearray(whole)
        hurt[place] ^= 1 << bit
        path.write_bytes(hurt)
        for left in (f"{path}-wal", f"{path}-shm"):
            Path(left).unlink(missing_ok=True)
        try:
            after = contents(path)
        except StoreBroken:
            refused += 1
        else:
            assert after == before, f"bit {bit} of byte {place} changed something unnoticed"
    path.write_bytes(whole)
    return refused


def test_a_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    filled(path)
    chance = random.Random(5)
    size = path.stat().st_size
    places = [(chance.randrange(size), chance.randrange(8)) for _ in range(60)]
    assert flips(path, places) > 0


def test_names_that_are_no_text_any_more_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    filled(path, 1)
    text = path.read_bytes()
    places = [(at, 7) for at in range(text.index(b"CREATE TABLE"), 4_096, 53)]
    assert flips(path, places) > len(places) // 2


@pytest.mark.parametrize(
    "column", ["kind", "revision", "status", "state", "created", "updated", "seal"]
)
def test_each_column_of_an_execution_is_sealed(column: str, tmp_path: Path) -> None:
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    for expected in (0, 1):  # made, and changed
        store = SqliteStore(path)
        store.commit([Change("x", kind="k", expected=expected, state=b"s", at=5.0 + expected)])
        assert store.execution("x") == ("x", "k", expected + 1, "active", b"s", 5.0, 5.0 + expected)
        store.close()
        copy.write_bytes(path.read_bytes())
        connection = sqlite3.connect(copy)
        connection.execute(f"UPDATE executions SET {column} = 1 + {column}")  # noqa: S608
        connection.commit()
        connection.close()
        with pytest.raises(StoreBroken, match="damaged"):
            SqliteStore(copy)


@pytest.mark.soak
def test_each_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    filled(path, 8)
    size = path.stat().st_size
    assert flips(path, [(place, place % 8) for place in range(size)]) > 0


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 1)
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreBroken, match="version 99, newer"):
        SqliteStore(tmp_path / "s.db")


def test_an_older_version_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "s.db", 1)
    before = contents(tmp_path / "s.db")
    monkeypatch.setattr(module, "_VERSION", module._VERSION + 1)
    monkeypatch.setitem(
        module._MIGRATIONS, module._VERSION - 1, "CREATE TABLE novelty (a INTEGER);"
    )
    assert contents(tmp_path / "s.db") == before
    connection = sqlite3.connect(tmp_path / "s.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (module._VERSION,)
    assert connection.execute("SELECT * FROM novelty").fetchall() == []
    connection.close()


def test_a_backup_is_a_store_and_overwrites_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "s.db")
    store = SqliteStore(tmp_path / "s.db")
    store.backup(tmp_path / "copy.db")
    with pytest.raises(BadOption, match="there already"):
        store.backup(tmp_path / "copy.db")
    store.close()
    assert contents(tmp_path / "copy.db") == contents(tmp_path / "s.db")


def test_numbers_are_never_used_again(tmp_path: Path) -> None:
    for _ in range(3):
        store = SqliteStore(tmp_path / "s.db")
        change = Change("a", messages=[("a", b""), ("a", b"")])
        store.commit([change])
        numbers = [row.id for row in change.rows]
        store.commit([Change("a", consumed=numbers)])
        store.close()
    assert numbers == [5, 6]


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="durability='ful'"):
        SqliteStore(tmp_path / "s.db", durability="ful")
