"""Commits changes on one connection, each group as one transaction, in one round trip if it can.

If the connection is lost during a commit, its outcome is not known. So each
commit leaves its number in the row of its session. After reconnecting, the row says whether it was
there; and because the session has another incarnation from then on, it cannot be later either.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

from actorflow.cluster.ring import JournalEntry
from actorflow.engine.errors import OutcomeUnknown, StoreRefused
from actorflow.engine.failpoints import FAILPOINTS, failpoint
from actorflow.engine.stores.postgres.connections import ServerSilent, explain
from actorflow.engine.stores.postgres.schema import qualified
from actorflow.engine.stores.postgres.writing.commit_plan import NeedRows, plan_changes
from actorflow.engine.stores.postgres.writing.locked_rows import read_locked_rows
from actorflow.engine.stores.postgres.writing.pipe import Pipe, ids_of
from actorflow.engine.stores.postgres.writing.rows import Statement, with_cells
from actorflow.engine.stores.postgres.writing.statements import SESSION, STORING, Mark, statements
from actorflow.engine.stores.protocol import NEVER_RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.engine.stores.postgres.connections import PostgresAddress
    from actorflow.engine.stores.postgres.writing.commit_plan import CommitPlan
    from actorflow.engine.stores.protocol import Change

__all__ = ["PostgresWriter", "is_to_be_repeated"]

_TRIES = 20  # plans for one commit, before it is refused because others are always faster
_OPEN = """
INSERT INTO {s}.sessions (id, incarnation, last, seen) VALUES (%s, 1, 0, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET incarnation = sessions.incarnation + 1, seen = clock_timestamp()
RETURNING incarnation, last, ids
"""
_TRIM = "DELETE FROM {s}.sessions WHERE seen < clock_timestamp() - interval '2 days'"
_CLOSE = "DELETE FROM {s}.sessions WHERE id = %s"
_LIMITS = b"SELECT set_config('idle_in_transaction_session_timeout', '5000', true)"
_NOTIFY = Statement("SELECT pg_notify('{s}', notice) FROM {rows: text} AS v (notice)")
_NOT_AS_EXPECTED = "AF001"
_AGAIN = (errors.UniqueViolation, errors.DeadlockDetected, errors.SerializationFailure)


def is_to_be_repeated(error: psycopg.Error) -> bool:
    """Return whether others were faster: another plan has to be made, on what they have stored."""
    return error.sqlstate == _NOT_AS_EXPECTED or isinstance(error, _AGAIN)


class PostgresWriter:
    """Commits in one thread at a time.

    Args:
        address: the database.
        partitions: how many the store has.
        notices: returns the notices to send with a plan.
        member: that commits, as the journal of epochs is to name it; `None`: there is no journal.

    """

    def __init__(
        self,
        address: PostgresAddress,
        partitions: int,
        notices: Callable[[CommitPlan], Iterable[str]],
        member: str | None,
    ) -> None:
        self._address = address
        self._partitions = partitions
        self._notices = notices
        self._member = member
        self._noted: dict[int, int] = {}
        """The last epoch of each partition that the journal has."""
        self._session = uuid.uuid4()
        self._incarnation = 0
        self._number = 0
        self._connection: psycopg.Connection[Any] | None = None
        self._pipe: Pipe | None = None
        self._unknown: CommitPlan | None = None
        """A commit that was under way when the connection was lost."""

    def _text(self, text: str) -> bytes:
        return qualified(text, self._address.schema)

    # The connection.

    def connection(self) -> psycopg.Connection[Any]:
        """Return the connection; a new one finds out the outcome of the last commit.

        Raises:
            StoreRefused: the server cannot be reached.

        """
        found = self._connection
        if found is not None and not found.closed:
            return found
        made = self._address.connect()
        try:
            self._enter(made)
        except psycopg.Error as error:
            made.close()
            raise explain(error, self._address) from error
        self._connection = made
        self._pipe = Pipe(made, self._address.schema, prepare=self._address.prepare)
        return made

    def _enter(self, connection: psycopg.Connection[Any]) -> None:
        """Begin an incarnation of the session, which ends the one before."""
        row = connection.execute(self._text(_OPEN), (self._session,)).fetchone()
        assert row is not None  # noqa: S101 - it was inserted or updated
        connection.execute(self._text(_TRIM))
        if not self._address.pooled:
            connection.execute(SESSION.encode())
        connection.commit()
        self._incarnation, last, ids = row
        unknown, self._unknown = self._unknown, None
        if unknown is not None and last == self._number:
            unknown.settle(ids if unknown.messages else ())

    def close(self) -> None:
        """Close the connection and end the session."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.rollback()
            connection.execute(self._text(_CLOSE), (self._session,))
            connection.commit()
        except psycopg.Error:  # the row goes when it is old
            pass
        finally:
            connection.close()

    # Commits.

    def commit(self, changes: Sequence[Change]) -> None:
        """Commit all changes that are not refused, or none.

        Raises:
            StoreRefused: nothing was changed.
            OutcomeUnknown: the server is away; the next commit finds out.
            StoreConflict: one of them can never be committed.

        """
        if FAILPOINTS:
            failpoint("commit.before")
        try:
            self._commit_once(changes)
        except psycopg.Error as error:
            if self._unknown is None:
                raise explain(error, self._address) from error
            if isinstance(error, ServerSilent):  # the caller has waited long enough
                raise self._not_known(error) from error
            self._commit_again(changes, error)
        if FAILPOINTS:
            failpoint("commit.after")

    def _commit_again(self, changes: Sequence[Change], lost: psycopg.Error) -> None:
        """Find out what happened to a commit, and repeat it if nothing did.

        A connection can be lost although the server is there: it was started again, or a pooler.
        """
        try:
            self._commit_once(changes)
        except (psycopg.Error, StoreRefused) as error:
            if self._unknown is not None:
                raise self._not_known(lost) from error
            if isinstance(error, StoreRefused):
                raise
            raise explain(error, self._address) from error

    def _commit_once(self, changes: Sequence[Change]) -> None:
        again = self._unknown is not None
        connection = self.connection()
        if again:  # what turns out to have been committed is not done twice
            changes = [change for change in changes if not change.committed]
            if not changes:
                return
        _reset(changes)
        self._commit(connection, changes)

    def _commit(self, connection: psycopg.Connection[Any], changes: Sequence[Change]) -> None:
        try:
            plan = plan_changes(changes, None, self._partitions)
        except NeedRows:
            pass
        else:
            if self._write(connection, plan):
                return
        for attempt in range(_TRIES):
            if attempt == 1:  # a session that was not used for days may have been trimmed
                self._enter(connection)
            try:
                connection.execute(_LIMITS)
                locked = read_locked_rows(
                    connection, self._address.schema, changes, self._partitions
                )
                plan = plan_changes(changes, locked, self._partitions)
            except _AGAIN:
                connection.rollback()
                continue
            except BaseException:
                if not connection.closed:
                    connection.rollback()
                raise
            if self._write(connection, plan):
                return
        msg = f"{self._address.shown}: others were faster {_TRIES} times; nothing was changed"
        raise StoreRefused(msg)

    def _write(self, connection: psycopg.Connection[Any], plan: CommitPlan) -> bool:
        """Write a plan and commit; return whether all was as it expects."""
        assert self._pipe is not None  # noqa: S101 - it comes with the connection
        self._number += 1
        mark = Mark(self._number, self._session, self._incarnation)
        pooled = self._address.pooled
        begun = self._begun(plan)
        script = list(
            statements(plan, self._partitions, mark, fill=with_cells, pooled=pooled, begun=begun)
        )
        # Not in the same transaction: one with a notice holds a lock of the whole database while it
        # waits for the disk, so that all such commits of all engines would follow one another.
        notices = [(notice,) for notice in self._notices(plan)]
        after = [with_cells(_NOTIFY, notices)] if notices else []
        self._unknown = plan
        if FAILPOINTS:
            failpoint("commit.inside")
        try:
            found = self._pipe.transact(script, after)
        except psycopg.Error as error:
            if connection.closed:
                raise
            self._unknown = None
            connection.rollback()
            if is_to_be_repeated(error):
                return False
            raise
        self._unknown = None
        self._noted.update((entry.partition, entry.epoch) for entry in begun)
        plan.settle(
            [id_ for text, result in found.items() if text in STORING for id_ in ids_of(result)]
        )
        return True

    def _begun(self, plan: CommitPlan) -> list[JournalEntry]:
        """Return the epochs of a plan that are not in the journal yet."""
        if self._member is None or plan.epochs.items() <= self._noted.items():
            return []
        return [
            JournalEntry(partition, epoch, self._member)
            for partition, epoch in sorted(plan.epochs.items())
            if self._noted.get(partition) != epoch
        ]

    def _not_known(self, error: psycopg.Error) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self._address.shown} was lost during a commit, and whether it was stored is not "
            f"known yet; the next commit finds out: {' '.join(str(error).split())}"
        )

    def transact(self, work: Callable[[psycopg.Connection[Any]], Any]) -> Any:
        """Call a function in a transaction of its own; return what it returns."""
        connection = self.connection()
        try:
            with connection.transaction():
                return work(connection)
        except psycopg.Error as error:
            raise explain(error, self._address) from error


def _reset(changes: Sequence[Change]) -> None:
    for change in changes:
        change.committed, change.refusal, change.revision = False, None, NEVER_RUN
        change.rows = change.resulting_messages = ()
