"""What a job has returned, as the master knows it: bytes, a file, or a list of these.

The master never unpickles a result. A small one is kept as bytes; a large one stays in the file
that the worker has written, and the next worker reads it from there.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

__all__ = ["Gathered", "Inline", "Spilled", "Value", "load"]


class Inline(msgspec.Struct, frozen=True, tag="i", array_like=True):
    """A small result: its pickle."""

    data: bytes
    digest: str = ""
    """Hash of the pickle, where the run has a cache."""

    @property
    def size(self) -> int:
        """Bytes of the pickle."""
        return len(self.data)

    def read(self) -> bytes:
        """Return the pickle."""
        return self.data


class Spilled(msgspec.Struct, frozen=True, tag="s", array_like=True):
    """A large result: the file that holds its pickle."""

    path: str
    size: int
    digest: str = ""
    """Hash of the pickle, where the run has a cache."""

    def read(self) -> bytes:
        """Return the pickle; it is read from the file."""
        return Path(self.path).read_bytes()


class Gathered(msgspec.Struct, frozen=True, tag="g", array_like=True):
    """The results of the jobs of a map, in order."""

    parts: tuple[Inline | Spilled | Gathered, ...]
    digest: str = ""
    """Hash of the digests of the parts, where the run has a cache."""

    @property
    def size(self) -> int:
        """Bytes of the pickles of all parts."""
        return sum(part.size for part in self.parts)

    def read(self) -> bytes:
        """Return the pickle of the list."""
        return pickle.dumps(load(self), pickle.HIGHEST_PROTOCOL)


Value: TypeAlias = Inline | Spilled | Gathered


def load(value: Value) -> Any:
    """Return the result itself. Runs code of the user's classes; costs a read where it is spilled.

    >>> load(Gathered((Inline(pickle.dumps(1)), Inline(pickle.dumps("a")))))
    [1, 'a']
    """
    if isinstance(value, Gathered):
        return [load(part) for part in value.parts]
    if isinstance(value, Inline):
        return pickle.loads(value.data)  # noqa: S301 - written by our own worker
    with Path(value.path).open("rb") as file:
        return pickle.load(file)  # noqa: S301 - written by our own worker
