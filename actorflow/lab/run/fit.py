"""Fit a service model to recorded batches: a fixed time, a slope, perhaps a knee, and a tail.

The fit is of medians: the times of batches of similar size are summed up by their median, so that
a few slow calls do not bend the line. What varies around it is the tail.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.notation import seconds_text
from actorflow.lab.models.service import Cost, parse_service
from actorflow.lab.models.trace import BadTrace
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["ServiceFit", "fit", "fit_batches"]

_LEAST = 10  # batches
_KNEE_PAYS = 0.5  # a knee has to reduce the squared error to this share
_STRAIGHT = 0.002  # relative errors that are not worth a knee
_STEADY = 0.02  # variation that is too small to count as a tail


@dataclass(frozen=True, slots=True)
class ServiceFit:
    """A service model, and how well it fits."""

    fixed: float
    """Seconds of each call."""
    slope: float
    """Seconds of each message."""
    knee: int | None
    """The batch size from which on each message takes `steeper` seconds more, if there is one."""
    steeper: float
    tail: float
    """The sigma of a lognormal distribution around the line; 0 if the times hardly vary."""
    batches: int
    residuals: dict[str, float]
    """p50, p90 and p99 of measured / fitted, and the mean relative error of the line."""

    @property
    def text(self) -> str:
        """The model in the notation of the lab, as `--service` takes it."""
        parts = []
        whole = self.fixed + self.slope
        shares = (self.fixed / whole) ** 2 + (self.slope / whole) ** 2 if whole else 1.0
        sigma = self.tail / math.sqrt(shares)  # two independent draws vary less than one
        for seconds, unit in ((self.fixed, ""), (self.slope, "*n")):
            if seconds > 0:
                shown = seconds_text(seconds)
                parts.append(f"lognormal({shown}, {sigma:.3g}){unit}" if sigma else shown + unit)
        if self.knee is not None:
            parts.append(f"{seconds_text(self.steeper)}*over({self.knee})")
        return " + ".join(parts) or "0s"

    def model(self) -> Cost:
        """Return the model, for `simulate`."""
        return parse_service(self.text)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "service": self.text, "fixed": self.fixed, "slope": self.slope, "knee": self.knee,
            "steeper": self.steeper, "tail": self.tail, "batches": self.batches,
            "residuals": self.residuals,
        }  # fmt: skip

    def __str__(self) -> str:
        found = ", ".join(f"{name} {value:.3g}" for name, value in self.residuals.items())
        return f"--service '{self.text}'\n{self.batches} batches; measured / fitted: {found}"


def fit(trace: Path | str | Iterable[tuple[int, float]]) -> ServiceFit:
    """Fit a service model to the batches of a trace, as `af.record` writes them.

    Args:
        trace: a `.jsonl` file, or pairs of the size of a batch and the seconds that it took.

    Raises:
        BadTrace: a line cannot be read.
        BadOption: there are too few batches.

    >>> str(fit([(n, 0.002 + 0.00001 * n) for n in range(1, 40)]).text)
    '2ms + 10us*n'

    """
    return fit_batches(_batches(Path(trace)) if isinstance(trace, str | Path) else list(trace))


def _batches(path: Path) -> list[tuple[int, float]]:
    found = []
    if not path.is_file():
        msg = f"there is no trace {str(path)!r}; record one with af.record(worker, path)"
        raise BadOption(msg)
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if '"batch"' not in line:
                continue
            try:
                row = json.loads(line)
                found.append((int(row["batch"]), float(row["took"])))
            except (ValueError, KeyError, TypeError) as error:
                raise BadTrace(path, number, f"not a batch: {error!r}") from None
    return found


def fit_batches(batches: Sequence[tuple[int, float]]) -> ServiceFit:
    """Fit a service model to (size, seconds) of some batches. O(n log n)."""
    usable = [(size, took) for size, took in batches if size > 0 and took > 0]
    if len(usable) < _LEAST:
        msg = (
            f"{len(usable)} batches are too few for a service model; record {_LEAST} or more, with "
            "af.record(worker, 'trace.jsonl')"
        )
        raise BadOption(msg)
    groups: defaultdict[int, list[float]] = defaultdict(list)
    for size, took in usable:
        groups[_group(size)].append(took)
    sizes: defaultdict[int, list[int]] = defaultdict(list)
    for size, _ in usable:
        sizes[_group(size)].append(size)
    points = [
        (fmean(sizes[group]), median(groups[group]), len(groups[group])) for group in sorted(groups)
    ]
    fixed, slope = _line(points)
    knee, steeper = None, 0.0
    error = _error(points, fixed, slope, None, 0.0)
    if error > _STRAIGHT**2 * sum(weight for _, _, weight in points):
        bent = [_bent(points, place) for place in range(2, len(points) - 2)]
        best = min(bent, key=lambda each: _error(points, *each), default=None)
        if best is not None and best[3] > 0 and _error(points, *best) < _KNEE_PAYS * error:
            fixed, slope, knee, steeper = best
    ratios = sorted(took / _fitted(size, fixed, slope, knee, steeper) for size, took in usable)
    tail = pstdev(map(math.log, ratios))
    residuals = {
        name: ratios[min(int(share * len(ratios)), len(ratios) - 1)]
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    }
    whole = sum(weight for _, _, weight in points)
    residuals["error"] = math.sqrt(_error(points, fixed, slope, knee, steeper) / whole)
    return ServiceFit(
        fixed, slope, knee, steeper, tail if tail > _STEADY else 0.0, len(usable), residuals
    )


def _group(size: int) -> int:
    """Return the group of a size: each of up to 16, then eight for each factor of two."""
    return size if size <= 16 else 16 + round(8 * math.log2(size / 16))  # noqa: PLR2004


def _line(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return the line of least relative squares; neither part of it is negative."""
    weights = [count / took**2 for _, took, count in points]
    whole = math.fsum(weights)
    x = math.fsum(w * size for w, (size, _, _) in zip(weights, points, strict=True)) / whole
    y = math.fsum(w * took for w, (_, took, _) in zip(weights, points, strict=True)) / whole
    spread = math.fsum(w * (size - x) ** 2 for w, (size, _, _) in zip(weights, points, strict=True))
    if spread == 0:
        return y, 0.0
    both = math.fsum(
        w * (size - x) * (took - y) for w, (size, took, _) in zip(weights, points, strict=True)
    )
    slope = both / spread
    if slope <= 0:
        return y, 0.0
    fixed = y - slope * x
    return (fixed, slope) if fixed > 0 else (0.0, y / x)


def _bent(
    points: Sequence[tuple[float, float, float]], place: int
) -> tuple[float, float, int, float]:
    """Return the line up to a point, and how much steeper the rest is."""
    fixed, slope = _line(points[: place + 1])
    knee = points[place][0]
    above = [(size - knee, took - fixed - slope * size, count / took**2)
             for size, took, count in points[place + 1 :]]  # fmt: skip
    weight = math.fsum(w * x * x for x, _, w in above)
    steeper = math.fsum(w * x * y for x, y, w in above) / weight if weight else 0.0
    return fixed, slope, round(knee), steeper


def _fitted(size: float, fixed: float, slope: float, knee: int | None, steeper: float) -> float:
    beyond = 0.0 if knee is None else max(size - knee, 0.0)
    return max(fixed + slope * size + steeper * beyond, 1e-12)


def _error(
    points: Sequence[tuple[float, float, float]],
    fixed: float,
    slope: float,
    knee: int | None,
    steeper: float,
) -> float:
    """Return the weighted sum of squared relative errors."""
    return math.fsum(
        count * (_fitted(size, fixed, slope, knee, steeper) / took - 1) ** 2
        for size, took, count in points
    )
