"""Logs that a crash has left: torn ones are opened, damaged ones refused."""

from __future__ import annotations

import io
import random
import shutil
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.engine.engine import Engine
from actorflow.engine.errors import StoreBroken
from actorflow.engine.stores.protocol import Change
from actorflow.engine.stores.sqlite.store import SqliteStore
from actorflow.engine.stores.sqlite.wal import find_damage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = 4_096
HEADER = 32
FRAME = 24 + PAGE
SECTOR = 512


@dataclass(frozen=True)
class Crash:
    """The two files as a crash has left them, and what they were worth after each commit."""

    file: bytes
    log: bytes
    older: bytes
    """The log before it was begun anew; what is beyond the end of `log` is still from it."""
    states: list[Any]
    ends: list[int]
    """The places in the log at which commits end."""

    def put(self, folder: Path, log: bytes | bytearray) -> Path:
        """Lay the files down with another log."""
        path = folder / "crashed.db"
        for left in folder.glob("crashed.db*"):
            left.unlink()
        path.write_bytes(self.file)
        (folder / "crashed.db-wal").write_bytes(log)
        return path

    def opened(self, folder: Path, log: bytes | bytearray, **options: Any) -> int | None:
        """Open it with another log: after which commit it is, or `None` if it is refused."""
        path = self.put(folder, log)
        try:
            store = SqliteStore(path, **options)
        except StoreBroken:
            assert path.read_bytes() == self.file
            assert (folder / "crashed.db-wal").read_bytes() == log
            return None
        found = contents(store)
        store.close()
        return self.states.index(found)


def contents(store: SqliteStore) -> Any:
    return [list(store.rows(table)) for table in ("executions", "messages")]


def write(store: SqliteStore, number: int) -> None:
    name = f"execution-{number % 3}"
    row = store.execution(name)
    store.commit(
        [
            Change(
                name,
                kind="k",
                expected=0 if row is None else row.revision,
                state=bytes([number]) * 1_500,
                messages=[(name, bytes([number]) * 900)],
            )
        ]
    )


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> Crash:
    """Give a log of five commits that lies over the remains of a longer one."""
    folder = tmp_path_factory.mktemp("wal")
    path, log = folder / "s.db", folder / "s.db-wal"
    store = SqliteStore(path, durability="off")
    for number in range(12):
        write(store, number)
    older = log.read_bytes()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA wal_checkpoint(RESTART)")
    other.close()
    file = path.read_bytes()
    states = [contents(store)]
    for number in range(20, 25):
        write(store, number)
        states.append(contents(store))
    whole = log.read_bytes()
    store.close()
    salts = whole[16:24]
    ends = [
        begin + FRAME
        for begin in range(HEADER, len(whole), FRAME)
        if whole[begin + 8 : begin + 16] == salts and any(whole[begin + 4 : begin + 8])
    ]
    assert len(ends) == 5
    assert ends[-1] < len(whole) == len(older), "there must be remains of the older log"
    return Crash(file, whole, older, states, ends)


def test_a_whole_log_is_read_to_its_end(crash: Crash, tmp_path: Path) -> None:
    assert crash.opened(tmp_path, crash.log) == 5
    assert crash.opened(tmp_path, b"") == 0


def test_a_log_that_was_cut_off_gives_the_commits_that_are_whole(
    crash: Crash, tmp_path: Path
) -> None:
    for boundary in range(HEADER, crash.ends[-1] + 1, FRAME):
        for size in (boundary - 1, boundary, boundary + 1, boundary + 24 + 100):
            log = crash.log[: min(size, crash.ends[-1])]
            whole = sum(end <= len(log) for end in crash.ends)
            assert crash.opened(tmp_path, log) == whole, size


def expected(crash: Crash, place: int) -> set[int | None]:
    """Say what may become of a store with damage at a place of its log."""
    if place < crash.ends[3]:
        return {None}
    # Nothing tells damage of the last commit from one that was torn, but for a size in a frame
    # that ended none: it looks as if the commit had ended there, and the rest builds upon it.
    return {4, None} if place < crash.ends[4] else {5}


def flip(crash: Crash, folder: Path, place: int, bit: int) -> None:
    log = bytearray(crash.log)
    log[place] ^= 1 << bit
    assert crash.opened(folder, log) in expected(crash, place), (place, bit)


def test_a_flipped_bit_before_the_last_commit_is_refused(crash: Crash, tmp_path: Path) -> None:
    chance = random.Random(7)
    for _ in range(150):
        flip(crash, tmp_path, chance.randrange(len(crash.log)), chance.randrange(8))


def fields(crash: Crash) -> Iterator[int]:
    """Give the places of the header and of all frames' headers."""
    yield from range(HEADER)
    for begin in range(HEADER, crash.ends[-1], FRAME):
        yield from range(begin, begin + 24)


