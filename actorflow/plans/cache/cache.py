"""The cache of plans: a folder of results by key, and the seam to the scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from actorflow.behaviours.errors import brief
from actorflow.plans.cache import reasons
from actorflow.plans.cache.fingerprint.components import Component, ComponentKind
from actorflow.plans.cache.index import Index
from actorflow.plans.cache.key import Description, Keys
from actorflow.plans.cache.objects import Objects
from actorflow.plans.cache_protocol import Hit, Miss
from actorflow.plans.errors import BadCache
from actorflow.plans.results import InlineResult, MapResult, SpilledResult

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from actorflow.plans.cache_protocol import JobSpec
    from actorflow.plans.results import Value

__all__ = ["FolderCache"]

_STALE = 86_400.0  # seconds after which nobody writes to a file any more
_INDEX, _OBJECTS, _IGNORE = "index.db", "objects", ".gitignore"
_OURS = {_INDEX, f"{_INDEX}-wal", f"{_INDEX}-shm", f"{_INDEX}-journal", _OBJECTS, _IGNORE}


class _ResultFiles(msgspec.Struct, frozen=True, array_like=True):
    """Where a result is: one file, or those of the parts of a map."""

    content: str
    """The digest of the file; empty for parts."""
    digest: str
    size: int = 0
    spilled: bool = False
    parts: tuple[_ResultFiles, ...] | None = None
    code: tuple[str, ...] = ()


class FolderCache:
    """Results of jobs in a folder, found by what the jobs depend on.

    Use one for each run. Not thread-safe, but may be used by one thread after another; several
    processes may use one folder. `force` runs everything, and stores it again.

    Raises:
        BadCache: the folder holds something else, or its index is damaged.

    """

    def __init__(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        try:
            self.folder = Path(folder).absolute()
        except TypeError:
            msg = f"cache={brief(folder)} is not a path: name a folder, as in cache='.cache'"
            raise BadCache(msg) from None
        self._force = force
        self._keys = Keys()
        self._pending: dict[str, Description] = {}
        now = _prepare(self.folder)
        self._objects = Objects(self.folder / _OBJECTS)
        self._objects.sweep(now - _STALE)
        self._index = Index(self.folder / _INDEX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the index. Results that were handed out stay where they are."""
        self._index.close()

    def lookup(self, job: JobSpec, inputs: Mapping[str, Value]) -> Hit | Miss:
        """Return the stored result of a job, or why it has to run.

        Reads the whole result, to see that it is intact.
        """
        if not job.cache:
            return Miss(reasons.NOT_CACHED)
        description = self._keys.describe(job, inputs)
        if description.unstable:
            return Miss(reasons.describe_unstable(description.unstable))
        key = description.key
        found = Miss(reasons.FORCED, key) if self._force else self._find(job.name, key, description)
        if isinstance(found, Miss):
            self._pending[job.name] = description
        return found

    def predict(self, job: JobSpec, inputs: Mapping[str, Value], pending: Sequence[str]) -> str:
        """Return why a job would run, some of whose inputs are `pending`: not known yet."""
        if not job.cache:
            return reasons.NOT_CACHED
        description = self._keys.describe(job, inputs)
        if description.unstable:
            return reasons.describe_unstable(description.unstable)
        if self._force:
            return reasons.FORCED
        seen = self._index.seen(job.name)
        if seen is None:
            return reasons.NEVER_RAN
        before = dict(seen.components)
        for name in pending:
            before.pop(Component(ComponentKind.INPUT, name), None)
        changes = reasons.describe_changes(before, description.components)
        return changes or reasons.describe_pending(pending)

    def store(self, job: JobSpec, key: str, value: Value) -> None:
        """Keep a result under the key that `lookup` has given."""
        description = self._pending.pop(job.name)
        stored = self._put(value)
        self._index.add(job.name, key, msgspec.msgpack.encode(stored), description)

    def _find(self, name: str, key: str, description: Description) -> Hit | Miss:
        row = self._index.result(key)
        if row is None:
            return Miss(self._why(name, key, description), key)
        value = self._get(msgspec.msgpack.decode(row, type=_ResultFiles))
        if value is None:
            self._index.remove(key)
            return Miss(reasons.DAMAGED, key)
        if self._index.last_key(name) != key:
            self._index.remember(name, key, description)
        return Hit(value, reasons.UP_TO_DATE)

    def _why(self, name: str, key: str, description: Description) -> str:
        seen = self._index.seen(name)
        if seen is None:
            return reasons.NEVER_RAN
        changes = reasons.describe_changes(seen.components, description.components)
        return changes or reasons.GONE

    # --- results ----------------------------------------------------------------

    def _put(self, value: Value) -> _ResultFiles:
        if isinstance(value, MapResult):
            parts = tuple(map(self._put, value.parts))
            return _ResultFiles("", value.digest, parts=parts)
        if isinstance(value, SpilledResult):
            content = self._objects.put_file(value.path)
            digest = value.digest or content
            return _ResultFiles(content, digest, value.size, spilled=True, code=value.code)
        content = self._objects.put(value.data)
        return _ResultFiles(content, value.digest or content, value.size, code=value.code)

    def _get(self, stored: _ResultFiles) -> Value | None:
        """Return a stored result; `None` if a file of it is gone or damaged."""
        if stored.parts is not None:
            parts = []
            for each in stored.parts:
                part = self._get(each)
                if part is None:
                    return None
                parts.append(part)
            return MapResult(tuple(parts), stored.digest)
        if stored.spilled:
            if not self._objects.intact(stored.content):
                return None
            path = self._objects.path(stored.content)
            return SpilledResult(path, stored.size, stored.digest, stored.code)
        data = self._objects.get(stored.content)
        return None if data is None else InlineResult(data, stored.digest, stored.code)


def _prepare(folder: Path) -> float:
    """Make a folder ready; return the time now, by the clock of its file system."""
    if folder.exists() and not folder.is_dir():
        raise BadCache(f"{folder} is a file: name a folder for the cache")
    folder.mkdir(parents=True, exist_ok=True)
    others = sorted(each.name for each in folder.iterdir() if each.name not in _OURS)
    if others:
        msg = f"{folder} holds {others[0]!r}, so it is not a cache: name a new or empty folder"
        raise BadCache(msg)
    ignore = folder / _IGNORE
    ignore.write_text("*\n", encoding="utf-8")
    return ignore.stat().st_mtime
