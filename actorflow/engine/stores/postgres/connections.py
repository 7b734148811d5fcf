"""Connections to one database, and what its errors mean."""

from __future__ import annotations

import os
import threading
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors

from actorflow.engine.errors import StoreBroken, StoreConflict, StoreFull, StoreRefused
from actorflow.engine.stores.postgres.arrays import register_arrays
from actorflow.engine.stores.postgres.schema import check_schema_name
from actorflow.runtime.errors import ActorflowError, BadOption

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from psycopg.waiting import Ready, Wait

    Waiting = Generator[Wait, Ready | int, Any]

__all__ = ["PostgresAddress", "PostgresReaders", "ServerSilent", "explain"]

_OWN = 3  # connections that are not for reading: one writes, one checks in, one listens
_UNUSED = 10.0  # seconds after which an idle connection is closed
_CROWDED = 30.0  # seconds to wait for one of the connections that others use
_PATIENCE = "10"  # seconds for a connection, unless the URL says otherwise
_SILENCE = 60.0  # seconds without a byte, after which a server counts as lost


_OURS = {
    "schema": "actorflow", "prepare": "on", "listen": "on", "poll": "2", "lease": "6",
    "connections": "10",
}  # fmt: skip


def _switch(given: dict[str, str], name: str) -> bool:
    if given[name] not in {"on", "off"}:
        msg = f"{name}={given[name]!r} in the URL of a store is neither 'on' nor 'off'"
        raise BadOption(msg)
    return given[name] == "on"


def _seconds(given: dict[str, str], name: str) -> float:
    try:
        value = float(given[name])
    except ValueError:
        value = 0.0
    if not 0.0 < value < inf:
        msg = f"{name}={given[name]!r} in the URL of a store is not a number of seconds, as in 2.5"
        raise BadOption(msg)
    return value


def _connections(given: dict[str, str]) -> int:
    text = given["connections"]
    if not (text.isdecimal() and int(text) > _OWN):
        msg = (
            f"connections={text!r} in the URL of a store is not a number above {_OWN}: one writes, "
            "one checks in, one listens, and the others read"
        )
        raise BadOption(msg)
    return int(text)


