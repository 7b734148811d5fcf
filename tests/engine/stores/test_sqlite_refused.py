"""Files that are refused, and stay as they are."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from actorflow.engine.errors import StoreBroken
from actorflow.engine.stores.sqlite.store import SqliteStore
from tests.engine.stores.files import contents, crashed, files, filled

if TYPE_CHECKING:
    from collections.abc import Callable

# --- refused stores stay unchanged ---------------------------------------------------------------


def somebody_elses(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (a)")
    connection.close()


def of_version(number: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        filled(path, 1)
        Path(f"{path}.lock").unlink()
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute(f"PRAGMA user_version = {number}")
        connection.close()

    return make


def torn(path: Path) -> None:
    filled(path)
    whole = bytearray(path.read_bytes())
    whole[9_000:30_000] = b"\xaa" * 21_000
    path.write_bytes(whole)


def torn_after_a_crash(path: Path) -> None:
    filled(path)
    crashed(path, 0)
    whole = bytearray(path.read_bytes())
    whole[9_000:30_000] = b"\xaa" * 21_000
    path.write_bytes(whole)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"no database at all"), "damaged"),
        (lambda path: path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5_000), "damaged"),
        (somebody_elses, "not a store of actorflow's"),
        (of_version(99), "version 99, newer"),
        (of_version(2), "version 2, and this actorflow reads version"),
        (torn, "damaged"),
        (torn_after_a_crash, "damaged"),
        (lambda path: Path(f"{path}-wal").write_bytes(b"frames"), "is missing, but its log"),
    ],
)
def test_what_is_refused_is_not_changed(
    make: Callable[[Path], object], complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    make(path)
    before = files(tmp_path)
    with pytest.raises(StoreBroken, match=complaint):
        SqliteStore(path)
    assert {name: found for name, found in files(tmp_path).items() if "-shm" not in name} == {
        name: found for name, found in before.items() if "-shm" not in name
    }
    assert set(files(tmp_path)) == set(before), "no log is left behind"


def test_no_lock_is_left_beside_the_file_of_another_program(tmp_path: Path) -> None:
    somebody_elses(tmp_path / "s.db")
    with pytest.raises(StoreBroken):
        SqliteStore(tmp_path / "s.db")
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.db")
    whole = path.read_bytes()
    for size in (*range(0, len(whole), len(whole) // 11), len(whole) - 9):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreBroken):
            SqliteStore(path)


def test_a_flipped_bit_in_the_structure_never_raises_anything_else(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.db")
    whole = path.read_bytes()
    chance = random.Random(5)
    refused = 0
    for _ in range(40):
        hurt = bytearray(whole)
        hurt[chance.randrange(len(hurt))] ^= 1 << chance.randrange(8)
        for left in (f"{path}-wal", f"{path}-shm"):
            Path(left).unlink(missing_ok=True)
        path.write_bytes(hurt)
        try:
            contents(path)
        except StoreBroken:
            refused += 1
    assert refused > 0


def test_torn_names_in_the_schema_are_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.db", 1)
    whole = path.read_bytes()
    for place in range(whole.index(b"CREATE TABLE"), 4_096, 211):
        hurt = bytearray(whole)
        hurt[place] ^= 0x80
        path.write_bytes(hurt)
        with pytest.raises(StoreBroken):
            contents(path)
