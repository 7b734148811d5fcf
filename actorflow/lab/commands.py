"""The command `actorflow lab`: simulate, measure, advise, policies.

Exit codes: 0 for success; 1 if the lab could not deliver (the job failed on every batch, no policy
meets the goals, an extra is missing); 2 if an argument, a trace or an output file is wrong; 130
after Ctrl-C. Needs the extra `cli`, and `lab` for figures.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json as json_module
import logging
import sys
import traceback as traceback_module
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from actorflow.lab.models.policies import BUILT_INS, KINDS, parse_policies
from actorflow.lab.models.service import parse_service
from actorflow.lab.models.sources import MODELS, parse_traffic
from actorflow.lab.outputs import INTERRUPTED, Done, Outputs
from actorflow.lab.run.advise import GoalUnreachable, advise
from actorflow.lab.run.ledger import error_text
from actorflow.lab.run.measure import measure
from actorflow.lab.run.result import RunFailed
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import ActorflowError, BadOption, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from actorflow.lab.models.policies import Policy
    from actorflow.lab.models.traffic import Traffic
    from actorflow.lab.run.advise import Advice
    from actorflow.lab.run.result import Result

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The policy lab: what would this batching policy do with your traffic?",
)

_FAILED = 1
_BAD_INPUT = 2
_PACKAGE = str(Path(__file__).parent.parent)

_Traffic = Annotated[
    str,
    typer.Option(
        "--traffic", "--trace", "-t",
        help="Arrivals: 'poisson(5000, duration=60s, keys=zipf(1000))', or a file: trace.jsonl.",
    ),
]  # fmt: skip
_Service = Annotated[
    str, typer.Option("--service", "-s", help="How long the job takes: '2ms + 10us*n'.")
]
_Policies = Annotated[
    list[str] | None,
    typer.Argument(help="'linger(unique, {5ms, 20ms})' is two; 'all' is one of each behaviour."),
]
_Seed = Annotated[int, typer.Option(help="The same seed gives the same traffic.")]
_Failure = Annotated[
    str, typer.Option(help="What becomes of a failed batch: drop, retry or isolate.")
]
_Json = Annotated[
    Path | None, typer.Option("--json", help="Write everything as JSON; - is stdout.")
]
_Csv = Annotated[Path | None, typer.Option("--csv", help="Write one line per policy; - is stdout.")]
_Html = Annotated[
    Path | None, typer.Option("--html", help="Write a report with figures; - is stdout.")
]
_Figures = Annotated[Path | None, typer.Option("--figures", help="Write figures to this folder.")]


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
    """Run policies in virtual time: minutes of traffic in seconds, reproducibly."""
    with _clear_errors():
        outputs = Outputs(json, csv, html, figures)
        source, model = parse_traffic(traffic), parse_service(service)
        tested = parse_policies(policies or ["all"])

        def run(policy: Policy, progress: Callable[[int], None]) -> Result:
            return simulate(
                source, model, policy, seed=seed, on_failure=on_failure, progress=progress
            )

        parameters = {
            "mode": "simulate", "traffic": traffic, "service": service, "seed": seed,
            "on_failure": on_failure,
        }  # fmt: skip
        _run_all(tested, run, _expected(source)).report(parameters, outputs)


@app.command("measure")
def measure_command(
    *,
    traffic: _Traffic,
    policies: _Policies = None,
    service: Annotated[
        str | None,
        typer.Option("--service", "-s", help="A job that sleeps this long: '2ms + 10us*n'."),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option("--job", help="Your own job(batch, state): package.module:name."),
    ] = None,
    state: Annotated[
        str, typer.Option(help="The first state of your job, as a Python literal: 0, '[]'.")
    ] = "None",
    seed: _Seed = 0,
    repetitions: Annotated[
        int, typer.Option(min=1, help="How often; more than one gives confidence intervals.")
    ] = 3,
    on_failure: _Failure = "drop",
    json: _Json = None,
    csv: _Csv = None,
    html: _Html = None,
    figures: _Figures = None,
) -> None:
    """Run policies with real workers on this machine, in real time."""
    with _clear_errors(), _working_folder_importable():
        if (service is None) == (job is None):
            msg = "give either --service '2ms + 10us*n' or --job package.module:function"
            raise BadOption(msg)
        outputs = Outputs(json, csv, html, figures)
        source = parse_traffic(traffic)
        call: Any = parse_service(service) if service is not None else _imported(job or "")
        first = _literal(state)
        tested = parse_policies(policies or ["all"])

        def run(policy: Policy, progress: Callable[[int], None]) -> Result:
            return measure(
                source, call, policy, state=first,
                seed=seed, repetitions=repetitions, on_failure=on_failure, progress=progress,
            )  # fmt: skip

        parameters = {
            "mode": "measure", "traffic": traffic, "job": job or service, "seed": seed,
            "repetitions": repetitions, "on_failure": on_failure,
        }  # fmt: skip
        with _quiet():
            done = _run_all(tested, run, repetitions * _expected(source))
        done.report(parameters, outputs)


@app.command("advise")
def advise_command(
    *,
    traffic: _Traffic,
    service: _Service,
    goal: Annotated[str, typer.Option("--goal", "-g", help="'p99 < 50ms, no loss, busy < 80%'.")],
    policies: _Policies = None,
    best: Annotated[int, typer.Option(min=1, help="How many to show.")] = 3,
    seed: _Seed = 0,
    json: _Json = None,
) -> None:
    """Search for the cheapest policies that meet your goals, as code to paste."""
    with _clear_errors(), _bar() as bar:
        outputs = Outputs(json)
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
        parameters = {"traffic": traffic, "service": service, "goal": goal, "seed": seed}
        text = json_module.dumps({"parameters": parameters, **found.as_dict()}, indent=1)
        if not outputs.on_stdout:
            _print_advice(found, goal)
        outputs.write(json, text)
        outputs.announce()
        if not found.complete:
            raise typer.Exit(INTERRUPTED)


def _print_advice(found: Advice, goal: str) -> None:
    """Print the best policies, each with a program that can be pasted as it is."""
    if not found.complete:
        typer.echo("interrupted: this is what short runs say")
    count = f"{found.tried} {'policy' if found.tried == 1 else 'policies'}"
    typer.echo(f"{count} tried for: {goal}")
    say = partial(Console(soft_wrap=True, highlight=False, emoji=False).print, markup=False)
    for place, candidate in enumerate(found.best, 1):
        say(f"\n{place}. {candidate.policy}", style="bold")
        say(f"   {candidate.why(found.plain)}\n")
        say(candidate.code(), style="green")  # without colour where NO_COLOR is set


@app.command("policies")
def policies_command(*, json: _Json = None) -> None:
    """List the behaviours, arrival models and service times that text can name."""
    with _clear_errors():
        outputs = Outputs(json)
        if not outputs.on_stdout:
            _print_policies()
        known = {
            "behaviours": {
                name: {"arguments": kind.arguments, "about": kind.about}
                for name, kind in KINDS.items()
            },
            "all": BUILT_INS,
            "traffic": {name: arguments for name, (_, arguments) in MODELS.items()},
        }
        outputs.write(json, json_module.dumps(known, indent=1))
        outputs.announce()


def _print_policies() -> None:
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
) -> Done:
    """Run one policy after the other, until Ctrl-C or a run that fails."""
    results: list[Result] = []
    with _bar() as bar:
        try:
            for policy in tested:
                task = bar.add_task(policy.name, total=expected or None)
                results.append(run(policy, partial(_advance, bar, task)))
                arrived = results[-1].arrived
                bar.update(task, total=max(arrived, 1), completed=max(arrived, 1))
        except KeyboardInterrupt:
            return Done(results, interrupted=True)
        except RunFailed as failure:
            return Done(results, failure=failure)
    return Done(results)


def _advance(bar: Progress, task: TaskID, done: int) -> None:
    bar.update(task, completed=done)


def _expected(traffic: Traffic) -> int:
    """Estimate the number of messages, for the progress bar; 0 if it is unknown."""
    rates = [getattr(traffic, name, 0.0) for name in ("rate", "after", "end", "high")]
    return int(max(rates) * getattr(traffic, "duration", 0.0))


def _bar() -> Progress:
    """Return progress bars for a terminal's error output, which disappear when done."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(), console=Console(stderr=True), transient=True,
        disable=sys.stderr is None or not sys.stderr.isatty(),
    )  # fmt: skip


