"""Copies of a store: a database that was restored, cloned or moved.

A store notes on which server and in which database it was made. Elsewhere no engine runs it before
somebody has said whether it replaces the original, or stands beside it. Beside the original, its
timers, tasks and messages must not run: they would charge each customer twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.engine.errors import StoreMoved
from actorflow.engine.stores.postgres.migrations import read_facts
from actorflow.engine.stores.postgres.schema import HOME, qualified

if TYPE_CHECKING:
    from psycopg import Connection

    from actorflow.engine.stores.postgres.migrations import StoreFacts

__all__ = ["Adopted", "adopt", "has_moved"]

_ARMED = ("messages", "timers", "tasks")
"""What makes executions go on by themselves."""


class Adopted(NamedTuple):
    """The result of adopting a store that was copied or moved."""

    store: str
    """Its id: a new one, if it is a copy."""
    deleted: dict[str, int]
    """Of a copy: how many rows of each table."""


def has_moved(connection: Connection[Any], facts: StoreFacts) -> bool:
    """Return whether a store is elsewhere than where it was made, as far as that can be seen."""
    row = connection.execute(HOME.encode()).fetchone()
    here = None if row is None else row[0]
    return bool(here and facts.home and here != facts.home)


def adopt(
    connection: Connection[Any], schema: str, *, as_copy: bool, certain: bool = False
) -> Adopted:
    """Let engines run a store where it is now. In a transaction of the caller's.

    Args:
        connection: to its database.
        schema: of its tables.
        as_copy: delete its timers, tasks and messages, and give the copy an id of its own.
        certain: also if the store looks like the original.

    Raises:
        StoreMoved: it is to be treated as a copy, and is where it was made.

    """
    facts = read_facts(connection, schema)
    if facts is None or facts.store is None:
        msg = f"schema {schema!r} holds no store of this version: run an engine on it first"
        raise StoreMoved(msg)
    if as_copy and not certain and not has_moved(connection, facts):
        msg = (
            f"schema {schema!r} is where it was made, so this is not a copy: nothing was "
            f"deleted. If the whole server was cloned, repeat the command with --force"
        )
        raise StoreMoved(msg)

    def run(text: str) -> int:
        return connection.execute(qualified(text, schema)).rowcount

    run("UPDATE {s}.meta SET value = coalesce((" + HOME + "), '') WHERE key = 'home'")  # noqa: S608 - ours
    deleted: dict[str, int] = {}
    if as_copy:
        run("UPDATE {s}.meta SET value = gen_random_uuid()::text WHERE key = 'store'")
        run("UPDATE {s}.epochs SET epoch = epoch + 1")
        run("UPDATE {s}.register SET seats = '[]', holdings = '[]'")
        run("DELETE FROM {s}.sessions")
        if facts.has_journal:  # the epochs of a copy begin again
            run("DELETE FROM {s}.journal")
        deleted = {each: run(f"DELETE FROM {{s}}.{each}") for each in _ARMED}  # noqa: S608 - ours
    facts = read_facts(connection, schema)
    assert facts is not None  # noqa: S101 - as above
    return Adopted(facts.store or "", deleted)
