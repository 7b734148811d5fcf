"""What the commands of the lab share: options, progress bars, imports, and clear errors."""

from __future__ import annotations

import ast
import contextlib
import importlib
import logging
import sys
import traceback as traceback_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from actorflow.lab.outputs import INTERRUPTED
from actorflow.lab.run.advise import GoalUnreachable
from actorflow.lab.run.result import RunFailed
from actorflow.lab.run.statistics import error_text
from actorflow.runtime.errors import ActorflowError, BadOption, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Concurrency", "Csv", "Failure", "Figures", "Html", "Json", "Policies", "Seed", "ServiceTime",
    "TrafficSource", "clear_errors", "imported", "literal", "progress_bar", "quiet",
    "working_folder_importable",
]  # fmt: skip

_FAILED = 1
_BAD_INPUT = 2
_PACKAGE = str(Path(__file__).parent.parent.parent)

TrafficSource = Annotated[
    str,
    typer.Option(
        "--traffic", "--trace", "-t",
        help="Arrivals: 'poisson(5000, duration=60s, keys=zipf(1000))', or a file: trace.jsonl.",
    ),
]  # fmt: skip
ServiceTime = Annotated[
    str, typer.Option("--service", "-s", help="How long the job takes: '2ms + 10us*n'.")
]
Policies = Annotated[
    list[str] | None,
    typer.Argument(help="'linger(unique, {5ms, 20ms})' is two; 'all' is one of each behaviour."),
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same traffic.")]
Failure = Annotated[
    str, typer.Option(help="What becomes of a failed batch: drop, retry or isolate.")
]
Json = Annotated[Path | None, typer.Option("--json", help="Write everything as JSON; - is stdout.")]
Csv = Annotated[Path | None, typer.Option("--csv", help="Write one line per policy; - is stdout.")]
Html = Annotated[
    Path | None, typer.Option("--html", help="Write a report with figures; - is stdout.")
]
Figures = Annotated[Path | None, typer.Option("--figures", help="Write figures to this folder.")]
Concurrency = Annotated[int, typer.Option(min=1, help="How many batches may run at once.")]


def progress_bar() -> Progress:
    """Return progress bars for a terminal's error output, which disappear when done."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(), console=Console(stderr=True), transient=True,
        disable=sys.stderr is None or not sys.stderr.isatty(),
    )  # fmt: skip


def imported(name: str) -> Callable[..., Any]:
    """Import a job named `package.module:function`."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        msg = f"--job {name!r} must name a module and a function: package.module:function"
        raise BadOption(msg)
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        msg = f"cannot import the job {name!r}: {error_text(error)}"
        raise BadOption(msg) from None
    if not callable(found):
        msg = f"{name!r} is not a function, but {type(found).__name__}"
        raise BadOption(msg)
    return found  # type: ignore[no-any-return]


def literal(text: str) -> Any:
    """Read a Python literal: the first state of a job."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        msg = f"--state {text!r} must be a Python literal, as in --state 0 or --state '[]'"
        raise BadOption(msg) from None


@contextlib.contextmanager
def working_folder_importable() -> Iterator[None]:
    """Make jobs importable from the working folder, and what they import while they run."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the worker's log of every failed batch off the terminal: the report sums it up."""
    logger = logging.getLogger("actorflow")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """Print errors without a traceback through the lab, and set the exit code."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted: nothing was done by then", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (GoalUnreachable, MissingExtra, RunFailed) as error:
        _print_cause(error.__cause__)
        typer.echo(f"actorflow: {error}", err=True)
        raise typer.Exit(_FAILED) from None
    except (ActorflowError, OSError) as error:
        typer.echo(f"actorflow: {error}", err=True)
        raise typer.Exit(_BAD_INPUT) from None


def _print_cause(cause: BaseException | None) -> None:
    """Print where the user's own code raised, if it did."""
    if cause is None:
        return
    frames = traceback_module.extract_tb(cause.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    if own and frames and own[-1] is frames[-1]:
        lines = ["Traceback (most recent call last):\n", *traceback_module.format_list(own)]
        lines += traceback_module.format_exception_only(cause)
        typer.echo("".join(lines).rstrip(), err=True)
