"""Commands that look: they change nothing, and work while the engine runs."""

from __future__ import annotations

from typing import Annotated

import typer

from actorflow.engine.kind import Status
from actorflow.web.commands.arguments import AsJson, ExecutionId, Limit, StoreName, Tags
from actorflow.web.commands.printing import (
    lines_of,
    moment,
    note,
    pages,
    say,
    say_json,
    table,
)
from actorflow.web.commands.reaching import reach

__all__ = ["COMMANDS"]

_COUNTS = ("messages", "timers", "tasks", "dead")
_SHOWN = 1_000  # rows of each list of one execution

Optional = Annotated[
    str | None, typer.Argument(metavar="[EXECUTION]", help="Only of this execution.")
]


def ps(
    store: StoreName,
    *,
    status: Annotated[Status | None, typer.Option(help="Only executions with this status.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only executions of this kind.")] = None,
    parent: Annotated[str | None, typer.Option(help="Only children of this execution.")] = None,
    tag: Tags = None,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List executions, with how much waits for each."""
    chosen = None if status is None else status.value
    with reach(store) as verbs:
        rows, more = pages(
            verbs.executions,
            "executions",
            limit,
            kind=kind,
            status=chosen,
            parent=parent,
            tag=tag or (),
        )
    if json:
        say_json(rows)
    else:
        table(
            ["execution", "kind", "status", "revision", *_COUNTS, "updated (UTC)"],
            [
                [
                    row["id"],
                    row["kind"],
                    row["status"],
                    row["revision"],
                    *(row["counts"][name] for name in _COUNTS),
                    moment(row["updated"]),
                ]
                for row in rows
            ],
        )
    _note_more(more, limit)


def show(store: StoreName, execution: ExecutionId, *, json: AsJson = False) -> None:
    """Show all that is stored of one execution, and what its kind makes of it."""
    with reach(store) as verbs:
        found = verbs.execution(execution, limit=_SHOWN)
    if json:
        say_json(found)
        return
    for line in lines_of(found):
        say(line)


def tasks(
    store: StoreName,
    execution: Optional = None,
    *,
    tasker: Annotated[str | None, typer.Option(help="Only tasks for this tasker.")] = None,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List the tasks that have not ended: what `return-task` and `fail-task` answer."""
    with reach(store) as verbs:
        rows, more = pages(verbs.tasks, "tasks", limit, execution=execution, tasker=tasker)
    if json:
        say_json(rows)
    else:
        table(
            ["task", "execution", "tasker", "attempts"],
            [[row["id"], row["execution"], row["tasker"], row["attempts"]] for row in rows],
        )
    _note_more(more, limit)


def dead(
    store: StoreName, execution: Optional = None, *, limit: Limit = 100, json: AsJson = False
) -> None:
    """List dead letters: messages that could not be processed."""
    with reach(store) as verbs:
        rows, more = pages(verbs.dead_letters, "dead", limit, execution=execution)
    if json:
        say_json(rows)
    else:
        table(
            ["letter", "execution", "at (UTC)", "error"],
            [[row["id"], row["execution"], moment(row["at"]), row["error"]] for row in rows],
        )
    _note_more(more, limit)


def _note_more(more: bool, limit: int) -> None:  # noqa: FBT001 - of one file
    if more:
        note(f"... and more: --limit {limit * 10}")


COMMANDS = {"ps": ps, "show": show, "tasks": tasks, "dead": dead}
