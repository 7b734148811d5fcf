"""Commands that steer: a live engine does it at once; a store keeps it for the next engine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from actorflow.engine.errors import UnknownExecution
from actorflow.engine.kind import Status
from actorflow.web.client import Client
from actorflow.web.commands.arguments import (
    AsJson,
    Data,
    ExecutionId,
    Object,
    StoreName,
    as_data,
    as_object,
)
from actorflow.web.commands.printing import lines_of, say, say_json
from actorflow.web.commands.reaching import reach
from actorflow.web.errors import ControlUnreachable

__all__ = ["COMMANDS"]

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="Its id; see `actorflow tasks`.")]
NewId = Annotated[
    str | None, typer.Option("--id", help="Id of the execution; the same id again starts nothing.")
]


def launch(
    store: StoreName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The flow; - reads stdin.")],
    *,
    payload: Object = None,
    vars: Object = None,  # noqa: A002 - the word of the language
    domain: Annotated[
        str | None, typer.Option(help="The domain, in which its taskers are looked up.")
    ] = None,
    new: NewId = None,
    json: AsJson = False,
) -> None:
    """Launch a flow; print the id of its execution."""
    given, variables = as_object(payload), as_object(vars)
    text = _text(file)
    with reach(store, to_change=True) as verbs:
        found = verbs.launch(text, given, vars=variables, domain=domain, id=new)
    say_json(found) if json else say(found["execution"])


def start(
    store: StoreName,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The name of its kind.")],
    body: Data = None,
    *,
    new: NewId = None,
    json: AsJson = False,
) -> None:
    """Start an execution of a kind; print its id."""
    given = as_data(body)
    with reach(store, to_change=True) as verbs:
        found = verbs.start(kind, given, id=new)
    say_json(found) if json else say(found["execution"])


def start_workflow(
    store: StoreName,
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="The name of its class.")],
    *,
    properties: Object = None,
    new: NewId = None,
    json: AsJson = False,
) -> None:
    """Start a workflow by its name; print the id of its execution."""
    given = as_object(properties)
    with reach(store, to_change=True) as verbs:
        found = verbs.start_workflow(workflow, given, id=new)
    say_json(found) if json else say(found["execution"])


def send(
    store: StoreName,
    execution: ExecutionId,
    body: Data = None,
    *,
    kind: Annotated[
        str | None, typer.Option(help="Create the execution, of this kind, if there is none.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Only the first message with the same key counts.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Send a message to an execution."""
    given = as_data(body)
    with reach(store, to_change=True) as verbs:
        found = verbs.send(execution, given, kind=kind, key=key)
    say_json(found) if json else say("sent")


def signal(
    store: StoreName,
    execution: ExecutionId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the signal.")],
    *,
    payload: Object = None,
    json: AsJson = False,
) -> None:
    """Send a signal to a flow."""
    given = as_object(payload)
    with reach(store, to_change=True) as verbs:
        found = verbs.signal(execution, name, given)
    say_json(found) if json else say("sent")


def cancel(
    store: StoreName,
    execution: ExecutionId,
    target: Annotated[
        str | None, typer.Argument(metavar="[PART]", help="A part of it: a node of a flow.")
    ] = None,
    *,
    json: AsJson = False,
) -> None:
    """Cancel an execution, or a part of it: its handlers run first, then it ends."""
    with reach(store, to_change=True) as verbs:
        found = verbs.cancel(execution, target)
    if json:
        say_json(found)
    else:
        gone = "it had ended already" if target is None else f"there is no {target} (any more)"
        say("cancelled" if found["cancelled"] else gone)


def wait(
    store: StoreName,
    execution: ExecutionId,
    *,
    timeout: Annotated[float, typer.Option(min=0, max=3_600, help="Seconds to wait.")] = 30.0,
    json: AsJson = False,
) -> None:
    """Wait until an execution of a live engine has ended or failed; show it."""
    with reach(store) as verbs:
        if isinstance(verbs, Client):
            found = verbs.wait(execution, timeout)
        elif verbs.engine.core.store.traits.shared:
            found = asyncio.run(verbs.wait(execution, timeout))  # for what runs anywhere
        else:
            found = verbs.execution(execution)
            if found["status"] == Status.ACTIVE:
                msg = (
                    f"no engine runs on {store} with a control socket, so nobody can say when"
                    f" {execution!r} ends: open it with control=True, or with actorflow serve"
                )
                raise ControlUnreachable(msg)
    if json:
        say_json(found)
        return
    for line in lines_of(found):
        say(line)


def return_task(
    store: StoreName,
    task: TaskId,
    *,
    value: Annotated[str | None, typer.Option(metavar="JSON", help="Its result.")] = None,
    json: AsJson = False,
) -> None:
    """Return a task that a tasker holds, with its result."""
    given = as_data(value)
    with reach(store, to_change=True) as verbs:
        found = verbs.return_task(task, given)
    _tell(found, json=json)


def fail_task(
    store: StoreName,
    task: TaskId,
    *,
    error: Annotated[str, typer.Option(metavar="TEXT", help="Why it failed.")],
    json: AsJson = False,
) -> None:
    """Fail a task that a tasker holds."""
    with reach(store, to_change=True) as verbs:
        found = verbs.fail_task(task, error)
    _tell(found, json=json)


def _tell(found: dict[str, Any], *, json: bool) -> None:
    if not found["wanted"]:
        task = found["task"]
        msg = f"there is no task {task!r} that waits: it was answered or cancelled, or never was"
        raise UnknownExecution(msg)
    say_json(found) if json else say("answered")


def _text(file: Path) -> str:
    try:
        if str(file) != "-":
            return file.read_text(encoding="utf-8")
        return "" if sys.stdin is None else sys.stdin.read()  # None: it was closed by the caller
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{file} cannot be read: {error}"
        raise typer.BadParameter(msg) from None


COMMANDS = {
    "launch": launch,
    "start": start,
    "start-workflow": start_workflow,
    "send": send,
    "signal": signal,
    "cancel": cancel,
    "wait": wait,
    "return-task": return_task,
    "fail-task": fail_task,
}
