"""The store on one SQLite file: one writer, links, backups, options."""

from __future__ import annotations

import os
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest

import actorflow as af
from actorflow.engine.errors import StoreBroken, StoreBusy, StoreConflict, StoreRefused
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    NewMessage,
    TaskRow,
)
from actorflow.engine.stores.sqlite.store import SqliteStore
from actorflow.runtime.errors import BadOption
from tests.engine.stores.files import contents, files, filled, full

if TYPE_CHECKING:
    from pathlib import Path

# --- files that are taken away -----------------------------------------------------------------


@pytest.mark.parametrize("end", ["", "-wal", ".lock"])
def test_a_store_that_is_removed_while_it_is_open_takes_nothing_more(
    end: str, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path / "s.db")
    store.commit([full(0)])
    (tmp_path / f"s.db{end}").unlink()
    with pytest.raises(StoreBroken, match="was removed or replaced while it was open"):
        store.commit([full(1)])
    store.close()


def test_a_store_that_is_replaced_while_it_is_open_takes_nothing_more(tmp_path: Path) -> None:
    other = filled(tmp_path / "other.db", 1)
    store = SqliteStore(tmp_path / "s.db")
    other.rename(store.path)
    with pytest.raises(StoreBroken, match="put the missing file back or restore a backup"):
        store.commit([full(1)])
    store.close()


@pytest.mark.parametrize("end", ["", "-wal", ".lock"])
def test_a_store_that_has_been_open_for_long_notices_that_a_file_is_gone(
    end: str, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path / "s.db")
    long_ago = time.time() - 60
    os.utime(tmp_path, (long_ago, long_ago))  # so that one look at the folder is enough
    store.commit([full(0)])
    store.commit([full(1)])
    (tmp_path / f"s.db{end}").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreBroken, match="was removed or replaced while it was open"):
        store.commit([full(2)])
    store.close()


def test_nothing_is_acknowledged_once_the_store_is_gone(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "s.db") as engine:
        worker = engine.worker("w", lambda _batch, _state: None)
        worker.push_ack(1)
        for file in tmp_path.glob("s.db*"):
            file.unlink()
        with pytest.raises(StoreBroken, match="was removed or replaced"):
            worker.push_ack(2)


# --- one writer ----------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_readers_are_welcome(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "s.db")
    with pytest.raises(StoreBusy, match="open for writing in another engine"):
        SqliteStore(tmp_path / "s.db")
    reader = SqliteStore(tmp_path / "s.db", read_only=True)
    first.commit([Change("a", kind="k", expected=NEVER_RUN, state=b"1")])
    found = reader.execution("a")
    assert found is not None
    assert found.state == b"1"
    with pytest.raises(StoreRefused, match="read-only"):
        reader.commit([Change("a")])
    with pytest.raises(StoreRefused, match="read-only"):
        reader.purge(before=1.0, keys_before=1.0)
    reader.close()
    first.close()
    SqliteStore(tmp_path / "s.db").close()


def test_a_symbolic_link_leads_to_the_same_store(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "link.db"
    link.symlink_to(tmp_path / "real" / "s.db")
    store = SqliteStore(link)
    assert store.path == tmp_path / "real" / "s.db"
    store.commit([full(0)])
    with pytest.raises(StoreBusy):
        SqliteStore(tmp_path / "real" / "s.db")
    assert (tmp_path / "real" / "s.db-wal").exists()
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["link.db"]
    store.close()
    second = SqliteStore(tmp_path / "real" / "s.db")
    with pytest.raises(StoreBusy):
        SqliteStore(link)
    second.close()


def test_a_hard_link_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.db", 1)
    os.link(path, tmp_path / "link.db")
    before = files(tmp_path)
    for name in ("s.db", "link.db"):
        with pytest.raises(StoreBroken, match="2 names"):
            SqliteStore(tmp_path / name)
    assert files(tmp_path) == before
    (tmp_path / "link.db").unlink()
    SqliteStore(path).close()


# --- backups and options -------------------------------------------------------------------------


def test_a_backup_is_a_store_and_overwrites_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "s.db")
    store = SqliteStore(tmp_path / "s.db")
    store.backup(tmp_path / "copy.db")
    with pytest.raises(BadOption, match="never overwrites"):
        store.backup(tmp_path / "copy.db")
    store.close()
    assert contents(tmp_path / "copy.db") == contents(tmp_path / "s.db")


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="did you mean"):
        SqliteStore(tmp_path / "s.db", durability="ful")
    assert not list(tmp_path.iterdir())


