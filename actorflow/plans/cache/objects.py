"""Results as files, each named by the digest of its content.

A file is written beside its place and moved there whole, so that a crash leaves no half of one,
and two runs that write the same result do not disturb each other. It is not synced: after a
power failure a file may be damaged, which its name shows.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from hashlib import blake2b
from typing import TYPE_CHECKING

from actorflow.plans.cache.fingerprint.components import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Objects"]

_CHUNK = 1 << 20
_NEW = ".new-"


class Objects:
    """A folder of results. Safe to use from several processes at once.

    Paths are strings here: a `Path` for each job would cost more than the hash of its result.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        os.makedirs(self._folder, exist_ok=True)  # noqa: PTH103 - see the class

    def path(self, digest: str) -> str:
        """Return where a result is, or would be."""
        return f"{self._folder}/{digest[:2]}/{digest[2:]}"

    def put(self, data: bytes) -> str:
        """Keep bytes; return their digest."""
        digest = digest_of(data)
        if self.get(digest) is None:
            with self._new(digest) as new, open(new, "xb") as file:  # noqa: PTH123 - see the class
                file.write(data)
        return digest

    def put_file(self, source: str) -> str:
        """Keep a copy of a file; return the digest of its content. Shares the disk if it can."""
        digest = _digest_of_file(source)
        if self.intact(digest):
            return digest
        with self._new(digest) as new:
            try:
                os.link(source, new)
            except OSError:  # another file system, or one without hard links
                shutil.copyfile(source, new)
        return digest

    def get(self, digest: str) -> bytes | None:
        """Return the bytes of a digest; `None` if they are gone or damaged."""
        try:
            with open(self.path(digest), "rb") as file:  # noqa: PTH123 - see the class
                data = file.read()
        except OSError:
            return None
        return data if digest_of(data) == digest else None

    def intact(self, digest: str) -> bool:
        """Return whether a result is there, and is what its name says. Reads it."""
        try:
            return _digest_of_file(self.path(digest)) == digest
        except OSError:
            return False

    def sweep(self, before: float) -> None:
        """Delete what killed runs have left half-written before a moment, in seconds since 1970."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                # Another run may put it in its place meanwhile, or sweep as well.
                with contextlib.suppress(FileNotFoundError):
                    if entry.name.startswith(_NEW) and entry.stat().st_mtime < before:
                        os.unlink(entry.path)  # noqa: PTH108 - see the class

    @contextlib.contextmanager
    def _new(self, digest: str) -> Iterator[str]:
        """Yield where to write a file, which takes its place when it is complete."""
        new = f"{self._folder}/{_NEW}{uuid.uuid4().hex}"
        try:
            yield new
            place = self.path(digest)
            try:
                os.replace(new, place)  # noqa: PTH105 - see the class
            except FileNotFoundError:
                os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120 - the same
                os.replace(new, place)  # noqa: PTH105
        finally:
            # Still there after an error, and if it was another name of the file in its place.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)  # noqa: PTH108 - see the class


def _digest_of_file(path: str) -> str:
    made = blake2b(digest_size=20)
    with open(path, "rb") as file:  # noqa: PTH123 - see the class
        while chunk := file.read(_CHUNK):
            made.update(chunk)
    return made.hexdigest()