def _imported(name: str) -> Callable[..., Any]:
    """Import a job named `package.module:function`."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        msg = f"--job {name!r} must name a module and a function: package.module:function"
        raise BadOption(msg)
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # noqa: BLE001 - a module of the user's may raise anything
        msg = f"cannot import the job {name!r}: {error_text(error)}"
        raise BadOption(msg) from None
    if not callable(found):
        msg = f"{name!r} is not a function, but {type(found).__name__}"
        raise BadOption(msg)
    return found  # type: ignore[no-any-return]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        msg = f"--state {text!r} must be a Python literal, as in --state 0 or --state '[]'"
        raise BadOption(msg) from None


@contextlib.contextmanager
def _working_folder_importable() -> Iterator[None]:
    """Make jobs importable from the working folder, and what they import while they run."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the worker's log of every failed batch off the terminal: the report sums it up."""
    logger = logging.getLogger("actorflow")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    """Print what went wrong without a traceback of the lab's own, and set the exit code."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted: nothing was done by then", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (GoalUnreachable, MissingExtra, RunFailed) as error:
        _print_cause(error.__cause__)
        typer.echo(
            f"{'goal' if isinstance(error, GoalUnreachable) else 'error'}: {error}", err=True
        )
        raise typer.Exit(_FAILED) from None
    except (ActorflowError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
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
