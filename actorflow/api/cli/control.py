"""Commands that act: a live engine does it at once; a store keeps it for the next engine."""

from __future__ import annotations

import json as json_
import sys
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import Annotated, Any

import typer

from actorflow.api.cli.arguments import AsJson, Data, Object, StoreName, Tags, as_data, as_object
from actorflow.api.cli.connect import reach
from actorflow.api.cli.output import counted, note, say, say_json
from actorflow.api.cli.verbs import Show, verb_command
from actorflow.engine.errors import UnknownExecution, UnknownLetter
from actorflow.engine.kind import Status  # noqa: TC001 - typer reads it
from actorflow.engine.stores.opening import without_password

__all__ = ["COMMANDS"]


def start(
    store: StoreName,
    what: Annotated[
        str | None, typer.Argument(metavar="WHAT", help="The name of a workflow or kind.")
    ] = None,
    body: Data = None,
    *,
    flow: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A flow to launch; - reads stdin.")
    ] = None,
    payload: Object = None,
    vars: Object = None,  # noqa: A002 - the word of the language
    domain: Annotated[
        str | None, typer.Option(help="The domain in which taskers of the flow are looked up.")
    ] = None,
    new: Annotated[
        str | None,
        typer.Option("--id", help="Id of the execution; the same id again starts nothing."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Start a workflow, a flow, or an execution of another kind; print its id.

    JSON holds the arguments of a workflow: a list, an object with names, or a single one. To
    another kind it is the first message.
    """
    given = {
        "what": what,
        "body": as_data(body),
        "flow": None if flow is None else _text(flow),
        "payload": as_object(payload),
        "vars": as_object(vars),
        "domain": domain,
        "id": new,
    }
    with reach(store, to_change=True) as verbs:
        found = verbs.start(**given)
    say_json(found) if json else say(found["execution"])


def _text(file: Path) -> str:
    try:
        if str(file) != "-":
            return file.read_text(encoding="utf-8")
        return "" if sys.stdin is None else sys.stdin.read()  # None: it was closed by the caller
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{file} cannot be read: {error}"
        raise typer.BadParameter(msg) from None


def bulk(
    store: StoreName,
    action: Annotated[
        str, typer.Argument(metavar="ACTION", help="cancel, kill, pause, resume, retry or delete.")
    ],
    *,
    status: Annotated[Status | None, typer.Option(help="Only executions with this status.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only executions of this kind.")] = None,
    parent: Annotated[str | None, typer.Option(help="Only children of this execution.")] = None,
    tag: Tags = None,
    text: Annotated[
        str | None, typer.Option(help="Only executions with this text in their id or error.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: AsJson = False,
) -> None:
    """Do something with all executions that the filters choose; ask with their number first."""
    filters = {
        "kind": kind, "status": status and status.value, "parent": parent, "tag": tag or [],
        "text": text,
    }  # fmt: skip
    with reach(store, to_change=True) as verbs:
        number = verbs.count(**filters)["count"]
        if not yes:
            typer.confirm(f"{action} {counted(number, 'execution')}?", abort=True, err=True)
        found = verbs.bulk(action, **filters, expected=number)
    if json:
        say_json(found)
    else:
        say(f"{counted(found['done'], 'execution')} of {found['chosen']:,}: {action}")
        for each in found["errors"]:
            note(f"actorflow: {each}")
    if found["failed"]:
        raise typer.Exit(1)


def _says(text: str) -> Show:
    def show(_found: Any, given: dict[str, Any]) -> None:
        if not given["json"]:
            say(text)

    return show


def _answered(found: Any, given: dict[str, Any]) -> None:
    if not found["wanted"]:
        task = found["task"]
        msg = f"there is no task {task!r} that waits: it was answered or cancelled, or never was"
        raise UnknownExecution(msg)
    _says("answered")(found, given)


def _cancelled(found: Any, given: dict[str, Any]) -> None:
    part = given.get("part")
    gone = "it had ended already" if part is None else f"there is no {part} (any more)"
    _says("cancelled" if found["cancelled"] else gone)(found, given)


def _retried(found: Any, given: dict[str, Any]) -> None:
    _says(f"{counted(found['retried'], 'message')} will be tried again")(found, given)
    letters = given.get("letters")
    missing = 0 if letters is None else len(set(letters)) - found["retried"]
    if missing:
        of = f" of {given['execution']!r}" if "execution" in given else ""
        where = without_password(given["store"])
        msg = f"{counted(missing, 'dead letter')}{of} not found; see actorflow dead {where}"
        raise UnknownLetter(msg)


def _print_id(found: Any, given: dict[str, Any]) -> None:
    _says(found["execution"])(found, given)


COMMANDS = {
    "start": lambda: start,
    "send": lambda: verb_command("send", _says("sent")),
    "ask": lambda: verb_command(
        "ask", lambda found, given: _says(json_.dumps(found["answer"]))(found, given)
    ),
    "cancel": lambda: verb_command("cancel", _cancelled),
    "kill": lambda: verb_command(
        "kill",
        lambda found, given: _says("killed" if found["killed"] else "it had ended already")(
            found, given
        ),
    ),
    "pause": lambda: verb_command("pause", _says("paused")),
    "resume": lambda: verb_command("resume", _says("resumed")),
    "rewind": lambda: verb_command("rewind", _says("rewound")),
    "fork": lambda: verb_command("fork", _print_id),
    "discard": lambda: verb_command("discard", _says("discarded")),
    "delete": lambda: verb_command("delete", _says("deleted")),
    "retry": lambda: verb_command("retry", _retried),
    "bury": lambda: verb_command(
        "bury",
        lambda found, given: _says(f"{counted(found['purged'], 'dead letter')} deleted")(
            found, given
        ),
    ),
    "bulk": lambda: bulk,
    "return-task": lambda: verb_command("return_task", _answered),
    "fail-task": lambda: verb_command("fail_task", _answered),
    "pause-schedule": lambda: verb_command("pause_schedule", _says("paused")),
    "resume-schedule": lambda: verb_command("resume_schedule", _says("resumed")),
    "trigger-schedule": lambda: verb_command("trigger_schedule", _print_id),
    "delete-schedule": lambda: verb_command("delete_schedule", _says("deleted")),
}