_ALIVE = {  # seconds, or milliseconds: a server that is cut off must not be waited for forever
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


class ServerSilent(psycopg.OperationalError):
    """A server is connected and silent, and was given up."""


class _Connection(psycopg.Connection[Any]):
    """A connection that does not wait forever: a frozen server stays connected and is silent."""

    abandoned: threading.Event | None = None
    """Set when nobody needs the answers any more."""

    def wait(self, gen: Waiting, *arguments: Any, **options: Any) -> Any:
        return super().wait(self._impatient(gen), *arguments, **options)

    def _impatient(self, gen: Waiting) -> Waiting:
        """Pass on what a generator waits for; give the connection up if nothing comes."""
        heard = monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = monotonic()
                else:  # every 0.1 s
                    self._require_hope(monotonic() - heard)
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _require_hope(self, silence: float) -> None:
        abandoned = self.abandoned is not None and self.abandoned.is_set()
        if abandoned or silence > _SILENCE:
            self.close()
            msg = f"the connection was given up: no answer from the server for {silence:.1f} s"
            raise ServerSilent(msg)


class PostgresAddress:
    """Where a store is: what the URL says, split into libpq's part and ours.

    Ours are `schema` (`actorflow`), `prepare` and `listen` (`on`; `off` behind a pooler that can
    keep no prepared statements, and no `LISTEN`), `poll` (seconds between two looks at what notices
    may have missed), `lease` (seconds after which a worker that is silent counts as dead) and
    `connections` (of one engine, at most).

    >>> address = PostgresAddress("postgresql://me@db/orders?schema=flows&sslmode=require")
    >>> address.schema, address.dsn
    ('flows', 'postgresql://me@db/orders?sslmode=require')

    Raises:
        BadOption: it cannot be read.

    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        given = dict(_OURS)
        rest = []
        for key, value in parse_qsl(parts.query, keep_blank_values=True):
            if key in given:
                given[key] = value
            else:
                rest.append((key, value))
        self.schema = check_schema_name(given["schema"])
        self.prepare = _switch(given, "prepare")
        self.listens = _switch(given, "listen")
        self.pooled = not (self.prepare and self.listens)
        """Whether a pooler may give out another connection for each transaction."""
        self.poll = _seconds(given, "poll")
        self.lease = _seconds(given, "lease")
        self.readers = _connections(given) - _OWN
        """How many connections may read at the same time."""
        self.dsn = urlunsplit(parts._replace(query=urlencode(rest, quote_via=quote)))
        self.shown = self._shown(self.dsn)
        """For messages: without the password."""
        self._abandoned = threading.Event()
        try:
            psycopg.conninfo.conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError as error:
            msg = f"{self.shown} cannot be read: {str(error).strip()}"
            raise BadOption(msg) from error

    @staticmethod
    def _shown(url: str) -> str:
        parts = urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        name = user.partition(":")[0]
        return urlunsplit(parts._replace(netloc=f"{name}{at}{host}", query=""))

    def abandon(self) -> None:
        """End every wait for an answer of the server, with an error, and connect no more."""
        self._abandoned.set()

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        """Open a connection.

        Raises:
            StoreRefused: the server cannot be reached, or denies access.

        """
        if self._abandoned.is_set():
            msg = f"{self.shown} did not answer while the store was being closed"
            raise StoreRefused(msg)
        given = {"connect_timeout": _PATIENCE, "application_name": "actorflow", **_ALIVE}
        given = {
            key: value
            for key, value in given.items()
            if key not in psycopg.conninfo.conninfo_to_dict(self.dsn)
        }
        try:
            connection = _Connection.connect(
                self.dsn,
                autocommit=autocommit,
                prepare_threshold=3 if self.prepare else None,
                **given,  # type: ignore[arg-type] # libpq takes texts
            )
        except psycopg.Error as error:
            raise explain(error, self) from error
        connection.abandoned = self._abandoned
        register_arrays(connection)
        return connection


def explain(error: Exception, address: PostgresAddress) -> ActorflowError:
    """Return an error of the database as one of the engine's."""
    text = " ".join(str(error).split())
    for kinds, words, made, why in _MEANINGS:
        if isinstance(error, kinds) and all(word in text for word in words):
            return made(f"{address.shown}{why}: {text}")
    return StoreRefused(f"{address.shown} refuses: {text}")


_MEANINGS: tuple[tuple[Any, tuple[str, ...], type[ActorflowError], str], ...] = (
    (errors.DiskFull, (), StoreFull, ": the server has no room on its disk"),
    (psycopg.OperationalError, ("password",), StoreRefused, " denies access"),
    (psycopg.OperationalError, ("role", "does not exist"), StoreRefused, " denies access"),
    (
        psycopg.OperationalError, ("database", "does not exist"), StoreRefused,
        ": there is no such database, create it first",
    ),
    (
        errors.InsufficientPrivilege, (), StoreRefused,
        ": a permission is missing (`actorflow cluster sql` prints what roles need)",
    ),
    (
        errors.ReadOnlySqlTransaction, (), StoreRefused,
        ": the server is read-only, perhaps a standby; add target_session_attrs=read-write",
    ),
    (
        (errors.UndefinedTable, errors.InvalidSchemaName), (), StoreBroken,
        ": tables of ours are gone, and with them what they held; restore a backup",
    ),
    (psycopg.DataError, (), StoreConflict, " cannot store a value"),
    (errors.ConnectionTimeout, (), StoreRefused, " cannot be reached"),
    (psycopg.OperationalError, ("connection",), StoreRefused, " cannot be reached"),
)  # fmt: skip
"""Classes of errors and words of their texts, what they are to the engine, and why. Errors of a
connection that could not be made have no class of their own."""


class PostgresReaders:
    """The reading side of a store: a pool of at most `address.readers` connections. Thread-safe.

    A thread that finds all of them in use waits for one.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._free = threading.Semaphore(address.readers)
        self._lock = threading.Lock()
        self._idle: list[tuple[psycopg.Connection[Any], float]] = []  # since when
        self._pid = os.getpid()
        self._closed = False

    def require_open(self) -> None:
        """Raise `StoreRefused` if the store is closed or belongs to the parent of a fork."""
        if self._closed:
            msg = f"{self._address.shown} is closed"
            raise StoreRefused(msg)
        if os.getpid() != self._pid:
            msg = (
                f"{self._address.shown} was opened before this process was forked from another; "
                "open the store in the process that uses it"
            )
            raise StoreRefused(msg)

    def read(self, text: bytes, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a statement that has a limit of its own.

        A connection that has been idle may be dead: then another one is tried, once.

        Raises:
            StoreRefused: the server cannot be reached, or all connections are in use for too long.

        """
        self.require_open()
        if not self._free.acquire(timeout=_CROWDED):
            msg = (
                f"{self._address.shown}: all {self._address.readers} connections for reading are "
                f"in use for {_CROWDED:g} s; raise connections={self._address.readers + _OWN}"
            )
            raise StoreRefused(msg)
        try:
            return self._read_on_any(text, values)
        finally:
            self._free.release()

    def _read_on_any(self, text: bytes, values: Sequence[Any]) -> list[Any]:
        with self._lock:
            connection = self._idle.pop()[0] if self._idle else None
        if connection is not None:
            try:
                return self._read(connection, text, values)
            except psycopg.OperationalError as error:
                if not connection.closed:
                    raise explain(error, self._address) from error
                self._drop_idle()
        try:
            return self._read(self._address.connect(autocommit=True), text, values)
        except psycopg.Error as error:
            raise explain(error, self._address) from error

    def _read(
        self, connection: psycopg.Connection[Any], text: bytes, values: Sequence[Any]
    ) -> list[Any]:
        try:
            return connection.execute(text, values, binary=True).fetchall()
        finally:
            self._put_back(connection)

    def _put_back(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            if not self._closed and not connection.closed:
                self._idle.append((connection, monotonic()))
                return
        connection.close()

    def close_unused(self) -> None:
        """Close the connections that nobody has used for a while."""
        self._drop_idle(before=monotonic() - _UNUSED)

    def _drop_idle(self, before: float = inf) -> None:
        """Close the connections that are idle since before a moment."""
        with self._lock:
            dropped = [connection for connection, since in self._idle if since < before]
            self._idle = [each for each in self._idle if each[1] >= before]
        for connection in dropped:
            connection.close()

    def close(self) -> None:
        """Close all connections; those in use when they come back."""
        with self._lock:
            self._closed = True
        if os.getpid() == self._pid:
            self._drop_idle()
