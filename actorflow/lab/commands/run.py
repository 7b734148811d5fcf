"""`actorflow lab simulate` and `measure`: run policies, and report what they did."""

from __future__ import annotations

from functools import partial
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from actorflow.lab.commands.shell import (
    Concurrency,
    Csv,
    Failure,
    Figures,
    Html,
    Json,
    Policies,
    Seed,
    ServiceTime,
    TrafficSource,
    clear_errors,
    imported,
    literal,
    progress_bar,
    quiet,
    working_folder_importable,
)
from actorflow.lab.models.notation import Share, TimeNumber, parse
from actorflow.lab.models.policies import parse_policies
from actorflow.lab.models.service import parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.outputs import LabResults, Outputs
from actorflow.lab.run.goals import parse_goals
from actorflow.lab.run.measure import measure
from actorflow.lab.run.result import RunFailed
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.progress import Progress, TaskID

    from actorflow.lab.models.policies import Policy
    from actorflow.lab.models.traffic import Traffic
    from actorflow.lab.run.result import Result

__all__ = ["measure_command", "simulate_command"]


def simulate_command(
    *,
    traffic: TrafficSource,
    service: ServiceTime,
    policies: Policies = None,
    seed: Seed = 0,
    on_failure: Failure = "drop",
    concurrency: Concurrency = 1,
    price: Annotated[float, typer.Option(min=0, help="Of one executor for a second.")] = 0.0,
    precision: Annotated[
        str | None,
        typer.Option(help="Repeat until p50 and p99 are known this well: '5%'. Cuts the warm-up."),
    ] = None,
    within: Annotated[
        str | None, typer.Option(help="Show how many messages were processed in time: '50ms'.")
    ] = None,
    goal: Annotated[
        str, typer.Option("--goal", "-g", help="Draw these into the figures: 'p99 < 50ms'.")
    ] = "",
    perfetto: Annotated[
        Path | None, typer.Option(help="Write every batch as a Chrome trace, for ui.perfetto.dev.")
    ] = None,
    json: Json = None,
    csv: Csv = None,
    html: Html = None,
    figures: Figures = None,
) -> None:
    """Run policies in virtual time: minutes of traffic in seconds, reproducibly."""
    with clear_errors(), working_folder_importable():
        outputs = Outputs(json, csv, html, figures, perfetto)
        source, model = parse_traffic(traffic), parse_service(service)
        goals, limit = parse_goals(goal) if goal else (), _seconds(within)
        tested = parse_policies(policies or ["all"])

        def run(policy: Policy, progress: Callable[[int], None]) -> Result:
            return simulate(
                source, model, policy, seed=seed, on_failure=on_failure, concurrency=concurrency,
                price=price, precision=precision, keep=perfetto is not None,
                progress=None if precision else progress,
            )  # fmt: skip

        parameters = {
            "mode": "simulate", "traffic": traffic, "service": service, "seed": seed,
            "on_failure": on_failure, "concurrency": concurrency,
        }  # fmt: skip
        done = _run_all(tested, run, _expected(source))
        done.report(parameters, outputs, goals=goals, within=limit)


def measure_command(
    *,
    traffic: TrafficSource,
    policies: Policies = None,
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
    seed: Seed = 0,
    repetitions: Annotated[
        int, typer.Option(min=1, help="How often; more than one gives confidence intervals.")
    ] = 3,
    on_failure: Failure = "drop",
    concurrency: Concurrency = 1,
    goal: Annotated[
        str, typer.Option("--goal", "-g", help="Decide: pass, fail or undecided. 'p99 < 50ms'")
    ] = "",
    max_lag: Annotated[
        str, typer.Option(help="Reject runs whose generator was later than this share of them.")
    ] = "1%",
    json: Json = None,
    csv: Csv = None,
    html: Html = None,
    figures: Figures = None,
) -> None:
    """Run policies with real workers on this machine, in real time."""
    with clear_errors(), working_folder_importable():
        if (service is None) == (job is None):
            msg = "give either --service '2ms + 10us*n' or --job package.module:function"
            raise BadOption(msg)
        outputs = Outputs(json, csv, html, figures)
        source = parse_traffic(traffic)
        goals, lag = parse_goals(goal) if goal else (), _share(max_lag)
        call: Any = parse_service(service) if service is not None else imported(job or "")
        first = literal(state)
        tested = parse_policies(policies or ["all"])

        def run(policy: Policy, progress: Callable[[int], None]) -> Result:
            return measure(
                source, call, policy, state=first,
                seed=seed, repetitions=repetitions, on_failure=on_failure,
                concurrency=concurrency, goals=goals, max_lag=lag, progress=progress,
            )  # fmt: skip

        parameters = {
            "mode": "measure", "traffic": traffic, "job": job or service, "seed": seed,
            "repetitions": repetitions, "on_failure": on_failure,
        }  # fmt: skip
        with quiet():
            done = _run_all(tested, run, repetitions * _expected(source))
        done.report(parameters, outputs, goals=goals)


def _run_all(
    tested: Sequence[Policy], run: Callable[[Policy, Callable[[int], None]], Result], expected: int
) -> LabResults:
    """Run one policy after the other, until Ctrl-C or a run that fails."""
    results: list[Result] = []
    with progress_bar() as bar:
        try:
            for policy in tested:
                task = bar.add_task(policy.name, total=expected or None)
                results.append(run(policy, partial(_advance, bar, task)))
                arrived = results[-1].arrived
                bar.update(task, total=max(arrived, 1), completed=max(arrived, 1))
        except KeyboardInterrupt:
            return LabResults(results, interrupted=True)
        except RunFailed as failure:
            return LabResults(results, failure=failure)
    return LabResults(results)


def _advance(bar: Progress, task: TaskID, done: int) -> None:
    bar.update(task, completed=done)


def _expected(traffic: Traffic) -> int:
    """Estimate the number of messages, for the progress bar; 0 if it is unknown."""
    rates = [getattr(traffic, name, 0.0) for name in ("rate", "after", "end", "high")]
    return int(max(rates) * getattr(traffic, "duration", 0.0))


def _seconds(text: str | None) -> float | None:
    """Return a time given as text."""
    value = parse(text) if text else None
    if text and not isinstance(value, TimeNumber):
        msg = f"--within {text!r} must be a time, as in --within 50ms"
        raise BadOption(msg)
    return float(value) if isinstance(value, TimeNumber) else None


def _share(text: str) -> float:
    """Return a share given as text."""
    value = parse(text)
    if not isinstance(value, Share):
        msg = f"--max-lag {text!r} must be a share, as in --max-lag 1%"
        raise BadOption(msg)
    return float(value)
