"""Pictures of results: latency, batch sizes and depth over time, the frontier. Needs matplotlib."""

from __future__ import annotations

import io
import itertools
import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.notation import seconds_text
from actorflow.lab.report.dominance import dominated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from actorflow.lab.run.result import Result

__all__ = [
    "FIGURES", "batch_sizes", "by_priority", "colour", "depths", "drawn", "frontier", "latency_cdf",
    "overview", "png", "save",
]  # fmt: skip

_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a4ea3", "#8c6d31",
    "#1b7837", "#b2182b",
)  # fmt: skip
_LINES = ("-", "--", "-.", ":")
_GREY = "#b8b8b8"
_BINS = 160
_VISIBLE = 0.005  # share of the messages from which on a curve is worth the room
_NAMED = 3  # policies that are named where several came out the same
_WIDTH, _HEIGHT = 290.0, 210.0  # of a frontier, about, in points
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": "#888888", "axes.labelcolor": "#333333", "axes.spines.right": False,
    "axes.spines.top": False, "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.grid": True, "grid.color": "#e6e6e6",
    "font.size": 9, "legend.frameon": False, "lines.linewidth": 1.6,
    "xtick.color": "#555555", "ytick.color": "#555555", "svg.hashsalt": "actorflow",
}  # fmt: skip


def latency_cdf(results: Sequence[Result], axes: Axes | None = None) -> Figure:
    """Draw which share of the messages was processed within which time."""

    def draw(axes: Axes) -> None:
        least = 1.0
        for at, (label, result) in enumerate(_groups(results)):
            if result.curve:
                values, shares = zip(*result.curve, strict=True)
                percents = [share * 100 for share in shares]
                axes.step(values, percents, where="post", **_look(at, label))
                least = min(least, next(v for v, share in result.curve if share >= _VISIBLE))
        axes.set_xscale("log")
        axes.set_xlim(left=max(least / 1.5, 1e-6))
        axes.set_ylim(0, 101)
        _time_ticks(axes.xaxis)
        axes.set(title="Latency", xlabel="from push to processed", ylabel="messages, %")

    return _figure(draw, axes, legend=True)


def batch_sizes(results: Sequence[Result], axes: Axes | None = None) -> Figure:
    """Draw how large batches were over time: the largest of each moment."""
    return _over_time(results, "batch_series", ("Batch size", "messages per batch"), axes)


def depths(results: Sequence[Result], axes: Axes | None = None) -> Figure:
    """Draw how many messages were accumulated over time."""
    return _over_time(results, "depth_series", ("Depth", "messages waiting"), axes)


def _over_time(
    results: Sequence[Result], field: str, titles: tuple[str, str], axes: Axes | None
) -> Figure:
    def draw(axes: Axes) -> None:
        greatest = 0.0
        for at, (label, result) in enumerate(_groups(results)):
            points = _binned(getattr(result, field), result.duration)
            if points:
                times, values = zip(*points, strict=True)
                greatest = max(greatest, *values)
                axes.step(times, values, where="mid", **_look(at, label))
        axes.set_xlim(left=0)
        if greatest > 50:  # noqa: PLR2004
            axes.set_yscale("symlog", linthresh=10)
            from matplotlib.ticker import FuncFormatter  # noqa: PLC0415

            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_ylim(bottom=0)
        axes.set(title=titles[0], xlabel="time, s", ylabel=titles[1])

    return _figure(draw, axes, legend=True)


def _binned(points: Sequence[tuple[float, float]], duration: float) -> list[tuple[float, float]]:
    """Give at most so many points, of each stretch the largest: lines stay readable."""
    if len(points) <= _BINS:
        return list(points)
    start = points[0][0]
    edges = [start + duration * (at + 1) / _BINS for at in range(_BINS)]
    best: dict[int, tuple[float, float]] = {}
    for at, value in points:
        place = bisect_right(edges, at)
        if place not in best or value > best[place][1]:
            best[place] = (at, value)
    return [best[place] for place in sorted(best)]


def frontier(results: Sequence[Result], axes: Axes | None = None) -> Figure:
    """Draw latency against throughput; policies that another one dominates are grey.

    Below capacity all policies carry the same load, so beside it stands what tells them apart
    then: latency against how busy the executor is.
    """
    worse = dominated(results)
    points = [
        (at, label, result)
        for at, (label, result) in enumerate(_groups(results))
        if result.latency["p99"] > 0
    ]

    def scatter(axes: Axes, figure: Callable[[Result], float], label: str) -> None:
        axes.set_xlabel(label)
        if not points:
            return
        for at, _, result in points:
            grey = result.policy in worse
            axes.scatter(
                figure(result), result.latency["p99"], s=26 if grey else 52,
                zorder=2 if grey else 3, color=_GREY if grey else colour(at), edgecolors="white",
                linewidths=0.6,
            )  # fmt: skip
        axes.set_yscale("log")
        axes.margins(x=0.3, y=0.12)
        values = [figure(result) for _, _, result in points]
        if max(values) < 1.02 * min(values):
            axes.set_xlim(min(values) * 0.9, max(values) * 1.1)
        _time_ticks(axes.yaxis)
        _name_points(axes, [(label, result) for _, label, result in points], figure, worse)

    def left(axes: Axes) -> None:
        axes.set(title="Latency against throughput", ylabel="p99 latency")
        scatter(axes, lambda result: result.throughput, "messages per second")

    def right(axes: Axes) -> None:
        axes.set(title="Latency against executor time")
        scatter(axes, lambda result: result.busy * 100, "executor busy, %")

    if axes is not None:
        return _figure(left, axes)
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_STYLE):
        made = Figure(figsize=(9.6, 4.0), layout="constrained")
        one, two = made.subplots(1, 2, sharey=True)
        left(one)
        right(two)
    return made


