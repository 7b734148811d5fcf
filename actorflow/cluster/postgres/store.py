"""A store on Postgres. Many engines may share it; each owns some of its partitions."""

from __future__ import annotations

import socket
import threading
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

from actorflow.cluster.membership import Membership
from actorflow.cluster.postgres.connections import Address, Readers, explain
from actorflow.cluster.postgres.listening import Listener
from actorflow.cluster.postgres.notices import (
    Followed,
    concerned,
    follow_notice,
    hint_notice,
    look_notice,
    notices_of,
)
from actorflow.cluster.postgres.reading.filling import fill, stream
from actorflow.cluster.postgres.reading.looking import read_status
from actorflow.cluster.postgres.reading.pages import Reading
from actorflow.cluster.postgres.register import PostgresRegister
from actorflow.cluster.postgres.schema import ensure_schema, qualified
from actorflow.cluster.postgres.writing.joining import commit_within, execution_within
from actorflow.cluster.postgres.writing.writer import Writer
from actorflow.cluster.ring import CheckIn, RingOptions
from actorflow.engine.errors import StoreRefused
from actorflow.engine.stores.protocol import Traits, partition_of
from actorflow.engine.stores.validation import validate_ids
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from actorflow.cluster.postgres.notices import Notice
    from actorflow.cluster.postgres.writing.planning import Plan
    from actorflow.cluster.ring import View
    from actorflow.cluster.status import ClusterStatus
    from actorflow.engine.stores.protocol import (
        Change,
        Counts,
        DeadRow,
        ExecutionRow,
        HistoryRow,
        MessageRow,
        Page,
        Peer,
        TaskRow,
        TimerRow,
        Wake,
        WatchRow,
    )

__all__ = ["PARTITIONS", "PostgresStore", "from_url"]

PARTITIONS = 64
"""Of a store that is created."""

_CLOSING = 5.0  # seconds for a store that is closed to release what it owns

_NOTIFY = b"SELECT pg_notify(%s, %s)"
# Materialized: a join may run a subquery again for each row, and then its limit is none.
_PURGED = """
WITH old AS MATERIALIZED (
  SELECT id FROM {s}.executions WHERE ended < %s ORDER BY ended LIMIT %s FOR UPDATE SKIP LOCKED
) DELETE FROM {s}.executions AS e USING old WHERE e.id = old.id RETURNING e.id
"""
_PURGED_KEYS = """
WITH old AS MATERIALIZED (
  SELECT execution, key FROM {s}.keys WHERE at < %s ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED
) DELETE FROM {s}.keys AS k USING old WHERE k.execution = old.execution AND k.key = old.key
"""
_OF_EXECUTIONS = (
    "parts", "messages", "timers", "tasks", "watches", "history", "dead", "tags",
)  # fmt: skip


