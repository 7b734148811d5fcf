"""The writing side of a store: one connection, which is replaced after an error of the disk.

Problem
    An error of a write or a sync does not say whether a commit is on the disk. SQLite rolls it
    back, and still its frames may be found in the log after a crash. A caller who learns that a
    message is not stored sends it again, and then it would count twice.

Approach
    After such an error the commit is in doubt. A new connection reads the store as it was before,
    and `CommitLog.withdraw` destroys its frames in the log. Only then is it certain that
    nothing is stored. If this fails as well, the caller gets `OutcomeUnknown`, and nothing else is
    committed until it succeeds. A crash before that leaves the decision to the disk.

Invariants
    1. A commit that raises `StoreRefused` or `StoreFull` is never found in the store later.
    2. While a commit is in doubt, no other commit begins.
    3. The old connection is closed after the new one has attached to the log; otherwise SQLite
       would move the log into the file.

Closing
    The lock file tells the next owner whether the log has to be there, but a write of the lock
    file may fail as well. So the last commit leaves the token of the lock file in the store, where
    the next owner finds it.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from actorflow.engine.errors import OutcomeUnknown, StoreFull, StoreRefused
from actorflow.engine.stores.sqlite.lock import Note
from actorflow.engine.stores.sqlite.log import CommitLog
from actorflow.engine.stores.sqlite.writer import SqliteWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.sqlite.file import StoreFile
    from actorflow.engine.stores.sqlite.lock import FileLock

__all__ = ["WriteSession"]

_SYNC_AFTER = 4_000  # pages in the log after which it is moved into the file
_CACHE = 16_000  # KiB of pages that are kept in memory to be written
_DISK_ERRORS = (sqlite3.Error, OSError, MemoryError)

T = TypeVar("T")


class WriteSession:
    """Writes a store from its opening to its closing. One thread.

    Args:
        file: the store, which must be there.
        lock: the lock on it.
        durability: see `SqliteStore`.

    Raises:
        sqlite3.Error: it cannot be opened.

    """

    def __init__(self, file: StoreFile, lock: FileLock, durability: str) -> None:
        self._file = file
        self._lock = lock
        self._durability = durability
        self._synced = durability != "off"
        self._doubt: str | None = None
        self.connection = self._connect()
        try:
            self._begin()
        except BaseException:
            self._close_connection()
            raise

    def _begin(self) -> None:
        connection, file = self.connection, self._file
        file.refuse_strangers(connection)
        self.writer = SqliteWriter(connection)
        level = "FULL" if self._synced else "OFF"
        connection.execute(f"PRAGMA synchronous = {level}")
        try:
            self.writer.reserve()  # so there is a log from here on
        except sqlite3.Error:
            if not self._move_log():  # on a full disk that makes room in the log
                raise
            self.writer.reserve()
        self._lock.open(sync=self._synced)
        connection.execute(f"PRAGMA synchronous = {self._durability}")
        ahead = self._durability == "full"
        self._log = CommitLog(file, connection, ahead=ahead, synced=self._synced)
        file.remember()

    def _connect(self) -> sqlite3.Connection:
        connection = self._file.connect("mode=rw")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_SYNC_AFTER}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE}")
        connection.execute(f"PRAGMA synchronous = {self._durability}")
        return connection

    # Commits.

    def run(self, transaction: Callable[[], T], *, repeatable: bool = True) -> T:
        """Call a function that commits a transaction; return what it returns.

        If the disk is full, the log is moved into the file, and a transaction that is `repeatable`
        is tried once more.

        Raises:
            StoreFull: there is no room; nothing is stored.
            StoreRefused: nothing is stored.
            OutcomeUnknown: it may or may not be stored.
            StoreConflict, StoreBroken: nothing is stored, and it never can be.

        """
        if self._doubt is not None:
            self._end_doubt()
        self._file.require_same()
        try:
            self._log.make_room()
            return transaction()
        except (sqlite3.Error, MemoryError) as error:
            why = self._explain(error)
            if not isinstance(why, StoreFull) or not self._move_log() or not repeatable:
                raise why from error
        # The log is written from its beginning now, which needs no room.
        try:
            return transaction()
        except (sqlite3.Error, MemoryError) as error:
            raise self._explain(error) from error

    def _explain(self, error: sqlite3.Error | MemoryError) -> Exception:
        """Withdraw the commit if it may be stored; return the error to be raised."""
        if self._file.leaves_doubt(error):
            self._doubt = str(error) or type(error).__name__
            failure = self._withdraw()
            if failure is not None:
                return OutcomeUnknown(
                    f"{self._file.path}: {self._doubt}, and then {failure}; whether this is stored "
                    "is not known yet"
                )
        if isinstance(error, MemoryError):
            return StoreRefused(f"{self._file.path}: out of memory; nothing of this is stored")
        return self._file.explain(error)

    def _end_doubt(self) -> None:
        """Withdraw an earlier commit.

        Raises:
            StoreRefused: that is still impossible.

        """
        failure = self._withdraw()
        if failure is not None:
            raise StoreRefused(
                f"{self._file.path}: an earlier commit failed ({self._doubt}), and cannot be "
                f"withdrawn ({failure}); nothing of this one is stored. See the log of the system"
            )

    def _withdraw(self) -> Exception | None:
        """Continue from the file on a new connection; return an error if that is impossible."""
        made = None
        try:
            self.writer.roll_back()
            made = self._connect()
            made.execute("SELECT 1 FROM meta").fetchone()  # attaches it to the log
            self._use(made)
            made = None
            self._log.withdraw()
        except _DISK_ERRORS as failure:
            if made is not None:
                made.close()
            return failure
        self._doubt = None
        return None

    def _use(self, connection: sqlite3.Connection) -> None:
        old, self.connection = self.connection, connection
        self.writer.use(connection)
        self._log.use(connection)
        old.close()

    def _move_log(self) -> bool:
        """Move the log into the file; return whether all of it is there, so that it is reused."""
        try:
            row = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except _DISK_ERRORS:
            return False
        return bool(row[1] == row[2] > 0)

    # Closing.

    def close(self) -> None:
        """Close the connection. Call it after all other connections of this process are closed."""
        with suppress(*_DISK_ERRORS):  # then the next owner skips the numbers
            self.writer.give_back(self._lock.token)
        self._close_connection()

    def _close_connection(self) -> None:
        """Close the connection, and note for the next owner whether there is a log."""
        lock, file = self._lock, self._file
        same = file.is_same()
        file.forget()
        log: CommitLog | None = getattr(self, "_log", None)
        if log is not None:
            log.close()
        pages, moved = 1, 0
        with suppress(*_DISK_ERRORS):
            _, pages, moved = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            # A reader that looks at an older moment keeps the log from being moved. If it leaves
            # before the connection is closed, that moves the log.
            lock.mark(Note.CLOSED if pages == moved else Note.CLOSING, sync=self._synced)
        self.connection.close()
        if log is not None:
            log.close_index()
        if pages != moved and same:  # SQLite removes the log only once it has moved all of it
            lock.mark(Note.LOGGED if file.has_log else Note.CLOSED, sync=self._synced)

    def disown(self) -> list[sqlite3.Connection]:
        """Close the files in a forked child; return the connections that it must not close."""
        self._lock.disown()
        self._file.forget()
        self._log.close()
        self._log.close_index()
        return [self.connection]
