"""The commands for administrators of databases: tables, rights and copies of a store."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from actorflow.api.cli.output import counted, say
from actorflow.runtime.errors import BadOption, install_hint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.stores.postgres.connections import PostgresAddress

__all__ = ["COMMANDS"]

_ROLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")

Database = Annotated[str, typer.Argument(metavar="URL", help="A store on Postgres.")]


def sql(
    *,
    schema: Annotated[str, typer.Option(help="Where the tables are.")] = "actorflow",
    partitions: Annotated[int, typer.Option(min=1, help="How many the store has, for good.")] = 64,
    owner: Annotated[str, typer.Option(help="The role that owns the tables and migrates them.")] = (
        "actorflow_owner"
    ),
    app: Annotated[str, typer.Option(help="The role of engines and workers.")] = "actorflow_app",
    reader: Annotated[str, typer.Option(help="The role of people who only look.")] = (
        "actorflow_reader"
    ),
) -> None:
    """Print the SQL that makes a store on Postgres: tables and grants for three roles.

    For databases in which engines may not make tables themselves. Create the roles first.
    """
    from actorflow.engine.stores.postgres import migrations  # noqa: PLC0415 - an extra
    from actorflow.engine.stores.postgres.schema import check_schema_name  # noqa: PLC0415

    check_schema_name(schema)
    for name, role in (("owner", owner), ("app", app), ("reader", reader)):
        if not _ROLE.fullmatch(role):
            msg = f"--{name} {role!r} is not a valid name: use a-z, digits and _"
            raise BadOption(msg)
    say("BEGIN;")
    say(migrations.definition(schema, partitions, owner).rstrip())
    say(migrations.grants(schema, owner, app, reader).rstrip())
    say("COMMIT;")


def migrate(
    url: Database,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the statements, and change nothing.")
    ] = False,
) -> None:
    """Bring the tables of a store forward to the version of this actorflow.

    Workers of the version before may run meanwhile, and go on.
    """
    from actorflow.engine.stores.postgres import migrations  # noqa: PLC0415 - an extra

    with _connected(url) as (connection, address):
        if dry_run:
            steps = migrations.pending(connection, address.schema)
        else:
            steps = migrations.migrate(connection, address.schema)
        for version, text in steps:
            say(f"-- version {version - 1} to {version}")
            say(text.rstrip())
    done = "to do" if dry_run else "done"
    say(f"-- {counted(len(steps), 'migration')} {done}")


def adopt(
    url: Database,
    *,
    as_copy: Annotated[
        bool,
        typer.Option(
            "--as-copy",
            help="The original stays in use: delete the timers, tasks and messages here.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --as-copy: although this looks like the original.")
    ] = False,
) -> None:
    """Let workers run a store that was restored, cloned or moved. No worker may run on it now."""
    from actorflow.engine.stores.postgres.copies import adopt as adopt_store  # noqa: PLC0415

    with _connected(url) as (connection, address):
        done = adopt_store(connection, address.schema, as_copy=as_copy, certain=force)
    say(f"store {done.store}")
    for table, count in done.deleted.items():
        say(f"{counted(count, 'row')} of {table} deleted")


@contextmanager
def _connected(url: str) -> Iterator[tuple[Any, PostgresAddress]]:
    """Yield a connection in a transaction, which is committed at the end, and its address.

    Raises:
        BadOption: the URL is not of a Postgres database, or psycopg is missing.

    """
    from actorflow.engine.stores.opening import scheme_of  # noqa: PLC0415

    if scheme_of(url) not in {"postgres", "postgresql"}:
        msg = f"{url!r} is no Postgres database: postgresql://host/db"
        raise BadOption(msg)
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BadOption(f"{url!r} needs psycopg: {install_hint('postgres')}") from error
    from actorflow.engine.stores.postgres.connections import PostgresAddress, explain  # noqa: PLC0415

    address = PostgresAddress(url)
    try:
        with address.connect() as connection:
            yield connection, address
    except psycopg.Error as error:
        raise explain(error, address) from error


COMMANDS = {"sql": sql, "migrate": migrate, "adopt": adopt}
