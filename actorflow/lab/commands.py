"""The command `actorflow lab`: simulate, measure, advise, policies. Needs the extra `bench`."""

from __future__ import annotations

import contextlib
import importlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table

from actorflow.lab.models.policies import BUILT_INS, KINDS, parse_policies
from actorflow.lab.models.service import parse_service
from actorflow.lab.models.sources import MODELS, parse_traffic
from actorflow.lab.report.files import as_csv, as_json
from actorflow.lab.report.table import as_table
from actorflow.lab.run.advise import GoalUnreachable, advise
from actorflow.lab.run.measure import measure
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from actorflow.lab.models.policies import Policy
    from actorflow.lab.models.traffic import Traffic
    from actorflow.lab.run.result import Result

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The policy lab: what would this batching policy do with your traffic?",
)

_BAD_INPUT = 2
_INTERRUPTED = 130
_WIDE = 130  # columns that the whole table needs

_Traffic = Annotated[
    str,
    typer.Option(
        "--traffic", "--trace", "-t",
        help="arrivals: 'poisson(5000, duration=60s, keys=zipf(1000))', or a file: trace.jsonl",
    ),
]  # fmt: skip
_Service = Annotated[
    str, typer.Option("--service", "-s", help="how long the job takes: '2ms + 10us*n'")
]
_Policies = Annotated[
    list[str] | None,
    typer.Argument(help="'linger(unique, {5ms, 20ms})' makes two; 'all' is one of each behaviour"),
]
_Seed = Annotated[int, typer.Option(help="same seed, same result")]
_Failure = Annotated[str, typer.Option(help="what becomes of a failed batch: drop, retry, isolate")]
_Json = Annotated[Path | None, typer.Option("--json", help="write everything as JSON")]
_Csv = Annotated[Path | None, typer.Option("--csv", help="write one line per policy")]
_Html = Annotated[Path | None, typer.Option("--html", help="write a report with pictures")]
_Figures = Annotated[Path | None, typer.Option("--figures", help="write pictures to this folder")]


@app.command("simulate")
def simulate_command(
    *,
    traffic: _Traffic,
    service: _Service,
    policies: _Policies = None,
    seed: _Seed = 0,
    on_failure: _Failure = "drop",
    json: _Json = None,
    csv: _Csv = None,
    html: _Html = None,
    figures: _Figures = None,
) -> None:
    """Run policies in virtual time: minutes of traffic in seconds, the same on every run."""
    with _clear_errors():
        source, model = parse_traffic(traffic), parse_service(service)
        tested = parse_policies(policies or ["all"])

        def run(policy: Policy, progress: Callable[[int], None]) -> Result:
            return simulate(
                source, model, policy, seed=seed, on_failure=on_failure, progress=progress
            )

        results, complete = _run_all(tested, run, _expected(source))
        parameters = {"mode": "simulate", "traffic": traffic, "service": service, "seed": seed}
        _report(
            results, parameters, complete=complete, json=json, csv=csv, html=html, figures=figures
        )


@app.command("measure")
def measure_command(
    *,
    traffic: _Traffic,
    policies: _Policies = None,
    service: Annotated[
        str | None,
        typer.Option("--service", "-s", help="a job that sleeps so long: '2ms + 10us*n'"),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option("--job", help="your own job, called as job(batch): package.module:name"),
    ] = None,
    seed: _Seed = 0,
    repetitions: Annotated[int, typer.Option(min=1, help="more give confidence intervals")] = 3,
    on_failure: _Failure = "drop",
    json: _Json = None,
    csv: _Csv = None,
    html: _Html = None,
    figures: _Figures = None,
) -> None:
    """Run policies with real workers on this machine, in real time."""
    with _clear_errors():
        if (service is None) == (job is None):
            raise _bad("give either --service '2ms + 10us*n' or --job package.module:function")
        source = parse_traffic(traffic)
        call: Any = parse_service(service) if service is not None else _imported(job or "")
        tested = parse_policies(policies or ["all"])

        def run(policy: Policy, progress: Callable[[int], None]) -> Result:
            return measure(
                source, call, policy,
                seed=seed, repetitions=repetitions, on_failure=on_failure, progress=progress,
            )  # fmt: skip

        results, complete = _run_all(tested, run, repetitions * _expected(source))
        parameters = {
            "mode": "measure", "traffic": traffic, "job": job or service, "seed": seed,
            "repetitions": repetitions,
        }  # fmt: skip
        _report(
            results, parameters, complete=complete, json=json, csv=csv, html=html, figures=figures
        )


