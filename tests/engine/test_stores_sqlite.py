"""The store in a file: what is refused, and left as it is; forks, links, permissions, plans."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.errors import StoreBroken, StoreBusy, StoreConflict, StoreFull, StoreRefused
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Answer,
    Change,
    NewDead,
    NewExecution,
    NewMessage,
    TaskRow,
    TimerRow,
    WatchRow,
)
from actorflow.engine.stores.sqlite import schema
from actorflow.engine.stores.sqlite.file import StoreFile
from actorflow.engine.stores.sqlite.store import SqliteStore
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 50.0


def full(number: int) -> Change:
    """Return a change that puts something into every table."""
    name = f"execution-{number}"
    return Change(
        name, kind="k", expected=NEVER_RUN, state=b"state" * 20, at=1.0,
        messages=[NewMessage(name, "message", b"body" * 20, "key")],
        timers=[TimerRow(name, "t", 5.0, b"tick" * 10)],
        tasks=[TaskRow(f"task-{number}", name, "tasker", b"work")],
        watches=[WatchRow(name, "w", "k", b"watch")],
        history=[b"past" * 10],
        dead=[NewDead(None, name, "message", b"dead", "error")],
    )  # fmt: skip


def filled(path: Path, count: int = 50) -> Path:
    store = SqliteStore(path, durability="off")
    store.commit([full(number) for number in range(count)])
    store.close()
    return path


def crashed(path: Path, count: int = 5) -> Path:
    """Leave a store as a process that was killed does."""
    script = (
        "import os, signal, sys\n"
        "from tests.engine.test_stores_sqlite import SqliteStore, full\n"
        "store = SqliteStore(sys.argv[1], durability='off')\n"
        "store.commit([full(number) for number in range(int(sys.argv[2]))])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = python(script, str(path), str(count))
    assert done.returncode == -signal.SIGKILL, done.stderr
    return path


def python(script: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **options,
    )


def contents(path: Path) -> list[Any]:
    store = SqliteStore(path)
    try:
        return [each for each in store.snapshot() if each[0] != "meta"]
    finally:
        store.close()


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the files of a folder, but for locks: their bytes and when they were changed."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.iterdir())
        if path.suffix != ".lock"
    }


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
    with pytest.raises(StoreRefused, match="to look only"):
        reader.commit([Change("a")])
    with pytest.raises(StoreRefused, match="to look only"):
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


# --- what is refused stays as it is --------------------------------------------------------------


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


# --- forks ---------------------------------------------------------------------------------------

IN_A_CHILD = """
import os, sys
from actorflow.engine.errors import StoreRefused
from tests.engine.test_stores_sqlite import SqliteStore, full
from actorflow.engine.stores.protocol import Change

path = sys.argv[1]
store = SqliteStore(path, durability="off")
store.commit([full(0)])
rows = store.snapshot()
child = os.fork()
if child == 0:
    for use in (
        lambda: store.commit([Change("a")]),
        lambda: store.execution("a"),
        lambda: store.listing(),
        lambda: store.snapshot(),
        lambda: store.purge(before=0.0, keys_before=0.0),
        lambda: store.backup(path + ".copy"),
    ):
        try:
            use()
        except StoreRefused as error:
            assert "forked" in str(error), error
        else:
            os._exit(3)
    store.close()
    sys.exit(7)  # with all that the end of an interpreter does
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
store.commit([full(1)])
assert len(list(rows)) == 9
assert os.path.exists(path + "-wal")
store.close()
print("fine")
"""

OUTLIVED = """
import os, signal, sys
from tests.engine.test_stores_sqlite import SqliteStore, full

store = SqliteStore(sys.argv[1], durability="off")
store.commit([full(0)])
ready, tell = os.pipe()
child = os.fork()
if child == 0:
    os.write(tell, b"x")
    sys.stdin.readline()
    store.close()
    sys.exit(0)
