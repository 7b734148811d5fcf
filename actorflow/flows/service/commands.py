"""The commands `actorflow flow ...`. Imported by the command line only, since it needs typer."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.flows.language.tree import Tree
    from actorflow.flows.service.view import FlowExecution

__all__ = ["commands"]

commands = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Run, check, format and trace flows."
)

_NOT_FOUND, _REFUSED = 3, 4  # exit codes, as those of the other commands

FlowFile = Annotated[Path, typer.Argument(metavar="FILE", help="The flow; - reads stdin.")]


@commands.command()
def run(
    file: FlowFile,
    *,
    payload: Annotated[str, typer.Option(help="The first payload, a JSON object.")] = "{}",
    tasker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]MODULE:FN",
            help="A tasker; named like its function if no NAME is given.",
        ),
    ] = None,
    store: Annotated[
        str, typer.Option(help="Where executions are kept: a file or URL.")
    ] = ":memory:",
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait for the end.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print every message at the end.")] = False,
) -> None:
    """Run a flow to its end and print its last payload."""
    from actorflow.engine.engine import BareEngine  # noqa: PLC0415 - keeps --help fast
    from actorflow.flows.service.flows import Flows  # noqa: PLC0415

    tree = _parsed(file)
    first = _json(payload)
    with _errors_as_text(), BareEngine(store) as engine:
        flows = Flows(engine)
        for text in tasker or ():
            flows.tasker(*_function(text))
        exid = flows.launch(tree, payload=first)
        typer.echo(exid, err=True)
        _show_end(engine.wait(exid, timeout).view, trace=trace)


def _show_end(ended: FlowExecution, *, trace: bool) -> None:
    from actorflow.flows.service.trace import trace_lines  # noqa: PLC0415

    if trace:
        for line in trace_lines(ended.exid, ended.runs()):
            typer.echo(line)
    if ended.payload is not None:
        typer.echo(json.dumps(ended.payload, indent=2, ensure_ascii=False))
        return
    for failure in ended.failures:
        place = f"node {failure.nid}" + (f", line {failure.line}" if failure.line else "")
        typer.echo(f"{place}: {failure.kind}: {failure.text}", err=True)
    raise typer.Exit(1)


@commands.command()
def check(file: FlowFile) -> None:
    """Check the syntax of a flow."""
    from actorflow.flows.language.tree import walk  # noqa: PLC0415

    tree = _parsed(file)
    typer.echo(f"{file}: ok, {sum(1 for _ in walk(tree)):,} nodes")


@commands.command("format")
def format_(
    file: FlowFile,
    *,
    write: Annotated[bool, typer.Option("--write", help="Rewrite the file instead.")] = False,
) -> None:
    """Print a flow in the standard layout."""
    from actorflow.flows.language.formatter import format_flow  # noqa: PLC0415

    with _errors_as_text():
        text = format_flow(_text(file), file=str(file))
        if write and str(file) != "-":
            file.write_text(text, encoding="utf-8")
        else:
            typer.echo(text, nl=False)


@commands.command()
def trace(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="A file or URL; an engine may be using it.")
    ],
    exid: Annotated[str, typer.Argument(metavar="EXECUTION", help="Its id.")],
) -> None:
    """Print every message of an execution, run by run."""
    from actorflow.engine.stores.opening import open_store, without_password  # noqa: PLC0415
    from actorflow.flows.service.kind import KIND  # noqa: PLC0415
    from actorflow.flows.service.trace import trace_lines  # noqa: PLC0415
    from actorflow.flows.service.view import FlowExecution  # noqa: PLC0415

    with _errors_as_text():
        opened = open_store(store, read_only=True)
        try:
            row = opened.execution(exid)
            if row is None:
                _fail(f"there is no execution {exid!r} in {without_password(store)}", _NOT_FOUND)
            if row.kind != KIND:
                _fail(f"execution {exid!r} is not a flow but of kind {row.kind!r}", _REFUSED)
            for line in trace_lines(exid, FlowExecution(row, opened).runs()):
                typer.echo(line)
        finally:
            opened.close()


# -- what they share -------------------------------------------------------------------------


class _errors_as_text:  # noqa: N801 - used as a statement: with _errors_as_text():
    """Print errors of actorflow without a traceback, and exit."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        from actorflow.engine.errors import NoStore  # noqa: PLC0415
        from actorflow.runtime.errors import ActorflowError  # noqa: PLC0415

        if isinstance(error, BrokenPipeError):
            return  # `| head` has seen enough: typer ends quietly
        if isinstance(error, (ActorflowError, OSError)):
            _fail(str(error), _NOT_FOUND if isinstance(error, NoStore) else 1)


def _fail(text: str, code: int = 1) -> NoReturn:
    typer.echo(f"actorflow: {text}", err=True)
    raise typer.Exit(code)


def _misuse(text: str) -> NoReturn:
    """Print the fault of the arguments, and exit as for any wrong argument."""
    _fail(text, 2)


def _text(file: Path) -> str:
    try:
        if str(file) != "-":
            return file.read_text(encoding="utf-8")
        return "" if sys.stdin is None else sys.stdin.read()  # None: it was closed by the caller
    except (OSError, UnicodeDecodeError) as error:
        _misuse(f"{file} cannot be read: {error}")


def _parsed(file: Path) -> Tree:
    from actorflow.flows.language.parser import parse  # noqa: PLC0415

    text = _text(file)
    with _errors_as_text():
        return parse(text, file=str(file))


def _json(text: str) -> dict[str, Any]:
    from actorflow.engine.bodies import from_json  # noqa: PLC0415 - keeps --help fast

    try:
        value = from_json(text)
    except ValueError as error:
        _misuse(f"--payload is not JSON: {error}")
    if not isinstance(value, dict):
        _misuse(f"--payload must be a JSON object such as '{{\"order\": 7}}', not {text}")
    return value


def _function(text: str) -> tuple[str, Callable[..., Any]]:
    from actorflow.runtime.errors import told_with_place  # noqa: PLC0415 - keeps --help fast

    name, _, place = text.rpartition("=")
    module, _, function = place.partition(":")
    if not module or not function:
        _misuse(f"--tasker {text!r}: write MODULE:FN, or NAME=MODULE:FN")
    sys.path.insert(0, "")  # modules in the current directory, as with python -m
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        _fail(f"--tasker {text!r} cannot be loaded: {told_with_place(error)}")
    return name or function, found
