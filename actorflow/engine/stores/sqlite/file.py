"""The file of a store: what it is, whether it may be opened, and how a new one is made.

Everything here looks before it touches: a file that is refused stays as it is, to the byte. It is
looked at through SQLite only. Opening and closing it by hand would drop the locks that another
connection of this process has on it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import tempfile
import time
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import StoreBroken, StoreConflict, StoreFull, StoreRefused
from actorflow.engine.stores.sqlite.lock import sync_folder
from actorflow.engine.stores.sqlite.schema import APPLICATION, SCHEMA, VERSION
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["StoreFile"]

_STATEMENTS = 512  # that a connection keeps prepared
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NOT_ALLOWED = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_TORN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_UNSUITABLE = {
    sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_RANGE,
}  # fmt: skip
_DISK = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
_IN_DOUBT = {*_DISK, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERNAL}
_SYNCS = {sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_ROOM = 1024 * 1024  # bytes that a disk has for a commit if it is not full
_TEXTS = "SELECT name, sql FROM sqlite_master"
_LOG_HEADER = 32  # bytes; a log without it holds nothing
_FOLDER = getattr(os, "O_DIRECTORY", None)  # Windows opens no folders
_SECOND = 1_000_000_000  # ns; some file systems keep times to a second or two
_TICK = 50_000_000  # ns; others, to a tick of the kernel


@cache
def _texts() -> set[tuple[str, str]]:
    """Return the names and texts of the tables and indexes of a store."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return set(connection.execute(_TEXTS))


