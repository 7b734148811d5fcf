"""The tables, in a schema of their own; how they are made, and brought forward.

Migrations go forward only and destroy nothing: each is one transaction that leads from a version to
the next. A schema that is newer than this code is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import StoreBroken, StoreRefused
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["COLUMNS", "VERSION", "check_schema_name", "ensure_schema", "qualified"]

VERSION = 2
OLDEST_SERVER = 130_000

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_LOCK = 0x61666C6F  # advisory lock, so that two engines do not create the tables at the same time

# Texts are compared byte by byte, which is how Python orders them. `ended` repeats `updated` for
# what a purge may forget: an index on `updated` would make each commit of a state dearer. A state
# that has `grown` is followed by its parts.
_TABLES = """
CREATE SCHEMA IF NOT EXISTS {s};
CREATE TABLE {s}.meta (key text PRIMARY KEY, value text NOT NULL);
CREATE SEQUENCE {s}.ids AS bigint;
CREATE TABLE {s}.executions (
  id text COLLATE "C" PRIMARY KEY, kind text COLLATE "C" NOT NULL, revision bigint NOT NULL,
  status text COLLATE "C" NOT NULL, state bytea, version integer NOT NULL, result bytea,
  error bytea, parent text COLLATE "C", created double precision NOT NULL,
  updated double precision NOT NULL, ended double precision, partition bigint NOT NULL,
  grown boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);
