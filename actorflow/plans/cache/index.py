"""Which result belongs to which key, and what each job depended on when it was last seen.

One SQLite file. Every statement is a transaction of its own, so several runs may share it, and
a run that is killed leaves nothing half-written.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from actorflow.plans.cache.fingerprint.components import Component, ComponentKind
from actorflow.plans.errors import BadCache

if TYPE_CHECKING:
    from pathlib import Path

    from actorflow.plans.cache.fingerprint.components import Components
    from actorflow.plans.cache.key import Description

__all__ = ["Index", "LastSeen"]

_VERSION = 2
_PATIENCE = 60.0  # seconds to wait for another run that writes
_SCHEMA = """
CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS codes (digest TEXT PRIMARY KEY, components BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobs (
  name TEXT PRIMARY KEY, key TEXT NOT NULL, code TEXT NOT NULL, components BLOB NOT NULL
) WITHOUT ROWID;
"""
_REMEMBER = "INSERT OR REPLACE INTO jobs (name, key, code, components) VALUES (?, ?, ?, ?)"


class LastSeen(NamedTuple):
    """A job as it was when it was last run or found up to date."""

    key: str
    components: Components


class Index:
    """The index of a cache. Not thread-safe, but may be used by one thread after another.

    Raises:
        BadCache: the file is not one of ours, is damaged, or is of another version.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._open(path)
        except sqlite3.DatabaseError as error:
            raise BadCache(f"{path} cannot be used ({error}): {_REMEDY}") from error

    def _open(self, path: Path) -> None:
        self._connection = sqlite3.connect(
            path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        execute = self._connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        version = execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            self.close()
            raise BadCache(f"{path} is of version {version}, this is {_VERSION}: {_REMEDY}")
        if not version:
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;"
            )
        self._codes = {digest for (digest,) in execute("SELECT digest FROM codes")}

    def result(self, key: str) -> bytes | None:
        """Return the entry of a key."""
        row = self._row("SELECT value FROM results WHERE key = ?", key)
        return None if row is None else row[0]

    def add(self, job: str, key: str, value: bytes, description: Description) -> None:
        """Store a result, and what its job depends on."""
        self._execute("BEGIN IMMEDIATE")
        try:
            self._execute("INSERT OR REPLACE INTO results VALUES (?, ?)", key, value)
            self._remember(job, key, description)
        except BaseException:
            with suppress(sqlite3.Error):  # a damaged file: SQLite has rolled back already
                self._connection.execute("ROLLBACK")
            raise
        self._execute("COMMIT")

    def remove(self, key: str) -> None:
        """Forget a result."""
        self._execute("DELETE FROM results WHERE key = ?", key)

    def seen(self, job: str) -> LastSeen | None:
        """Return what a job depended on when it was last run or found up to date."""
        row = self._row(
            "SELECT jobs.key, jobs.components, codes.components FROM jobs"
            " LEFT JOIN codes ON codes.digest = jobs.code WHERE jobs.name = ?",
            job,
        )
        if row is None:
            return None
        key, own, code = row
        return LastSeen(key, {**_decoded(code), **_decoded(own)})

    def last_key(self, job: str) -> str | None:
        """Return the key of a job when it was last run or found up to date."""
        row = self._row("SELECT key FROM jobs WHERE name = ?", job)
        return None if row is None else row[0]

    def remember(self, job: str, key: str, description: Description) -> None:
        """Record what a job depends on, without a new result."""
        self._remember(job, key, description)

    def _remember(self, job: str, key: str, description: Description) -> None:
        code = description.code
        if code.digest not in self._codes:
            components = _encoded(code.components)
            self._execute("INSERT OR IGNORE INTO codes VALUES (?, ?)", code.digest, components)
            self._codes.add(code.digest)
        self._execute(_REMEMBER, job, key, code.digest, _encoded(description.own))

    def _row(self, statement: str, *values: Any) -> Any:
        """Return the first row of a query.

        Raises:
            BadCache: the file is damaged, or cannot be read.

        """
        return self._execute(statement, *values).fetchone()

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        try:
            return self._connection.execute(statement, values)
        except sqlite3.DatabaseError as error:
            raise BadCache(f"{self._path} cannot be used ({error}): {_REMEDY}") from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


_REMEDY = "delete the folder (all in it can be computed again), or name another one"


def _encoded(components: Components) -> bytes:
    return msgspec.msgpack.encode([(*each, digest) for each, digest in components.items()])


def _decoded(data: bytes | None) -> dict[Component, str]:
    if data is None:
        return {}
    rows = msgspec.msgpack.decode(data, type=list[tuple[ComponentKind, str, str]])
    return {Component(part, name): digest for part, name, digest in rows}
