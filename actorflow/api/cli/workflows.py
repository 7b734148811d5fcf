"""The commands `actorflow workflows ...`: export recorded instances, check code against them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable  # noqa: TC003 - typer reads it
from pathlib import Path
from typing import Annotated

import typer

from actorflow.api.cli.arguments import ExecutionId, StoreItself  # noqa: TC001 - typer reads it
from actorflow.api.cli.connect import looking
from actorflow.api.cli.output import note, say, say_json
from actorflow.api.cli.setup import App, load_setup, set_up
from actorflow.engine.errors import KindMismatch, UnknownExecution
from actorflow.engine.stores.opening import without_password
from actorflow.runtime.errors import BadOption

__all__ = ["COMMANDS", "HELP"]

HELP = "Export recorded workflows, and check new code against them."

Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="What `workflows export` has printed.")
]


def export(store: StoreItself, execution: ExecutionId) -> None:
    """Print all that is recorded of an instance as JSON, for `workflows check`."""
    from actorflow.workflows.service.names import kind_name  # noqa: PLC0415 - keeps --help fast
    from actorflow.workflows.service.stored import read_row, record_of  # noqa: PLC0415

    with looking(store) as rows:
        row = rows.execution(execution)
    if row is None:
        msg = f"there is no execution {execution!r} in {without_password(store)}"
        raise UnknownExecution(msg)
    if not row.kind.startswith(kind_name("")) or row.state is None:
        msg = f"execution {execution!r} is of kind {row.kind!r}, not a workflow that has begun"
        raise KindMismatch(msg)
    say_json(record_of(read_row(row)))


def check(files: Files, *, app: App) -> None:
    """Replay recorded instances with the code that SETUP registers; exit with 1 if it differs."""
    from actorflow.application import Engine  # noqa: PLC0415 - after the arguments were checked

    setup = load_setup(app)
    differ = 0
    with Engine(":memory:") as engine:
        set_up(app, setup, engine)
        for file in files:
            found = engine.workflows.check(_record(file))
            say(f"{file}: {'the same' if found is None else found}")
            differ += found is not None
    if differ:
        note(f"actorflow: {differ} of {len(files)} differ")
        sys.exit(1)


def _record(file: Path) -> dict[str, object]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{file} cannot be read: {error}"
        raise typer.BadParameter(msg) from None
    except ValueError as error:
        msg = f"{file} is not JSON: {error}"
        raise BadOption(msg) from None
    if not isinstance(found, dict):
        msg = f"{file} holds no recorded workflow: write one with `actorflow workflows export`"
        raise BadOption(msg)
    return found


COMMANDS: dict[str, Callable[..., None]] = {"export": export, "check": check}
