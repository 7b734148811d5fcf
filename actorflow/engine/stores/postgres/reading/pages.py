"""The pages of a store on Postgres: any thread reads them, at any time."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from actorflow.engine.stores.postgres.arrays import Longs, Texts
from actorflow.engine.stores.postgres.schema import COLUMNS, qualified
from actorflow.engine.stores.protocol import (
    DeadRow,
    DuplicateKey,
    ExecutionRow,
    HistoryRow,
    MessageRow,
    Page,
    StoreCounts,
    TaskRow,
    TimerRow,
    WatchRow,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actorflow.engine.stores.postgres.connections import PostgresReaders

__all__ = ["Reading"]

_ALL = 2**31
_COUNTED = ("messages", "timers", "tasks", "dead")


@cache
def _select(
    schema: str, table: str, columns: str, conditions: tuple[str, ...], order: str
) -> bytes:
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    ordered = f" ORDER BY {order}" if order else ""
    text = f"SELECT {columns} FROM {{s}}.{table}{where}{ordered} LIMIT %s"  # noqa: S608 - ours
    return qualified(text, schema)


class Reading:
    """Reads rows.

    Args:
        readers: the connections.
        schema: of the tables.
        partitions: how many there are.
        owned: returns the partitions that an owner's reading is limited to; `None` for all.

    """

    def __init__(
        self,
        readers: PostgresReaders,
        schema: str,
        partitions: int,
        owned: Callable[[], Sequence[int] | None],
    ) -> None:
        self._readers = readers
        self._schema = schema
        self._partitions = partitions
        self._owned = owned

    def _page(
        self,
        table: str,
        make: Any,
        filters: dict[str, Any],
        order: str,
        limit: int,
        *,
        cursor: tuple[int, ...] = (0,),
        extra: str = "",
    ) -> Page[Any]:
        """Return some rows; `cursor` says which columns the next page begins after."""
        chosen = {text: value for text, value in filters.items() if value is not None}
        values: list[Any] = []
        for value in chosen.values():
            values += value if isinstance(value, tuple) else (value,)
        names = COLUMNS[table] + extra
        text = _select(self._schema, table, names, tuple(chosen), order)
        found = self._readers.read(text, (*values, limit + 1))
        size = len(make._fields)
        more = None
        if len(found) > limit > 0:
            last = found[limit - 1]
            more = last[cursor[0]] if len(cursor) == 1 else tuple(last[at] for at in cursor)
        return Page([make._make(row[:size]) for row in found[:limit]], more)

    def executions(self, ids: Sequence[str]) -> dict[str, ExecutionRow]:
        """Return many executions at once."""
        if not ids:
            self._readers.require_open()
            return {}
        text = f"SELECT {COLUMNS['executions']} FROM {{s}}.executions WHERE id = ANY(%s)"  # noqa: S608
        rows = self._readers.read(qualified(text, self._schema), (Texts(list(ids)),))
        return {row[0]: ExecutionRow._make(row) for row in rows}

    def listing(
        self,
        *,
        kind: str | None,
        status: str | None,
        parent: str | None,
        tags: Mapping[str, str] | None,
        after: Any,
        limit: int,
    ) -> Page[ExecutionRow]:
        """Return executions in the order of their ids."""
        filters: dict[str, Any] = {
            "kind = %s": kind, "status = %s": status, "parent = %s": parent, "id > %s": after,
        }  # fmt: skip
        for number, tag in enumerate((tags or {}).items()):
            there = (
                f"EXISTS (SELECT 1 FROM {{s}}.tags AS t{number} WHERE t{number}.execution ="  # noqa: S608
                f" executions.id AND t{number}.name = %s AND t{number}.value = %s)"
            )
            filters[there] = tag
        return self._page("executions", ExecutionRow, filters, "id", limit)

    def tags(self, execution: str) -> dict[str, str]:
        """Return the tags of an execution."""
        text = qualified("SELECT name, value FROM {s}.tags WHERE execution = %s", self._schema)
        return dict(self._readers.read(text, (execution,)))

    def pending(
        self, execution: str | None, kind: str | None, after: Any, limit: int
    ) -> Page[MessageRow]:
        """Return messages, those of one execution together and in order."""
        if execution is not None:
            start = after[2] if isinstance(after, tuple) else after
            filters = {
                "partition = %s": partition_of(execution, self._partitions),
                "execution = %s": execution,
                "id > %s": start,
                "EXISTS (SELECT 1 FROM {s}.executions WHERE id = execution AND kind = %s)": kind,
            }
            return self._page("messages", MessageRow, filters, "id", limit)
        owned = self._owned()
        filters = {
            "(partition, execution, messages.id) > (%s, %s, %s)": after,
            "partition = ANY(%s)": None if owned is None else Longs(list(owned)),
            "EXISTS (SELECT 1 FROM {s}.executions AS e WHERE e.id = execution AND e.kind = %s)": (
                kind
            ),
        }
        order = "partition, execution, messages.id"
        return self._page(
            "messages", MessageRow, filters, order, limit, cursor=(6, 1, 0), extra=", partition"
        )

    def due(self, limit: int, execution: str | None) -> list[TimerRow]:
        """Return the timers that are due first."""
        filters: dict[str, Any]
        if execution is None:
            owned = self._owned()
            filters = {"partition = ANY(%s)": None if owned is None else Longs(list(owned))}
        else:
            partition = partition_of(execution, self._partitions)
            filters = {"partition = %s": partition, "execution = %s": execution}
        return self._page("timers", TimerRow, filters, "due", limit).rows

    def open(
        self, execution: str | None, tasker: str | None, after: Any, limit: int
    ) -> Page[TaskRow]:
        """Return tasks in the order in which they were stored."""
        owned = None if execution is not None else self._owned()
        filters = {
            "execution = %s": execution,
            "tasker = %s": tasker,
            "number > %s": after,
            "partition = ANY(%s)": None if owned is None else Longs(list(owned)),
        }
        return self._page(
            "tasks", TaskRow, filters, "number", limit, cursor=(11,), extra=", number"
        )

    def lent(self, worker: str | None) -> list[TaskRow]:
        """Return tasks lent to `worker`, or all lent tasks in owned partitions."""
        owned = None if worker is not None else self._owned()
        filters = {
            "worker = %s": worker,
            "worker >= %s": "",  # for the index
            "partition = ANY(%s)": None if owned is None else Longs(list(owned)),
        }
        return self._page("tasks", TaskRow, filters, "number", _ALL).rows

    def task(self, task: str) -> TaskRow | None:
        """Return one task."""
        found = self._page("tasks", TaskRow, {"id = %s": task}, "", 1).rows
        return found[0] if found else None

    def watches(self, after: Any, limit: int) -> Page[WatchRow]:
        """Return all watches."""
        filters = {"(execution, id) > (%s, %s)": after}
        return self._page("watches", WatchRow, filters, "execution, id", limit, cursor=(0, 1))

    def history(self, execution: str, after: Any, limit: int) -> Page[HistoryRow]:
        """Return what happened to an execution, oldest first."""
        filters = {"execution = %s": execution, "id > %s": after}
        return self._page("history", HistoryRow, filters, "id", limit)

    def dead(self, execution: str | None, after: Any, limit: int) -> Page[DeadRow]:
        """Return dead letters, oldest first."""
        filters = {"execution = %s": execution, "number > %s": after}
        return self._page("dead", DeadRow, filters, "number", limit, cursor=(6,), extra=", number")

    def dead_letter(self, letter: Any) -> DeadRow | None:
        """Return one dead letter."""
        found = self._page("dead", DeadRow, {"id = %s": letter}, "", 1).rows
        return found[0] if found else None

    def keyed(self, execution: str, key: str) -> DuplicateKey | None:
        """Return the message that was stored with a key, if there was one."""
        text = "SELECT message, at FROM {s}.keys WHERE execution = %s AND key = %s"
        found = self._readers.read(qualified(text, self._schema), (execution, key))
        return DuplicateKey._make(found[0]) if found else None

    def counts(self, executions: Sequence[str]) -> dict[str, StoreCounts]:
        """Return how much is stored for each of some executions."""
        found = {name: [0, 0, 0, 0] for name in executions}
        for column, table in enumerate(_COUNTED):
            text = (
                f"SELECT execution, count(*) FROM {{s}}.{table}"  # noqa: S608 - ours
                " WHERE execution = ANY(%s) GROUP BY execution"
            )
            names: list[Any] = [Texts(list(executions))]
            if table in {"messages", "timers"}:  # their index begins with the partition
                text = text.replace("WHERE", "WHERE partition = ANY(%s) AND")
                places = {partition_of(name, self._partitions) for name in executions}
                names.insert(0, Longs(sorted(places)))
            for name, count in self._readers.read(qualified(text, self._schema), names):
                found[name][column] = count
        return {name: StoreCounts(*counts) for name, counts in found.items()}
