"""Several runs of one policy as one result: means, with confidence intervals."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorflow.lab.run.result import Result

__all__ = ["combine"]

# Student's t for 95 %, by the number of repetitions.
_STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
_MEANS = ("duration", "throughput", "latency_mean", "batch_mean", "busy", "fairness")
_COUNTS = (
    "arrived", "processed", "batches", "replaced", "merged", "dropped", "rejected", "expired",
    "failed", "unaccounted",
)  # fmt: skip
_WORST = ("oldest", "batch_max", "peak_depth", "memory")
_INTERVALS = ("throughput", "latency_mean", "p50", "p90", "p99", "busy", "batch_mean")


def combine(runs: list[Result]) -> Result:
    """Average repetitions, with confidence intervals; of what is a maximum, the greatest.

    The series over time are those of the first repetition.
    """
    first = runs[0]
    changed: dict[str, Any] = {name: fmean(_figure(run, name) for run in runs) for name in _MEANS}
    changed |= {name: round(fmean(_figure(run, name) for run in runs)) for name in _COUNTS}
    changed |= {name: max(_figure(run, name) for run in runs) for name in _WORST}
    intervals = {name: _interval([_figure(run, name) for run in runs]) for name in _INTERVALS}
    known = sorted({priority for run in runs for priority in run.priorities})
    return replace(
        first,
        **changed,
        latency=_mean_table([run.latency for run in runs]),
        priorities={
            each: _mean_table([run.priorities[each] for run in runs if each in run.priorities])
            for each in known
        },
        curve=_mean_curve([run.curve for run in runs]),
        intervals=intervals,
        error=next((run.error for run in runs if run.error), None),
    )


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


def _interval(values: list[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of a mean, by Student's t."""
    mean = fmean(values)
    half = _STUDENT.get(len(values), 2.26) * stdev(values) / math.sqrt(len(values))
    return (mean - half, mean + half)
