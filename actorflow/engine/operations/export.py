"""A store as JSON lines, and back: for moving, mending by hand, and looking at with other tools.

The first line says what it is; each other line is one row. A body is given as JSON where nothing
is lost by that, else as base64 of the stored bytes.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.errors import StoreBroken, StoreConflict
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
    from collections.abc import Iterable, Iterator

    from actorflow.engine.stores.protocol import Store

__all__ = ["export_lines", "import_lines", "readable", "unreadable"]

_FORMAT = 2
_FIELDS: dict[str, tuple[str, ...]] = {
    "meta": ("name", "value"),
    "executions": ExecutionRow._fields,
    "messages": MessageRow._fields,
    "timers": TimerRow._fields,
    "tasks": TaskRow._fields,
    "watches": WatchRow._fields,
    "history": HistoryRow._fields,
    "dead": DeadRow._fields,
    "tags": ("execution", "name", "value"),
    "keys": ("execution", "key", "message", "at"),
}
_BYTES = {"state", "body", "result"}  # and the error of an execution; that of a letter is text

_ARMED = frozenset(("messages", "timers", "tasks"))
"""Tables of what makes executions go on by themselves."""


def _is_bytes(table: str, field: str) -> bool:
    return field in _BYTES or (table, field) == ("executions", "error")


def readable(data: bytes | None) -> Any:
    """Return bytes as plain data that JSON can show, or as base64."""
    if data is None:
        return None
    try:
        value = bodies.decode(data)
        if bodies.encode(json.loads(json.dumps(value, allow_nan=False))) == data:
            return {"json": value}
    except Exception:  # noqa: BLE001, S110 - a kind may store what it likes
        pass
    return {"base64": base64.b64encode(data).decode()}


def unreadable(value: Any) -> bytes | None:
    """Return the bytes that `readable` was given."""
    if value is None:
        return None
    return bodies.encode(value["json"]) if "json" in value else base64.b64decode(value["base64"])


def export_lines(store: Store) -> Iterator[str]:
    """Return a store as lines of JSON, without line ends: all rows of one moment, one at a time."""
    rows = store.snapshot()
    yield json.dumps({"actorflow": _FORMAT})
    for table, row in rows:
        fields = {
            field: readable(value) if _is_bytes(table, field) else value
            for field, value in zip(_FIELDS[table], row, strict=True)
        }
        yield json.dumps({"table": table, **fields})


def import_lines(store: Store, lines: Iterable[str], *, as_copy: bool = False) -> int:
    """Import exported rows into a new store, all or none; return the number of rows.

    Args:
        store: must be empty.
        lines: as `export_lines` returns them.
        as_copy: the original stays in use: leave out its timers, tasks and messages, so that
            nothing of it runs twice.

    Raises:
        StoreBroken: the lines are not what `export_lines` returns, or the store is not empty.

    """
    given = iter(lines)
    try:
        header = json.loads(next(given, "null"))
        if not isinstance(header, dict) or header.get("actorflow") != _FORMAT:
            msg = f"the first line must be {json.dumps({'actorflow': _FORMAT})}"
            raise StoreBroken(msg)
        rows = (_row(json.loads(line)) for line in given)
        return store.restore(row for row in rows if not as_copy or row[0] not in _ARMED)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"not an export of a store: {error!r}"
        raise StoreBroken(msg) from error
    except StoreConflict as error:
        msg = f"cannot be imported: {error}; name a new file"
        raise StoreBroken(msg) from error


def _row(fields: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    table = fields.pop("table")
    if set(fields) != set(_FIELDS[table]):
        msg = f"a row of {table} has {sorted(fields)} and not {sorted(_FIELDS[table])}"
        raise ValueError(msg)
    return table, tuple(
        unreadable(fields[field]) if _is_bytes(table, field) else fields[field]
        for field in _FIELDS[table]
    )
