"""How the tables are made, and brought forward.

Migrations go forward only and destroy nothing: each is one transaction that leads from a version to
the next. Code of neighbouring versions works on the same tables, so that workers can be replaced
one after the other:

- A migration only adds what older code need not know. The tables note the oldest code that may use
  them; anything older is refused.
- Code works on tables that are one version older, until their owner migrates them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.engine.errors import StoreBroken, StoreRefused
from actorflow.engine.stores.postgres.schema import HOME, JOURNAL, TABLES, VERSION, qualified
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg import Connection

__all__ = [
    "StoreFacts",
    "definition",
    "ensure_schema",
    "grants",
    "migrate",
    "pending",
    "read_facts",
]

OLDEST_CODE = 2
"""The oldest code that can use tables of this version."""
OLDEST_TABLES = 2
"""The oldest tables that this code can use without a migration."""
OLDEST_SERVER = 130_000

MIGRATIONS: dict[int, str] = {
    1: """
ALTER TABLE {s}.tasks ADD COLUMN worker text COLLATE "C";
CREATE INDEX tasks_worker ON {s}.tasks (worker, number) WHERE worker IS NOT NULL;
""",
    2: """
INSERT INTO {s}.meta VALUES ('oldest', '2'), ('store', gen_random_uuid()::text),
  ('home', coalesce(({home}), '')) ON CONFLICT (key) DO NOTHING;
""",
    3: JOURNAL,
}
"""By the version that each begins from."""

_LOCK = 0x61666C6F  # advisory lock, so that two engines do not change the tables at the same time
# What a superuser or another member of the role adds must belong to the owner: the privileges that
# others get on later tables are those of its tables.
_AS_OWNER = """
SELECT set_config('role', pg_get_userbyid(c.relowner)::text, true) FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = 'executions'
"""
_PATIENCE = "10s"  # for a lock on a table: a migration that waits keeps all others out


class StoreFacts(NamedTuple):
    """What the tables say about themselves."""

    version: int
    oldest: int
    """The oldest code that may use them."""
    partitions: int
    store: str | None
    """The id of the store; `None` before version 3."""
    home: str
    """On which server and in which database it was created; empty if that is not known."""

    @property
    def has_journal(self) -> bool:
        """Whether there is a table for the journal of epochs."""
        return self.version >= 4  # noqa: PLR2004 - of the tables


def ensure_schema(connection: Connection[Any], schema: str, partitions: int) -> StoreFacts:
    """Create the tables if they are not there, bring them forward; return what they say.

    In a transaction of the caller's.

    Raises:
        StoreBroken: the tables are too old or too new for this code, or not ours.
        StoreRefused: the server is too old.

    """
    found = connection.info.server_version
    if found < OLDEST_SERVER:
        msg = f"the server is Postgres {found // 10_000}; actorflow needs 13 or newer"
        raise StoreRefused(msg)
    facts = read_facts(connection, schema)
    if facts is None:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        facts = read_facts(connection, schema)
    if facts is None:
        _refuse_strangers(connection, schema)
        if not _has_schema(connection, schema):
            connection.execute(qualified("CREATE SCHEMA {s}", schema))
        connection.execute(qualified(_tables(partitions), schema))
        facts = read_facts(connection, schema)
        assert facts is not None  # noqa: S101 - they were just made
    if facts.oldest > VERSION:
        msg = (
            f"schema {schema!r} is of version {facts.version}, and this actorflow knows version "
            f"{VERSION}: install a newer one. Nothing was changed"
        )
        raise StoreBroken(msg)
    if facts.version >= VERSION:
        return facts
    if _may_migrate(connection, schema):
        migrate(connection, schema)
        return read_facts(connection, schema) or facts
    if facts.version < OLDEST_TABLES:
        msg = (
            f"schema {schema!r} is of version {facts.version}, and this actorflow needs version "
            f"{OLDEST_TABLES}: let its owner run `actorflow cluster migrate URL`"
        )
        raise StoreBroken(msg)
    log.warning(
        "the schema is older than the code; its owner may run `actorflow cluster migrate`",
        schema=schema,
        version=facts.version,
        code=VERSION,
    )
    return facts


def migrate(connection: Connection[Any], schema: str) -> Sequence[tuple[int, str]]:
    """Bring the tables forward; return the statements. In a transaction of the caller's.

    Raises:
        StoreBroken: there are no tables.

    """
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    connection.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")  # type: ignore[call-overload,unused-ignore]
    steps = pending(connection, schema)
    connection.execute(_AS_OWNER, (schema,))
    for _, text in steps:
        connection.execute(text.encode())
    return steps


def pending(connection: Connection[Any], schema: str) -> Sequence[tuple[int, str]]:
    """Return the versions that are missing, each with the statements that lead to it.

    Raises:
        StoreBroken: there are no tables.

    """
    facts = read_facts(connection, schema)
    if facts is None:
        msg = f"schema {schema!r} has no tables yet: the first engine makes them"
        raise StoreBroken(msg)
    steps = []
    for version in range(facts.version, VERSION):
        noted = (
            f"UPDATE {{s}}.meta SET value = '{version + 1}' WHERE key = 'version';\n"  # noqa: S608 - numbers
            f"UPDATE {{s}}.meta SET value = '{OLDEST_CODE}' WHERE key = 'oldest';\n"
        )
        text = MIGRATIONS[version].replace("{home}", HOME) + noted
        steps.append((version + 1, qualified(text.lstrip(), schema).decode()))
    return steps


def read_facts(connection: Connection[Any], schema: str) -> StoreFacts | None:
    """Return what the tables say; `None` if there are none.

    Raises:
        StoreBroken: there is a table `meta` that is not ours.

    """
    # Not to_regclass, which may remember that there was no such table before others made it.
    found = connection.execute(
        "SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = 'meta'",
        (schema,),
    ).fetchone()
    if found is None:
        return None
    rows = connection.execute(qualified("SELECT key, value FROM {s}.meta", schema)).fetchall()
    meta: Mapping[str, str] = dict(rows)
    if "version" not in meta or "partitions" not in meta:
        msg = f"schema {schema!r} has a table meta that is not ours: name another one, ?schema=..."
        raise StoreBroken(msg)
    version = int(meta["version"])
    oldest = int(meta.get("oldest", version))
    return StoreFacts(
        version, oldest, int(meta["partitions"]), meta.get("store"), meta.get("home", "")
    )


def definition(schema: str, partitions: int, owner: str) -> str:
    """Return the statements that make a store, for a role that will own it."""
    made = qualified(_tables(partitions), schema).decode()
    return (
        f"CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {owner};\n"
        f"SET ROLE {owner};\n{made.strip()}\nRESET ROLE;\n"
    )


def grants(schema: str, owner: str, application: str, reader: str) -> str:
    """Return what engines and people who only look need, also of tables that come later."""
    later = f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema}"
    change = "SELECT, INSERT, UPDATE, DELETE"
    return f"""GRANT USAGE ON SCHEMA {schema} TO {application}, {reader};
