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
    from pathlib import Path

__all__ = ["Objects"]

_CHUNK = 1 << 20


class Objects:
    """A folder of results. Safe to use from several processes at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Return where a result is, or would be."""
        return self._folder / digest[:2] / digest[2:]

    def put(self, data: bytes) -> str:
        """Keep bytes; return their digest."""
        digest = digest_of(data)
        if not self.intact(digest):
            with self._new(digest) as new:
                new.write_bytes(data)
        return digest

    def put_file(self, source: Path) -> str:
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
            data = self.path(digest).read_bytes()
        except OSError:
            return None
        return data if digest_of(data) == digest else None

    def intact(self, digest: str) -> bool:
        """Return whether a result is there, and is what its name says. Reads it."""
        path = self.path(digest)
        try:
            return _digest_of_file(path) == digest
        except OSError:
            return False

    @contextlib.contextmanager
    def _new(self, digest: str) -> Iterator[Path]:
        """Yield where to write a file, which takes its place when it is complete."""
        place = self.path(digest)
        place.parent.mkdir(exist_ok=True)
        new = self._folder / f".new-{uuid.uuid4().hex}"
        try:
            yield new
            new.replace(place)
        finally:
            new.unlink(missing_ok=True)


def _digest_of_file(path: Path) -> str:
    made = blake2b(digest_size=20)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            made.update(chunk)
    return made.hexdigest()
