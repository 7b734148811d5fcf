"""The write-ahead log as a file: room ahead of the commits, and the end of a commit that failed.

Room ahead
    A sync of a file that has grown also syncs the journal of the file system, which takes about as
    long again. SQLite writes its log from the beginning once all of it was moved into the store,
    and from then on commits do not extend the file. `make_room` does this from the start. Zeros
    after the last commit are not a valid frame, so SQLite ignores them.

A commit that failed
    If a write or a sync of a commit fails, SQLite rolls it back, but its frames may be complete in
    the file. Later connections do not see them as long as the index of the log (`-shm`) is valid.
    After a crash, SQLite rebuilds the index from the log and takes the frames for a commit. So the
    caller must not learn that nothing is stored before `withdraw` has destroyed the first of these
    frames and synced that. Frames after an invalid one are invalid too, because checksums are
    chained.

    The index is opened with SQLite's own locks in mind: closing a file drops all locks that the
    process has on it, so it stays open until the connections are closed.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from actorflow.engine.stores.sqlite.file import StoreFile

__all__ = ["CommitLog"]

_LEAST = 64 * 1024
_MOST = 1024 * 1024  # bytes of zeros that one commit has to sync as well
_HEADER = 32  # bytes before the first frame
_FRAME = 24  # bytes before the page of each frame
_COUNT = slice(16, 20)  # of the index: the number of committed frames, in the byte order of the CPU
_INDEX_HEADER = 48  # bytes; the index begins with two copies of it
_BINARY = getattr(os, "O_BINARY", 0)


class CommitLog:
    """The log of a store that is open for writing. One thread.

    SQLite locks other files, never this one, so it may be opened and closed by hand.

    Args:
        file: the store, whose log must be there.
        connection: the one that writes it.
        ahead: extend the log before commits need it.
        synced: whether commits are synced.

    """

    def __init__(
        self, file: StoreFile, connection: sqlite3.Connection, *, ahead: bool, synced: bool
    ) -> None:
        self._connection = connection
        self._ahead = ahead
        self._synced = synced
        (self._page_size,) = connection.execute("PRAGMA page_size").fetchone()
        self._index_path = file.index
        self._index: int | None = None
        self._unsynced = False  # a withdrawal that was written and not synced
        self._number = os.open(file.log, os.O_RDWR | _BINARY)
        self._end = os.lseek(self._number, 0, os.SEEK_END)

    def use(self, connection: sqlite3.Connection) -> None:
        """Continue with another connection."""
        self._connection = connection

    def make_room(self) -> None:
        """Make the log longer if commits have used up its room. Call it before each commit.

        Where there is no room on the disk, the log stays as it is, and the commit finds out.

        Raises:
            sqlite3.Error: another program writes the store.

        """
        if not self._ahead:
            return
        end = os.lseek(self._number, 0, os.SEEK_END)
        if end <= self._end:
            self._end = end
            return
        self._connection.execute("BEGIN IMMEDIATE")  # so that nobody else appends to it
        try:
            end = os.lseek(self._number, 0, os.SEEK_END)
            self._end = end + self._append(min(max(end, _LEAST), _MOST))
        except OSError:
            self._end = end
            with suppress(OSError):
                os.ftruncate(self._number, end)
        finally:
            self._connection.execute("ROLLBACK")

    def _append(self, count: int) -> int:
        done = 0
        while done < count:
            done += os.write(self._number, bytes(count - done))
        return done

    def withdraw(self) -> None:
        """Make sure that a commit which has failed is never found in the log.

        Raises:
            sqlite3.Error: another program writes the store, or it cannot be read.
            OSError: the log cannot be written or synced.

        """
        self._connection.execute("BEGIN IMMEDIATE")  # so that nobody else appends to it
        try:
            start = _HEADER + self._committed_frames() * (_FRAME + self._page_size)
            os.lseek(self._number, start, os.SEEK_SET)
            found = os.read(self._number, _FRAME)
            if found.strip(b"\0"):
                os.lseek(self._number, start, os.SEEK_SET)
                self._unsynced = self._synced
                os.write(self._number, bytes(len(found)))
            if self._unsynced:
                os.fsync(self._number)
                self._unsynced = False
        finally:
            with suppress(Exception):
                self._connection.execute("ROLLBACK")

    def _committed_frames(self) -> int:
        if self._index is None:
            self._index = os.open(self._index_path, os.O_RDONLY | _BINARY)
        os.lseek(self._index, 0, os.SEEK_SET)
        header = os.read(self._index, 2 * _INDEX_HEADER)
        if header[:_INDEX_HEADER] != header[_INDEX_HEADER:]:
            msg = f"{self._index_path} is being changed by another program"
            raise OSError(msg)
        return int.from_bytes(header[_COUNT], sys.byteorder)

    def close(self) -> None:
        """Close the log. Before SQLite removes it, which it cannot do on Windows otherwise."""
        os.close(self._number)

    def close_index(self) -> None:
        """Close the index. After all connections of this process."""
        if self._index is not None:
            os.close(self._index)
            self._index = None
