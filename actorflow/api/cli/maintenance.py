"""Commands that keep a store in order: dead letters, purges, checks, copies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from actorflow.api.cli.arguments import AsJson, StoreItself, StoreName  # noqa: TC001 - typer reads it
from actorflow.api.cli.connect import looking, reach
from actorflow.api.cli.output import counted, note, say, say_json
from actorflow.api.plain import plain
from actorflow.engine.errors import StoreBroken
from actorflow.engine.stores.opening import open_store, scheme_of, without_password
from actorflow.runtime.errors import BadOption

__all__ = ["COMMANDS"]

_DAYS = 1_000_000.0


def purge(
    store: StoreName,
    *,
    days: Annotated[
        float,
        typer.Option(min=0, max=_DAYS, help="Keep executions that ended in so many days."),
    ] = 30.0,
    dead: Annotated[bool, typer.Option("--dead", help="Also delete all dead letters.")] = False,
    json: AsJson = False,
) -> None:
    """Delete executions that ended some time ago, with their history."""
    with reach(store, to_change=True) as verbs:
        found = {"execution": verbs.purge(days=days)["purged"]}
        if dead:
            found["dead letter"] = verbs.bury()["purged"]
    if json:
        say_json({f"{name}s": count for name, count in found.items()})
        return
    for name, count in found.items():
        say(f"{counted(count, name)} forgotten")


def verify(store: StoreItself, *, json: AsJson = False) -> None:
    """Look for damage: in the file, and in what its rows say.

    The exit code is 1 if there is any. Its engine may run meanwhile.
    """
    from actorflow.engine.operations.verify import verify_store  # noqa: PLC0415

    with looking(store) as found:
        problems = list(verify_store(found))
    if json:
        say_json([plain(problem._asdict()) for problem in problems])
    else:
        for problem in problems:
            say(str(problem))
        note(counted(len(problems), "problem") if problems else "no problem was found")
    if problems:
        raise typer.Exit(1)


def export(store: StoreItself) -> None:
    """Write a store to stdout as JSON lines, also while its engine runs."""
    from actorflow.engine.operations.export import export_lines  # noqa: PLC0415

    with looking(store) as found:
        for line in export_lines(found):
            say(line)


def import_(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A file or URL; it must be new.")],
    *,
    as_copy: Annotated[
        bool,
        typer.Option(
            "--as-copy",
            help="The original stays in use: leave out its timers, tasks and messages.",
        ),
    ] = False,
) -> None:
    """Create a store from JSON lines on stdin."""
    from actorflow.engine.operations.export import import_lines  # noqa: PLC0415

    is_file = scheme_of(store) is None
    if is_file and store and Path(store).exists():
        msg = f"{store} is there already: an import makes a new store"
        raise StoreBroken(msg)
    made = open_store(store)
    try:
        lines = sys.stdin or ()  # None if the caller has closed it
        count = import_lines(made, lines, as_copy=as_copy)
    except BaseException:
        made.close()
        if is_file:
            for end in ("", ".lock", "-wal", "-shm"):
                Path(f"{store}{end}").unlink(missing_ok=True)
        raise
    made.close()
    say(counted(count, "row"))


def version() -> None:
    """Print the version of actorflow."""
    from actorflow import __version__  # noqa: PLC0415 - so that --help does not load the library

    say(__version__)


def backup(
    store: StoreItself,
    target: Annotated[Path, typer.Argument(metavar="COPY", help="A new file.")],
) -> None:
    """Copy a store to a new file, also while its engine runs."""
    with looking(store) as found:
        if not found.traits.backup:
            msg = f"{without_password(store)} has no backup; export it instead"
            raise BadOption(msg)
        found.backup(target)  # type: ignore[attr-defined] # its trait says so
    say(f"{target}: {target.stat().st_size:,} bytes")


COMMANDS = {
    "version": version,
    "purge": purge,
    "verify": verify,
    "export": export,
    "import": import_,
    "backup": backup,
}
