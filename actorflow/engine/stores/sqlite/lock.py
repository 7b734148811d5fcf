"""A lock on a file, which the operating system drops when its owner dies, however it dies.

The file says who has it, for people to read, and whether the store was closed, for the next owner.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING

from actorflow.engine.errors import StoreBroken, StoreBusy, StoreFull, StoreRefused
from actorflow.engine.stores.protocol import TrialNote
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FileLock", "Note", "sync_folder"]

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOTE = 1_024  # bytes of a note about a trial, behind that text
_WIDTH = 40  # of the text in a lock file


class Note(StrEnum):
    """What an owner has left for the next one."""

    OPEN = "open"
    """It has not closed the store, whose log must be there."""
    LOGGED = "logged"
    """It has closed the store while a reader was connected, so the log must be there."""
    CLOSING = "closing"
    """It was closing the store: the log is there, or has been moved into the file."""
    CLOSED = "closed"


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

    The kernel drops the lock when its owner dies. A forked child of the owner does not inherit it.

    Args:
        path: the file to be locked, with all symbolic links resolved; the lock itself is the file
            `PATH.lock`, which stays.

    Raises:
        StoreBusy: another process has it.
        StoreRefused: the lock file must not be written.
        BadOption: there is no such folder.
        StoreBroken: the lock file cannot be made.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._number = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except PermissionError as error:
            msg = f"{path}.lock cannot be written: {error.strerror}; a store needs it"
            raise StoreRefused(msg) from error
        except OSError as error:
            if error.errno == errno.EROFS:
                msg = f"{path}.lock cannot be written: {error.strerror}; a store needs it"
                raise StoreRefused(msg) from error
            if error.errno in _NO_ROOM:
                msg = f"{path}.lock cannot be made: {error.strerror}. Make room"
                raise StoreFull(msg) from error
            if error.errno in {errno.ENOENT, errno.ENOTDIR}:
                msg = f"there is no folder {path.parent} for the store {path.name}: create it first"
                raise BadOption(msg) from error
            msg = f"{path} cannot be opened: {error.strerror}"
            raise StoreBroken(msg) from error
        try:
            _lock(self._number)
        except OSError:
            owner = self._read()[0]
            os.close(self._number)
            msg = (
                f"{path} is open for writing in another engine (process {owner or 'unknown'}); "
                "close that one first; actorflow ps and export read the store meanwhile"
            )
            raise StoreBusy(msg) from None
        _, note, self.last_token = self._read()
        """The token of the last owner."""
        self.token = self.last_token
        self.left_open = note == Note.OPEN
        """Whether the last owner ended without closing it."""
        self.needs_log = note in {Note.OPEN, Note.LOGGED}
        """Whether the log of the last owner must be there."""
        self._note = note
        with suppress(OSError):  # it is only of interest to people
            self._write()

    def _read(self) -> tuple[str, str, str]:
        os.lseek(self._number, 0, os.SEEK_SET)
        owner, note, token, *_ = [
            *os.read(self._number, _WIDTH).decode(errors="replace").split(), "", "", "",
        ]  # fmt: skip
        return owner, note, token

    def _write(self, *, sync: bool = False) -> None:
        """Write all of it, always as long: a power cut leaves the old text or the new one."""
        text = f"{os.getpid()} {self._note} {self.token}".ljust(_WIDTH - 1) + "\n"
        os.lseek(self._number, 0, os.SEEK_SET)
        os.write(self._number, text.encode())
        if sync:
            os.fsync(self._number)

    def open(self, *, sync: bool) -> None:
        """Record that the store is open, with a new token. Synced so that it survives a power cut.

        Raises:
            StoreFull: there is no room for the note.
            StoreRefused: it cannot be written.

        """
        self._note, self.token = Note.OPEN, os.urandom(4).hex()
        try:
            self._write(sync=sync)
        except OSError as error:
            refusal = StoreFull if error.errno in _NO_ROOM else StoreRefused
            raise refusal(f"{self._path}.lock cannot be written: {error.strerror}") from error

    def mark(self, note: Note, *, sync: bool) -> None:
        """Leave a note for the next owner.

        If it cannot be written, the next owner finds the token in the store.
        """
        if note != self._note:
            self._note = note
            with suppress(OSError):
                self._write(sync=sync)

    def note_trial(self, note: TrialNote | None) -> None:
        """Write a note after the text. A kill leaves all of it, because it is one call."""
        text = b"" if note is None else json.dumps(note).encode()
        with suppress(OSError):  # then a death does not count
            os.lseek(self._number, _WIDTH, os.SEEK_SET)
            os.write(self._number, text[:_NOTE].ljust(_NOTE))

    def last_trial(self) -> TrialNote | None:
        """Return the note."""
        try:
            os.lseek(self._number, _WIDTH, os.SEEK_SET)
            text = os.read(self._number, _NOTE)
            return TrialNote(*json.loads(text)) if text.strip() else None
        except (OSError, ValueError, TypeError):  # too long, or not complete
            return None

    def release(self) -> None:
        """Release the lock."""
        _unlock(self._number)
        os.close(self._number)

    def disown(self) -> None:
        """Close the descriptor in a forked child: the lock stays with the parent."""
        with suppress(OSError):
            os.close(self._number)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a file just renamed in it is there after a power cut.

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