ALTER TABLE {s}.executions ALTER state SET STORAGE EXTERNAL;
CREATE INDEX executions_kind ON {s}.executions (kind, id);
CREATE INDEX executions_status ON {s}.executions (status, id);
CREATE INDEX executions_parent ON {s}.executions (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX executions_ended ON {s}.executions (ended) WHERE ended IS NOT NULL;
CREATE TABLE {s}.parts (
  execution text COLLATE "C" NOT NULL, revision bigint NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (execution, revision)
);
ALTER TABLE {s}.parts ALTER body SET STORAGE EXTERNAL;
CREATE TABLE {s}.tags (
  execution text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  value text COLLATE "C" NOT NULL, PRIMARY KEY (execution, name)
);
CREATE INDEX tags_value ON {s}.tags (name, value, execution);
CREATE TABLE {s}.messages (
  partition bigint NOT NULL, execution text COLLATE "C" NOT NULL, id bigint NOT NULL,
  type text NOT NULL, body bytea NOT NULL, at double precision NOT NULL,
  attempts integer NOT NULL, PRIMARY KEY (partition, execution, id)
);
ALTER TABLE {s}.messages ALTER body SET STORAGE EXTERNAL;
CREATE TABLE {s}.timers (
  partition bigint NOT NULL, execution text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
  due double precision NOT NULL, body bytea NOT NULL, PRIMARY KEY (partition, execution, id)
);
CREATE INDEX timers_due ON {s}.timers (due, partition);
CREATE TABLE {s}.tasks (
  number bigint PRIMARY KEY DEFAULT nextval('{s}.ids'), id text COLLATE "C" NOT NULL,
  execution text COLLATE "C" NOT NULL, tasker text COLLATE "C" NOT NULL, body bytea NOT NULL,
  attempts integer NOT NULL, due double precision NOT NULL, timeout double precision,
  retries integer, priority integer NOT NULL, tell_start boolean NOT NULL,
  partition bigint NOT NULL, worker text COLLATE "C", CONSTRAINT tasks_id UNIQUE (id)
);
CREATE INDEX tasks_execution ON {s}.tasks (execution, number);
CREATE INDEX tasks_tasker ON {s}.tasks (tasker, number);
CREATE INDEX tasks_worker ON {s}.tasks (worker, number) WHERE worker IS NOT NULL;
CREATE TABLE {s}.watches (
  execution text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, kind text NOT NULL,
  body bytea NOT NULL, PRIMARY KEY (execution, id)
);
CREATE TABLE {s}.history (
  id bigint NOT NULL DEFAULT nextval('{s}.ids'), execution text COLLATE "C" NOT NULL,
  at double precision NOT NULL, body bytea NOT NULL, PRIMARY KEY (execution, id)
);
CREATE TABLE {s}.dead (
  number bigint PRIMARY KEY, id bigint NOT NULL, execution text COLLATE "C" NOT NULL,
  type text NOT NULL, body bytea NOT NULL, error text NOT NULL, at double precision NOT NULL,
  CONSTRAINT dead_id UNIQUE (id)
);
CREATE INDEX dead_execution ON {s}.dead (execution, number);
CREATE TABLE {s}.keys (
  execution text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, message bigint NOT NULL,
  at double precision NOT NULL, PRIMARY KEY (execution, key)
);
CREATE INDEX keys_at ON {s}.keys (at);
CREATE TABLE {s}.sessions (
  id uuid PRIMARY KEY, incarnation bigint NOT NULL, last bigint NOT NULL, ids bigint[],
  seen timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE {s}.epochs (number bigint PRIMARY KEY, epoch bigint NOT NULL);
CREATE TABLE {s}.register (
  single boolean PRIMARY KEY CHECK (single), seats jsonb NOT NULL, holdings jsonb NOT NULL
) WITH (fillfactor = 20);
CREATE FUNCTION {s}.must(fine boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT fine THEN
    RAISE EXCEPTION 'actorflow: what is stored is not what the commit expects'
      USING ERRCODE = 'AF001';
  END IF;
END $$;
INSERT INTO {s}.epochs SELECT number, 0 FROM generate_series(0, {partitions} - 1) AS number;
INSERT INTO {s}.register VALUES (true, '[]', '[]');
INSERT INTO {s}.meta VALUES ('partitions', '{partitions}'), ('version', '{version}');
"""

_MIGRATIONS: dict[int, str] = {
    1: """
ALTER TABLE {s}.tasks ADD COLUMN worker text COLLATE "C";
CREATE INDEX tasks_worker ON {s}.tasks (worker, number) WHERE worker IS NOT NULL;
""",
}
"""By the version that each begins from."""

COLUMNS: dict[str, str] = {
    "executions": (
        "id, kind, revision, status, CASE WHEN grown THEN coalesce(state, '') || coalesce(("
        "SELECT string_agg(body, ''::bytea ORDER BY p.revision) FROM {s}.parts AS p"
        " WHERE p.execution = executions.id), '') ELSE state END, version, result, error, parent,"
        " created, updated"
    ),
    "messages": "id, execution, type, body, at, attempts",
    "timers": "execution, id, due, body",
    "tasks": (
        "id, execution, tasker, body, attempts, due, timeout, retries, priority, tell_start, worker"
    ),
    "watches": "execution, id, kind, body",
    "history": "id, execution, at, body",
    "dead": "id, execution, type, body, error, at",
    "tags": "execution, name, value",
    "keys": "execution, key, message, at",
}
"""Of each table, in the order of the fields of its rows."""


def check_schema_name(name: str) -> str:
    """Return the name of a schema that can be written without quotes.

    Raises:
        BadOption: it cannot.

    """
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        msg = f"schema={name!r} is not a valid name: use a-z, digits and _, as in 'af'"
        raise BadOption(msg)
    return name


def qualified(text: str, schema: str) -> bytes:
    """Return a statement with its tables in a schema.

    >>> qualified("SELECT * FROM {s}.timers", "actorflow")
    b'SELECT * FROM actorflow.timers'
    """
    return text.replace("{s}", schema).encode()


def ensure_schema(connection: Connection[Any], schema: str, partitions: int) -> int:
    """Create the tables if they are not there, bring them forward; return how many partitions.

    In a transaction of the caller's.

    Raises:
        StoreBroken: the schema is of a newer version, or holds other tables.
        StoreRefused: the server is too old.

    """
    found = connection.info.server_version
    if found < OLDEST_SERVER:
        msg = f"the server is Postgres {found // 10_000}; actorflow needs 13 or newer"
        raise StoreRefused(msg)
    if _version(connection, schema) is None:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    version = _version(connection, schema)
    if version is None:
        _refuse_strangers(connection, schema)
        text = _TABLES.replace("{partitions}", str(partitions))
        connection.execute(qualified(text.replace("{version}", str(VERSION)), schema))
        version = VERSION
    if version > VERSION:
        msg = (
            f"schema {schema!r} is of version {version}, and this actorflow knows version "
            f"{VERSION}: install a newer one. Nothing was changed"
        )
        raise StoreBroken(msg)
    if version < VERSION:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        for step in range(_version(connection, schema) or version, VERSION):
            connection.execute(qualified(_MIGRATIONS[step], schema))
        _note(connection, schema, "version", VERSION)
    row = connection.execute(
        qualified("SELECT value FROM {s}.meta WHERE key = 'partitions'", schema)
    ).fetchone()
    if row is None:
        msg = f"schema {schema!r} does not say how many partitions it has: it is damaged"
        raise StoreBroken(msg)
    return int(row[0])


def _note(connection: Connection[Any], schema: str, key: str, value: object) -> None:
    text = qualified("UPDATE {s}.meta SET value = %s WHERE key = %s", schema)
    connection.execute(text, (str(value), key))


def _version(connection: Connection[Any], schema: str) -> int | None:
    """Return the version of the tables; `None` if there are none."""
    # Not to_regclass, which may remember that there was no such table before others made it.
    found = connection.execute(
        "SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = 'meta'",
        (schema,),
    ).fetchone()
    if found is None:
        return None
    row = connection.execute(
        qualified("SELECT value FROM {s}.meta WHERE key = 'version'", schema)
    ).fetchone()
    if row is None:
        msg = f"schema {schema!r} has a table meta that is not ours: name another one, ?schema=..."
        raise StoreBroken(msg)
    return int(row[0])


def _refuse_strangers(connection: Connection[Any], schema: str) -> None:
    row = connection.execute(
        "SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relkind IN ('r', 'v', 'S') ORDER BY c.relname LIMIT 1",
        (schema,),
    ).fetchone()
    if row is not None:
        msg = f"schema {schema!r} has {row[0]!r}, which is not ours: name another, ?schema=..."
        raise StoreBroken(msg)
