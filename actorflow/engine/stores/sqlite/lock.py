"""A lock on a file, which the operating system drops when its owner dies, however it dies.

The file says who has it, for people to read, and a note of its owner's for whoever comes next.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from actorflow.engine.errors import StoreBroken, StoreBusy

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FileLock", "sync_folder"]

_WIDTH = 40  # of the text in a lock file

if sys.platform == "win32":
    import msvcrt

    # Windows locks bytes, and nobody else can read a locked one: so it is one behind the text.
    _BYTE = 1 << 30

    def _lock(number: int) -> None:
        os.lseek(number, _BYTE, os.SEEK_SET)
        msvcrt.locking(number, msvcrt.LK_NBLCK, 1)

    def _unlock(number: int) -> None:
        os.lseek(number, _BYTE, os.SEEK_SET)
        msvcrt.locking(number, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(number: int) -> None:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(_number: int) -> None:
        """Do nothing: closing it is enough. A forked child must not unlock what its parent has."""


class FileLock:
    """Keeps a second writer away from a file, also one in the same process.

    Args:
        path: what is locked; the lock itself is the file `PATH.lock`, which stays.

    Raises:
        StoreBusy: somebody else has it.
        StoreBroken: the lock file cannot be made.

    """

    def __init__(self, path: Path) -> None:
        try:
            self._number = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            msg = f"{path} cannot be opened: {error.strerror}"
            raise StoreBroken(msg) from error
        try:
            _lock(self._number)
        except OSError:
            owner, _ = self._read()
            os.close(self._number)
            msg = (
                f"{path} is open for writing in another engine (process {owner or 'unknown'}); "
                "close that one, or open this one to look only"
            )
            raise StoreBusy(msg) from None
        _, self.note = self._read()
        """What the last owner has noted; empty if nothing is known of it."""
        self._write()

    def _read(self) -> tuple[str, str]:
        os.lseek(self._number, 0, os.SEEK_SET)
        owner, _, note = os.read(self._number, _WIDTH).decode(errors="replace").partition(" ")
        return owner.strip(), note.strip()

    def _write(self, *, sync: bool = False) -> None:
        """Write all of it, always as long: a power cut leaves the old text or the new one."""
        text = f"{os.getpid()} {self.note}".ljust(_WIDTH - 1) + "\n"
        with suppress(OSError):  # no room: it is only there to be read
            os.lseek(self._number, 0, os.SEEK_SET)
            os.write(self._number, text.encode())
            if sync:
                os.fsync(self._number)

    def leave_note(self, note: str) -> None:
        """Write a note for the next owner; it outlives a power cut."""
        if note != self.note:
            self.note = note
            self._write(sync=True)

    def release(self) -> None:
        """Let others have it."""
        _unlock(self._number)
        os.close(self._number)


def sync_folder(folder: Path) -> None:
    """See to it that a file just renamed is there after a power cut.

    Where folders cannot be opened, as on Windows, that is left to the file system.
    """
    directory = getattr(os, "O_DIRECTORY", None)
    if directory is None:
        return
    number = os.open(folder, os.O_RDONLY | directory)
    try:
        os.fsync(number)
    finally:
        os.close(number)