def test_half_of_a_new_store_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "s.db.new").write_bytes(b"half")
    (tmp_path / "s.db.new-wal").write_bytes(b"half")
    SqliteStore(tmp_path / "s.db").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.db", "s.db.lock"]


def test_the_file_is_verified(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.db")
    store = SqliteStore(path, read_only=True)
    assert list(store.verify()) == []
    store.close()
    whole = path.read_bytes()
    place = whole.index(b"task-7")  # in an index or in its table, not in both
    path.write_bytes(whole[:place] + b"task-X" + whole[place + 6 :])
    store = SqliteStore(path, read_only=True)
    problems = list(store.verify())
    store.close()
    assert problems
    assert "tasks" in problems[0]


def test_a_store_that_somebody_has_analysed_is_still_one(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.db", 2)
    connection = sqlite3.connect(path)
    connection.executescript("ANALYZE; CREATE VIEW waiting AS SELECT * FROM messages;")
    connection.close()
    assert len(contents(path)) == 2 * 8


def test_parts_of_a_state_that_are_missing_or_left_over_are_found(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    for name in ("a", "b"):
        store.commit([Change(name, kind="k", expected=0, state=b"0")])
        store.commit([Change(name, expected=1, state=b"1", appends=True)])
    assert list(store.verify()) == []
    store.close()
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM parts WHERE execution = 'a' AND revision = 2")
    connection.execute("DELETE FROM executions WHERE id = 'b'")
    connection.commit()
    connection.close()
    store = SqliteStore(path, read_only=True)
    problems = list(store.verify())
    store.close()
    assert [text.partition(": ")[2] for text in problems] == [
        "the state of 'a' has 2 parts, not 1",
        "the state of 'b' has 0 parts, not 2",
    ]


def test_adding_to_a_state_writes_no_more_than_what_is_added(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", durability="normal")  # without room in the log
    log = tmp_path / "s.db-wal"
    store.commit([Change("a", kind="k", expected=0, state=b"x" * 1_000_000)])
    store.commit([Change("a", expected=1, state=b"y", appends=True)])
    before = log.stat().st_size
    for revision in range(2, 12):
        store.commit([Change("a", expected=revision, state=b"y", appends=True)])
    assert log.stat().st_size - before < 10 * 4 * 4_200  # pages of some kB
    row = store.execution("a")
    assert row is not None
    assert row.state == b"x" * 1_000_000 + b"y" * 11
    store.close()


def test_an_empty_key_is_a_key(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", durability="off")
    changes = [Change("a", messages=[NewMessage("a", "message", b"1", "")]) for _ in range(2)]
    for change in changes:
        store.commit([change])
    assert changes[1].rows[0].id == changes[0].rows[0].id
    assert len(store.pending().rows) == 1
    store.close()


# --- tasks ---------------------------------------------------------------------------------------


def test_an_id_of_a_task_is_in_use_although_a_later_change_clears_its_execution(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "s.db")
    of_a, of_b = (TaskRow("x", name, "t", b"\xc0", 0, 0.0, None, None, 0) for name in "ab")
    first = Change("a", kind="k", expected=NEVER_RUN, state=b"1", tasks=[of_a])
    store.commit([first, Change("b", kind="k", expected=NEVER_RUN, state=b"1")])
    again = Change("b", kind="k", expected=1, state=b"2", tasks=[of_b])
    with pytest.raises(StoreConflict, match="there is a task 'x' already"):
        store.commit([again, Change("a", kind="k", expected=1, state=b"2", clear=True)])
    assert not again.committed
    store.close()
