"""Commands that look: they change nothing, and work while the engine runs."""

from __future__ import annotations

import json as json_
from typing import Annotated, Any

import typer

from actorflow.api.cli.arguments import AsJson, ExecutionId, Limit, StoreName, Tags  # noqa: TC001 - typer reads it
from actorflow.api.cli.connect import reach
from actorflow.api.cli.output import (
    counted,
    lines_of,
    moment,
    note,
    pages,
    say,
    say_json,
    shortened,
    table,
)
from actorflow.api.cli.verbs import verb_command
from actorflow.engine.kind import Status

__all__ = ["COMMANDS"]

_COUNTS = ("messages", "timers", "tasks", "dead")
_WORKER = ("state", "held", "in_flight", "processed", "batches", "failed", "restarts")

Optional = Annotated[
    str | None, typer.Argument(metavar="EXECUTION", help="Only of this execution.")
]


def ps(
    store: StoreName,
    *,
    status: Annotated[Status | None, typer.Option(help="Only executions with this status.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only executions of this kind.")] = None,
    parent: Annotated[str | None, typer.Option(help="Only children of this execution.")] = None,
    tag: Tags = None,
    text: Annotated[
        str | None, typer.Option(help="Only executions with this text in their id or error.")
    ] = None,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List executions, with the messages and tasks that are open for each."""
    filters = {"kind": kind, "status": status and status.value, "parent": parent, "text": text}
    with reach(store, kinds=False) as verbs:
        rows, more = pages(verbs.executions, "executions", limit, **filters, tag=tag or [])
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


def tasks(
    store: StoreName,
    execution: Optional = None,
    *,
    tasker: Annotated[str | None, typer.Option(help="Only tasks for this tasker.")] = None,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List the tasks that have not ended."""
    with reach(store, kinds=False) as verbs:
        rows, more = pages(verbs.tasks, "tasks", limit, execution=execution, tasker=tasker)
    if json:
        say_json(rows)
    else:
        table(
            ["task", "execution", "name", "attempts", "input"],
            [
                [
                    row["id"],
                    row["execution"],
                    row["tasker"],
                    row["attempts"],
                    shortened(_input(row["body"])),
                ]
                for row in rows
            ],
        )
    _note_more(more, limit)


def _input(body: Any) -> str:
    """Return what a task was given; that of a workflow is wrapped with its step."""
    return json_.dumps(body["input"] if isinstance(body, dict) and "input" in body else body)


def dead(
    store: StoreName, execution: Optional = None, *, limit: Limit = 100, json: AsJson = False
) -> None:
    """List dead letters: messages that could not be processed."""
    with reach(store, kinds=False) as verbs:
        rows, more = pages(verbs.dead, "dead", limit, execution=execution)
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


def follow(
    store: StoreName,
    execution: ExecutionId,
    *,
    offset: Annotated[int, typer.Option(min=0, help="How many values to leave out.")] = 0,
    json: AsJson = False,
) -> None:
    """Print the values that a workflow publishes, until it has ended."""
    with reach(store) as verbs:
        while True:
            found = verbs.follow(execution, offset=offset)
            for value in found["values"]:
                say(json_.dumps(value) if json or not isinstance(value, str) else value, flush=True)
            offset += len(found["values"])
            if found["ended"] or getattr(verbs, "engine", None) is not None:
                return


def _show(found: Any, _given: Any) -> None:
    for line in lines_of(found):
        say(line)


def _require_success(found: Any) -> None:
    if found["status"] != Status.DONE:
        raise typer.Exit(1)


def _figures(found: Any, _given: Any) -> None:
    width = max(map(len, found))
    for name, value in found.items():
        say(f"{name:<{width}}  {value if not isinstance(value, dict) else json_.dumps(value)}")


def _count(found: Any, _given: Any) -> None:
    say(f"{'more than ' if found['more'] else ''}{counted(found['count'], 'execution')}")


def _trace(found: Any, _given: Any) -> None:
    if found["kind"] == "flow":
        from actorflow.flows.service.trace import trace_lines  # noqa: PLC0415 - rarely needed

        for line in trace_lines(found["execution"], found["entries"]):
            say(line)
        return
    for entry in found["entries"]:
        if isinstance(entry, dict):
            kind = entry.get("type", "")
            rest = {name: value for name, value in entry.items() if name not in ("at", "type")}
            say(f"{moment(entry.get('at', 0))}  {kind:<20} {shortened(json_.dumps(rest))}")
        else:
            say(shortened(json_.dumps(entry)))


def _workers(found: Any, _given: Any) -> None:
    table(
        ["worker", *_WORKER],
        [[name, *(each[key] for key in _WORKER)] for name, each in found["workers"].items()],
    )


def _schedules(found: Any, _given: Any) -> None:
    table(
        ["schedule", "cron", "zone", "starts", "next (UTC)"],
        [
            [
                row["name"],
                row["cron"],
                row["zone"],
                row["kind"],
                "paused" if row["paused"] else moment(row["next"] or 0),
            ]
            for row in found["schedules"]
        ],
    )


def _audit(found: Any, _given: Any) -> None:
    table(
        ["at (UTC)", "by", "verb", "parameters", "result"],
        [
            [
                moment(row["at"]),
                row["by"],
                row["verb"],
                shortened(row["parameters"]),
                shortened(row["result"]),
            ]
            for row in found["entries"]
        ],
    )


COMMANDS = {
    "ps": lambda: ps,
    "show": lambda: verb_command("execution", _show),
    "tasks": lambda: tasks,
    "dead": lambda: dead,
    "wait": lambda: verb_command("wait", _show, check=_require_success),
    "follow": lambda: follow,
    "trace": lambda: verb_command("trace", _trace),
    "stats": lambda: verb_command("stats", _figures),
    "count": lambda: verb_command("count", _count),
    "workers": lambda: verb_command("workers", _workers),
    "schedules": lambda: verb_command("schedules", _schedules),
    "audit": lambda: verb_command("audit_log", _audit),
}
