"""Reads the state of a cluster from its store, for people who look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.cluster.postgres.register import read_register
from actorflow.cluster.postgres.schema import qualified
from actorflow.cluster.status import ClusterStatus, MemberStatus, WaitingTasks

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["read_status"]

_ACTIVE = """
SELECT partition, count(*) FROM {s}.executions WHERE status = 'active' GROUP BY partition
"""
_WAITING = """
SELECT partition, count(*), extract(epoch FROM clock_timestamp())::double precision - min(at)
FROM {s}.messages GROUP BY partition
"""
_TASKS = "SELECT tasker, count(*) FROM {s}.tasks GROUP BY tasker ORDER BY tasker"
_KINDS = """
SELECT kind, count(*) FROM {s}.executions AS e WHERE status = 'active' AND EXISTS (
  SELECT 1 FROM {s}.messages AS m WHERE m.partition = e.partition AND m.execution = e.id
) GROUP BY kind ORDER BY kind
"""


def read_status(connection: Connection[Any], schema: str, partitions: int) -> ClusterStatus:
    """Return what the store says. O(executions that are active)."""

    def read(text: str) -> list[Any]:
        return connection.execute(qualified(text, schema)).fetchall()

    view = read_register(connection, schema, partitions)
    active = dict(read(_ACTIVE))
    waiting = {number: (count, lag) for number, count, lag in read(_WAITING)}
    owners = {
        number: holding.owner if holding.until > view.now else None
        for number, holding in enumerate(view.holdings)
    }
    members = []
    for seat in view.seats:
        mine = tuple(number for number, owner in owners.items() if owner == seat.name)
        found = [waiting[number] for number in mine if number in waiting]
        members.append(
            MemberStatus(
                seat.name,
                seat.until - view.now,
                mine,
                sum(active.get(number, 0) for number in mine),
                sum(count for count, _ in found),
                max((lag for _, lag in found), default=0.0),
            )
        )
    return ClusterStatus(
        tuple(members),
        partitions,
        tuple(holding.epoch for holding in view.holdings),
        tuple(number for number, owner in owners.items() if owner is None),
        tuple(WaitingTasks(*row) for row in read(_TASKS)),
        dict(read(_KINDS)),
    )