@app.command("advise")
def advise_command(
    *,
    traffic: _Traffic,
    service: _Service,
    goal: Annotated[str, typer.Option("--goal", "-g", help="'p99 < 50ms, no loss, busy < 80%'")],
    policies: _Policies = None,
    best: Annotated[int, typer.Option(min=1, help="how many to show")] = 3,
    seed: _Seed = 0,
) -> None:
    """Search the policies that hold your goals at the least cost, as code to paste."""
    with _clear_errors(), _bar() as bar:
        tasks: dict[str, Any] = {}

        def progress(done: int, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(f"{total} policies, {what}", total=total)
            bar.update(tasks[what], completed=done)

        tested = [str(each) for each in parse_policies(policies or [])]
        found = advise(
            traffic, service, goal, seed=seed, best=best, policies=tested, progress=progress
        )
        bar.stop()
        console = Console()
        if not found.complete:
            console.print("[yellow]interrupted: this is what short runs say[/]")
        console.print(f"{found.tried} policies tried, for [bold]{goal}[/]\n")
        for place, candidate in enumerate(found.best, 1):
            console.print(f"[bold]{place}. {candidate.policy}[/]", highlight=False)
            console.print(f"   {candidate.why(found.plain)}", highlight=False)
            console.print(f"   [green]{candidate.code()}[/]\n", highlight=False)
        console.print(Panel(Syntax(found.code(), "python", background_color="default")))


@app.command("policies")
def policies_command() -> None:
    """List the behaviours, arrival models and service times that text can name."""
    console = Console()
    table = Table("behaviour", "what it is", title="Policies", title_justify="left", box=None)
    for name, kind in KINDS.items():
        shape = f"{name}({', '.join(kind.arguments)})" if kind.arguments else name
        table.add_row(shape, kind.about)
    console.print(table)
    console.print(f"\n'all' is: {', '.join(BUILT_INS)}\n", highlight=False)
    models = Table("traffic", title="Traffic", title_justify="left", box=None, show_header=False)
    for name, (_, arguments) in MODELS.items():
        models.add_row(f"{name}({', '.join(arguments)})")
    console.print(models)
    console.print(
        "\nkeys, priorities and sizes: uniform(n), zipf(n, 1.1), fixed(x)\n"
        "service: 2ms + 10us*n, exp(2ms), uniform(1ms, 3ms), lognormal(2ms, 0.5), 1us*size, "
        "fail(1%)",
        highlight=False,
    )


def _run_all(
    tested: Sequence[Policy], run: Callable[[Policy, Callable[[int], None]], Result], expected: int
) -> tuple[list[Result], bool]:
    """Run one policy after the other; give what is done when Ctrl-C comes."""
    results: list[Result] = []
    with _bar() as bar:
        try:
            for policy in tested:
                task = bar.add_task(policy.name, total=expected or None)
                results.append(run(policy, partial(_advance, bar, task)))
                arrived = results[-1].arrived
                bar.update(task, total=max(arrived, 1), completed=max(arrived, 1))
        except KeyboardInterrupt:
            return results, False
    return results, True


def _advance(bar: Progress, task: TaskID, done: int) -> None:
    bar.update(task, completed=done)


def _expected(traffic: Traffic) -> int:
    """Guess how many messages there will be, for the progress bar; 0 if nobody knows."""
    rates = [getattr(traffic, name, 0.0) for name in ("rate", "after", "end", "high")]
    return int(max(rates) * getattr(traffic, "duration", 0.0))


def _bar() -> Progress:
    """Make progress bars on the error output, gone when done, none where nobody looks."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(), console=Console(stderr=True), transient=True,
        disable=not sys.stderr.isatty(),
    )  # fmt: skip


def _report(
    results: list[Result],
    parameters: dict[str, Any],
    *,
    complete: bool,
    json: Path | None,
    csv: Path | None,
    html: Path | None,
    figures: Path | None,
) -> None:
    """Print the table, write the files, and end with 130 if interrupted."""
    console = Console()
    title = ", ".join(f"{name} {value}" for name, value in parameters.items())
    console.print(as_table(results, title, narrow=console.width < _WIDE))
    if json is not None:
        json.write_text(as_json(results, parameters, complete=complete), encoding="utf-8")
    if csv is not None:
        csv.write_text(as_csv(results), encoding="utf-8")
    if html is not None:
        from actorflow.lab.report.html import as_html  # noqa: PLC0415 - matplotlib is slow to import

        html.write_text(as_html(results, parameters, complete=complete), encoding="utf-8")
    if figures is not None and results:
        from actorflow.lab.report.figures import FIGURES, save  # noqa: PLC0415

        figures.mkdir(parents=True, exist_ok=True)
        for name, draw in FIGURES.items():
            save(draw(results), figures / f"{name}.png")
    for path in (json, csv, html, figures):
        if path is not None:
            console.print(f"wrote {path}", highlight=False)
    if not complete:
        console.print("interrupted: these are the policies done by then")
        raise typer.Exit(_INTERRUPTED)


def _imported(name: str) -> Callable[[Any], Any]:
    """Import a job named `package.module:function`, also from the current folder."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise _bad(f"cannot import the job {name!r}: {error}") from None
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise _bad(f"{name!r} is no function")
    return found  # type: ignore[no-any-return]


def _bad(why: str) -> ActorflowError:
    return ActorflowError(why)


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    """Show what the user got wrong without a traceback, and end with 2."""
    try:
        yield
    except (ActorflowError, OSError) as error:
        what = "goal" if isinstance(error, GoalUnreachable) else "error"
        typer.echo(f"{what}: {error}", err=True)
        raise typer.Exit(_BAD_INPUT) from None
