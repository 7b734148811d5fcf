"""The tables of the SQLite store, and the texts of its statements."""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

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
    import sqlite3
    from collections.abc import Sequence

__all__ = [
    "APPEND",
    "APPEND_ACTIVE",
    "APPLICATION",
    "CHUNK",
    "COLUMNS",
    "CREATE",
    "CREATE_OR_UPDATE",
    "HAS_ROWS",
    "KEEP_ACTIVE",
    "MOVE_STATE",
    "NOTE",
    "ORDER",
    "SCHEMA",
    "SELECTED",
    "UPDATE",
    "UPDATE_PARTS",
    "VERSION",
    "WRONG_PARTS",
    "insert",
    "listed",
]

APPLICATION = 0x61666C6F  # "aflo": PRAGMA application_id of our files
VERSION = 5
# An index holds the primary key as well, so `messages (execution)` is in the order of their ids.
# The table is in the order of arrival: a commit to a hundred executions writes a few pages.
# A state that grows is kept in `parts`, of which `executions.parts` is the number; the part of
# revision 0 is what there was before. So adding to a state does not write what it was.
SCHEMA = """
CREATE TABLE executions (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, revision INTEGER NOT NULL, status TEXT NOT NULL,
  state BLOB, version INTEGER NOT NULL, result BLOB, error BLOB, parent TEXT,
  created REAL NOT NULL, updated REAL NOT NULL, parts INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE parts (
  execution TEXT NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (execution, revision)
) WITHOUT ROWID;
CREATE INDEX executions_kind ON executions (kind);
CREATE INDEX executions_status ON executions (status);
CREATE INDEX executions_parent ON executions (parent) WHERE parent IS NOT NULL;
CREATE INDEX executions_ended ON executions (updated)
  WHERE status IN ('done', 'failed', 'cancelled');
CREATE TABLE messages (
  id INTEGER PRIMARY KEY, execution TEXT NOT NULL, type TEXT NOT NULL, body BLOB NOT NULL,
  at REAL NOT NULL, attempts INTEGER NOT NULL
);
CREATE INDEX messages_execution ON messages (execution);
CREATE TABLE timers (
  execution TEXT NOT NULL, id TEXT NOT NULL, due REAL NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (execution, id)
) WITHOUT ROWID;
CREATE INDEX timers_due ON timers (due);
CREATE TABLE tasks (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, execution TEXT NOT NULL,
  tasker TEXT NOT NULL, body BLOB NOT NULL, attempts INTEGER NOT NULL, due REAL NOT NULL,
  timeout REAL, retries INTEGER, priority INTEGER NOT NULL, tell_start INTEGER NOT NULL,
  worker TEXT
);
CREATE INDEX tasks_execution ON tasks (execution);
CREATE INDEX tasks_tasker ON tasks (tasker);
CREATE TABLE watches (
  execution TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (execution, id)
) WITHOUT ROWID;
CREATE TABLE history (
  id INTEGER PRIMARY KEY, execution TEXT NOT NULL, at REAL NOT NULL, body BLOB NOT NULL
);
CREATE INDEX history_execution ON history (execution);
CREATE TABLE dead (
  number INTEGER PRIMARY KEY, id INTEGER NOT NULL UNIQUE, execution TEXT NOT NULL,
  type TEXT NOT NULL, body BLOB NOT NULL, error TEXT NOT NULL, at REAL NOT NULL
);
CREATE INDEX dead_execution ON dead (execution);
CREATE TABLE tags (
  execution TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY (execution, name)
) WITHOUT ROWID;
CREATE INDEX tags_value ON tags (name, value, execution);
CREATE TABLE keys (
  execution TEXT NOT NULL, key TEXT NOT NULL, message INTEGER NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (execution, key)
) WITHOUT ROWID;
CREATE INDEX keys_at ON keys (at);
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""

COLUMNS: dict[str, str] = {
    "executions": ", ".join(ExecutionRow._fields),
    "messages": ", ".join(MessageRow._fields),
    "timers": ", ".join(TimerRow._fields),
    "tasks": ", ".join(TaskRow._fields),
    "watches": ", ".join(WatchRow._fields),
    "history": ", ".join(HistoryRow._fields),
    "dead": ", ".join(DeadRow._fields),
    "tags": "execution, name, value",
    "keys": "execution, key, message, at",
}
"""The columns of each table, in the order of the fields of its rows."""

_STATE = (
    "CASE WHEN parts THEN (SELECT joined(revision, data) FROM parts"
    " WHERE execution = executions.id) ELSE state END AS state"
)
SELECTED: dict[str, str] = {
    **COLUMNS,
    "executions": ", ".join(_STATE if name == "state" else name for name in ExecutionRow._fields),
}
"""The columns that are read of each table, with the state of an execution in one piece."""

ORDER: dict[str, str] = {
    "executions": "id",
    "messages": "execution, id",
    "timers": "execution, id",
    "tasks": "number",
    "watches": "execution, id",
    "history": "id",
    "dead": "number",
    "tags": "execution, name",
    "keys": "execution, key",
}
"""In which a snapshot has the rows of each table."""

CHUNK = 64  # rows that one statement reads or inserts

KEEP_ACTIVE = (
    "UPDATE executions SET revision = ?, state = ?, version = ?, result = ?, error = ?,"
    " updated = ? WHERE id = ? AND revision = ? AND status = 'active' AND parts = 0"
)
"""Leaves the status alone, and so its index."""
UPDATE = (
    "UPDATE executions SET revision = ?, state = ?, version = ?, result = ?, error = ?,"
    " updated = ?, status = ? WHERE id = ? AND revision = ? AND parts = 0"
)
UPDATE_PARTS = (
    "UPDATE executions SET revision = ?, state = ?, version = ?, result = ?, error = ?,"
    " updated = ?, status = ?, parts = 0 WHERE id = ? AND revision = ?"
)
"""For one that may have parts, which are to be removed then."""
APPEND_ACTIVE = (
    "UPDATE executions SET revision = ?, version = ?, result = ?, error = ?, updated = ?,"
    " parts = parts + 1 WHERE id = ? AND revision = ? AND status = 'active' AND parts > 0"
)
MOVE_STATE = (
    "INSERT INTO parts SELECT id, 0, state FROM executions"
    " WHERE id = ? AND revision = ? AND state IS NOT NULL"
)
APPEND = (
    "UPDATE executions SET revision = ?, version = ?, result = ?, error = ?, updated = ?,"
    " status = ?, parts = parts + 1 + (state IS NOT NULL), state = NULL"
    " WHERE id = ? AND revision = ?"
)
"""After `MOVE_STATE`."""
_VALUES = f"INSERT INTO executions ({COLUMNS['executions']}) VALUES (?{', ?' * 10})"  # noqa: S608
CREATE = f"{_VALUES} ON CONFLICT (id) DO NOTHING"
CREATE_OR_UPDATE = (
    f"{_VALUES} ON CONFLICT (id) DO UPDATE SET revision = excluded.revision,"
    " status = excluded.status, state = excluded.state, version = excluded.version,"
    " result = excluded.result, error = excluded.error, updated = excluded.updated"
    " WHERE executions.revision = 0"
)
HAS_ROWS = (
    "SELECT EXISTS (SELECT 1 FROM timers WHERE execution = ?),"
    " EXISTS (SELECT 1 FROM tasks WHERE execution = ?),"
    " EXISTS (SELECT 1 FROM watches WHERE execution = ?)"
)
WRONG_PARTS = """
SELECT id, parts, found FROM (
  SELECT id, parts, (SELECT count(*) FROM parts WHERE execution = executions.id) AS found
  FROM executions
  UNION ALL
  SELECT execution, 0, count(*) FROM parts
  WHERE execution NOT IN (SELECT id FROM executions) GROUP BY execution
) WHERE parts != found
"""
NOTE = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

_REPLACED = " ON CONFLICT (execution, id) DO UPDATE SET "
_INSERT: dict[str, tuple[str, str]] = {
    "executions": (COLUMNS["executions"], ""),
    "messages": (COLUMNS["messages"], ""),
    "timers": (COLUMNS["timers"], f"{_REPLACED}due = excluded.due, body = excluded.body"),
    "tasks": (f"number, {COLUMNS['tasks']}", ""),
    "watches": (COLUMNS["watches"], f"{_REPLACED}kind = excluded.kind, body = excluded.body"),
    "history": (COLUMNS["history"], ""),
    "dead": (f"number, {COLUMNS['dead']}", ""),
    "tags": (COLUMNS["tags"], ""),
    "keys": (COLUMNS["keys"], ""),
}


@cache
def _insert_text(table: str, count: int) -> str:
    columns, conflict = _INSERT[table]
    values = f"(?{', ?' * columns.count(',')})"
    return (
        f"INSERT INTO {table} ({columns}) VALUES "  # noqa: S608 - names of our own
        f"{', '.join([values] * count)}{conflict}"
    )


def insert(connection: sqlite3.Connection, table: str, rows: Sequence[Any]) -> None:
    """Insert rows, many with each statement: each gives up the interpreter lock once."""
    count = len(rows)
    if count == 1:
        connection.execute(_insert_text(table, 1), rows[0])
        return
    for at in range(0, count, CHUNK):
        chunk = rows[at : at + CHUNK] if count > CHUNK else rows
        values = list(chain.from_iterable(chunk))
        connection.execute(_insert_text(table, len(chunk)), values)


@cache
def listed(count: int) -> str:
    """Return placeholders for `count` values.

    >>> listed(3)
    '(?, ?, ?)'
    """
    return f"({', '.join('?' * count)})"
