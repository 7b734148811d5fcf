"""A store as JSON lines, and back: for moving, mending by hand, and looking at with other tools.

The first line says what it is; each other line is one row. A body is given as JSON where nothing
is lost by that, else as base64 of the stored bytes.
"""

from __future__ import annotations

import base64
import itertools
import json
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.errors import StoreBroken
from actorflow.engine.stores.protocol import Change, DeadRow, TaskRow, TimerRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from actorflow.engine.stores.protocol import Store

__all__ = ["export_lines", "import_lines", "readable"]

_FORMAT = 1
_TABLES = ("executions", "messages", "timers", "tasks", "history", "dead")
_AT_ONCE = 1_000


def readable(data: bytes | None) -> Any:
    """Give bytes as plain data that JSON can show, or as base64."""
    if data is None:
        return None
    try:
        value = bodies.decode(data)
        if bodies.encode(json.loads(json.dumps(value))) == data:
            return {"json": value}
    except Exception:  # noqa: BLE001, S110 - a kind may store what it likes
        pass
    return {"base64": base64.b64encode(data).decode()}


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return bodies.encode(value["json"]) if "json" in value else base64.b64decode(value["base64"])


def export_lines(store: Store) -> Iterator[str]:
    """Give a store as lines of JSON, without line ends."""
    yield json.dumps({"actorflow": _FORMAT})
    for table in _TABLES:
        for row in store.rows(table):
            fields = {
                name: readable(value) if name in {"state", "body"} else value
                for name, value in row._asdict().items()
            }
            yield json.dumps({"table": table, **fields})


def import_lines(store: Store, lines: Iterable[str]) -> int:
    """Put what was exported into a new store; give the number of rows.

    Messages keep their order and get new numbers; executions begin at revision 1.

    Raises:
        StoreBroken: the lines are not what `export_lines` gives, or the store is not empty.

    """
    if next(store.rows("executions", limit=1), None) is not None:
        msg = "only an empty store can take an import: name a new file"
        raise StoreBroken(msg)
    rows = iter(lines)
    try:
        header = json.loads(next(rows, "null"))
        if not isinstance(header, dict) or header.get("actorflow") != _FORMAT:
            msg = f"the first line must be {json.dumps({'actorflow': _FORMAT})}"
            raise StoreBroken(msg)
        count = 0
        while part := [_change(json.loads(line)) for line in itertools.islice(rows, _AT_ONCE)]:
            store.commit(part)
            count += len(part)
    except (ValueError, KeyError, TypeError) as error:
        msg = f"not an export of a store: {error!r}"
        raise StoreBroken(msg) from error
    return count


def _change(row: dict[str, Any]) -> Change:
    table, name = row["table"], row.get("execution", "")
    body = _bytes(row.get("body")) or b""
    if table == "executions":
        change = Change(row["id"], kind=row["kind"], status=row["status"], at=row["updated"])
        if row["revision"]:
            change.expected, change.state = 0, _bytes(row["state"])
        else:
            change.creates = [(row["id"], row["kind"])]
        return change
    if table == "messages":
        return Change(name, messages=[(name, body)], at=row["at"])
    if table == "timers":
        return Change(name, timers=[TimerRow(name, row["id"], row["due"], body)])
    if table == "tasks":
        task = TaskRow(row["id"], name, row["tasker"], body, row["attempts"], row["due"])
        return Change(name, tasks=[task])
    if table == "history":
        return Change(name, history=[body], at=row["at"])
    if table == "dead":
        return Change(name, dead=[DeadRow(0, name, body, row["error"], row["at"])])
    raise KeyError(table)
