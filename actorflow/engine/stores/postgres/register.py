"""The register of the cluster: one row, which every check-in replaces.

A check-in that only renews leases reads the row and writes it back if nobody has written it since:
two statements, each a transaction of its own. If somebody has, or if a partition is taken, it locks
the row instead.

The epochs have rows of their own. A commit holds those of its partitions with a share lock, so that
a partition cannot be taken in the middle of one, and renewing a lease waits for nobody.

The statement that reads the row also finds messages and timers that wait in partitions of this
member: the store looks at everything if one of them is there twice. A wake-up that was lost is
repaired after two check-ins, and an idle member makes no other queries.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg

from actorflow.cluster.ring import (
    KEPT_EPOCHS,
    Holding,
    JournalEntry,
    MemberEntry,
    Roll,
    check_in,
)
from actorflow.cluster.status import status_of
from actorflow.engine.stores.postgres.arrays import Longs, column_list
from actorflow.engine.stores.postgres.connections import explain
from actorflow.engine.stores.postgres.schema import qualified

if TYPE_CHECKING:
    from actorflow.cluster.ring import CheckIn, View
    from actorflow.cluster.status import ClusterStatus
    from actorflow.engine.stores.postgres.connections import PostgresAddress

__all__ = ["PostgresRegister", "read_journal", "read_status"]

_LIMITS = """
SELECT set_config('lock_timeout', '2000', true), set_config('statement_timeout', '4000', true),
  set_config('idle_in_transaction_session_timeout', '4000', true)
"""
# A process that stands still between two messages of one pipeline is active for the server, so that
# no timeout ends its transaction. It would keep its partitions from others for as long.
_END_STOPPED = """
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a
WHERE a.usename = current_user AND a.wait_event = 'ClientRead' AND a.state = 'active'
  AND a.xact_start < clock_timestamp() - interval '4 seconds' AND EXISTS (
    SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND l.relation = '{s}.epochs'::regclass
  )
