"""All figures of a report by name, with a footer; `plot` for Python."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.lab.report.curves import batch_histogram, latency_over_time, outcomes, waits
from actorflow.lab.report.figures import (
    batch_sizes,
    depths,
    footer,
    frontier,
    latency_cdf,
    overview,
    require_matplotlib,
    save,
)
from actorflow.lab.run.result import Result
from actorflow.runtime.errors import BadOption, near

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.figure import Figure

    from actorflow.lab.run.goals import Goal

__all__ = ["FIGURES", "draw_all", "figure", "plot", "today"]

FIGURES: dict[str, Callable[..., Figure]] = {
    "latency": latency_cdf,
    "waits": waits,
    "frontier": frontier,
    "outcomes": outcomes,
    "latency-time": latency_over_time,
    "batches": batch_sizes,
    "batch-sizes": batch_histogram,
    "depth": depths,
}
"""The figures of a report, by name."""
_WITH_GOALS = {"latency", "latency-time"}


def figure(name: str, results: Sequence[Result], goals: Sequence[Goal] = ()) -> Figure:
    """Draw one figure, with goal lines where it can have some, and a footer."""
    options: dict[str, Any] = {"goals": goals} if name in _WITH_GOALS else {}
    made = FIGURES[name](results, **options)
    footer(made, results, today())
    return made


def draw_all(results: Sequence[Result], folder: Path, goals: Sequence[Goal] = ()) -> list[Path]:
    """Write every figure to a folder as PNG; return the files."""
    paths = []
    for name in FIGURES:
        paths.append(folder / f"{name}.png")
        save(figure(name, results, goals), paths[-1])
    return paths


def plot(
    results: Result | Sequence[Result],
    name: str | None = None,
    *,
    path: Path | str | None = None,
    goals: Sequence[Goal] = (),
) -> Figure:
    """Draw results. A notebook shows the returned figure.

    Args:
        results: of one policy or of several.
        name: one of `FIGURES`; by default an overview of four.
        path: a PNG file to write as well.
        goals: to draw into the figures, as from `parse_goals`.

    Raises:
        MissingExtra: matplotlib is not installed.

    """
    require_matplotlib()
    given = [results] if isinstance(results, Result) else list(results)
    if name is not None and name not in FIGURES:
        msg = f"there is no figure {name!r}{near(name, FIGURES)}"
        raise BadOption(msg)
    if name is None:
        made = overview(given)
        footer(made, given, today())
    else:
        made = figure(name, given, goals)
    if path is not None:
        save(made, Path(path))
    return made


def today() -> str:
    """Return the date; `SOURCE_DATE_EPOCH` sets it, so that a build can be repeated."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return time.strftime("%Y-%m-%d", time.gmtime(float(epoch) if epoch else None))