class _JoinedState:
    """The SQL function `joined(revision, data)`: the parts of a state as one."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, bytes]] = []

    def step(self, revision: int, data: bytes) -> None:
        """Take a part. SQLite gives them in any order."""
        self._parts.append((revision, data))

    def finalize(self) -> bytes:
        """Return all of them."""
        return b"".join(data for _, data in sorted(self._parts))


def _require_short_names(path: Path) -> None:
    """Refuse a path that is too long for the file system, with the longest ending that is added."""
    try:
        os.lstat(f"{path}.new-journal")
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            shown = os.fspath(path)
            msg = f"{shown[:40]}...{shown[-20:]} is too long for a path; choose a shorter name"
            raise BadOption(msg) from error


class StoreFile:
    """One file, by its real name: symbolic links are resolved, so that its log is found.

    Args:
        path: where it is, or is to be made.

    """

    def __init__(self, path: str | Path) -> None:
        if not os.fspath(path):
            raise BadOption("'' is not a path: name a file, as in 'orders.db', or ':memory:'")
        if "\0" in os.fspath(path):
            raise BadOption(f"{os.fspath(path)!r:.80} is not a path: it has a null character in it")
        self.path = Path(os.path.realpath(path))
        _require_short_names(self.path)
        self.log = Path(f"{self.path}-wal")
        self.index = Path(f"{self.path}-shm")
        # As strings, since a `Path` costs more than the look at it.
        self._names = str(self.path), str(self.log), f"{self.path}.lock"
        self._open: list[tuple[int, int]] = []
        self._folder: int | None = None
        self._looked_at = 0  # when the folder had changed last, if the files were the same since

    @property
    def has_log(self) -> bool:
        """Whether there is a log with something in it."""
        try:
            return self.log.stat().st_size > _LOG_HEADER
        except FileNotFoundError:
            return False

    @property
    def size(self) -> int:
        """The bytes of the file and its log."""
        return sum(each.stat().st_size for each in (self.path, self.log) if each.exists())

    def connect(self, mode: str) -> sqlite3.Connection:
        """Open a connection: `mode=rw`, `mode=ro`, or `immutable=1`, which ignores the log."""
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?{mode}",
            uri=True,
            check_same_thread=False,
            isolation_level=None,
            cached_statements=_STATEMENTS,
        )
        joined: Any = _JoinedState  # typeshed knows aggregates of numbers only
        connection.create_aggregate("joined", 2, joined)
        return connection

    # Looking.

    def examine(self) -> None:
        """Refuse a file that is not a store of this version. Change and create nothing.

        Raises:
            StoreBroken: it is not.
            StoreRefused: it must not be read.

        """
        found = self.path.stat()
        if not stat.S_ISREG(found.st_mode):
            what = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
            raise StoreBroken(f"{self.path} is {what}: name a file, as in 'orders.db'")
        if found.st_size == 0:
            msg = f"{self.path} is empty: a store never is. If it is not a torn one, remove it"
            raise StoreBroken(msg)
        if found.st_nlink > 1:
            msg = (
                f"{self.path} has {found.st_nlink} names (hard links), and its log would be kept "
                "beside one of them only; keep one name, or make a copy with actorflow backup"
            )
            raise StoreBroken(msg)
        if not os.access(self.path, os.R_OK):
            msg = f"{self.path} cannot be read: permission denied"
            raise StoreRefused(msg)
        with self._looking() as connection:
            self.refuse_strangers(connection)

    def refuse_strangers(self, connection: sqlite3.Connection) -> None:
        """Refuse the file of another program or version."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            msg = f"{self.path} is a SQLite file, but not a store of actorflow's"
            raise StoreBroken(msg)
        if version > VERSION:
            msg = f"{self.path} has version {version}, newer than {VERSION}: update actorflow"
            raise StoreBroken(msg)
        if version < VERSION:
            msg = (
                f"{self.path} has version {version}, and this actorflow reads version {VERSION} "
                "only: open it with the actorflow that wrote it"
            )
            raise StoreBroken(msg)
        if not _texts().issubset(connection.execute(_TEXTS)):
            msg = f"{self.path} is damaged (its tables are not those of a store); restore a backup"
            raise StoreBroken(msg)

    def require_writable(self) -> None:
        """Refuse a place where nothing may be written, before SQLite says so in its own way."""
        folder = self.path.parent
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            msg = f"{folder} cannot be written: permission denied; a store needs files in it"
            raise StoreRefused(msg)
        if self.path.exists() and not os.access(self.path, os.W_OK):
            msg = f"{self.path} cannot be written: permission denied; open it read-only"
            raise StoreRefused(msg)

    @property
    def reading(self) -> str:
        """How to open it for reading: without an index of its log if none can be made.

        Nobody writes a store that has neither a log nor an index.
        """
        if self.log.exists() or self.index.exists() or os.access(self.path.parent, os.W_OK):
            return "mode=ro"
        return "immutable=1"

    def was_closed(self, token: str) -> bool:
        """Return whether the owner with this token has closed it: see `session`."""
        with self._looking() as connection:
            text = "SELECT 1 FROM meta WHERE key = 'closed' AND value = ?"
            return connection.execute(text, (token,)).fetchone() is not None

    def require_log(self) -> None:
        """Refuse a store that was not closed and whose log is gone."""
        if not self.has_log:
            what = "empty" if self.log.exists() else "missing"
            msg = (
                f"{self.path} was not closed, and its log {self.log} is {what}: the last "
                "commits may be lost with it. Put the log back, or restore a backup (and remove "
                f"{self.path}.lock then); check=False opens it as it is"
            )
            raise StoreBroken(msg)

    def remember(self) -> None:
        """Record which files were opened, for `require_same`. The log must be there."""
        self._open = self._identities()
        if _FOLDER is not None:
            with suppress(OSError):  # it may be written and not read
                self._folder = os.open(self.path.parent, _FOLDER)

    def forget(self) -> None:
        """Close what `remember` has opened."""
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def require_same(self) -> None:
        """Refuse to write files that were removed or replaced since they were opened.

        SQLite would go on writing them, and all of that would be gone with this process. Without
        the lock file, another engine could open the store meanwhile.

        Each of these changes the time of the folder. While that is the same, one look at it is
        enough, which takes a fifth of the time.

        Raises:
            StoreBroken: they were.

        """
        if self._folder is not None:
            changed = os.fstat(self._folder).st_mtime_ns
            if changed == self._looked_at:
                return
            # Another change may get the same time, as long as that is not over.
            over = changed + (_TICK if changed % _SECOND else 3 * _SECOND)
            self._looked_at = changed if time.time_ns() > over else 0
        if not self.is_same():
            msg = (
                f"{self.path}, its log {self.log} or its lock file was removed or replaced while "
                "it was open, so nothing more is stored; close the engine, and put the "
                "missing file back or restore a backup"
            )
            raise StoreBroken(msg)

    def is_same(self) -> bool:
        """Return whether these are still the files that were opened."""
        try:
            return self._identities() == self._open
        except OSError:
            return False

    def _identities(self) -> list[tuple[int, int]]:
        return [(found.st_dev, found.st_ino) for found in map(os.stat, self._names)]

    def quick_check(self) -> None:
        """Refuse a file whose structure is damaged. O(n): some 500 MB/s."""
        with self._looking() as connection:
            (size,) = connection.execute("PRAGMA page_size").fetchone()
            if not self.has_log and self.path.stat().st_size % size:
                verdict = "its end is missing"  # SQLite would read zeros
            else:
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                msg = f"{self.path} is damaged ({verdict}); restore a backup"
                raise StoreBroken(msg)

    @contextmanager
    def _looking(self) -> Iterator[sqlite3.Connection]:
        """Open a connection that leaves no trace if the block raises.

        Where there is a log, the store may be open elsewhere: then it is read with all locks.
        """
        had_index = self.index.exists()
        sound = False
        connection = self.connect("mode=ro" if self.has_log else "immutable=1")
        try:
            yield connection
            sound = True
        finally:
            connection.close()
            if not sound and not had_index:
                self.index.unlink(missing_ok=True)

    # Making.

    def create(self, *, sync: bool) -> None:
        """Make a new store under another name first: a crash never leaves half of one."""
        if self.log.exists():
            msg = f"{self.path} is missing, but its log {self.log} is there: restore a backup"
            raise StoreBroken(msg)
        draft = Path(f"{self.path}.new")
        leftovers = [draft, *(Path(f"{draft}{end}") for end in ("-wal", "-shm", "-journal"))]
        for left in leftovers:
            left.unlink(missing_ok=True)
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(
                    f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION}; "
                    f"PRAGMA user_version = {VERSION}; COMMIT; PRAGMA wal_checkpoint(TRUNCATE);"
                )
            draft.rename(self.path)
            if sync:
                sync_folder(self.path.parent)
        except (sqlite3.DatabaseError, OSError) as error:
            for left in leftovers:
                with suppress(OSError):
                    left.unlink(missing_ok=True)
            msg = f"{self.path} cannot be made: {error}. Make room"
            raise StoreFull(msg) from error

    # Errors.

    def explain(self, error: sqlite3.Error | UnicodeDecodeError, needed: int = _ROOM) -> Exception:
        """Translate an error of SQLite into one of the engine's.

        `needed` is about how many bytes were to be written.
        """
        code = getattr(error, "sqlite_errorcode", 0)
        basic = code & 0xFF
        undecoded = isinstance(error, sqlite3.OperationalError) and not code
        if isinstance(error, UnicodeDecodeError) or undecoded or basic in _TORN:
            return StoreBroken(f"{self.path} is damaged ({error}); restore a backup")
        if basic in _NOT_ALLOWED or (
            basic == sqlite3.SQLITE_CANTOPEN and not os.access(self.path.parent, os.W_OK)
        ):
            msg = (
                f"{self.path} cannot be written: {error}; see the permissions of it and its folder"
            )
            return StoreRefused(msg)
        if basic in _DISK:
            full = self._lacks_room(code, needed)
            advice = "Make room" if full else "See the log of the system"
            msg = f"{self.path}: {error}; nothing of this is stored. {advice}"
            return StoreFull(msg) if full else StoreRefused(msg)
        if basic in _BUSY:
            return StoreRefused(f"{self.path}: {error}; another program writes it. Make it stop")
        if basic in _UNSUITABLE or isinstance(error, sqlite3.ProgrammingError):
            return StoreConflict(f"{self.path}: a row cannot be stored: {error}")
        return StoreRefused(f"{self.path}: {error}")

    @staticmethod
    def leaves_doubt(error: sqlite3.Error | MemoryError) -> bool:
        """Return whether a commit that raised this may have reached the disk."""
        if isinstance(error, MemoryError):
            return True
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _IN_DOUBT

    def _lacks_room(self, code: int, needed: int) -> bool:
        """Return whether an error means that the disk, the quota or the largest file is full.

        SQLite reports only the first of these as such, so this tries to write.
        """
        if code == sqlite3.SQLITE_FULL:
            return True
        if code in _SYNCS or code == sqlite3.SQLITE_IOERR_READ:
            return False
        try:
            sizes = [path.stat().st_size for path in (self.path, self.log) if path.exists()]
            with tempfile.TemporaryFile(dir=self.path.parent, buffering=0) as probe:
                # The file system allocates nothing for the bytes before this position.
                probe.seek(max(max(sizes, default=0) + needed - _ROOM, 0))
                return probe.write(bytes(_ROOM)) < _ROOM
        except OSError as failure:
            return failure.errno in _NO_ROOM
