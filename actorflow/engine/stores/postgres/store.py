"""A store on Postgres. Many engines may share it; each owns some of its partitions."""

from __future__ import annotations

import socket
import threading
import uuid
from typing import TYPE_CHECKING, Any

import psycopg

from actorflow.cluster.membership import Membership
from actorflow.cluster.ring import CheckIn, RingOptions
from actorflow.engine.errors import StoreMoved, StoreRefused
from actorflow.engine.stores.member_store import MemberStore
from actorflow.engine.stores.postgres.connections import PostgresAddress, PostgresReaders, explain
from actorflow.engine.stores.postgres.copies import has_moved
from actorflow.engine.stores.postgres.migrations import ensure_schema
from actorflow.engine.stores.postgres.notices import (
    Followed,
    concerned,
    follow_notice,
    hint_notice,
    look_notice,
    notices_of,
)
from actorflow.engine.stores.postgres.notification_listener import NotificationListener
from actorflow.engine.stores.postgres.reading.pages import Reading
from actorflow.engine.stores.postgres.reading.snapshot_import import fill, stream
from actorflow.engine.stores.postgres.register import PostgresRegister, read_journal, read_status
from actorflow.engine.stores.postgres.schema import qualified
from actorflow.engine.stores.postgres.user_transactions import (
    commit_within,
    execution_within,
)
from actorflow.engine.stores.postgres.writing.writer import PostgresWriter
from actorflow.engine.stores.protocol import StoreTraits, partition_of
from actorflow.engine.stores.validation import validate_ids
from actorflow.runtime.log import log
from actorflow.runtime.telemetry.outages import outage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from actorflow.cluster.ring import Holding, JournalEntry, View
    from actorflow.cluster.status import ClusterStatus
    from actorflow.engine.stores.postgres.notices import Notice
    from actorflow.engine.stores.postgres.writing.commit_plan import CommitPlan
    from actorflow.engine.stores.protocol import (
        Change,
        DeadRow,
        DuplicateKey,
        ExecutionRow,
        HistoryRow,
        MessageRow,
        Page,
        StoreCounts,
        TaskRow,
        TimerRow,
        Wake,
        WatchRow,
    )

__all__ = ["PARTITIONS", "PostgresStore", "from_url"]

PARTITIONS = 64
"""The number of partitions of a new store."""

_FOLLOWED = 60.0  # seconds for which the commits of an execution are announced
_CLOSING = 5.0  # seconds for a store that is closed to release what it owns

_NOTIFY = b"SELECT pg_notify(%s, %s)"
# Materialized: a join may run a subquery again for each row, and then its limit has no effect.
_PURGED = """
WITH old AS MATERIALIZED (
  SELECT id FROM {s}.executions WHERE ended < %s ORDER BY ended LIMIT %s FOR UPDATE SKIP LOCKED
) DELETE FROM {s}.executions AS e USING old WHERE e.id = old.id RETURNING e.id
"""
_PURGED_ONLY = "DELETE FROM {s}.executions WHERE id = ANY(%s) AND ended < %s RETURNING id"
_PURGED_KEYS = """
WITH old AS MATERIALIZED (
  SELECT execution, key FROM {s}.keys WHERE at < %s ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED
) DELETE FROM {s}.keys AS k USING old WHERE k.execution = old.execution AND k.key = old.key
"""
_OF_EXECUTIONS = (
    "parts", "messages", "timers", "tasks", "watches", "history", "dead", "tags",
)  # fmt: skip


