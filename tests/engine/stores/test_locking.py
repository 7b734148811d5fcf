"""The lock of a store: one owner, known by its number, on every kind of system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from actorflow.engine.errors import StoreBusy
from actorflow.engine.stores.sqlite.lock import FileLock, Note
from actorflow.runtime.errors import BadOption

ROOT = Path(__file__).parents[3]
PATIENCE = 50.0


def text(path: Path) -> list[str]:
    return Path(f"{path}.lock").read_text(encoding="ascii").split()


def test_there_is_one_owner_and_everybody_can_read_who(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    lock = FileLock(path)
    assert text(path) == [str(os.getpid())]
    with pytest.raises(StoreBusy, match=f"process {os.getpid()}"):
        FileLock(path)
    lock.release()
    FileLock(path).release()


def test_the_next_owner_is_told_whether_it_was_closed(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "s.db")
    assert not lock.left_open
    assert not lock.needs_log
    for note, is_open, has_log in (
        (Note.OPEN, True, True),
        (Note.LOGGED, False, True),
        (Note.CLOSING, False, False),
        (Note.CLOSED, False, False),
    ):
        lock.mark(note, sync=True)
        lock.release()
        lock = FileLock(tmp_path / "s.db")
        assert (lock.left_open, lock.needs_log) == (is_open, has_log)
        assert text(tmp_path / "s.db") == [str(os.getpid()), note]
    lock.release()


def test_a_lock_file_without_a_note_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.db.lock").write_text("123456789", encoding="ascii")
    lock = FileLock(tmp_path / "s.db")
    assert not lock.left_open
    lock.release()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="there is no folder"):
        FileLock(tmp_path / "nowhere" / "s.db")


def test_the_lock_goes_with_its_process_however_that_ends(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from actorflow.engine.stores.sqlite.lock import FileLock\n"
        "lock = FileLock(Path(sys.argv[1]))\nprint('locked', flush=True)\nsys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "s.db")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(StoreBusy, match=f"process {process.pid}"):
            FileLock(tmp_path / "s.db")
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdin.close()
        process.stdout.close()
    FileLock(tmp_path / "s.db").release()


MSVCRT = '''
"""Stands in for the module of that name on Windows: locks a byte for one descriptor at a time."""

import os

LK_UNLCK, LK_LOCK, LK_NBLCK = 0, 1, 2
held = {}


def locking(number, mode, count):
    place = os.fstat(number).st_ino, os.lseek(number, 0, os.SEEK_CUR), count
    if mode == LK_NBLCK:
        if place in held:
            raise PermissionError(13, "Permission denied")
        held[place] = number
    else:
        assert held.pop(place) == number
'''

ON_WINDOWS = """
import os, sys
from pathlib import Path
import sqlite3, zlib, msgspec, actorflow.engine.errors, actorflow.engine.failpoints

sys.platform = "win32"
sys.modules["fcntl"] = None
del os.O_DIRECTORY
import msvcrt
from actorflow.engine.errors import StoreBusy
from actorflow.engine.stores.protocol import Change
from actorflow.engine.stores.sqlite.store import SqliteStore

path = Path(sys.argv[1])
store = SqliteStore(path)
store.commit([Change("a", kind="k", expected=0, state=b"1")])
((_, byte, count),) = msvcrt.held
assert byte > 1_000 and count == 1, "the text must stay readable for others"
assert Path(f"{path}.lock").read_text().split()[:2] == [str(os.getpid()), "open"]
try:
    SqliteStore(path)
except StoreBusy as error:
    assert str(os.getpid()) in str(error)
else:
    raise AssertionError("a second writer was let in")
store.close()
assert not msvcrt.held
store = SqliteStore(path)
assert store.execution("a").state == b"1"
store.close()
print("as on Windows")
"""


def test_windows_locks_a_byte_beyond_the_text(tmp_path: Path) -> None:
    """With a stand-in for `msvcrt`: that the other branch is taken, and what it asks for."""
    (tmp_path / "msvcrt.py").write_text(MSVCRT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS, str(tmp_path / "s.db")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout == "as on Windows\n", done.stderr
