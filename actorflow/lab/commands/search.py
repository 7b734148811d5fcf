"""`actorflow lab advise`, `compare`, `capacity`, `fit` and `policies`: which policy, how much."""

from __future__ import annotations

import json as json_module
from functools import partial
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from actorflow.lab.commands.shell import (
    Concurrency,
    Failure,
    Figures,
    Json,
    Policies,
    Seed,
    ServiceTime,
    TrafficSource,
    clear_errors,
    progress_bar,
    working_folder_importable,
)
from actorflow.lab.models.notation import seconds_text
from actorflow.lab.models.policies import BUILT_INS, KINDS, parse_policies
from actorflow.lab.models.sources import MODELS
from actorflow.lab.outputs import INTERRUPTED, Outputs, draw_all
from actorflow.lab.report.curves import capacity_curves
from actorflow.lab.report.figures import save
from actorflow.lab.run.advise import advise
from actorflow.lab.run.capacity import Capacity, capacity
from actorflow.lab.run.compare import compare
from actorflow.lab.run.fit import fit

if TYPE_CHECKING:
    from actorflow.lab.run.advise import Advice

__all__ = [
    "advise_command",
    "capacity_command",
    "compare_command",
    "fit_command",
    "policies_command",
]


def advise_command(
    *,
    traffic: TrafficSource,
    service: ServiceTime,
    goal: Annotated[str, typer.Option("--goal", "-g", help="'p99 < 50ms, no loss, busy < 80%'.")],
    policies: Policies = None,
    best: Annotated[int, typer.Option(min=1, help="How many to show.")] = 3,
    seed: Seed = 0,
    concurrency: Concurrency = 1,
    synthesise: Annotated[
        bool, typer.Option("--synthesise", help="Search compositions, up to three deep.")
    ] = False,
    json: Json = None,
    figures: Figures = None,
) -> None:
    """Search for the cheapest policies that meet your goals, as code to paste."""
    with clear_errors(), working_folder_importable(), progress_bar() as bar:
        outputs = Outputs(json, figures=figures)
        tasks: dict[str, Any] = {}

        def progress(done: int, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(f"{total} policies, {what}", total=total)
            bar.update(tasks[what], completed=done)

        tested = [str(each) for each in parse_policies(policies or [])]
        found = advise(
            traffic, service, goal, seed=seed, best=best, policies=tested,
            synthesise=synthesise, concurrency=concurrency, progress=progress,
        )  # fmt: skip
        bar.stop()
        parameters = {"traffic": traffic, "service": service, "goal": goal, "seed": seed}
        text = json_module.dumps({"parameters": parameters, **found.as_dict()}, indent=1)
        if not outputs.on_stdout:
            _print_advice(found, goal)
        outputs.write(json, text)
        if figures is not None:
            results = [candidate.result for candidate in found.best]
            draw_all(results, figures, goals=found.goals)
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
        say(f"   {candidate.why(found.plain)}")
        say(f"   {candidate.picture()}\n")
        say(candidate.code(), style="green")  # without colour where NO_COLOR is set


def compare_command(
    first: Annotated[str, typer.Argument(help="A policy.")],
    second: Annotated[str, typer.Argument(help="The policy to compare it with.")],
    *,
    traffic: TrafficSource,
    service: ServiceTime,
    on: Annotated[
        str, typer.Option(help="The figures to compare: 'p99, goodput(50ms), busy'.")
    ] = "p50, p99, busy, loss",
    seed: Seed = 0,
    most: Annotated[int, typer.Option(min=5, help="Pairs of runs at most.")] = 40,
    on_failure: Failure = "drop",
    concurrency: Concurrency = 1,
    json: Json = None,
) -> None:
    """Compare two policies with the same traffic: better, worse, or undecided."""
    with clear_errors(), working_folder_importable(), progress_bar() as bar:
        outputs = Outputs(json)
        task = bar.add_task("pairs of runs", total=most)
        found = compare(
            first, second, traffic=traffic, service=service, figures=on, seed=seed, most=most,
            on_failure=on_failure, concurrency=concurrency,
            progress=lambda done: bar.update(task, completed=done),
        )  # fmt: skip
        bar.stop()
        if not outputs.on_stdout:
            typer.echo(str(found))
        outputs.write(json, json_module.dumps(found.as_dict(), indent=1))
        outputs.announce()


def capacity_command(
    *,
    traffic: TrafficSource,
    service: ServiceTime,
    goal: Annotated[str, typer.Option("--goal", "-g", help="'p99 < 50ms, no loss'.")],
    policies: Policies = None,
    seed: Seed = 0,
    concurrency: Concurrency = 1,
    json: Json = None,
    figures: Figures = None,
) -> None:
    """Find the highest rate at which policies still meet your goals."""
    with clear_errors(), working_folder_importable(), progress_bar() as bar:
        outputs = Outputs(json, figures=figures)
        found: list[Capacity] = []
        for policy in parse_policies(policies or ["queue"]):
            task = bar.add_task(f"{policy}: runs", total=None)
            found.append(
                capacity(
                    traffic, service, policy, goal, seed=seed, concurrency=concurrency,
                    progress=partial(_advance, bar, task),
                )
            )  # fmt: skip
        bar.stop()
        if not outputs.on_stdout:
            for each in found:
                typer.echo(str(each))
            Console().print(_curves(found))
        outputs.write(json, json_module.dumps([each.as_dict() for each in found], indent=1))
        if figures is not None:
            save(capacity_curves(found), figures / "capacity.png")
        outputs.announce()


def fit_command(
    trace: Annotated[Path, typer.Argument(help="A .jsonl file that af.record has written.")],
    *,
    json: Json = None,
) -> None:
    """Fit a service model to the batches of a trace, for --service."""
    with clear_errors():
        outputs = Outputs(json)
        found = fit(trace)
        if not outputs.on_stdout:
            typer.echo(str(found))
        outputs.write(json, json_module.dumps(found.as_dict(), indent=1))
        outputs.announce()


def _advance(bar: Any, task: Any, done: int) -> None:
    bar.update(task, completed=done)


def _curves(found: list[Capacity]) -> Table:
    """Return the curves as a table."""
    table = Table("policy", "msgs/s", "p99", "in time/s", "goals met", box=None)
    for each in found:
        for point in each.curve:
            low, high = point.p99_interval
            half = seconds_text(float(f"{(high - low) / 2:.2g}"))
            table.add_row(
                each.policy, f"{point.rate:,.0f}", f"{seconds_text(point.p99)} ±{half}",
                f"{point.goodput:,.0f}", f"{point.met} of {point.runs}",
            )  # fmt: skip
    return table


def policies_command(*, json: Json = None) -> None:
    """List the behaviours, arrival models and service times that text can name."""
    with clear_errors():
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
