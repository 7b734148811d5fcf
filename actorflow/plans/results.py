"""What a job has returned, as the scheduler knows it: bytes, a file, or a list of these.

The scheduler never unpickles a result. A small one is kept as bytes; a large one stays in the file
that the worker has written, and the next worker reads it from there.
"""

from __future__ import annotations

import pickle
from typing import Any, TypeAlias

import msgspec

from actorflow.plans.result_files import open_file

__all__ = ["InlineResult", "MapResult", "SpilledResult", "Value", "load"]


class InlineResult(msgspec.Struct, frozen=True, tag="i", array_like=True):
    """A small result: its pickle."""

    data: bytes
    digest: str = ""
    """Hash of the pickle, where the run has a cache."""
    code: tuple[str, ...] = ()
    """The functions, classes and modules that the pickle names, where the run has a cache."""

    @property
    def size(self) -> int:
        """Bytes of the pickle."""
        return len(self.data)

    def read(self) -> bytes:
        """Return the pickle."""
        return self.data


class SpilledResult(msgspec.Struct, frozen=True, tag="s", array_like=True):
    """A large result: the file that holds its pickle."""

    path: str
    """The path of a file, or a URL for fsspec."""
    size: int
    digest: str = ""
    """Hash of the pickle, where the run has a cache."""
    code: tuple[str, ...] = ()
    """The functions, classes and modules that the pickle names, where the run has a cache."""

    def read(self) -> bytes:
        """Return the pickle; it is read from the file."""
        with open_file(self.path) as file:
            return file.read()


class MapResult(msgspec.Struct, frozen=True, tag="g", array_like=True):
    """The results of the jobs of a map, in order."""

    parts: tuple[InlineResult | SpilledResult | MapResult, ...]
    digest: str = ""
    """Hash of the digests of the parts, where the run has a cache."""

    @property
    def code(self) -> tuple[str, ...]:
        """The functions, classes and modules that the pickles of the parts name."""
        return tuple(sorted({each for part in self.parts for each in part.code}))

    @property
    def size(self) -> int:
        """Bytes of the pickles of all parts."""
        return sum(part.size for part in self.parts)

    def read(self) -> bytes:
        """Return the pickle of the list."""
        return pickle.dumps(load(self), pickle.HIGHEST_PROTOCOL)


Value: TypeAlias = InlineResult | SpilledResult | MapResult


def load(value: Value) -> Any:
    """Return the result itself. Runs user code; costs a read if the result is spilled to a file.

    >>> load(MapResult((InlineResult(pickle.dumps(1)), InlineResult(pickle.dumps("a")))))
    [1, 'a']
    """
    if isinstance(value, MapResult):
        return [load(part) for part in value.parts]
    if isinstance(value, InlineResult):
        return pickle.loads(value.data)  # noqa: S301 - written by our own worker
    with open_file(value.path) as file:
        return pickle.load(file)  # noqa: S301 - written by our own worker