class PostgresStore:
    """Keeps executions in a schema of a Postgres database.

    Args:
        url: `postgresql://user@host/database?schema=actorflow`, or anything that libpq takes, such
            as a service file (`postgresql:///?service=orders`) or TLS options.
        partitions: how many a new store has.
        name: of this worker, for those who look at the cluster; the host's unless told.

    Raises:
        StoreRefused: the server cannot be reached, or denies access.
        StoreBroken: the schema is of a newer version, or not ours. Nothing of it was changed.
        BadOption: the URL cannot be read.

    """

    left_open = False

    def __init__(self, url: str, *, partitions: int = PARTITIONS, name: str | None = None) -> None:
        self.address = Address(url)
        with self.address.connect() as connection:
            try:
                count = ensure_schema(connection, self.address.schema, partitions)
            except psycopg.Error as error:
                raise explain(error, self.address) from error
        self.traits = Traits(shared=True, partitions=count, max_batch=5_000)
        self._token = uuid.uuid4().hex[:12]
        self._readers = Readers(self.address)
        self._writer = Writer(self.address, count, self._notices)
        self._writing = threading.Lock()
        self._reading = Reading(self._readers, self.address.schema, count, self._limits)
        self._register = PostgresRegister(self.address, count)
        self._wakes: list[Wake] = []
        self._followed = Followed(60.0)
        self._following = Followed(30.0)  # told again before it is forgotten
        self._listener = Listener(self.address, self._on_notice, self.look)
        self._listening = threading.Lock()
        # A worker that is started again must not be taken for the one that died.
        self.name = f"{name or socket.gethostname()}-{self._token[:6]}"
        self._membership = Membership(
            self.name, self, RingOptions(lease=self.address.lease, cycle=None)
        )
        self._joined = False

    # Writing: one thread.

    def commit(self, changes: Sequence[Change]) -> None:
        """Commit many changes as one transaction. O(their rows)."""
        self._readers.require_open()
        validate_ids(changes)
        with self._writing:
            self._writer.commit(changes)
        for change in changes:
            if change.refusal is not None and change.refusal.reason == "fenced":
                self._see_fence(change)

    def _see_fence(self, change: Change) -> None:
        """Drop a partition that we believed to own in this epoch."""
        partition = partition_of(change.execution, self.traits.partitions)
        if self.owned().get(partition) == change.epoch:
            self._membership.fenced(partition)

    def _notices(self, plan: Plan) -> Iterable[str]:
        names = self._followed.among(concerned(plan)) if self._followed else ()
        return notices_of(plan, self._token, self.traits.partitions, self.owned(), names)

    def commit_within(self, connection: Any, changes: Sequence[Change]) -> None:
        """Write changes in the transaction of a connection, whose owner commits them or not."""
        self._readers.require_open()
        commit_within(connection, self.address, self.traits.partitions, changes)

    def execution_within(self, connection: Any, execution: str) -> ExecutionRow | None:
        """Return an execution as the transaction of a connection sees it."""
        self._readers.require_open()
        return execution_within(connection, self.address, execution)

    def purge(self, *, before: float, keys_before: float, limit: int = 1_000) -> int:
        """Forget what ended before a moment, with all that is stored of it. O(limit log n)."""
        self._readers.require_open()

        def forget(connection: psycopg.Connection[Any]) -> int:
            rows = self._run(connection, _PURGED, before, limit).fetchall()
            names = [row[0] for row in rows]
            for table in _OF_EXECUTIONS:
                text = f"DELETE FROM {{s}}.{table} WHERE execution = ANY(%s)"  # noqa: S608 - ours
                if names:
                    self._run(connection, text, names)
            self._run(connection, _PURGED_KEYS, keys_before, limit)
            return len(names)

        with self._writing:
            count: int = self._writer.transact(forget)
        return count

    def _run(
        self, connection: psycopg.Connection[Any], text: str, *values: Any
    ) -> psycopg.Cursor[Any]:
        return connection.execute(qualified(text, self.address.schema), values)

    def restore(self, rows: Iterator[tuple[str, tuple[Any, ...]]]) -> int:
        """Fill an empty store in one transaction; return how many rows."""
        self._readers.require_open()
        schema, partitions = self.address.schema, self.traits.partitions
        with self._writing:
            count: int = self._writer.transact(
                lambda connection: fill(connection, schema, partitions, rows)
            )
        return count

    # Ownership.

    def owned(self) -> Mapping[int, int]:
        """Return the partitions that this process owns, each with its epoch."""
        return self._membership.owned() if self._joined else {}

    def _limits(self) -> Sequence[int] | None:
        """Return the partitions that reads are limited to; `None`, all of them, if not a worker."""
        return list(self._membership.owned()) if self._joined else None

    def join(self) -> None:
        """Begin to own partitions, and to divide them with the other members."""
        self._readers.require_open()
        if not self._joined:
            self._membership.join()
            self._joined = True

    def inherited(self, partition: int) -> bool:
        """Return whether the owner before us ended without handing a partition over."""
        return self._membership.inherited(partition)

    def draining(self) -> Collection[int]:
        """Return the partitions that others are to have, once nothing of them runs here."""
        return self._membership.draining()

    def drained(self, partition: int) -> None:
        """Note that nothing of a partition runs here any more, so that others may have it."""
        self._membership.drained(partition)

    def follow(self, execution: str) -> None:
        """Ask the owner of an execution to announce its commits for a minute.

        If the server cannot be reached, it is found when this process looks by itself.
        """
        if self.address.listens and not self._following.among((execution,)):
            self._following.add(execution)
            self._notify(follow_notice(self._token, execution))

    def _notify(self, notice: str) -> None:
        """Send the others a notice, which may be lost."""
        with suppress(StoreRefused):
            self._readers.read(_NOTIFY, (self.address.schema, notice))

    def time(self) -> float:
        """Return the time of the server's clock; of this machine's until it has joined."""
        return self._membership.time.now()

    def serve(self, taskers: Collection[str], busy: int, codes: Collection[str] = ()) -> None:
        """Announce which taskers and which code are here, and how many tasks they have."""
        self._membership.serve(taskers, busy, codes)

    def peers(self) -> Sequence[Peer]:
        """Return the processes that share the store, as of the last check-in."""
        return self._membership.peers()

    def lent(self, worker: str | None = None) -> list[TaskRow]:
        """Return all tasks that were handed to a worker, or those of what is owned to anybody."""
        return self._reading.lent(worker)

    def status(self) -> ClusterStatus:
        """Return the members, their leases and partitions, and what waits."""
        self._readers.require_open()
        schema, partitions = self.address.schema, self.traits.partitions
        with self.address.connect(autocommit=True) as connection:
            try:
                return read_status(connection, schema, partitions)
            except psycopg.Error as error:
                raise explain(error, self.address) from error

    def check_in(self, request: CheckIn) -> View:
        """Pass a request to the register. For the membership."""
        return self._register.check_in(request)

    def hint(self, member: str) -> None:
        """Ask another member to check in soon. For the membership."""
        self._readers.read(_NOTIFY, (self.address.schema, hint_notice(self._token, member)))

    # Wake-ups.

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Call `wake(executions)` when others have stored something; return how to end that.

        The thread that listens begins with the first who subscribes.
        """
        with self._listening:
            self._wakes.append(wake)
            self._listener.start()

        def end() -> None:
            with self._listening:
                if wake in self._wakes:
                    self._wakes.remove(wake)

        return end

    def look(self) -> None:
        """Wake all subscribers to look at everything."""
        self._following.clear()  # perhaps another one is the owner now
        for wake in list(self._wakes):
            wake(None)

    def _on_notice(self, notice: Notice) -> None:
        if notice.sender == self._token:
            return
        if notice.member is not None:
            if notice.member == self.name:
                self._membership.hurry()
            return
        if notice.followed is not None:
            self._answer_follower(notice.followed)
            return
        if notice.workers and self.name not in notice.workers:
            return
        names = None if notice.watches else notice.executions
        for wake in list(self._wakes):
            wake(names)

    def _answer_follower(self, execution: str) -> None:
        """Announce commits of an execution from now on, and that there may have been one."""
        if partition_of(execution, self.traits.partitions) not in self.owned():
            return
        self._followed.add(execution)
        with self._writing:  # what is being committed does not know of it
            pass
        self._notify(look_notice(self._token, execution))

    # Reading: any thread.

    def execution(self, execution: str) -> ExecutionRow | None:
        """Return one execution. O(log n)."""
        return self._reading.executions((execution,)).get(execution)

    def executions(self, ids: Sequence[str]) -> dict[str, ExecutionRow]:
        """Return many executions at once. O(log n) each."""
        return self._reading.executions(ids)

    def listing(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
        after: Any = None,
        limit: int = 100,
    ) -> Page[ExecutionRow]:
        """Return executions in the order of their ids. O(limit log n) with one filter."""
        return self._reading.listing(
            kind=kind, status=status, parent=parent, tags=tags, after=after, limit=limit
        )

    def tags(self, execution: str) -> dict[str, str]:
        """Return the tags of an execution. O(log n)."""
        return self._reading.tags(execution)

    def pending(
        self,
        *,
        execution: str | None = None,
        kind: str | None = None,
        after: Any = None,
        limit: int = 1_000,
    ) -> Page[MessageRow]:
        """Return messages, those of one execution together and in order. O(limit log n)."""
        return self._reading.pending(execution, kind, after, limit)

    def due(self, limit: int = 1_000, *, execution: str | None = None) -> list[TimerRow]:
        """Return the timers that are due first. O(limit log n)."""
        return self._reading.due(limit, execution)

    def open(
        self,
        *,
        execution: str | None = None,
        tasker: str | None = None,
        after: Any = None,
        limit: int = 1_000,
    ) -> Page[TaskRow]:
        """Return tasks in the order in which they were stored. O(limit log n)."""
        return self._reading.open(execution, tasker, after, limit)

    def task(self, task: str) -> TaskRow | None:
        """Return one task. O(log n)."""
        return self._reading.task(task)

    def watches(self, *, after: Any = None, limit: int = 1_000) -> Page[WatchRow]:
        """Return all watches, also those of partitions that others own."""
        return self._reading.watches(after, limit)

    def history(self, execution: str, *, after: Any = None, limit: int = 1_000) -> Page[HistoryRow]:
        """Return what happened to an execution, oldest first. O(limit log n)."""
        return self._reading.history(execution, after, limit)

    def dead(
        self, *, execution: str | None = None, after: Any = None, limit: int = 1_000
    ) -> Page[DeadRow]:
        """Return dead letters, oldest first. O(limit log n)."""
        return self._reading.dead(execution, after, limit)

    def dead_letter(self, id: Any) -> DeadRow | None:  # noqa: A002 - what it is
        """Return one dead letter. O(log n)."""
        return self._reading.dead_letter(id)

    def counts(self, executions: Sequence[str]) -> dict[str, Counts]:
        """Return how much is stored for each of some executions. O(their rows)."""
        return self._reading.counts(executions)

    def snapshot(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield all rows of this moment, on a connection of its own, while commits go on."""
        self._readers.require_open()
        connection = self.address.connect()
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        rows = stream(connection, self.address.schema)
        try:
            first = next(rows)  # from here on it sees nothing new
        except psycopg.Error as error:
            connection.close()
            raise explain(error, self.address) from error
        return self._streamed(connection, first, rows)

    def _streamed(
        self, connection: psycopg.Connection[Any], first: Any, rows: Iterator[Any]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        try:
            with connection:
                yield first
                yield from rows
        except psycopg.Error as error:
            raise explain(error, self.address) from error

    # Ending.

    def close(self) -> None:
        """Close the store. Waits some seconds for a server that does not answer."""
        try:
            self._readers.require_open()
        except StoreRefused:  # closed before, or the parent's
            return
        patience = threading.Timer(_CLOSING, self.address.abandon)
        patience.daemon = True
        patience.start()
        try:
            self._close()
        finally:
            patience.cancel()

    def _close(self) -> None:
        self._listener.close(lambda: self.hint(self.name))
        self._membership.stop()
        self._release()
        self._readers.close()
        self._register.close()
        with self._writing:
            self._writer.close()

    def _release(self) -> None:
        """Release what is still owned: nothing runs here any more."""
        if not self._joined:
            return
        self._joined = False
        try:
            view = self._register.check_in(CheckIn(self.name, self.address.lease, leave=True))
            for seat in view.seats:
                self.hint(seat.name)
        except StoreRefused as error:
            log.warning("leases run until they end", member=self.name, error=str(error))


def from_url(url: str, *, name: str | None = None, **_options: Any) -> PostgresStore:
    """Open the store that a URL names; `name` is that of the worker."""
    return PostgresStore(url, name=name)