def _name_points(
    axes: Axes,
    groups: list[tuple[str, Result]],
    figure: Callable[[Result], float],
    worse: set[str],
) -> None:
    """Write names beside the points, so that they do not cover each other.

    Those of dominated policies are left out where there is no room.
    """
    low, high = axes.get_xlim()
    bottom, top = map(math.log, axes.get_ylim())
    taken: list[tuple[float, float, float, float]] = []
    places = {}
    for label, result in groups:
        height = math.log(max(result.latency["p99"], 1e-9))
        x = (figure(result) - low) / max(high - low, 1e-12) * _WIDTH
        y = (height - bottom) / max(top - bottom, 1e-12) * _HEIGHT
        places[label] = (x, y)
        taken.append((x - 3, y - 3, x + 3, y + 3))
    for label, result in sorted(groups, key=lambda group: group[1].policy in worse):
        grey = result.policy in worse
        x, y = places[label]
        wide = 3.7 * len(label)
        for right, up in itertools.product((True, False), (0, 9, -9, 18, -18, 27, -27, 36, -36)):
            start = x + 7 if right else x - 7 - wide
            box = (start, y + up - 4, start + wide, y + up + 4)
            inside = box[0] >= 0 and box[2] <= _WIDTH
            if inside and not any(_overlap(box, other) for other in taken):
                break
        else:
            if grey:
                continue
            right, up = x < _WIDTH / 2, 0
        taken.append(box)
        axes.annotate(
            label, (figure(result), result.latency["p99"]), xytext=(7 if right else -7, up),
            textcoords="offset points", ha="left" if right else "right", va="center", fontsize=7,
            color="#9a9a9a" if grey else "#222222",
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "#aaaaaa"} if up else None,
        )  # fmt: skip


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _groups(results: Sequence[Result]) -> list[tuple[str, Result]]:
    """Give results with a label; those that came out the same are one, with all their names."""
    same: dict[Any, list[Result]] = {}
    for result in results:
        shape = (round(result.busy, 6), tuple(result.curve), tuple(result.batch_series))
        same.setdefault(shape, []).append(result)
    groups = []
    for alike in same.values():
        label = " = ".join(result.policy for result in alike[:_NAMED])
        more = len(alike) - _NAMED
        groups.append((f"{label} = {more} more" if more > 0 else label, alike[0]))
    return groups


def by_priority(results: Sequence[Result], axes: Axes | None = None) -> Figure:
    """Draw the 99th percentile of each priority."""

    def draw(axes: Axes) -> None:
        for at, (label, result) in enumerate(_groups(results)):
            if result.priorities:
                tables = sorted(result.priorities.items())
                latencies = [table["p99"] for _, table in tables]
                axes.plot([each for each, _ in tables], latencies, marker="o", **_look(at, label))
        axes.set_yscale("log")
        _time_ticks(axes.yaxis)
        axes.set(title="Latency by priority", xlabel="priority", ylabel="p99 latency")

    return _figure(draw, axes, legend=True)


def overview(results: Sequence[Result], title: str = "") -> Figure:
    """Draw all four in one picture."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_STYLE):
        made = Figure(figsize=(10.5, 7.6), layout="constrained")
        places = made.subplots(2, 2)
        latency_cdf(results, places[0][0])
        frontier(results, places[0][1])
        batch_sizes(results, places[1][0])
        depths(results, places[1][1])
        handles, labels = places[0][0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=min(4, max(len(labels), 1)))
        if title:
            made.suptitle(title, x=0.01, ha="left", fontsize=10, color="#444444")
    return made


FIGURES: dict[str, Callable[[Sequence[Result]], Figure]] = {
    "latency": latency_cdf,
    "batches": batch_sizes,
    "depth": depths,
    "frontier": frontier,
}
"""The pictures of a report, by name."""


def _figure(draw: Callable[[Axes], None], axes: Axes | None, *, legend: bool = False) -> Figure:
    """Draw into the given axes, or into a figure of its own."""
    if axes is not None:
        draw(axes)
        return axes.figure  # type: ignore[return-value]
    return drawn(draw, (7.2, 4.0), legend=legend)


def drawn(
    draw: Callable[[Axes], None], size: tuple[float, float], *, legend: bool = False
) -> Figure:
    """Make a figure in the style of the lab, of so many inches."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_STYLE):
        made = Figure(figsize=size, layout="constrained")
        axes = made.subplots()
        draw(axes)
        if legend:
            handles, labels = axes.get_legend_handles_labels()
            if len(labels) > 1:
                made.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return made


def _look(at: int, label: str) -> dict[str, Any]:
    return {
        "color": colour(at),
        "linestyle": _LINES[(at // len(_COLOURS)) % len(_LINES)],
        "label": label,
        "alpha": 0.9,
    }


def colour(at: int) -> str:
    """Give the colour of the n-th of several."""
    return _COLOURS[at % len(_COLOURS)]


def _time_ticks(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415

    low, high = axis.get_view_interval()
    narrow = high < 200 * max(low, 1e-9)
    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if narrow else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: seconds_text(float(f"{value:.3g}"))))
    axis.set_minor_formatter(NullFormatter())


def png(figure: Figure, dpi: int = 144) -> bytes:
    """Give a figure as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415

    out = io.BytesIO()
    FigureCanvasAgg(figure)
    # No version in the file: the same results make the same picture.
    figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()


def save(figure: Figure, path: Path, dpi: int = 110) -> None:
    """Write a figure as PNG."""
    path.write_bytes(png(figure, dpi))
