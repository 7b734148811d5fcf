"""A store in one SQLite file: write-ahead log, every commit synced unless told otherwise.

The file can be read with the sqlite3 shell while the engine runs. A lock file beside it keeps a
second writer out; the kernel drops the lock when its owner dies, however it dies. Each row bears
a checksum, its *seal*: SQLite itself would not notice a flipped bit inside a value.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import StoreBroken, StoreFull, StoreRefused
from actorflow.engine.execution.failpoints import failpoint
from actorflow.engine.stores.protocol import Change, DeadRow, ExecutionRow, MessageRow
from actorflow.engine.stores.sqlite.lock import FileLock, sync_folder
from actorflow.engine.stores.sqlite.schema import (
    CHUNK,
    CREATE,
    TABLES,
    insert,
    seal,
    seal_created,
    seal_execution,
    seal_known,
    segments,
    select_text,
    spans,
)
from actorflow.engine.stores.sqlite.wal import sync_log, verify_log
from actorflow.runtime.errors import BadOption, near

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["SqliteStore", "from_url"]

_APPLICATION = 0x61666C6F  # "aflo": PRAGMA application_id of our files
_VERSION = 2
_SCHEMA = """
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
"""
_MIGRATIONS: dict[int, str] = {
    1: "UPDATE executions SET seal = seal_created(created) | seal;",
}
"""From version n to n + 1, as SQL; the newest version is `_VERSION`."""

_DURABILITY = {"full": "FULL", "normal": "NORMAL", "off": "OFF"}
_STATEMENTS = 512  # that a connection keeps prepared
_KNOWN = 10_000  # executions that are known to be there
_RESERVED = 10_000  # numbers of messages that are set aside at a time
_UPDATE = (
    "UPDATE executions SET revision = ?, status = ?, state = ?, updated = ?,"
    " seal = (seal >> 32 << 32) | ? WHERE id = ? AND revision = ?"
)
_NOTE = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
_SYNC_AFTER = 4_000  # pages in the log after which it is moved into the file
_BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_FULL_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}


class SqliteStore:
    """Keeps executions in one file.

    Args:
        path: the file; it is made if it is not there.
        durability: `"full"` syncs every commit, so that what was acknowledged outlives a power
            cut; `"normal"` outlives a crash of the process, and of the machine to the last sync;
            `"off"` leaves it to the operating system.
        read_only: look, while another process may be writing.
        check: read everything once and verify it. O(n): 1 s for some 100 MB.

    Raises:
        StoreBusy: another process has it open for writing.
        StoreBroken: the file is torn, empty, not ours, or of a newer version.

    """

    def __init__(
        self,
        path: str | Path,
        *,
        durability: str = "full",
        read_only: bool = False,
        check: bool = True,
    ) -> None:
        if durability not in _DURABILITY:
            msg = f"durability={durability!r} is not a setting{near(durability, _DURABILITY)}"
            raise BadOption(msg)
        self.path = Path(path)
        self._durability = durability
        self._reading = threading.Lock()
        self._lock = None if read_only else FileLock(self.path)
        self._writer: sqlite3.Connection | None = None
        self._first = self._last = self._reserved = self._last_history = 0
        self._known: set[str] = set()
        self._reader: sqlite3.Connection | None = None
        try:
            if read_only:
                self._open_to_read()
            else:
                self._open_to_write(check=check)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # even its texts may be torn
            self.close()
            msg = f"{self.path} cannot be read as a store: {error}; restore a backup"
            raise StoreBroken(msg) from error
        except BaseException:
            self.close()
            raise

    # Opening.

    def _open_to_write(self, *, check: bool) -> None:
        there = self.path.exists()
        if not there and Path(f"{self.path}-wal").exists():
            msg = f"{self.path} is missing, but its log {self.path}-wal is there: restore a backup"
            raise StoreBroken(msg)
        if not there:
            self._create()
        self._refuse_empty()
        self._examine_log(check=check)
        connection = self._writer = self._connect()
        self._refuse_strangers(connection)
        if check and there:
            self._verify(connection)
        self._migrate(connection)
        connection.execute(f"PRAGMA synchronous = {_DURABILITY[self._durability]}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_SYNC_AFTER}")
        self._first, self._last = connection.execute(
            "SELECT min(0, min(id)), max(0, max(id)) FROM (SELECT 0 AS id"
            " UNION ALL SELECT value FROM meta WHERE key IN ('first_id', 'last_id')"
            " UNION ALL SELECT min(id) FROM messages UNION ALL SELECT max(id) FROM messages"
            " UNION ALL SELECT min(id) FROM dead UNION ALL SELECT max(id) FROM dead)"
        ).fetchone()
        self._reserved = self._last
        (self._last_history,) = connection.execute(
            "SELECT ifnull(max(number), 0) FROM history"
        ).fetchone()
        self._reader = self._connect("?mode=ro")

    def _examine_log(self, *, check: bool) -> None:
        """Look at the log that a crash may have left, before SQLite does."""
        lock = self._lock
        if lock is None:
            return
        if (lock.note or self._durability) != "full":  # then a power cut may have left gaps
            sync_log(self.path)
        elif check:
            verify_log(self.path)
        lock.leave_note(self._durability)

    def _open_to_read(self) -> None:
        if not self.path.exists():
            msg = f"there is no store {self.path}"
            raise StoreBroken(msg)
        self._refuse_empty()
        self._reader = self._connect("?mode=ro")
        self._refuse_strangers(self._reader)

    def _connect(self, mode: str = "") -> sqlite3.Connection:
        uri = self.path.absolute().as_uri() + mode
        return sqlite3.connect(
            uri,
            uri=True,
            check_same_thread=False,
            isolation_level=None,
            cached_statements=_STATEMENTS,
        )

    def _refuse_empty(self) -> None:
        if self.path.stat().st_size == 0:
            msg = f"{self.path} is empty: a store never is. If it is not a torn one, remove it"
            raise StoreBroken(msg)

    def _refuse_strangers(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            msg = f"{self.path} is a SQLite file, but not a store of actorflow's"
            raise StoreBroken(msg)
        if version > _VERSION:
            msg = f"{self.path} has version {version}, newer than {_VERSION}: update actorflow"
            raise StoreBroken(msg)
        if version < _VERSION and not all(n in _MIGRATIONS for n in range(version, _VERSION)):
            msg = f"{self.path} has version {version}, which there never was: restore a backup"
            raise StoreBroken(msg)

    def _create(self) -> None:
        """Make a new store under another name first: a crash never leaves half of one."""
        draft = Path(f"{self.path}.new")
        for left in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm")):
            left.unlink(missing_ok=True)
        try:
            connection = sqlite3.connect(draft, isolation_level=None)
        except sqlite3.OperationalError as error:
            msg = f"{self.path} cannot be made: {error}"
            raise StoreBroken(msg) from error
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(
                f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION}; "
                f"PRAGMA user_version = {_VERSION}; COMMIT; PRAGMA wal_checkpoint(TRUNCATE);"
            )
        except sqlite3.OperationalError as error:
            msg = f"{self.path} cannot be made: {error}"
            raise StoreFull(msg) from error
        finally:
            connection.close()
        draft.rename(self.path)
        sync_folder(self.path.absolute().parent)

    def _verify(self, connection: sqlite3.Connection) -> None:
        """Read everything once: the structure, then the seal of each row."""
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            msg = f"{self.path} is damaged ({verdict}); restore a backup"
            raise StoreBroken(msg)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for table, (_, columns, _) in TABLES.items():
            sealed = seal
            if table == "executions":
                sealed = seal_known if version == 1 else seal_execution
            for row in connection.execute(f"SELECT {columns}, seal FROM {table}"):  # noqa: S608
                if sealed(row[:-1]) != row[-1]:
                    msg = (
                        f"{self.path} is damaged (table {table}, row {row[0]!r}); restore a backup"
                    )
                    raise StoreBroken(msg)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        connection.create_function("seal_created", 1, seal_created)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        while version < _VERSION:
            connection.executescript(
                f"BEGIN; {_MIGRATIONS[version]} PRAGMA user_version = {version + 1}; COMMIT;"
            )
            version += 1

    # Writing: one thread.

    def commit(self, changes: Sequence[Change]) -> None:
        """Commit many changes as one synced transaction. O(their rows)."""
        connection = self._connection
        failpoint("commit.before")
        before = self._first, self._last, self._reserved, self._last_history
        alone = self._is_one_statement(changes)
        try:
            if not alone:
                connection.execute("BEGIN IMMEDIATE")
            applied = [each for each in changes if self._write_executions(connection, each)]
            for segment in segments(applied, self._last):
                self._write_rows(connection, segment)
            if self._last > self._reserved:
                self._reserve(connection)
            if self._first < before[0]:
                connection.execute(_NOTE, ("first_id", self._first))
            failpoint("commit.inside")
            if not alone:
                connection.execute("COMMIT")
        except BaseException as error:
            self._first, self._last, self._reserved, self._last_history = before
            self._known.clear()
            self._roll_back()
            if isinstance(error, sqlite3.DatabaseError):
                raise self._explain(error) from error
            raise
        failpoint("commit.after")
        for change in applied:
            change.committed = True

    def _is_one_statement(self, changes: Sequence[Change]) -> bool:
        """Tell whether a single statement does it: that is a transaction by itself."""
        if len(changes) != 1:
            return False
        change = changes[0]
        if change.expected is not None:
            return not change.has_rows
        count = len(change.messages)
        return (
            change.has_only_messages
            and not change.ahead
            and count <= CHUNK
            and self._last + count <= self._reserved
            and all(name in self._known for name, _ in change.creates)
        )

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._writer is None:
            msg = f"{self.path} is closed, or open to look only"
            raise StoreRefused(msg)
        return self._writer

    def _roll_back(self) -> None:
        connection = self._connection
        if connection.in_transaction:
            with suppress(sqlite3.Error):  # SQLite has done so itself
                connection.execute("ROLLBACK")

    def _explain(self, error: sqlite3.DatabaseError) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _FULL_CODES:
            return StoreFull(f"{self.path}: {error}; nothing of this commit is stored. Make room")
        if code in _BUSY_CODES:
            return StoreRefused(f"{self.path}: {error}; another program writes it. Make it stop")
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            return StoreBroken(f"{self.path}: {error}; restore a backup")
        return error

    def _reserve(self, connection: sqlite3.Connection) -> None:
        """Note how far numbers may go from now on: the next engine begins after that.

        Many at a time, since each note is one more page to be synced.
        """
        self._reserved = self._last + _RESERVED
        connection.execute(_NOTE, ("last_id", self._reserved))

    def _give_back(self, connection: sqlite3.Connection) -> None:
        """Let the next engine use the numbers that were set aside and not used."""
        if self._reserved > self._last:
            connection.execute(_NOTE, ("last_id", self._last))

    def _write_executions(self, connection: sqlite3.Connection, change: Change) -> bool:
        """Decide the race for one change, and make the executions that it may be the first of."""
        won = self._update(connection, change)
        if won and change.creates:
            at = float(change.at)
            known = self._known
            rows = [
                (name, kind, 0, "active", None, at, at)
                for name, kind in change.creates
                if name not in known
            ]
            if rows:
                connection.executemany(CREATE, [(*row, seal_execution(row)) for row in rows])
                if len(known) > _KNOWN:
                    known.clear()
                known.update(row[0] for row in rows)
        return won

    def _update(self, connection: sqlite3.Connection, change: Change) -> bool:
        """Replace the state of an execution if nobody else has."""
        expected = change.expected
        if expected is None:
            return True
        at = float(change.at)
        row = (change.execution, change.kind, expected + 1, change.status, change.state, at, at)
        known = seal_known(row)
        done = connection.execute(
            _UPDATE,
            (expected + 1, change.status, change.state, at, known, change.execution, expected),
        )
        if not done.rowcount and not expected:
            done = connection.execute(CREATE, (*row, seal_created(at) | known))
        return bool(done.rowcount)

    def _write_rows(self, connection: sqlite3.Connection, changes: list[Change]) -> None:
        """Write the rows of changes that do not undo each other, table by table."""
        many = connection.executemany
        if changes[0].clear:
            for table in ("messages", "timers", "tasks"):
                connection.execute(
                    f"DELETE FROM {table} WHERE execution = ?",  # noqa: S608
                    (changes[0].execution,),
                )
        for text, gone in (
            (
                "DELETE FROM messages WHERE id BETWEEN ? AND ?",
                [span for change in changes for span in spans(change.consumed)],
            ),
            (
                "DELETE FROM timers WHERE execution = ? AND id = ?",
                [timer for change in changes for timer in change.cancelled_timers],
            ),
            ("DELETE FROM tasks WHERE id = ?", [(t,) for c in changes for t in c.finished_tasks]),
            ("DELETE FROM dead WHERE id = ?", [(n,) for c in changes for n in c.buried]),
        ):
            if gone:
                many(text, gone)
        for table, rows in (
            ("messages", self._number_messages(changes)),
            ("timers", [row for change in changes for row in change.timers]),
            ("tasks", [row for change in changes for row in change.tasks]),
            ("dead", [self._numbered(row) for change in changes for row in change.dead]),
            ("history", self._number_history(changes)),
        ):
            if rows:
                insert(connection, table, rows)

    def _number_messages(self, changes: list[Change]) -> list[Any]:
        rows: list[Any] = []
        last = self._last
        for change in changes:
            if change.messages:
                at = float(change.at)
                self._first -= change.ahead
                ahead = range(self._first, self._first + change.ahead)
                numbers = itertools.chain(ahead, itertools.count(last + 1))
                change.rows = [
                    MessageRow(number, execution, body, at)
                    for number, (execution, body) in zip(numbers, change.messages, strict=False)
                ]
                last += len(change.rows) - change.ahead
                rows += change.rows
        self._last = last
        return rows

    def _numbered(self, row: DeadRow) -> DeadRow:
        if row.id:
            self._last = max(self._last, row.id)
            return row
        self._last += 1
        return row._replace(id=self._last)

    def _number_history(self, changes: list[Change]) -> list[Any]:
        rows = []
        for change in changes:
            for body in change.history:
                self._last_history += 1
                rows.append((self._last_history, change.execution, float(change.at), body))
        return rows

    def purge(self, *, before: float) -> int:
        """Forget what ended before a moment, with its history. O(n)."""
        connection = self._connection
        ended = "status IN ('done', 'cancelled') AND updated < ?"
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                f"DELETE FROM history WHERE at < ? OR execution IN"  # noqa: S608
                f" (SELECT id FROM executions WHERE {ended})",
                (before, before),
            )
            self._known.clear()
            gone = connection.execute(f"DELETE FROM executions WHERE {ended}", (before,))  # noqa: S608
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self._roll_back()
            raise self._explain(error) from error
        return gone.rowcount

    # Reading: any thread, on a connection of its own.

    def _read(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._reading:
            if self._reader is None:
                msg = f"{self.path} is closed"
                raise StoreRefused(msg)
            try:
                return self._reader.execute(text, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise self._explain(error) from error
            except UnicodeDecodeError as error:
                msg = f"{self.path} is damaged ({error}); restore a backup"
                raise StoreBroken(msg) from error

    def execution(self, execution: str) -> ExecutionRow | None:
        """Give one execution. O(log n)."""
        return self.executions((execution,)).get(execution)

    def executions(self, names: Sequence[str]) -> dict[str, ExecutionRow]:
        """Give many executions at once. O(log n) each."""
        found: dict[str, ExecutionRow] = {}
        for at in range(0, len(names), CHUNK):
            some = names[at : at + CHUNK]
            for row in self._read(select_text(len(some)), some):
                found[row[0]] = ExecutionRow._make(row)
        return found

    def rows(
        self, table: str, execution: str | None = None, limit: int | None = None
    ) -> Iterator[Any]:
        """Give the rows of a table in order."""
        make, columns, order = TABLES[table]
        where, values = "", []
        if execution is not None:
            where = f" WHERE {'id' if table == 'executions' else 'execution'} = ?"
            values.append(execution)
        text = f"SELECT {columns} FROM {table}{where} ORDER BY {order}"  # noqa: S608
        if limit is not None:
            text += f" LIMIT {int(limit)}"
        return map(make._make, self._read(text, values))

    def pending(self, kind: str) -> Iterator[MessageRow]:
        """Give the messages to executions of a kind, in order. O(all messages)."""
        text = (
            "SELECT m.id, m.execution, m.body, m.at FROM messages m"
            " CROSS JOIN executions e ON e.id = m.execution WHERE e.kind = ? ORDER BY m.id"
        )
        return map(MessageRow._make, self._read(text, (kind,)))

    def backup(self, path: str | Path) -> None:
        """Copy the store to a new file while the engine runs. Any thread."""
        if Path(path).exists():
            msg = f"{path} is there already: a backup never overwrites anything"
            raise BadOption(msg)
        source = self._connect("?mode=ro")
        target = sqlite3.connect(path)
        try:
            source.backup(target)
        finally:
            target.close()
            source.close()

    def close(self) -> None:
        """Close the file and let others write it."""
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
        if self._writer is not None:
            with suppress(sqlite3.Error):  # then the next engine skips the numbers set aside
                self._give_back(self._writer)
            self._writer.close()
            self._writer = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def from_url(url: str, **options: Any) -> SqliteStore:
    """Open the file that a URL names: `sqlite://orders.db`, `sqlite:///var/lib/orders.db`."""
    path = url.partition("://")[2]
    if not path:
        msg = f"{url!r} names no file: write sqlite://orders.db or sqlite:///var/lib/orders.db"
        raise BadOption(msg)
    return SqliteStore(path, **options)