os.read(ready, 1)  # the child has let go of the lock
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_cannot_use_the_store_of_its_parent(tmp_path: Path) -> None:
    done = python(IN_A_CHILD, str(tmp_path / "s.db"))
    assert done.stdout == "fine\n", done.stderr
    assert len(contents(tmp_path / "s.db")) == 2 * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_outlives_its_parent_holds_no_lock_and_takes_no_log(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    process = subprocess.Popen(
        [sys.executable, "-c", OUTLIVED, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert int(process.stdout.readline()) > 0
    assert process.wait(PATIENCE) == -signal.SIGKILL
    log = Path(f"{path}-wal").read_bytes()
    store = SqliteStore(path, durability="off")  # the child still lives
    store.commit([full(1)])
    process.stdin.write("go\n")
    process.stdin.close()
    assert process.stdout.read() == ""  # until the child has ended
    process.stdout.close()
    assert len(log) > 0
    assert Path(f"{path}-wal").exists()
    store.commit([full(2)])
    store.close()
    assert len(contents(path)) == 3 * 8


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
    with pytest.raises(StoreBroken, match="cannot be opened"):
        SqliteStore(tmp_path / "nowhere" / "s.db")
    with pytest.raises(StoreBroken, match="there is no store"):
        SqliteStore(tmp_path / "s.db", read_only=True)


NO_ROOM = """
import resource, signal, sys
from actorflow.engine.errors import StoreFull
from tests.engine.test_stores_sqlite import SqliteStore, full

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
    store._connection.execute("PRAGMA busy_timeout = 0")  # type: ignore[union-attr]
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


# --- plans: nothing reads a whole table ----------------------------------------------------------


class Plans:
    """Collects the plan of every statement that a store runs."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(path, durability="off")
        self.found: dict[str, list[str]] = {}
        self._explainer = StoreFile(path).connect("mode=ro")
        assert self.store._connection is not None
        self.store._connection.set_trace_callback(self.note)
        read = self.store._readers.read

        def noted(text: str, values: Sequence[Any] = ()) -> list[Any]:
            self.explain(text, values)
            return read(text, values)

        self.store._readers.read = noted  # type: ignore[method-assign]

    def note(self, text: str) -> None:
        if text.startswith(("DELETE", "UPDATE", "SELECT")):
            self.explain(text)

    def explain(self, text: str, values: Sequence[Any] = ()) -> None:
        rows = self._explainer.execute(f"EXPLAIN QUERY PLAN {text}", values)
        self.found[text] = [row[3] for row in rows]

    def close(self) -> None:
        self.store.close()
        self._explainer.close()


def test_no_statement_reads_a_whole_table(tmp_path: Path) -> None:
    plans = Plans(tmp_path / "s.db")
    store = plans.store
    store.commit([full(number) for number in range(3)])
    store.commit(
        [
            Change("a", clear=True, creates=[NewExecution("a", "k")], consumed=[1, 2, 7],
                   attempted=[3], cancelled_timers=[("a", "t")], finished_tasks=["x"],
                   cancelled_watches=[("a", "w")], buried=[1], revived=[2],
                   fired=[(TimerRow("a", "t", 1.0, b""), NewMessage("a", "timer", b"", "key"))],
                   answers=[Answer("y", NewMessage("a", "ended", b""))],
                   retried=[TaskRow("z", "a", "t", b"")],
                   dead=[NewDead(5, "a", "message", b"", "why")]),
            Change("execution-1", expected=1, state=b"new"),
            Change("execution-2", expected=1, state=b"new", status="done"),
        ]
    )  # fmt: skip
    for revision, appends in enumerate((True, True, False), start=2):
        store.commit([Change("execution-1", expected=revision, state=b"x", appends=appends)])
    store.purge(before=9.0, keys_before=9.0, limit=2)
    for options in (
        {"kind": "k"}, {"status": "done"}, {"status": "active"}, {"parent": "p"},
        {"kind": "k", "status": "failed"}, {"kind": "k", "status": "done"},
        {"kind": "k", "status": "active", "parent": "p", "after": "x"}, {"after": "x"},
        {"tags": {"x": "y"}}, {"tags": {"x": "y", "z": "1"}, "kind": "k", "after": "x"},
    ):  # fmt: skip
        store.listing(**options)
    for message in ({"execution": "a"}, {"execution": "a", "after": 1}, {"kind": "k"},
                    {"after": ("a", 1)}, {"kind": "k", "after": ("a", 1)}):  # fmt: skip
        store.pending(**message)
    for task in ({"execution": "a"}, {"tasker": "t"}, {"execution": "a", "tasker": "t"},
                 {"after": 1}, {"tasker": "t", "after": 1}):  # fmt: skip
        store.open(**task)
    store.due(execution="a")
    store.task("x")
    store.history("a")
    store.history("a", after=1)
    store.dead(execution="a", after=1)
    store.dead(after=1)
    store.dead_letter(1)
    store.tags("a")
    store.watches(after=("a", "w"))
    store.counts(["a", "b"])
    store.executions(["a", "b"])
    plans.close()
    assert len(plans.found) > 40
    ours = set(schema.COLUMNS)
    for text, steps in plans.found.items():
        scans = [s for s in steps if s.startswith("SCAN") and s.split()[1] in {*ours, "m", "e"}]
        assert not scans, f"{text}: {scans}"


def test_pages_of_everything_are_read_in_the_order_of_an_index(tmp_path: Path) -> None:
    plans = Plans(tmp_path / "s.db")
    store = plans.store
    for read in (store.listing, store.pending, store.due, store.open, store.watches, store.dead):
        read(limit=10)
    plans.close()
    assert len(plans.found) == 6
    for text, steps in plans.found.items():
        assert not [step for step in steps if "TEMP B-TREE" in step], f"{text}: {steps}"


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
    store = SqliteStore(tmp_path / "s.db")
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


def test_a_closed_store_in_a_folder_that_must_not_be_written(open_folder: Path) -> None:
    path = filled(open_folder / "s.db", 1)
    open_folder.chmod(0o555)
    done = python(AS_NOBODY, str(path), "ro")
    assert "see the permissions of it and its folder" in done.stdout, done.stderr


def test_looking_at_a_store_while_its_log_is_moved_into_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path, durability="off")
    assert store._connection is not None
    store._connection.execute("PRAGMA wal_autocheckpoint = 20")  # all the time

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


def test_a_reader_that_leaves_during_the_close_does_not_make_the_log_be_missed(
    tmp_path: Path,
) -> None:
    """It keeps the log from being moved at first; the close of the last connection moves it."""
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

    def mark_and_leave(*, is_open: bool, has_log: bool, sync: bool = True) -> None:
        mark(is_open=is_open, has_log=has_log, sync=sync)
        reader.close()

    lock.mark = mark_and_leave  # type: ignore[method-assign]
    store.close()
    assert not Path(f"{path}-wal").exists()
    again = SqliteStore(path)
    assert [row.body for row in again.pending().rows] == [b"1", b"2"]
    again.close()
