"""Verdicts on measurements: whether a goal is met, as far as the data can tell."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from actorflow.lab.models.notation import parse
from actorflow.lab.run.intervals import LabVerdict, decide, half_width
from actorflow.lab.run.result import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.lab.run.goals import Goal
    from actorflow.lab.run.result import Result

__all__ = ["judge"]


def judge(goal: Goal, runs: Sequence[Result]) -> LabVerdict:
    """Return whether repeated runs pass a goal, fail it, or leave it undecided.

    A percentile, and goodput, is decided by counting the messages of all runs that were not in
    time, by the early-stopping rule of MLPerf; lost and replaced messages were not. Any other
    figure passes if all of its confidence interval does, and fails if none of it does.
    """
    below = goal.sign in ("<", "<=")
    counted = not goal.only or goal.figure == "goodput"
    if goal.figure in QUANTILES and below and counted:
        return _decide(goal.limit, QUANTILES[goal.figure], runs)
    if goal.figure == "goodput" and not below and 0 < goal.limit < 1:
        return _decide(float(parse(goal.only)), goal.limit, runs)  # type: ignore[arg-type]
    values = [goal.value(run) for run in runs]
    if not any(value != values[0] for value in values):
        return LabVerdict.PASS if all(goal.is_met(run) for run in runs) else LabVerdict.FAIL
    middle, half = fmean(values), half_width(values)
    if not half < float("inf"):
        return LabVerdict.UNDECIDED
    low, high = middle - half, middle + half
    if below:
        return _outcome(passed=high < goal.limit, failed=low > goal.limit)
    return _outcome(passed=low > goal.limit, failed=high < goal.limit)


def _decide(limit: float, share: float, runs: Sequence[Result]) -> LabVerdict:
    count = sum(run.arrived for run in runs)
    over = sum(round(run.arrived * (1 - run.within(limit))) for run in runs)
    return decide(over, count, share)


def _outcome(*, passed: bool, failed: bool) -> LabVerdict:
    return LabVerdict.PASS if passed else LabVerdict.FAIL if failed else LabVerdict.UNDECIDED