"""
_TIME = "extract(epoch FROM clock_timestamp())::double precision"
_READ = f"SELECT seats::text, holdings::text, {_TIME}, xmin::text FROM {{s}}.register"  # noqa: S608
# The id of a message is never used twice, and a timer that is set again has another due.
_READ_WAITING = f"""
SELECT seats::text, holdings::text, {_TIME}, xmin::text, ARRAY(
  SELECT m.id::text FROM {{s}}.messages AS m WHERE m.partition = ANY(%s) LIMIT 64
), ARRAY(
  SELECT t.execution || ' ' || t.id || ' ' || t.due FROM {{s}}.timers AS t
  WHERE t.due < {_TIME} AND t.partition = ANY(%s) ORDER BY t.due LIMIT 64
) FROM {{s}}.register
"""  # noqa: S608 - ours
_WRITE = "UPDATE {s}.register SET seats = %s::jsonb, holdings = %s::jsonb"
_REPLACE = f"{_WRITE} WHERE xmin::text = %s"
_EPOCHS = """
UPDATE {s}.epochs AS e SET epoch = v.epoch
FROM unnest(%s, %s) AS v (number, epoch) WHERE e.number = v.number
"""

_FORGET = """
DELETE FROM {s}.journal AS j USING unnest(%s, %s) AS v (number, epoch)
WHERE j.partition = v.number AND j.epoch <= v.epoch
"""
_JOURNAL = "SELECT partition, epoch, member FROM {s}.journal ORDER BY partition, epoch, member"

_ACTIVE = """
SELECT partition, count(*) FROM {s}.executions WHERE status = 'active' GROUP BY partition
"""
_WAITING = """
SELECT partition, count(*), extract(epoch FROM clock_timestamp())::double precision - min(at)
FROM {s}.messages GROUP BY partition
"""
_TASKS = "SELECT tasker, count(*) FROM {s}.tasks GROUP BY tasker"
_KINDS = """
SELECT kind, count(*) FROM {s}.executions AS e WHERE status = 'active' AND EXISTS (
  SELECT 1 FROM {s}.messages AS m WHERE m.partition = e.partition AND m.execution = e.id
) GROUP BY kind
"""

_members = msgspec.json.Decoder(list[MemberEntry]).decode
_holdings = msgspec.json.Decoder(list[Holding]).decode


def _roll(row: Any, partitions: int) -> Roll:
    members = {member.name: member for member in _members(row[0])}
    return Roll(members, _holdings(row[1]) or Roll.of(partitions).holdings)


def _plain(roll: Roll) -> tuple[str, str]:
    members = msgspec.json.encode(list(roll.members.values())).decode()
    return members, msgspec.json.encode(roll.holdings).decode()


def _taken(before: list[Holding], after: list[Holding]) -> list[tuple[int, int]]:
    """Return the partitions that a check-in has taken, each with its new epoch."""
    pairs = enumerate(zip(before, after, strict=True))
    return [(number, new.epoch) for number, (old, new) in pairs if new.epoch != old.epoch]


def _read_register(connection: psycopg.Connection[Any], schema: str, partitions: int) -> View:
    """Return what the register says, without changing it."""
    row = connection.execute(qualified(_READ, schema)).fetchone()
    assert row is not None  # noqa: S101 - it is made with the schema
    return _roll(row, partitions).view(row[2])


def read_status(connection: psycopg.Connection[Any], schema: str, partitions: int) -> ClusterStatus:
    """Return what the store says. O(executions that are active)."""

    def read(text: str) -> list[Any]:
        return connection.execute(qualified(text, schema)).fetchall()

    view = _read_register(connection, schema, partitions)
    waiting = {number: (count, lag) for number, count, lag in read(_WAITING)}
    return status_of(view, dict(read(_ACTIVE)), waiting, dict(read(_TASKS)), dict(read(_KINDS)))


def read_journal(
    connection: psycopg.Connection[Any], schema: str, partitions: int
) -> tuple[list[JournalEntry], list[Holding]]:
    """Return the journal of epochs, and the register. In a transaction with one snapshot.

    Epochs are taken from the rows against which commits are checked.
    """

    def read(text: str) -> list[Any]:
        return connection.execute(qualified(text, schema)).fetchall()

    entries = [JournalEntry(*row) for row in read(_JOURNAL)]
    holdings = list(_read_register(connection, schema, partitions).holdings)
    for number, epoch in read("SELECT number, epoch FROM {s}.epochs"):
        if holdings[number].epoch != epoch:
            holdings[number] = Holding(None, epoch)
    return entries, holdings


class PostgresRegister:
    """Checks in, on a connection of its own; keeps the journal of epochs short. Thread-safe."""

    def __init__(self, address: PostgresAddress, partitions: int, *, journal: bool) -> None:
        self._address = address
        self._journal = journal
        self._partitions = partitions
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self.waiting: frozenset[str] = frozenset()
        """Messages and overdue timers that the last check-in has found in its partitions."""

    def check_in(self, request: CheckIn) -> View:
        """Pass a request to the register; return what it says then.

        Raises:
            StoreRefused: it cannot be reached, or is busy. Perhaps the request was applied.

        """
        with self._lock:
            connection = self._connection
            if connection is None or connection.closed:
                connection = self._connection = self._address.connect(autocommit=True)
            try:
                view = self._renew(connection, request)
                if view is not None:
                    return view
                with connection.transaction():
                    return self._apply(connection, request)
            except psycopg.errors.LockNotAvailable as error:
                connection.execute(qualified(_END_STOPPED, self._address.schema))
                raise explain(error, self._address) from error
            except psycopg.Error as error:
                raise explain(error, self._address) from error

    def _renew(self, connection: psycopg.Connection[Any], request: CheckIn) -> View | None:
        """Check in without a lock; return `None` if that is not possible now.

        The time was read before the row is written. So a lease is shorter than it could be by the
        time in between, and never longer.
        """
        schema = self._address.schema
        mine = Longs([number for number, _ in request.hold])
        text = qualified(_READ_WAITING, schema)
        row = connection.execute(text, (mine, mine)).fetchone()
        assert row is not None  # noqa: S101 - it is made with the schema
        self.waiting = frozenset((*row[4], *row[5]))
        roll = _roll(row, self._partitions)
        before = list(roll.holdings)
        view = check_in(roll, request, row[2])
        if _taken(before, roll.holdings):
            return None
        written = connection.execute(qualified(_REPLACE, schema), (*_plain(roll), row[3]))
        return view if written.rowcount else None

    def _apply(self, connection: psycopg.Connection[Any], request: CheckIn) -> View:
        schema = self._address.schema
        connection.execute(_LIMITS)
        row = connection.execute(qualified(f"{_READ} FOR UPDATE", schema)).fetchone()
        assert row is not None  # noqa: S101 - it is made with the schema
        roll = _roll(row, self._partitions)
        before = list(roll.holdings)
        view = check_in(roll, request, row[2])
        connection.execute(qualified(_WRITE, schema), _plain(roll))
        taken = _taken(before, roll.holdings)
        if taken:
            connection.execute(qualified(_EPOCHS, schema), column_list(taken, Longs, Longs))
            old = [(number, epoch - KEPT_EPOCHS) for number, epoch in taken]
            if self._journal and any(epoch > 0 for _, epoch in old):
                connection.execute(qualified(_FORGET, schema), column_list(old, Longs, Longs))
        return view

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
