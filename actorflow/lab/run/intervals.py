"""What a sample allows to say: confidence intervals, enough data, warm-up, pass or fail.

All in the standard library, so that results are the same on every machine.
"""

from __future__ import annotations

import math
from enum import StrEnum
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "LabVerdict",
    "decide",
    "half_width",
    "mean_interval",
    "samples_needed",
    "student",
    "warm_up",
]

_CONFIDENCE = 0.99  # of "enough data" and of pass or fail, as in MLPerf
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
_GROUP = 5  # observations that MSER-5 averages


class LabVerdict(StrEnum):
    """Whether a goal is met, or one policy better, as far as the data can tell."""

    PASS = "pass"  # noqa: S105 - not a password
    FAIL = "fail"
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    """Not one pair of runs differs."""
    UNDECIDED = "undecided"


def student(freedom: int) -> float:
    """Return Student's t for 95 %, two-sided, by the degrees of freedom.

    >>> student(9), round(student(100), 3)
    (2.262, 1.984)
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[max(freedom, 1) - 1]
    normal = NormalDist().inv_cdf(0.975)
    return normal + (normal**3 + normal) / (4 * freedom)


def half_width(values: Sequence[float], around: float | None = None) -> float:
    """Return half of the 95 % confidence interval of the mean; infinite for less than two."""
    count = len(values)
    if count < 2:  # noqa: PLR2004
        return math.inf
    middle = fmean(values) if around is None else around
    squares = math.fsum((value - middle) ** 2 for value in values)
    return student(count - 1) * math.sqrt(squares / (count - 1) / count)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of a mean.

    >>> [round(each, 2) for each in mean_interval([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    mean, half = fmean(values), half_width(values)
    return (mean - half, mean + half)


def samples_needed(share: float) -> int:
    """Return how many observations a percentile needs, so that one above it is almost certain.

    >>> [samples_needed(share) for share in (0.5, 0.9, 0.99, 0.999)]
    [7, 44, 459, 4603]
    """
    return math.ceil(math.log(1 - _CONFIDENCE) / math.log(share))


def decide(over: int, count: int, share: float) -> LabVerdict:
    """Decide whether `share` of all messages is in time, of which `over` of `count` were not.

    This is the early-stopping rule of MLPerf: pass if so few late ones would be seen in less than
    1 % of the runs of a system that just misses the goal, fail if so many would be in less than
    1 % of the runs of one that just meets it.

    >>> [str(decide(over, 1_000, 0.99)) for over in (0, 10, 30)]
    ['pass', 'undecided', 'fail']
    >>> str(decide(0, 458, 0.99)), str(decide(0, 459, 0.99))
    ('undecided', 'pass')
    """
    if _at_most(over, count, 1 - share) <= 1 - _CONFIDENCE:
        return LabVerdict.PASS
    if over and 1 - _at_most(over - 1, count, 1 - share) <= 1 - _CONFIDENCE:
        return LabVerdict.FAIL
    return LabVerdict.UNDECIDED


def _at_most(most: int, count: int, likely: float) -> float:
    """Return the probability of at most so many successes of `count`: the binomial's sum.

    O(most), and never more than a few thousand terms that matter.
    """
    if most >= count:
        return 1.0
    mean, spread = count * likely, math.sqrt(count * likely * (1 - likely))
    if most > mean + 40 * spread + 40:
        return 1.0
    total = 0.0
    for successes in range(max(0, int(min(most, mean) - 40 * spread - 40)), most + 1):
        total += math.exp(
            math.lgamma(count + 1) - math.lgamma(successes + 1) - math.lgamma(count - successes + 1)
            + successes * math.log(likely) + (count - successes) * math.log1p(-likely)
        )  # fmt: skip
    return min(total, 1.0)


def warm_up(values: Sequence[float]) -> int | None:
    """Return how many of the first observations to cut: the rule MSER-5.

    It cuts so that the standard error of the rest is least, at most half of them. `None` means
    that the best cut is beyond that: the run has not reached a steady state.

    >>> warm_up([9.0] * 10 + [1.0, 2.0] * 45), warm_up([1.0, 2.0] * 50)
    (10, 0)
    """
    groups = [fmean(values[at : at + _GROUP]) for at in range(0, len(values) - _GROUP + 1, _GROUP)]
    count = len(groups)
    if count < 4:  # noqa: PLR2004
        return 0
    total = squares = 0.0
    best, cut = math.inf, 0
    for at in range(count - 1, -1, -1):
        total += groups[at]
        squares += groups[at] ** 2
        left = count - at
        if left < max(count // 10, 2):  # the last few groups are no sample
            continue
        error = max(squares - total * total / left, 0.0) / (left * left)
        if error <= best:
            best, cut = error, at
    return cut * _GROUP if cut <= count // 2 else None
