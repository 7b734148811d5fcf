"""Commands on a store: look while its engine runs, mend while it does not."""

from __future__ import annotations

import json
import sys
from collections import Counter
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import typer

    from actorflow.engine.engine import Engine
    from actorflow.engine.stores.protocol import Store

__all__ = ["mount"]


def mount(app: typer.Typer) -> None:
    """Add the commands to an application. Each imports the engine when it is called."""
    for command in (ps, show, cancel, retry, purge, export, import_, backup):
        app.command(command.__name__.rstrip("_"))(_telling(command))


def _telling(command: Callable[..., None]) -> Callable[..., None]:
    """Make the errors of the engine one line on stderr, and the exit code 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except ActorflowError as error:
            sys.exit(f"actorflow: {error}")

    return run


def _look(where: str) -> Store:
    from actorflow.engine.stores.opening import open_store  # noqa: PLC0415

    return open_store(where, read_only=True)


def _engine(where: str) -> Engine:
    """Open a store that must be there, for changes; no kind runs in it."""
    from actorflow.engine.engine import Engine  # noqa: PLC0415

    _look(where).close()
    return Engine(where)


def _say(text: str = "") -> None:
    sys.stdout.write(f"{text}\n")


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def ps(
    store: str,
    status: str = "",
    limit: int = 100,
) -> None:
    """List the executions of a store, or those of a status, also while its engine runs."""
    found = _look(store)
    waiting = {
        table: Counter(row.execution for row in found.rows(table))
        for table in ("messages", "timers", "tasks", "dead")
    }
    rows = [["execution", "kind", "status", "revision", *waiting, "updated (UTC)"]]
    more = 0
    for row in found.rows("executions"):
        if status and row.status != status:
            continue
        if len(rows) > limit:
            more += 1
            continue
        counts = [str(counter[row.id]) for counter in waiting.values()]
        rows.append([row.id, row.kind, row.status, str(row.revision), *counts, _time(row.updated)])
    for line in _table(rows):
        _say(line)
    if more:
        _say(f"... and {more} more: --limit {limit + more}")
    found.close()


def show(store: str, execution: str) -> None:
    """Show all that is stored of one execution, as JSON."""
    from actorflow.engine.errors import UnknownExecution  # noqa: PLC0415
    from actorflow.engine.operations.export import readable  # noqa: PLC0415
    from actorflow.runtime.errors import near  # noqa: PLC0415

    found = _look(store)
    row = found.execution(execution)
    if row is None:
        names = [each.id for each in found.rows("executions", limit=1_000)]
        msg = f"there is no execution {execution!r}{near(execution, names)}"
        raise UnknownExecution(msg)

    def plain(row: Any) -> dict[str, Any]:
        fields: dict[str, Any] = row._asdict()
        for name in ("state", "body"):
            if name in fields:
                value = readable(fields[name])
                fields[name] = value["json"] if value and "json" in value else value
        return fields

    whole = plain(row)
    for table in ("messages", "timers", "tasks", "dead", "history"):
        whole[table] = [plain(each) for each in found.rows(table, execution)]
    _say(json.dumps(whole, indent=2))
    found.close()


def cancel(store: str, execution: str) -> None:
    """End an execution: its messages, timers and tasks go. Its engine must not be running."""
    with _engine(store) as engine:
        done = engine.cancel(execution)
    _say("cancelled" if done else "it had ended already")


def retry(store: str, execution: str = "") -> None:
    """Make messages of dead letters again: of one execution, or of all."""
    with _engine(store) as engine:
        count = engine.dead_letters(execution or None).retry()
    _say(f"{count} messages will be tried again")


def purge(store: str, days: float = 30.0, *, dead: bool = False) -> None:
    """Forget what ended, and history, older than so many days; with --dead all dead letters."""
    with _engine(store) as engine:
        count = engine.purge(before=engine.clock.now() - days * 86_400)
        _say(f"{count} executions forgotten")
        if dead:
            _say(f"{engine.dead_letters().purge()} dead letters forgotten")


def export(store: str) -> None:
    """Write a store to stdout as JSON lines, also while its engine runs."""
    from actorflow.engine.operations.export import export_lines  # noqa: PLC0415

    found = _look(store)
    for line in export_lines(found):
        _say(line)
    found.close()


def import_(store: str) -> None:
    """Make a new store of JSON lines from stdin."""
    from actorflow.engine.errors import StoreBroken  # noqa: PLC0415
    from actorflow.engine.operations.export import import_lines  # noqa: PLC0415
    from actorflow.engine.stores.opening import open_store, scheme_of  # noqa: PLC0415

    if scheme_of(store) is None and Path(store).exists():
        msg = f"{store} is there already: an import makes a new store"
        raise StoreBroken(msg)
    made = open_store(store)
    try:
        _say(f"{import_lines(made, sys.stdin)} rows")
    finally:
        made.close()


def backup(store: str, target: Path) -> None:
    """Copy a store to a new file, also while its engine runs."""
    from actorflow.runtime.errors import BadOption  # noqa: PLC0415

    found = _look(store)
    try:
        copy = getattr(found, "backup", None)
        if copy is None:
            msg = f"{store} has no backup; export it instead"
            raise BadOption(msg)
        copy(target)
    finally:
        found.close()
    _say(f"{target}: {target.stat().st_size} bytes")
