"""A store in one SQLite file: write-ahead log, every commit synced unless told otherwise.

The file can be read with the sqlite3 shell while the engine runs. A lock file beside it keeps a
second writer out; the kernel drops the lock when its owner dies, however it dies.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from actorflow.engine.errors import NoStore, StoreConflict, StoreRefused
from actorflow.engine.stores.protocol import (
    Change,
    DeadRow,
    DuplicateKey,
    ExecutionRow,
    HistoryRow,
    MessageRow,
    Page,
    StoreCounts,
    StoreTraits,
    TaskRow,
    TimerRow,
    TrialNote,
    WatchRow,
)
from actorflow.engine.stores.sqlite.file import StoreFile
from actorflow.engine.stores.sqlite.lock import FileLock
from actorflow.engine.stores.sqlite.readers import SqliteReaders
from actorflow.engine.stores.sqlite.schema import CHUNK, ORDER, SELECTED, WRONG_PARTS, listed
from actorflow.engine.stores.sqlite.session import WriteSession
from actorflow.engine.stores.sqlite.snapshot_import import fill
from actorflow.engine.stores.sqlite.writer import EPOCH
from actorflow.engine.stores.validation import check_durability, validate_ids
from actorflow.runtime.errors import BadOption
from actorflow.runtime.lanes.uninterruptible import run_in_new_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from actorflow.engine.stores.protocol import Wake

__all__ = ["SqliteStore", "from_url"]

_open_stores: WeakSet[SqliteStore] = WeakSet()
_orphans: list[sqlite3.Connection] = []  # of a parent process


class SqliteStore:
    """Keeps executions in one file.

    Args:
        path: the file; it is made if it is not there. A symbolic link is followed.
        durability: `"full"` syncs every commit, so that acknowledged messages outlive a power
            cut; `"normal"` outlives a crash of the process, and of the machine to the last sync;
            `"off"` leaves it to the operating system.
        read_only: look, while another process may be writing.
        check: verify the structure of the file (`PRAGMA quick_check`), O(n), and that its log is
            there if it was not closed. See `verify` for what else can be found.

    Raises:
        StoreBusy: another process has it open for writing.
        StoreBroken: the file is torn, empty, not ours, or of another version, or its log is gone.
            Nothing of it was changed.
        StoreRefused: a permission is missing.
        StoreFull: there is no room to make or open it.

    """

    traits = StoreTraits(backup=True, decides=True, notes_trials=True)
    left_open = False

    def __init__(
        self,
        path: str | Path,
        *,
        durability: str = "full",
        read_only: bool = False,
        check: bool = True,
    ) -> None:
        check_durability(durability)
        self._file = StoreFile(path)
        self.path = self._file.path
        self._durability = durability
        self._lock: FileLock | None = None
        self._session: WriteSession | None = None
        self._unusable = f"{self.path} is closed"
        self._readers = SqliteReaders(self._file)
        self._closing = threading.Lock()  # a second close waits for the first
        run_in_new_thread(self._open, read_only, check, undo=lambda _: self.close())

    # Opening and closing. An interrupt in between would leave a note that is wrong, or the lock.

    def _open(self, read_only: bool, check: bool) -> None:  # noqa: FBT001 - see __init__
        try:
            if read_only:
                self._open_to_read()
            else:
                self._open_to_write(check=check)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # even its texts may be torn
            self._abandon()
            raise self._file.explain(error) from error
        except BaseException:
            self._abandon()
            raise
        _open_stores.add(self)

    def _open_to_write(self, *, check: bool) -> None:
        file = self._file
        synced = self._durability != "off"
        file.require_writable()
        known = self.path.exists()
        if known:
            file.examine()  # before a lock file is made beside the file of another program
        self._lock = FileLock(self.path)
        if not self.path.exists():
            file.create(sync=synced)
        elif not known:
            file.examine()
        lock = self._lock
        self.left_open = lock.left_open
        if check and known:
            if lock.needs_log and not file.has_log and file.was_closed(lock.last_token):
                self.left_open = False
            elif lock.needs_log:
                file.require_log()
            file.quick_check()
        self._session = WriteSession(file, lock, self._durability)
        self._readers.open()

    def _open_to_read(self) -> None:
        if not self.path.exists():
            msg = f"there is no store {self.path}"
            raise NoStore(msg)
        self._file.examine()
        self._unusable = f"{self.path} is open read-only"
        self._readers.open()

    def _abandon(self) -> None:
        """Release what a failed opening has acquired, and nothing else."""
        self._readers.close()
        if self._session is not None:
            self._session.close()
        if self._lock is not None:
            self._lock.release()
        self._session = self._lock = None

    def close(self) -> None:
        """Close the file and let others write it. In a forked child it does nothing."""
        run_in_new_thread(self._close)

    def _close(self) -> None:
        with self._closing:
            self._close_once()

    def _close_once(self) -> None:
        _open_stores.discard(self)
        self._readers.close()
        session, self._session = self._session, None
        lock, self._lock = self._lock, None
        if session is None or lock is None:
            return
        self._unusable = f"{self.path} is closed"
        session.close()
        lock.release()

    def _disown(self) -> None:
        """Make a forked child's copy useless: the file, its log and its lock are the parent's."""
        self._closing = threading.Lock()  # a thread that does not exist here may have the old one
        self._unusable = (
            f"{self.path} was opened before this process was forked from another; "
            "open the store in the process that uses it"
        )
        _orphans.extend(self._readers.disown(self._unusable))
        if self._session is not None:
            _orphans.extend(self._session.disown())
        self._session = self._lock = None

    # Writing: one thread.

    def _require_session(self) -> WriteSession:
        if self._session is None:
            raise StoreRefused(self._unusable)
        return self._session

    def commit(self, changes: Sequence[Change]) -> None:
        """Commit many changes as one synced transaction. O(their rows)."""
        session = self._session or self._require_session()
        validate_ids(changes)
        session.run(partial(session.writer.commit, changes))

    def purge(
        self,
        *,
        before: float,
        keys_before: float,
        limit: int = 1_000,
        only: Sequence[str] | None = None,
    ) -> int:
        """Forget what ended before a moment, with all that is stored of it. O(limit log n)."""
        session = self._require_session()
        purge = partial(
            session.writer.purge, before=before, keys_before=keys_before, limit=limit, only=only
        )
        return session.run(purge)

    def restore(self, rows: Iterator[tuple[str, tuple[Any, ...]]]) -> int:
        """Fill an empty store in one transaction; return how many rows."""
        session = self._require_session()
        if any(table != "meta" for table, _ in self.snapshot()):
            msg = f"{self.path} is not empty: only an empty store can be filled"
            raise StoreConflict(msg)
        return session.run(partial(fill, session.writer, rows), repeatable=False)

    def note_trial(self, note: TrialNote | None) -> None:
        """Record which message runs alone now, if any, in the lock file. Thread-safe."""
        with self._closing:
            if self._lock is not None:
                self._lock.note_trial(note)

    def last_trial(self) -> TrialNote | None:
        """Return the note that was there when this was opened, or was made since."""
        with self._closing:
            return None if self._lock is None else self._lock.last_trial()

    # Reading: any thread.

    def owned(self) -> Mapping[int, int]:
        """Return the only partition."""
        return {0: EPOCH}

    def subscribe(self, _wake: Wake) -> Callable[[], None]:
        """Never call it: nobody else may write the file."""
        return lambda: None

    def execution(self, execution: str) -> ExecutionRow | None:
        """Return one execution. O(log n)."""
        return self.executions((execution,)).get(execution)

    def executions(self, ids: Sequence[str]) -> dict[str, ExecutionRow]:
        """Return many executions at once. O(log n) each."""
        found: dict[str, ExecutionRow] = {}
        for at in range(0, len(ids), CHUNK):
            some = ids[at : at + CHUNK]
            text = f"SELECT {SELECTED['executions']} FROM executions WHERE id IN "  # noqa: S608
            for row in self._readers.read(text + listed(len(some)), some):
                found[row[0]] = ExecutionRow._make(row)
        return found

    def listing(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
        after: Any = None,
        limit: int = 100,
    ) -> Page[ExecutionRow]:
        """Return executions in the order of their ids.

        O(limit log n) with one filter; with several, what the others exclude is skipped.
        """
        index = (
            "executions_parent" if parent is not None
            else "executions_kind" if kind is not None and status in {None, "done"}
            else "executions_status" if status is not None
            else ""
        )  # fmt: skip
        filters = {"parent = ?": parent, "kind = ?": kind, "status = ?": status}
        if tags:
            return self._tagged(tags, filters, after, limit)
        return self._readers.page(
            "executions", ExecutionRow, {**filters, "id > ?": after}, "id", limit, index=index
        )

    def _tagged(
        self, tags: Mapping[str, str], filters: Mapping[str, Any], after: Any, limit: int
    ) -> Page[ExecutionRow]:
        """Return executions that have all of some tags: found by the first, looked up by its id."""
        first, *others = tags.items()
        conditions: dict[str, Any] = {"first.name = ? AND first.value = ?": first}
        for number, tag in enumerate(others):
            conditions[
                f"EXISTS (SELECT 1 FROM tags AS t{number} WHERE t{number}.execution = id"  # noqa: S608
                f" AND t{number}.name = ? AND t{number}.value = ?)"
            ] = tag
        return self._readers.page(
            "executions", ExecutionRow, {**conditions, **filters, "first.execution > ?": after},
            "first.execution", limit,
            source="tags AS first INDEXED BY tags_value"
            " CROSS JOIN executions ON id = first.execution",
        )  # fmt: skip

    def tags(self, execution: str) -> dict[str, str]:
        """Return the tags of an execution. O(log n)."""
        text = "SELECT name, value FROM tags WHERE execution = ? ORDER BY name"
        return dict(self._readers.read(text, (execution,)))

    def pending(
        self,
        *,
        execution: str | None = None,
        kind: str | None = None,
        after: Any = None,
        limit: int = 1_000,
    ) -> Page[MessageRow]:
        """Return messages, those of one execution together and in order.

        O(limit log n); with a kind, executions of other kinds that have messages are skipped.
        """
        if execution is not None:
            start = after[1] if isinstance(after, tuple) else after
            if kind is not None:
                found = self.execution(execution)
                if found is None or found.kind != kind:
                    return Page([], None)
            filters = {"execution = ?": execution, "id > ?": start}
            return self._readers.page("messages", MessageRow, filters, "id", limit)
        return self._readers.pending(kind, after, limit)

    def due(self, limit: int = 1_000, *, execution: str | None = None) -> list[TimerRow]:
        """Return the timers that are due first. O(limit log n)."""
        filters = {"execution = ?": execution}
        return self._readers.page("timers", TimerRow, filters, "due, execution, id", limit).rows

    def open(
        self,
        *,
        execution: str | None = None,
        tasker: str | None = None,
        after: Any = None,
        limit: int = 1_000,
    ) -> Page[TaskRow]:
        """Return tasks in the order in which they were stored. O(limit log n)."""
        index = "tasks_execution" if execution is not None else "tasks_tasker" if tasker else ""
        filters = {"execution = ?": execution, "tasker = ?": tasker, "number > ?": after}
        found = self._readers.page(
            "tasks", TaskRow, filters, "number", limit, extra="number", index=index,
            cursor=lambda row: row[-1],
        )  # fmt: skip
        return Page(
            [row._replace(tell_start=bool(row.tell_start)) for row in found.rows], found.after
        )

    def task(self, task: str) -> TaskRow | None:
        """Return one task. O(log n)."""
        found = self._readers.page("tasks", TaskRow, {"id = ?": task}, "", 1).rows
        return found[0]._replace(tell_start=bool(found[0].tell_start)) if found else None

    def watches(self, *, after: Any = None, limit: int = 1_000) -> Page[WatchRow]:
        """Return all watches."""
        return self._readers.page(
            "watches", WatchRow, {"(execution, id) > (?, ?)": after}, "execution, id", limit,
            cursor=lambda row: (row[0], row[1]),
        )  # fmt: skip

    def history(self, execution: str, *, after: Any = None, limit: int = 1_000) -> Page[HistoryRow]:
        """Return what happened to an execution, oldest first. O(limit log n)."""
        filters = {"execution = ?": execution, "id > ?": after}
        return self._readers.page(
            "history", HistoryRow, filters, "id", limit, index="history_execution"
        )

    def dead(
        self, *, execution: str | None = None, after: Any = None, limit: int = 1_000
    ) -> Page[DeadRow]:
        """Return dead letters, oldest first. O(limit log n)."""
        return self._readers.page(
            "dead", DeadRow, {"execution = ?": execution, "number > ?": after}, "number", limit,
            extra="number", index="" if execution is None else "dead_execution",
            cursor=lambda row: row[-1],
        )  # fmt: skip

    def dead_letter(self, id: Any) -> DeadRow | None:  # noqa: A002 - what it is
        """Return one dead letter. O(log n)."""
        return next(iter(self._readers.page("dead", DeadRow, {"id = ?": id}, "", 1).rows), None)

    def keyed(self, execution: str, key: str) -> DuplicateKey | None:
        """Return the message that was stored with a key, if there was one. O(log n)."""
        text = "SELECT message, at FROM keys WHERE execution = ? AND key = ?"
        return next(map(DuplicateKey._make, self._readers.read(text, (execution, key))), None)

    def counts(self, executions: Sequence[str]) -> dict[str, StoreCounts]:
        """Return how much is stored for each of some executions. O(their rows)."""
        found = {name: [0, 0, 0, 0] for name in executions}
        for column, table in enumerate(("messages", "timers", "tasks", "dead")):
            for at in range(0, len(executions), CHUNK):
                some = executions[at : at + CHUNK]
                text = (
                    f"SELECT execution, count(*) FROM {table} WHERE execution"  # noqa: S608 - ours
                    f" IN {listed(len(some))} GROUP BY execution"
                )
                for name, count in self._readers.read(text, some):
                    found[name][column] = count
        return {name: StoreCounts(*counts) for name, counts in found.items()}

    def snapshot(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield all rows of this moment, on a connection of its own, while commits go on."""
        self._readers.require_open()
        try:
            connection = self._file.connect(self._file.reading)
            connection.execute("BEGIN")
            last = "SELECT key, value FROM meta WHERE key = 'last_id'"
            noted = connection.execute(last).fetchall()  # from here on it sees nothing new
        except sqlite3.DatabaseError as error:
            raise self._file.explain(error) from error
        return self._stream(connection, noted)

    def _stream(
        self, connection: sqlite3.Connection, noted: list[Any]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        try:
            with closing(connection):
                yield from (("meta", row) for row in noted)
                for table, order in ORDER.items():
                    self._readers.require_open()
                    text = f"SELECT {SELECTED[table]} FROM {table} ORDER BY {order}"  # noqa: S608
                    for row in connection.execute(text):
                        yield table, row
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._file.explain(error) from error

    # Keeping.

    def backup(self, path: str | Path) -> None:
        """Copy the store to a new file while the engine runs. Thread-safe."""
        if Path(path).exists():
            msg = f"{path} is there already: a backup never overwrites anything"
            raise BadOption(msg)
        self._readers.require_open()
        target = StoreFile(path)
        try:
            with (
                closing(self._file.connect(self._file.reading)) as source,
                closing(sqlite3.connect(target.path)) as copy,
            ):
                source.backup(copy)
        except sqlite3.DatabaseError as error:
            for left in (path, f"{path}-journal"):
                Path(left).unlink(missing_ok=True)
            raise target.explain(error, self._file.size) from error

    def verify(self) -> Iterator[str]:
        """Yield the damages of the file itself: its pages, indexes and constraints. O(n log n).

        `actorflow.engine.operations.verify` also looks at the contents of the rows.
        """
        self._readers.require_open()
        try:
            with closing(self._file.connect(self._file.reading)) as connection:
                for (verdict,) in connection.execute("PRAGMA integrity_check"):
                    if verdict != "ok":
                        yield f"{self.path}: {verdict}"
                for name, count, found in connection.execute(WRONG_PARTS):
                    yield f"{self.path}: the state of {name!r} has {count} parts, not {found}"
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            yield str(self._file.explain(error))


def _after_fork() -> None:
    """Make the stores of the parent useless in a forked child, and never close its connections.

    Nor may the end of the interpreter close them: if the parent is dead by then, SQLite would move
    its log into the file, and remove it.
    """
    stores = list(_open_stores)
    _open_stores.clear()
    for store in stores:
        store._disown()  # noqa: SLF001 - the hook of this class
    if stores:
        import ctypes  # noqa: PLC0415 - in such a child only

        for connection in _orphans:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def from_url(url: str, **options: Any) -> SqliteStore:
    """Open the file that a URL names: `sqlite://orders.db`, `sqlite:///var/lib/orders.db`."""
    options.pop("name", None)  # nobody shares it
    path = url.partition("://")[2]
    if not path:
        msg = f"{url!r} names no file: write sqlite://orders.db or sqlite:///var/lib/orders.db"
        raise BadOption(msg)
    return SqliteStore(path, **options)