class PostgresStore(MemberStore):
    """Keeps executions in a schema of a Postgres database.

    Args:
        url: `postgresql://user@host/database?schema=actorflow`, or anything that libpq takes, such
            as a service file (`postgresql:///?service=orders`) or TLS options.
        partitions: how many a new store has.
        name: of this worker, as `cluster status` shows it; by default the host name.

    Raises:
        StoreRefused: the server cannot be reached, or denies access.
        StoreBroken: the schema is of a newer version, or not ours. Nothing of it was changed.
        BadOption: the URL cannot be read.

    """

    left_open = False

    def __init__(self, url: str, *, partitions: int = PARTITIONS, name: str | None = None) -> None:
        self.address = PostgresAddress(url)
        with self.address.connect() as connection:
            try:
                facts = ensure_schema(connection, self.address.schema, partitions)
                self._moved = has_moved(connection, facts)
            except psycopg.Error as error:
                raise explain(error, self.address) from error
        count = facts.partitions
        self.id = facts.store
        """Of the store, not of a copy of it; `None` before version 3 of its tables."""
        self.traits = StoreTraits(shared=True, partitions=count, max_batch=5_000, decides=True)
        self._token = uuid.uuid4().hex[:12]
        # A worker that is started again must not be taken for the one that died.
        self.name = f"{name or socket.gethostname()}-{self._token[:6]}"
        self._has_journal = facts.has_journal
        self._readers = PostgresReaders(self.address)
        member = self.name if facts.has_journal else None
        self._writer = PostgresWriter(self.address, count, self._notices, member)
        self._writing = threading.Lock()
        self._reading = Reading(self._readers, self.address.schema, count, self._limits)
        self._register = PostgresRegister(self.address, count, journal=facts.has_journal)
        self._wakes: list[Wake] = []
        self._followed = Followed(_FOLLOWED)
        self._following = Followed(_FOLLOWED)
        self._announced = Followed(_FOLLOWED / 2)  # announced again before it is forgotten
        self._waiting: frozenset[str] = frozenset()
        self._looked_for: frozenset[str] = frozenset()
        self._listener = NotificationListener(
            self.address,
            self._on_notice,
            self.look,
            self._poll,
            probe=self._probe,
            outage=outage_of(self),
        )
        self._listening = threading.Lock()
        self._membership = Membership(self.name, self, RingOptions(lease=self.address.lease))

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

    def _notices(self, plan: CommitPlan) -> Iterable[str]:
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

    def purge(
        self,
        *,
        before: float,
        keys_before: float,
        limit: int = 1_000,
        only: Sequence[str] | None = None,
    ) -> int:
        """Forget what ended before a moment, with all that is stored of it. O(limit log n)."""
        self._readers.require_open()

        def forget(connection: psycopg.Connection[Any]) -> int:
            if only is None:
                rows = self._run(connection, _PURGED, before, limit).fetchall()
            else:
                rows = self._run(connection, _PURGED_ONLY, list(only), before).fetchall()
            names = [row[0] for row in rows]
            for table in _OF_EXECUTIONS:
                text = f"DELETE FROM {{s}}.{table} WHERE execution = ANY(%s)"  # noqa: S608 - ours
                if names:
                    self._run(connection, text, names)
            if only is None:
                self._run(connection, _PURGED_KEYS, keys_before, limit)
            elif names:
                self._run(connection, "DELETE FROM {s}.keys WHERE execution = ANY(%s)", names)
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

    def _limits(self) -> Sequence[int] | None:
        """Return the partitions that reads are limited to; `None`, all of them, if not a worker."""
        return list(self._membership.owned()) if self._joined else None

    def _check_joinable(self) -> None:
        """Refuse to run the executions of a copy beside the original.

        Raises:
            StoreMoved: this is not where the store was made.

        """
        self._readers.require_open()
        if self._moved:
            msg = (
                f"{self.address.shown} was made on another server or in another database, so it "
                "may be a copy. If the original is gone: `actorflow cluster adopt URL`. If it "
                "is there: `actorflow cluster adopt URL --as-copy`, which deletes the timers, "
                "tasks and waiting messages of the copy"
            )
            raise StoreMoved(msg)

    def follow(self, execution: str) -> None:
        """Ask the owner of an execution to announce its commits for a minute.

        Its subscribers are also woken every few seconds meanwhile, in case a notice is lost.
        """
        if self.address.listens:
            self._following.add(execution)
            self._announce(execution)

    def _announce(self, execution: str) -> None:
        """Announce that this process follows an execution, unless its owner knows."""
        if not self._announced.among((execution,)):
            self._announced.add(execution)
            self._notify(follow_notice(self._token, execution))

    def _notify(self, notice: str) -> bool:
        """Send the others a notice, which may be lost; return whether it was sent."""
        try:
            self._readers.read(_NOTIFY, (self.address.schema, notice))
        except StoreRefused:
            return False
        return True

    def _probe(self) -> bool:
        """Send a notice that reaches ourselves, if any does, and means nothing to others."""
        return self._notify(hint_notice(self._token, self._token))

    def lent(self, worker: str | None = None) -> list[TaskRow]:
        """Return tasks lent to `worker`, or all lent tasks in owned partitions."""
        return self._reading.lent(worker)

    def status(self) -> ClusterStatus:
        """Return the members, their leases and partitions, and the waiting messages."""
        self._readers.require_open()
        schema, partitions = self.address.schema, self.traits.partitions
        with self.address.connect(autocommit=True) as connection:
            try:
                return read_status(connection, schema, partitions)
            except psycopg.Error as error:
                raise explain(error, self.address) from error

    def check_in(self, request: CheckIn) -> View:
        """Pass a request to the register. For the membership.

        Looks at everything if a message or an overdue timer waits since the last check-in.
        """
        view = self._register.check_in(request)
        waiting = self._register.waiting
        forgotten = (waiting & self._waiting) - self._looked_for
        self._looked_for = (self._looked_for | forgotten) & waiting
        self._waiting = waiting
        if forgotten:
            self.look()
        return view

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
        self._announced.clear()  # perhaps another one is the owner now
        self._wake(None)

    def _wake(self, executions: Sequence[str] | None) -> None:
        for wake in list(self._wakes):
            wake(executions)

    def _poll(self) -> None:
        """Look for what a lost notice may have announced. In the listening thread."""
        self._readers.close_unused()
        if not self._joined or not self.address.listens or self._listener.deaf:
            self.look()
            return
        names = self._following.names()
        if names:
            for name in names:
                self._announce(name)
            self._wake(names)

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
        self._wake(None if notice.watches else notice.executions)

    def _answer_follower(self, execution: str) -> None:
        """Announce commits of an execution from now on, and that there may have been one."""
        if partition_of(execution, self.traits.partitions) not in self.owned():
            return
        self._followed.add(execution)
        with self._writing:  # a commit that is under way does not announce it
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

    def keyed(self, execution: str, key: str) -> DuplicateKey | None:
        """Return the message that was stored with a key, if there was one. O(log n)."""
        return self._reading.keyed(execution, key)

    def counts(self, executions: Sequence[str]) -> dict[str, StoreCounts]:
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

    def journal(self) -> tuple[list[JournalEntry], list[Holding]]:
        """Return the first commit of each member in each epoch, and the register. O(n)."""
        self._readers.require_open()
        if not self._has_journal:
            return [], []
        with self.address.connect() as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            try:
                return read_journal(connection, self.address.schema, self.traits.partitions)
            except psycopg.Error as error:
                raise explain(error, self.address) from error

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
        self._listener.close()
        if self._leave():
            self._release()
        self._readers.close()
        self._register.close()
        with self._writing:
            self._writer.close()

    def _release(self) -> None:
        """Release the partitions that are still owned: nothing runs here any more."""
        try:
            view = self._register.check_in(CheckIn(self.name, self.address.lease, leave=True))
            for member in view.members:
                self.hint(member.name)
        except StoreRefused as error:
            log.warning("leases were not released; they expire", member=self.name, error=str(error))


def from_url(url: str, *, name: str | None = None, **_options: Any) -> PostgresStore:
    """Open the store that a URL names; `name` is that of the worker."""
    return PostgresStore(url, name=name)
