"""The commands `actorflow plan ...`. Imported by the command line only, since it needs typer."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.plans.plan import Plan

__all__ = ["commands"]

commands = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Run plans (graphs of jobs), show them, and say why a job runs.",
)

CACHE = Path(".actorflow-cache")
_INTERRUPTED = 130  # what shells expect of a program that Ctrl-C has ended

PlanArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py:PLAN",
        help="A plan in a file or module, or a function that returns one; `plan` by default.",
    ),
]
CacheOption = Annotated[
    Path, typer.Option(metavar="DIR", help="Where results are kept from run to run.")
]


@commands.command()
def run(
    plan: PlanArgument,
    *,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes at the same time; by default one per core.")
    ] = None,
    cache: CacheOption = CACHE,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep and reuse nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Run up-to-date jobs too.")] = False,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="After a failure, run all that does not depend on it."),
    ] = False,
    retries: Annotated[
        int, typer.Option(min=0, help="For jobs that do not set retries= themselves.")
    ] = 0,
    renew_after: Annotated[
        int | None, typer.Option(min=1, help="Jobs after which a process is replaced.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw who did what when: .png, .svg, .pdf.")
    ] = None,
) -> None:
    """Run the jobs of a plan that are not up to date.

    Exit codes: 0, all is done; 1, a job failed or the plan was refused; 2, wrong arguments; 130,
    Ctrl-C.
    """
    with _errors_as_text():
        found = _found(plan)
        if plot is not None:
            _require_drawable(plot)
        code = 0
        try:
            result = found.run(
                workers,
                cache=None if no_cache else cache,
                force=force,
                on_failure="continue" if keep_going else "stop",
                retries=retries,
                renew_after=renew_after,
            )
            code = 0 if result.ok else 1
        except KeyboardInterrupt:
            code = _INTERRUPTED
        except _plan_failed() as error:
            typer.echo(f"actorflow: {error}", err=True)
            code = 1
        _show(found, plot)
    raise typer.Exit(code)


def _require_drawable(plot: Path) -> None:
    from actorflow.plans.report.figures import require_drawable  # noqa: PLC0415 - keeps --help fast
    from actorflow.runtime.errors import BadOption  # noqa: PLC0415

    try:
        require_drawable(plot)
    except BadOption as error:
        _fail(f"--plot {error}", 2)


def _show(plan: Plan, plot: Path | None) -> None:
    """Print the report of the last run; draw it if asked for."""
    report = plan.report()
    typer.echo(str(report))
    if plot is not None:
        report.plot(plot)
        typer.echo(f"drawn: {plot}", err=True)


@commands.command()
def show(
    plan: PlanArgument,
    *,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw it there: .png, .svg, .pdf, .mmd, .dot, .txt."),
    ] = None,
) -> None:
    """Check a plan, and show its jobs without running any."""
    with _errors_as_text():
        found = _found(plan)
        found.check()
        typer.echo(str(found.draw(draw)))


@commands.command()
def why(
    plan: PlanArgument,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB]...", help="Only these jobs; all by default."),
    ] = None,
    *,
    cache: CacheOption = CACHE,
) -> None:
    """Explain why each job would run or be skipped now, without running any."""
    from actorflow.plans.errors import UnknownJob  # noqa: PLC0415 - keeps --help fast
    from actorflow.runtime.errors import near  # noqa: PLC0415

    with _errors_as_text():
        reasons = {each.name: each.reason for each in _found(plan).preview(cache)}
        for name in jobs or ():
            if name not in reasons:
                raise UnknownJob(f"there is no job {name!r}{near(name, reasons)}")
        names = jobs or list(reasons)
        width = max((len(name) for name in names), default=0)
        for name in names:
            typer.echo(f"{name:{width}}  {reasons[name]}")


# -- what they share -------------------------------------------------------------------------


def _plan_failed() -> type[Exception]:
    from actorflow.plans.errors import PlanFailed  # noqa: PLC0415 - keeps --help fast

    return PlanFailed


@contextmanager
def _errors_as_text() -> Iterator[None]:
    """Print errors of actorflow without a traceback, and exit."""
    from actorflow.runtime.errors import ActorflowError  # noqa: PLC0415 - keeps --help fast

    try:
        yield
    except BrokenPipeError:  # `| head` has seen enough: typer ends quietly
        raise
    except (ActorflowError, OSError) as error:
        _fail(str(error))


def _fail(text: str, code: int = 1) -> NoReturn:
    typer.echo(f"actorflow: {text}", err=True)
    raise typer.Exit(code)


def _found(text: str) -> Plan:
    """Return the plan that an argument names."""
    from actorflow.plans.plan import Plan  # noqa: PLC0415 - keeps --help fast
    from actorflow.runtime.errors import ActorflowError, told_with_place  # noqa: PLC0415

    place, _, name = text.partition(":")
    found: Any = getattr(_module(place), name or "plan", None)
    if not isinstance(found, Plan) and callable(found):
        try:
            found = found()
        except ActorflowError:
            raise
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            _fail(f"{text} raised {told_with_place(error)}")
    if not isinstance(found, Plan):
        _fail(f"{place} has no plan called {name or 'plan'!r}: write FILE.py:PLAN", 2)
    return found


def _module(place: str) -> Any:
    """Import a file or a module under a name by which workers can also import it."""
    from actorflow.runtime.errors import told_with_place  # noqa: PLC0415 - keeps --help fast

    path = Path(place)
    if path.suffix == ".py":
        if not path.exists():
            _fail(f"there is no file {place}", 2)
        folder, name = str(path.parent.absolute()), path.stem
    else:
        folder, name = str(Path.cwd()), place
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        _fail(f"{place or repr(place)} cannot be imported: {told_with_place(error)}", 2)
    file = getattr(module, "__file__", None)
    if path.suffix == ".py" and (file is None or not path.samefile(file)):
        _fail(f"{place} is hidden by another module of that name, {file}: rename it", 2)
    return module
