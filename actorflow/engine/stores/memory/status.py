"""The status of a cluster whose rows are in memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from actorflow.cluster.status import status_of
from actorflow.engine.stores.protocol import partition_of

if TYPE_CHECKING:
    from actorflow.cluster.ring import View
    from actorflow.cluster.status import ClusterStatus
    from actorflow.engine.stores.memory.tables import Tables

__all__ = ["tables_status"]


def tables_status(tables: Tables, view: View) -> ClusterStatus:
    """Return the status of a cluster. Under the lock of the tables. O(active executions)."""
    partitions = len(view.holdings)
    active: Counter[int] = Counter()
    waiting: dict[int, tuple[int, float]] = {}
    kinds: Counter[str] = Counter()
    for row in tables.executions.values():
        if row.status == "active":
            active[partition_of(row.id, partitions)] += 1
            kinds[row.kind] += row.id in tables.messages.of
    for name, rows in tables.messages.of.items():
        number = partition_of(name, partitions)
        count, lag = waiting.get(number, (0, 0.0))
        oldest = view.now - min(row.at for row in rows.values())
        waiting[number] = count + len(rows), max(lag, oldest)
    tasks = Counter(row.tasker for row in tables.tasks.rows.values())
    return status_of(view, active, waiting, tasks, +kinds)
