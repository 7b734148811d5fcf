"""Verifies a store: its file, if it has one, and the consistency of its rows.

It cannot find a flipped bit inside a body that still decodes, or inside a state, which only its
kind can read; nor a commit that is missing as a whole, in the file and in its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.cluster.ring import journal_problems
from actorflow.engine import bodies
from actorflow.engine.envelopes import unpack
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.stores.protocol import (
    DeadRow,
    ExecutionRow,
    HistoryRow,
    MessageRow,
    TaskRow,
    TimerRow,
    WatchRow,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.stores.protocol import Store

__all__ = ["Problem", "verify_store"]

_ROWS: dict[str, Any] = {
    "messages": MessageRow,
    "timers": TimerRow,
    "tasks": TaskRow,
    "watches": WatchRow,
    "history": HistoryRow,
    "dead": DeadRow,
}
_OF_ACTIVE = {"timers", "tasks", "watches"}
"""Removed by the commit that ends their execution; its messages are removed by the next engine."""


class Problem(NamedTuple):
    """Something that is wrong, and where."""

    table: str
    """`"file"` for damage below the rows, `"epochs"` for a partition that had two owners."""
    row: Any
    """The id of the row; `None` for the file."""
    text: str

    def __str__(self) -> str:
        where = self.table if self.row is None else f"{self.table}: {self.row!r}"
        return f"{where}: {self.text}"


def verify_store(store: Store) -> Iterator[Problem]:
    """Yield the problems of a store, also while its engine runs. O(n log n).

    Executions whose status is unknown; rows of executions that are not there; timers, tasks and
    watches of executions that have ended; bodies that cannot be decoded. A store with a method
    `verify` first checks the file below its rows. One with a method `journal` says who committed in
    which epoch of a partition: each must have had one owner.
    """
    verify = getattr(store, "verify", None)
    if verify is not None:
        found = [Problem("file", None, text) for text in verify()]
        yield from found
        if found:
            return  # rows of a damaged file say nothing
    journal = getattr(store, "journal", None)
    if journal is not None:
        for partition, text in journal_problems(*journal()):
            yield Problem("epochs", partition, text)
    statuses: dict[str, str] = {}
    for table, values in store.snapshot():
        if table == "executions":
            execution = ExecutionRow(*values)
            statuses[execution.id] = execution.status
            yield from _verify_execution(execution)
        elif table in _ROWS:
            row = _ROWS[table](*values)
            yield from _verify_owner(table, row, statuses)
            yield from _verify_body(table, row)


def _verify_execution(row: ExecutionRow) -> Iterator[Problem]:
    if row.status not in set(Status):
        yield Problem("executions", row.id, f"the status {row.status!r} is unknown")
    for field, data in (("result", row.result), ("error", row.error)):
        if data is not None and (fault := _fault(data)):
            yield Problem("executions", row.id, f"its {field} cannot be decoded: {fault}")


def _verify_owner(table: str, row: Any, statuses: dict[str, str]) -> Iterator[Problem]:
    status = statuses.get(row.execution)
    if status is None:
        yield Problem(table, row.id, f"its execution {row.execution!r} is not there")
    elif status in ENDED and table in _OF_ACTIVE:
        yield Problem(table, row.id, f"its execution {row.execution!r} has ended ({status})")


def _verify_body(table: str, row: Any) -> Iterator[Problem]:
    fault = _fault(row.body)
    if not fault and table in {"messages", "dead"}:
        try:
            unpack(row.id, row.at, row.type, row.body)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it is the finding
            fault = str(error)
    if fault:
        yield Problem(table, row.id, f"its body cannot be decoded: {fault}")


def _fault(data: bytes) -> str:
    try:
        bodies.decode(data)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it is the finding
        return str(error) or repr(error)
    return ""
