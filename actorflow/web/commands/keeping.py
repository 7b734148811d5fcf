"""Commands that keep a store in order: dead letters, purges, checks, copies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from actorflow.engine.errors import StoreBroken, UnknownLetter
from actorflow.engine.stores.opening import open_store, scheme_of, without_password
from actorflow.runtime.errors import BadOption
from actorflow.web.commands.arguments import AsJson, StoreItself, StoreName
from actorflow.web.commands.printing import counted, note, say, say_json
from actorflow.web.commands.reaching import looking, reach
from actorflow.web.plain import plain

__all__ = ["COMMANDS"]

_LAST = 2**63 - 1  # what a store can number
_DAYS = 1_000_000.0

Letters = Annotated[
    list[int] | None,
    typer.Option(
        "--letter", metavar="ID", min=1, max=_LAST, help="Only this one; may be repeated."
    ),
]


def retry(
    store: StoreName,
    execution: Annotated[
        str | None, typer.Argument(metavar="[EXECUTION]", help="Only letters of this one.")
    ] = None,
    *,
    letter: Letters = None,
    json: AsJson = False,
) -> None:
    """Re-queue dead letters: all, those of one execution, or single ones."""
    with reach(store, to_change=True) as verbs:
        found = verbs.retry(execution=execution, letters=letter)
    say_json(found) if json else say(f"{counted(found['retried'], 'message')} will be tried again")
    missing = 0 if letter is None else len(set(letter)) - found["retried"]
    if missing:
        of = "" if execution is None else f" of {execution!r}"
        where = without_password(store)
        msg = f"{counted(missing, 'dead letter')}{of} not found: see actorflow dead {where}"
        raise UnknownLetter(msg)


def purge(
    store: StoreName,
    *,
    days: Annotated[
        float, typer.Option(min=0, max=_DAYS, help="Keep what has ended within so many days.")
    ] = 30.0,
    dead: Annotated[bool, typer.Option("--dead", help="Delete all dead letters, too.")] = False,
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
    """Look for damage: in the file, and in what its rows say. The exit code is 1 if there is any.

    Its engine may run meanwhile.
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
) -> None:
    """Create a store from JSON lines on stdin."""
    from actorflow.engine.operations.export import import_lines  # noqa: PLC0415

    is_file = scheme_of(store) is None
    if is_file and store and Path(store).exists():
        msg = f"{store} is there already: an import makes a new store"
        raise StoreBroken(msg)
    made = open_store(store)
    try:
        count = import_lines(made, sys.stdin or ())  # None if the caller has closed it
    except BaseException:
        made.close()
        if is_file:
            for end in ("", ".lock", "-wal", "-shm"):
                Path(f"{store}{end}").unlink(missing_ok=True)
        raise
    made.close()
    say(counted(count, "row"))


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
    "retry": retry,
    "purge": purge,
    "verify": verify,
    "export": export,
    "import": import_,
    "backup": backup,
}
