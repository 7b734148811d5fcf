"""Replications: run with one seed after the other until the figures are precise enough."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from actorflow.lab.models.notation import TimeNumber, parse
from actorflow.lab.run.intervals import warm_up
from actorflow.lab.run.repeats import combine
from actorflow.lab.run.result import QUANTILES
from actorflow.runtime.errors import BadOption, near

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.lab.run.result import Result
    from actorflow.lab.run.statistics import RunStatistics

__all__ = ["MOST", "OneRun", "precise", "share"]

_LEAST = 5
MOST = 60
"""Replications at most; then the interval is as wide as it is."""
_FIGURES = {
    **{name: name for name in QUANTILES},
    "mean": "latency_mean", "busy": "busy", "batch": "batch_mean", "throughput": "throughput",
}  # fmt: skip


class _Run(Protocol):
    @property
    def result(self) -> Result: ...
    @property
    def statistics(self) -> RunStatistics: ...


class OneRun(Protocol):
    """Runs a policy once."""

    def __call__(self, seed: int, since: float, *, keep: bool = False) -> _Run:
        """Run with a seed; leave out the time before `since`; keep every latency, or not."""


def share(given: float | str) -> float:
    """Return a precision as a number.

    Raises:
        BadOption: it is not between 0 and 1.

    >>> share("5%"), share(0.1)
    (0.05, 0.1)
    """
    value = parse(given) if isinstance(given, str) else given
    if not isinstance(value, float) or isinstance(value, TimeNumber) or not 0 < value < 1:
        msg = f"precision={given!r} must be a share between 0 and 1, as in precision='5%'"
        raise BadOption(msg)
    return float(value)


def precise(one: OneRun, seed: int, wanted: float, figures: Sequence[str]) -> Result:
    """Replicate until the interval of each figure is narrow enough, or `MOST` runs are done.

    The first run finds the warm-up (MSER-5), which all of them cut. Traffic that does not depend
    on the seed is run once: its interval comes from sections of the run.
    """
    unknown = [name for name in figures if name not in _FIGURES]
    if unknown:
        msg = f"there is no figure {unknown[0]!r} to be precise about{near(unknown[0], _FIGURES)}"
        raise BadOption(msg)
    pilot = one(seed, 0.0, keep=True)
    ordered = pilot.statistics.latencies or []
    cut = warm_up([latency for _, latency in ordered])
    since = ordered[cut - 1][0] if cut else 0.0
    steady = cut is not None
    runs: list[Result] = []
    while len(runs) < MOST:
        first = pilot.result if not (runs or since) else one(seed + len(runs), since).result
        runs.append(replace(first, steady=steady, batch_log=[]))
        if len(runs) == 2 and replace(runs[1], seed=seed) == runs[0]:  # noqa: PLR2004
            return runs[0]
        if len(runs) >= _LEAST:
            found = combine(runs)
            if all(_is_narrow(found, _FIGURES[name], wanted) for name in figures):
                return found
    return combine(runs)


def _is_narrow(found: Result, name: str, wanted: float) -> bool:
    """Return whether the interval of a figure is narrow enough, or there is too little data."""
    if name not in found.intervals:
        return True
    low, high = found.intervals[name]
    return high - low <= 2 * wanted * abs(high + low) / 2
