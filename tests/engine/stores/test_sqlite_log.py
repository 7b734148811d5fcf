"""The log beside the file: after a crash, when it is gone, while others read."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

from actorflow.engine.errors import StoreBroken, StoreBusy, StoreRefused
from actorflow.engine.stores.protocol import (
    Change,
    NewMessage,
)
from actorflow.engine.stores.sqlite.lock import Note
from actorflow.engine.stores.sqlite.store import SqliteStore
from tests.engine.stores.files import contents, crashed, filled, full, python

# --- the log -------------------------------------------------------------------------------------


def test_what_a_crash_left_is_taken_over(tmp_path: Path) -> None:
    path = crashed(tmp_path / "s.db")
    assert Path(f"{path}.lock").read_text(encoding="ascii").split()[1] == "open"
    store = SqliteStore(path)
    assert store.left_open
    store.close()
    assert len(contents(path)) == 5 * 8
    assert Path(f"{path}.lock").read_text(encoding="ascii").split()[1] == "closed"
    assert not Path(f"{path}-wal").exists()


@pytest.mark.parametrize("what", ["missing", "empty"])
def test_a_log_that_is_gone_is_told(what: str, tmp_path: Path) -> None:
    path = crashed(tmp_path / "s.db")
    if what == "missing":
        Path(f"{path}-wal").unlink()
    else:
        Path(f"{path}-wal").write_bytes(b"")
    before = path.read_bytes()
    with pytest.raises(StoreBroken, match=rf"s.db-wal is {what}.*check=False"):
        SqliteStore(path)
    assert path.read_bytes() == before
    store = SqliteStore(path, check=False)  # accepts the loss
    store.close()
    SqliteStore(path).close()


def test_a_backup_takes_the_place_of_a_store_that_crashed(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.db", 3)
    store = SqliteStore(path)
    store.backup(tmp_path / "backup.db")
    store.close()
    crashed(path, 0)
    for end in ("", "-wal", "-shm", ".lock"):
        Path(f"{path}{end}").unlink()
    shutil.copy(tmp_path / "backup.db", path)
    assert len(contents(path)) == 3 * 8


def test_a_store_that_was_never_written_after_opening_can_crash(tmp_path: Path) -> None:
    path = crashed(filled(tmp_path / "s.db", 2), 0)
    assert len(contents(path)) == 2 * 8


def test_a_reader_at_the_end_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    store.commit([full(0)])
    reader = SqliteStore(path, read_only=True)
    rows = reader.snapshot()
    assert next(rows)
    store.commit([full(1)])
    store.close()  # the reader still needs the log
    assert Path(f"{path}.lock").read_text(encoding="ascii").split()[1] == "logged"
    assert len([each for each in rows if each[0] != "meta"]) == 8
    reader.close()
    again = SqliteStore(path)
    assert not again.left_open
    again.close()
    assert len(contents(path)) == 2 * 8


def test_looking_at_a_store_while_its_log_is_moved_into_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path, durability="off")
    assert store._session is not None
    store._session.connection.execute("PRAGMA wal_autocheckpoint = 20")  # all the time

    def write() -> None:
        for number in range(600):
            store.commit([full(number)])

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    looks = 0
    while writing.is_alive():
        SqliteStore(path, read_only=True).close()
        with pytest.raises(StoreBusy):
            SqliteStore(path)
        looks += 1
    assert looks > 0
    store.close()
    assert len(contents(path)) == 600 * 8


@pytest.mark.parametrize("killed", [False, True])
def test_a_reader_that_leaves_during_the_close_does_not_make_the_log_be_missed(
    tmp_path: Path, *, killed: bool
) -> None:
    """It keeps the log from being moved at first; the close of the last connection moves it.

    The process may be killed before it has noted that.
    """
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    store.commit([Change("a", messages=[NewMessage("a", "message", b"1")])])
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchall()
    store.commit([Change("a", messages=[NewMessage("a", "message", b"2")])])
    lock = store._lock
    assert lock is not None
    mark = lock.mark

    notes: list[Note] = []

    def mark_and_leave(note: Note, *, sync: bool = True) -> None:
        notes.append(note)
        if len(notes) == 1 or not killed:
            mark(note, sync=sync)
        reader.close()

    lock.mark = mark_and_leave  # type: ignore[method-assign]
    store.close()
    assert notes == [Note.CLOSING, Note.CLOSED]
    assert not Path(f"{path}-wal").exists()
    again = SqliteStore(path)
    assert [row.body for row in again.pending().rows] == [b"1", b"2"]
    again.close()


# --- room in the log -----------------------------------------------------------------------------


def _lengths(store: SqliteStore, count: int) -> set[int]:
    """Commit changes; return how long the log was after each."""
    found = set()
    for number in range(count):
        store.commit([Change("a", messages=[NewMessage("a", "message", b"%d" % number)])])
        found.add(Path(f"{store.path}-wal").stat().st_size)
    return found


def test_few_commits_make_the_log_longer(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    assert len(_lengths(store, 300)) <= 30
    store.close()
    assert not Path(f"{store.path}-wal").exists()
    assert len(contents(store.path)) == 300


@pytest.mark.parametrize("durability", ["normal", "off"])
def test_a_log_that_is_not_synced_gets_no_room(durability: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", durability=durability)
    assert len(_lengths(store, 20)) == 20
    store.close()


def test_a_log_that_begins_again_has_its_room_still(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    for number in range(20):
        store.commit([full(number)])
    assert store._session is not None
    store._session.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    before = Path(f"{store.path}-wal").stat().st_size
    for number in range(20, 25):
        store.commit([full(number)])
    assert Path(f"{store.path}-wal").stat().st_size == before
    store._session.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.commit([full(25)])
    store.commit([full(26)])  # finds the log short, and that it grows
    store.close()
    assert len(contents(store.path)) == 27 * 8


def test_room_in_the_log_is_made_while_nobody_else_writes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("CREATE TABLE theirs (number INTEGER PRIMARY KEY, data BLOB)")
    for number in range(40):
        other.execute("INSERT INTO theirs VALUES (?, ?)", (number, bytes(5_000)))
        store.commit([full(number)])
    other.execute("BEGIN IMMEDIATE")
    other.execute("INSERT INTO theirs VALUES (40, ?)", (bytes(5_000),))
    assert store._session is not None
    store._session.connection.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(StoreRefused, match="another program writes it"):
        store.commit([full(40)])
    other.execute("COMMIT")
    store.commit([full(40)])
    assert list(store.verify()) == []
    crash = tmp_path / "crash.db"
    for end in ("", "-wal"):
        shutil.copy(f"{store.path}{end}", f"{crash}{end}")
    found = sqlite3.connect(crash)
    assert found.execute("SELECT count(*) FROM theirs").fetchone() == (41,)
    assert found.execute("SELECT count(*) FROM executions").fetchone() == (41,)
    assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    for each in (found, other):
        each.close()
    store.close()


NEARLY_FULL = """
import os, resource, signal, sys
from tests.engine.stores.test_sqlite_log import SqliteStore, _lengths

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = SqliteStore(sys.argv[1])
before = os.path.getsize(sys.argv[1] + "-wal")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (before + 40_000, hard))
print(max(_lengths(store, 3)) - before)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(max(_lengths(store, 2)) - before)
store.close()
"""


def test_where_there_is_no_room_to_spare_the_log_takes_none(tmp_path: Path) -> None:
    done = python(NEARLY_FULL, str(tmp_path / "s.db"))
    without, with_room = map(int, done.stdout.split())
    assert 0 < without < 40_000 < with_room, (done.stdout, done.stderr)
    assert len(contents(tmp_path / "s.db")) == 5
