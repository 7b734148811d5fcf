"""Reads the state of a cluster from its store, for people who look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.cluster.postgres.register import read_register
from actorflow.cluster.postgres.schema import qualified
from actorflow.cluster.status import status_of

if TYPE_CHECKING:
    from psycopg import Connection

    from actorflow.cluster.status import ClusterStatus

__all__ = ["read_status"]

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


def read_status(connection: Connection[Any], schema: str, partitions: int) -> ClusterStatus:
    """Return what the store says. O(executions that are active)."""

    def read(text: str) -> list[Any]:
        return connection.execute(qualified(text, schema)).fetchall()

    view = read_register(connection, schema, partitions)
    waiting = {number: (count, lag) for number, count, lag in read(_WAITING)}
    return status_of(view, dict(read(_ACTIVE)), waiting, dict(read(_TASKS)), dict(read(_KINDS)))