def test_no_flipped_bit_of_a_header_goes_unnoticed(crash: Crash) -> None:
    for place in fields(crash):
        for bit in range(8) if place < HEADER else (place % 8,):
            assert is_found(crash, place, bit) or place >= crash.ends[3], (place, bit)


def is_found(crash: Crash, place: int, bit: int) -> bool:
    log = bytearray(crash.log)
    log[place] ^= 1 << bit
    return find_damage(io.BytesIO(log), PAGE) is not None


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_each_flipped_bit_is_refused_before_the_last_commit(crash: Crash, tmp_path: Path) -> None:
    for place in fields(crash):
        for bit in range(8):
            assert is_found(crash, place, bit) or place >= crash.ends[3], (place, bit)
    for place in range(crash.ends[-1]):
        flip(crash, tmp_path, place, place % 8)


@given(st.data())
def test_a_commit_that_was_written_in_part_is_as_if_it_had_not_been_begun(
    crash: Crash, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A power cut: of the last commit, some sectors are on the disk and others are not."""
    first, last = crash.ends[3], crash.ends[4]
    sectors = range(first // SECTOR, last // SECTOR + 1)
    lost = data.draw(st.sets(st.sampled_from(sectors), min_size=1))
    blank = data.draw(st.booleans())
    log = bytearray(crash.log)
    for sector in lost:
        begin, end = max(sector * SECTOR, first), min((sector + 1) * SECTOR, last)
        log[begin:end] = bytes(end - begin) if blank else crash.older[begin:end]
    folder = tmp_path_factory.mktemp("torn")
    unharmed = log == crash.log
    assert crash.opened(folder, log) == (5 if unharmed else 4)
    shutil.rmtree(folder)


def test_fields_that_lie_in_two_sectors_are_not_trusted_together(tmp_path: Path) -> None:
    """Of frame 42 the size is the end of one sector, the salts are the beginning of the next."""
    store = SqliteStore(tmp_path / "s.db", durability="off")
    store.commit([Change("a", kind="k", expected=0, state=bytes(200_000))])  # some 50 frames
    log = (tmp_path / "s.db-wal").read_bytes()
    store.close()
    for number, found in ((41, "frame 41"), (42, None)):
        begin = HEADER + (number - 1) * FRAME
        assert log[begin + 4 : begin + 8] == bytes(4), "it ends no commit"
        torn = bytearray(log)
        torn[begin + 7] = 9
        assert find_damage(io.BytesIO(torn), PAGE) == found


def test_remains_of_commits_that_were_rolled_back_are_no_damage(
    crash: Crash, tmp_path: Path
) -> None:
    """Three attempts at one place, each shorter than the one before; only the last one counts."""
    attempts = []
    for size in (9, 6, 1):
        path = crash.put(tmp_path, crash.log[: crash.ends[-1]])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN")
        other.execute("CREATE TABLE more (value)")
        for _ in range(size):
            other.execute("INSERT INTO more VALUES (?)", (bytes([size]) * 3_000,))
        other.execute("COMMIT")
        attempts.append((tmp_path / "crashed.db-wal").read_bytes())
        other.close()
    spliced = bytearray(attempts[0])
    for log in attempts[1:]:
        spliced[: len(log)] = log
    assert len(attempts[0]) > len(attempts[1]) > len(attempts[2])
    assert find_damage(io.BytesIO(spliced), PAGE) is None


def test_without_a_check_a_damaged_log_is_read_as_far_as_it_goes(
    crash: Crash, tmp_path: Path
) -> None:
    log = bytearray(crash.log)
    log[crash.ends[1] + 1_000] ^= 1
    assert crash.opened(tmp_path, log, check=False) == 2


@pytest.mark.parametrize("durability", ["normal", "off"])
def test_a_log_that_was_not_synced_may_have_gaps(
    crash: Crash, tmp_path: Path, durability: str
) -> None:
    log = bytearray(crash.log)
    log[crash.ends[1] : crash.ends[2]] = bytes(crash.ends[2] - crash.ends[1])
    path = crash.put(tmp_path, log)
    with pytest.raises(StoreBroken):
        SqliteStore(path)
    # The lock file says how it was written, whatever it is opened with now.
    (tmp_path / "crashed.db.lock").write_text(f"1234 {durability}\n", encoding="ascii")
    store = SqliteStore(path)
    assert contents(store) == crash.states[2]
    store.close()
    assert (tmp_path / "crashed.db.lock").read_text(encoding="ascii").split()[1] == "full"


def test_a_damaged_log_stays_refused_whatever_it_is_opened_with(
    crash: Crash, tmp_path: Path
) -> None:
    log = bytearray(crash.log)
    log[crash.ends[1] + 1_000] ^= 1
    path = crash.put(tmp_path, log)
    (tmp_path / "crashed.db.lock").write_text("1234 full\n", encoding="ascii")
    for durability in ("off", "full", "normal", "full"):
        with pytest.raises(StoreBroken, match="-wal is damaged"):
            Engine(path, durability=durability)
