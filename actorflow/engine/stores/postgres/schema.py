"""The tables, in a schema of their own."""

from __future__ import annotations

import re

from actorflow.runtime.errors import BadOption

__all__ = ["COLUMNS", "HOME", "JOURNAL", "TABLES", "VERSION", "check_schema_name", "qualified"]

VERSION = 4

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")

HOME = """
SELECT CASE WHEN has_function_privilege('pg_control_system()', 'EXECUTE')
  THEN (SELECT system_identifier::text FROM pg_control_system()) || '/' ||
    (SELECT oid::text FROM pg_database WHERE datname = current_database()) END
""".strip()
"""Where this database is: another server, or another database on it, gives something else."""

# The member is part of the key: two of them in one epoch must be seen.
JOURNAL = """
CREATE TABLE {s}.journal (
  partition bigint NOT NULL, epoch bigint NOT NULL, member text COLLATE "C" NOT NULL,
  PRIMARY KEY (partition, epoch, member)
);
""".lstrip()

# Texts are compared byte by byte, which is how Python orders them. `ended` repeats `updated` for
# what a purge may forget: an index on `updated` would make each commit of a state dearer. A state
# that has `grown` is followed by its parts.
TABLES = """
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
{journal}CREATE TABLE {s}.register (
  single boolean PRIMARY KEY CHECK (single), seats jsonb NOT NULL, holdings jsonb NOT NULL
) WITH (fillfactor = 20);
CREATE FUNCTION {s}.must(fine boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT fine THEN
    RAISE EXCEPTION 'actorflow: the stored rows do not match the commit'
      USING ERRCODE = 'AF001';
  END IF;
END $$;
INSERT INTO {s}.epochs SELECT number, 0 FROM generate_series(0, {partitions} - 1) AS number;
INSERT INTO {s}.register VALUES (true, '[]', '[]');
INSERT INTO {s}.meta VALUES ('partitions', '{partitions}'), ('version', '{version}'),
  ('oldest', '{oldest}'), ('store', gen_random_uuid()::text), ('home', coalesce(({home}), ''));
""".replace("{journal}", JOURNAL)

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
"""The columns of each table, in the order of the fields of its rows."""


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
