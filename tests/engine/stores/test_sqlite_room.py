"""Permissions that are missing, and disks that are full."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.errors import StoreBroken, StoreConflict, StoreFull, StoreRefused
from actorflow.engine.stores.protocol import (
    Change,
    NewMessage,
    TimerRow,
)
from actorflow.engine.stores.sqlite.store import SqliteStore
from actorflow.runtime.errors import BadOption
from tests.engine.stores.files import contents, files, filled, python

if TYPE_CHECKING:
    from collections.abc import Iterator

# --- permissions and room ------------------------------------------------------------------------

AS_NOBODY = """
import os, sys
from actorflow.engine.errors import StoreRefused
from actorflow.engine.stores.sqlite.store import SqliteStore

if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    SqliteStore(sys.argv[1], read_only=sys.argv[2] == "ro")
except StoreRefused as error:
    print(error)
else:
    print("opened")
"""


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that everybody may enter and write."""
    folder = Path("/tmp") / f"actorflow-{os.getpid()}-{tmp_path.name}"  # noqa: S108 - others enter
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


def test_a_file_that_must_not_be_written_is_told(open_folder: Path) -> None:
    path = filled(open_folder / "s.db", 1)
    Path(f"{path}.lock").chmod(0o666)
    path.chmod(0o444)
    before = files(open_folder)
    done = python(AS_NOBODY, str(path), "rw")
    assert "s.db cannot be written: permission denied" in done.stdout, done.stderr
    assert files(open_folder) == before


def test_a_folder_that_must_not_be_written_is_told(open_folder: Path) -> None:
    path = filled(open_folder / "s.db", 1)
    path.chmod(0o666)
    open_folder.chmod(0o555)
    before = files(open_folder)
    done = python(AS_NOBODY, str(path), "rw")
    assert "cannot be written: permission denied" in done.stdout, done.stderr
    done = python(AS_NOBODY, str(open_folder / "new.db"), "rw")
    assert "cannot be written: permission denied" in done.stdout, done.stderr
    assert files(open_folder) == before


def test_a_file_that_must_not_be_read_is_told(open_folder: Path) -> None:
    path = filled(open_folder / "s.db", 1)
    path.chmod(0o600)
    if os.getuid() != 0:
        path.chmod(stat.S_IWUSR)
    done = python(AS_NOBODY, str(path), "ro")
    assert "cannot be read: permission denied" in done.stdout, done.stderr


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"no folder .*nowhere for the store s.db: create it"):
        SqliteStore(tmp_path / "nowhere" / "s.db")
    with pytest.raises(StoreBroken, match="there is no store"):
        SqliteStore(tmp_path / "s.db", read_only=True)


def test_a_closed_store_can_be_read_where_nothing_can_be_written(open_folder: Path) -> None:
    path = filled(open_folder / "s.db", 1)
    path.chmod(0o444)
    open_folder.chmod(0o555)
    before = files(open_folder)
    done = python(AS_NOBODY, str(path), "ro")
    assert done.stdout == "opened\n", done.stderr
    assert files(open_folder) == before


@pytest.mark.parametrize("length", [245, 300, 5_000])
def test_a_path_that_is_too_long_is_refused(length: int, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"too long for a path; choose a shorter name"):
        SqliteStore(tmp_path / ("x" * length))
    assert list(tmp_path.iterdir()) == []


NO_ROOM = """
import resource, signal, sys
from actorflow.engine.errors import StoreFull
from tests.engine.stores.files import SqliteStore, full

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, hard))
try:
    SqliteStore(sys.argv[1])
except StoreFull as error:
    print("no store:", error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store = SqliteStore(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
count = refused = 0
while refused < 3:
    try:
        store.commit([full(count)])
        count += 1
    except StoreFull as error:
        refused += 1
try:
    store.backup(sys.argv[1] + ".copy")
except StoreFull:
    print("no backup")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.commit([full(count)])
store.close()
print(count + 1)
"""


def test_no_room_is_told_everywhere_and_passes(tmp_path: Path) -> None:
    done = python(NO_ROOM, str(tmp_path / "s.db"))
    lines = done.stdout.splitlines()
    assert lines[0].startswith("no store:"), done.stderr
    assert len(contents(tmp_path / "s.db")) == int(lines[-1]) * 8
    assert not list(tmp_path.glob("*.new*"))


NO_BACKUP = """
import resource, signal, sys
from actorflow.engine.errors import StoreFull
from tests.engine.stores.files import Change, NewMessage, SqliteStore, full

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = SqliteStore(sys.argv[1])
store.commit([full(0)])
large = NewMessage("execution-0", "message", bytes(10_000_000))
store.commit([Change(at=1.0, messages=[large])])  # more than SQLite keeps in memory
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, hard))
try:
    store.backup(sys.argv[2])
except StoreFull as error:
    print("no backup")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.close()
"""


def test_nothing_is_left_of_a_backup_without_room(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    done = python(NO_BACKUP, str(tmp_path / "s.db"), str(copies / "copy.db"))
    assert done.stdout.split("\n")[0] == "no backup", done.stderr
    assert list(copies.iterdir()) == []


def test_errors_of_sqlite_are_explained(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", durability="off")
    given: Any = "text"
    with pytest.raises(StoreConflict, match="cannot be stored"):
        store.commit([Change("a", timers=[TimerRow("a", "t", float("nan"), b"")])])
    with pytest.raises(StoreConflict, match="cannot be stored"):
        store.commit([Change("a", messages=[NewMessage("a", "message", None)])])  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        store.commit([Change("\ud800", messages=[NewMessage("\ud800", "message", given)])])
    connection = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    store._session.connection.execute("PRAGMA busy_timeout = 0")  # type: ignore[union-attr]
    with pytest.raises(StoreRefused, match="another program writes it"):
        store.commit([Change("a", history=[b"h"])])
    connection.close()
    store.commit([Change("a", history=[b"h"])])
    assert len(store.history("a").rows) == 1
    assert isinstance(store._file.explain(_error(sqlite3.SQLITE_FULL)), StoreFull)
    assert isinstance(store._file.explain(_error(sqlite3.SQLITE_READONLY)), StoreRefused)
    assert isinstance(store._file.explain(_error(sqlite3.SQLITE_CORRUPT)), StoreBroken)
    store.close()


def _error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("told by SQLite")
    error.sqlite_errorcode = code
    return error
