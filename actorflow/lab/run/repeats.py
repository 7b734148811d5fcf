"""Several runs of one policy as one result: means, with confidence intervals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from actorflow.lab.run.intervals import mean_interval

if TYPE_CHECKING:
    from actorflow.lab.run.result import Result

__all__ = ["combine"]

_MEANS = ("duration", "throughput", "latency_mean", "batch_mean", "busy", "fairness", "cost")
_COUNTS = (
    "arrived", "processed", "observed", "batches", "replaced", "merged", "dropped", "rejected",
    "expired", "failed", "abandoned", "unaccounted",
)  # fmt: skip
_WORST = ("oldest", "batch_max", "peak_depth", "memory")
_INTERVALS = (
    "throughput", "latency_mean", "p50", "p90", "p99", "p99.9", "busy", "batch_mean", "fairness",
)  # fmt: skip


def combine(runs: list[Result]) -> Result:
    """Average repetitions, with confidence intervals; of maxima, take the greatest.

    The series over time are those of the first repetition.
    """
    first = runs[0]
    changed: dict[str, Any] = {name: fmean(_figure(run, name) for run in runs) for name in _MEANS}
    changed |= {name: round(fmean(_figure(run, name) for run in runs)) for name in _COUNTS}
    changed |= {name: max(_figure(run, name) for run in runs) for name in _WORST}
    intervals = {
        name: mean_interval([_figure(run, name) for run in runs])
        for name in _INTERVALS
        if not any(run.needed(name) for run in runs)
    }
    ages = [run.age for run in runs if run.age is not None]
    sizes: Counter[int] = Counter()
    for run in runs:
        sizes.update(run.batch_histogram)
    known = sorted({priority for run in runs for priority in run.priorities})
    return replace(
        first,
        **changed,
        runs=len(runs),
        lag=max((run.lag for run in runs if run.lag is not None), default=None),
        latency=_mean_table([run.latency for run in runs]),
        split={name: _mean_parts([run.split[name] for run in runs]) for name in first.split},
        age=fmean(ages) if ages else None,
        batch_histogram=dict(sorted(sizes.items())),
        clients=_mean_parts([run.clients for run in runs]) if first.clients else {},
        priorities={
            each: _mean_table([run.priorities[each] for run in runs if each in run.priorities])
            for each in known
        },
        curve=_mean_curve([run.curve for run in runs]),
        intervals=intervals,
        error=next((run.error for run in runs if run.error), None),
    )


def _mean_parts(tables: list[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(each[name] for each in tables) for name in tables[0]}


def _mean_table(tables: list[dict[str, float]]) -> dict[str, float]:
    table = {name: fmean(each[name] for each in tables) for name in tables[0]}
    return {**table, "max": max(each["max"] for each in tables)}


def _mean_curve(curves: list[list[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Return the mean of step functions: at each value, the mean of their shares."""
    steps = sorted(
        (value, share - before)
        for curve in curves
        for (value, share), before in zip(curve, [0.0, *(s for _, s in curve)], strict=False)
    )
    total = 0.0
    points: dict[float, float] = {}
    for value, rise in steps:
        total += rise
        points[value] = total / len(curves)
    return list(points.items())


def _figure(run: Result, name: str) -> float:
    value: float = run.latency[name] if name in run.latency else getattr(run, name)
    return value
