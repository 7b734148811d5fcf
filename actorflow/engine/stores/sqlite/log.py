"""Room in the log ahead of the commits, so that a commit writes where the file has been written.

A sync of a file that has grown syncs the file system's own log, too, which takes about as long
again. SQLite writes its log from the beginning once all of it was moved into the store, and then
no commit makes it grow. This makes it so from the start. What follows the last commit in a log is
no valid frame, and SQLite stops there, be it zeros or what an earlier round has left.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

__all__ = ["Log"]

_LEAST = 64 * 1024
_MOST = 1024 * 1024  # bytes of zeros that one commit has to sync as well


class Log:
    """The log of a store that is open for writing. One thread.

    SQLite locks other files, never this one, so that it may be opened and closed by hand.

    Args:
        path: the log, which must be there.
        connection: the one that writes it.

    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._number = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        self._end = os.lseek(self._number, 0, os.SEEK_END)

    def make_room(self) -> None:
        """Make the log longer if commits have used up its room. Call it before each commit.

        Where there is no room on the disk, the log stays as it is, and the commit finds out.

        Raises:
            sqlite3.Error: another program writes the store.

        """
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

    def close(self) -> None:
        """Close the file. Before SQLite removes it, which it cannot do on Windows otherwise."""
        os.close(self._number)