GRANT {change} ON ALL TABLES IN SCHEMA {schema} TO {application};
GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {application};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {application};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader};
GRANT SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {reader};
{later} GRANT {change} ON TABLES TO {application};
{later} GRANT SELECT, USAGE ON SEQUENCES TO {application};
{later} GRANT EXECUTE ON FUNCTIONS TO {application};
{later} GRANT SELECT ON TABLES TO {reader};
{later} GRANT SELECT ON SEQUENCES TO {reader};
"""


def _tables(partitions: int) -> str:
    text = TABLES.replace("{partitions}", str(partitions)).replace("{version}", str(VERSION))
    return text.replace("{oldest}", str(OLDEST_CODE)).replace("{home}", HOME)


def _has_schema(connection: Connection[Any], schema: str) -> bool:
    text = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
    return connection.execute(text, (schema,)).fetchone() is not None


def _may_migrate(connection: Connection[Any], schema: str) -> bool:
    """Return whether this role may change the tables: it owns them, or a role that it has does."""
    row = connection.execute(
        "SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = 'executions'",
        (schema,),
    ).fetchone()
    return row is not None and bool(row[0])


def _refuse_strangers(connection: Connection[Any], schema: str) -> None:
    row = connection.execute(
        "SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relkind IN ('r', 'v', 'S') ORDER BY c.relname LIMIT 1",
        (schema,),
    ).fetchone()
    if row is not None:
        msg = f"schema {schema!r} has {row[0]!r}, which is not ours: name another, ?schema=..."
        raise StoreBroken(msg)
