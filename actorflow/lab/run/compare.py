"""Compare two policies with common random numbers: which is better, if the data can tell.

Both get the same traffic, seed by seed. The difference of each pair varies much less than either
figure, because a hard minute is hard for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.policies import policy_of
from actorflow.lab.models.service import parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.run.goals import Goal, figure_text, parse_goals
from actorflow.lab.run.intervals import LabVerdict, mean_interval
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.lab.models.service import Service
    from actorflow.lab.models.traffic import Traffic
    from actorflow.lab.run.result import Result

__all__ = ["Comparison", "PairedDifference", "compare"]

_LEAST = 5
_MORE_IS_BETTER = {"goodput", "throughput", "fairness", "batch"}
_FIGURES = "p50 < 1s, p99 < 1s, busy < 100%, loss < 100%"


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """One figure of both policies, and how they differ."""

    figure: str
    first: float
    second: float
    interval: tuple[float, float]
    """The 95 % confidence interval of first - second."""
    verdict: LabVerdict
    """Whether the first is better or worse than the second, the same, or undecided."""

    def __str__(self) -> str:
        plain = self.figure.partition("(")[0]
        show = partial(_signed, plain)
        return (
            f"{self.figure}: {figure_text(plain, self.first)} against "
            f"{figure_text(plain, self.second)}, {self.verdict.value} "
            f"({show(self.interval[0])} to {show(self.interval[1])})"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two policies with the same traffic."""

    first: str
    second: str
    runs: int
    """With how many seeds both were run."""
    differences: list[PairedDifference]

    def __getitem__(self, figure: str) -> PairedDifference:
        """Return the difference in one figure, for example `comparison["p99"]`."""
        found = next((each for each in self.differences if each.figure == figure), None)
        if found is None:
            known = ", ".join(each.figure for each in self.differences)
            msg = f"{figure!r} was not compared; there are {known}"
            raise KeyError(msg)
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "first": self.first,
            "second": self.second,
            "runs": self.runs,
            "differences": {
                each.figure: {
                    "first": each.first if isfinite(each.first) else None,
                    "second": each.second if isfinite(each.second) else None,
                    "interval": each.interval,
                    "verdict": each.verdict.value,
                }
                for each in self.differences
            },
        }

    def __str__(self) -> str:
        lines = [f"{self.first} compared with {self.second}, {self.runs} pairs of runs"]
        return "\n".join([*lines, *(f"  {each}" for each in self.differences)])


def compare(
    first: Any,
    second: Any,
    *,
    traffic: Traffic | str,
    service: Service | str,
    figures: str | Sequence[str] = (),
    seed: int = 0,
    most: int = 40,
    concurrency: int = 1,
    on_failure: Any = "drop",
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Compare two policies, with as many pairs of runs as a verdict needs.

    Args:
        first: a policy, as text, class or factory.
        second: the one to compare it with.
        traffic: the arrivals, as a model or as text. A trace is the same for every seed: then only
            a random service differs between the runs.
        service: how long the job takes, as a model or as text.
        figures: what to compare, such as `["p99", "goodput(50ms)"]`; by default p50, p99, busy
            and loss.
        seed: of the first pair; each pair has the next one.
        most: pairs at most; then the verdict stays undecided.
        concurrency: how many batches may run at once.
        on_failure: what happens to a batch on which the job fails.
        progress: called with the number of pairs so far.

    >>> found = compare(
    ...     "chunk(queue, 8)",
    ...     "chunk(queue, 1)",
    ...     traffic="poisson(800, duration=2s)",
    ...     service="1ms + 100us*n",
    ...     figures=["p99"],
    ... )
    >>> found["p99"].verdict.value
    'better'

    """
    if most < _LEAST:
        msg = f"most={most!r} must be {_LEAST} or more: fewer pairs say nothing"
        raise BadOption(msg)
    goals = _wanted(figures)
    run = partial(
        simulate,
        parse_traffic(traffic) if isinstance(traffic, str) else traffic,
        parse_service(service) if isinstance(service, str) else service,
        concurrency=concurrency,
        on_failure=on_failure,
    )
    one, two = policy_of(first), policy_of(second)
    pairs: list[tuple[Result, Result]] = []
    while True:
        number = seed + len(pairs)
        pairs.append((run(one, seed=number), run(two, seed=number)))
        if progress is not None:
            progress(len(pairs))
        if len(pairs) < _LEAST:
            continue
        differences = [_difference(goal, pairs) for goal in goals]
        decided = all(each.verdict is not LabVerdict.UNDECIDED for each in differences)
        if decided or len(pairs) == most:
            return Comparison(one.name, two.name, len(pairs), differences)


def _wanted(figures: str | Sequence[str]) -> tuple[Goal, ...]:
    """Return a goal for each figure; its limit does not matter."""
    if not figures:
        return parse_goals(_FIGURES)
    names = figures.split(",") if isinstance(figures, str) else figures
    found: list[Goal] = []
    for name in map(str.strip, names):
        try:
            found += parse_goals(f"{name} < 50%")
        except ValueError:
            try:
                found += parse_goals(f"{name} < 1s")
            except ValueError:
                found += parse_goals(f"{name} < 1")
    return tuple(found)


def _difference(goal: Goal, pairs: Sequence[tuple[Result, Result]]) -> PairedDifference:
    values = [(goal.value(one), goal.value(two)) for one, two in pairs]
    first, second = (fmean(side) for side in zip(*values, strict=True))
    differences = [one - two for one, two in values if isfinite(one) and isfinite(two)]
    if len(differences) < _LEAST:
        return PairedDifference(goal.name, first, second, (-first, first), LabVerdict.UNDECIDED)
    low, high = mean_interval(differences)
    verdict = LabVerdict.UNDECIDED
    if not any(differences):
        verdict = LabVerdict.SAME
    elif goal.figure in _MORE_IS_BETTER:
        verdict = LabVerdict.BETTER if low > 0 else LabVerdict.WORSE if high < 0 else verdict
    else:
        verdict = LabVerdict.BETTER if high < 0 else LabVerdict.WORSE if low > 0 else verdict
    return PairedDifference(goal.name, first, second, (low, high), verdict)


def _signed(figure: str, value: float) -> str:
    return f"{'-' if value < 0 else '+'}{figure_text(figure, abs(value))}"
