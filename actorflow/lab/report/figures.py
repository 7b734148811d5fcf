"""Figures of results: latency, batch sizes and depth over time, the frontier. Needs matplotlib."""

from __future__ import annotations

import io
import math
import sys
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.lab.models.notation import seconds_text
from actorflow.lab.report.labels import Label, place
from actorflow.lab.run.result import dominated
from actorflow.runtime.errors import MissingExtra, install_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from actorflow.lab.run.goals import Goal
    from actorflow.lab.run.result import Result

__all__ = [
    "batch_sizes", "by_priority", "colour", "depths", "drawn", "footer", "frontier", "grouped",
    "latency_cdf", "look", "overview", "png", "require_matplotlib", "save", "time_ticks",
]  # fmt: skip

_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a4ea3", "#8c6d31",
    "#1b7837", "#b2182b",
)  # fmt: skip
_LINES = ("-", "--", "-.", ":")
_GREY = "#b8b8b8"
_WHOLE = 100.0  # per cent
_BINS = 160
_FINEST = 0.99999  # the top of the axis of shares
_VISIBLE = 0.005  # share of the messages from which on a curve is worth the room
_LEGEND_WIDTH, _POINT_WIDTH = 56, 40  # characters on a line of a label
_LETTER, _KEY, _ROW = 0.068, 0.7, 0.17  # inches of a legend: a letter, its key, a row
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": "#888888", "axes.labelcolor": "#333333", "axes.spines.right": False,
    "axes.spines.top": False, "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.grid": True, "grid.color": "#e6e6e6",
    "font.size": 9, "legend.frameon": False, "lines.linewidth": 1.6,
    "xtick.color": "#555555", "ytick.color": "#555555", "svg.hashsalt": "actorflow",
}  # fmt: skip


def latency_cdf(
    results: Sequence[Result], axes: Axes | None = None, *, goals: Sequence[Goal] = ()
) -> Figure:
    """Draw the share of all messages that was carried within a time, with a logarithmic tail.

    From 90 % to 99 % is as far as from 99 % to 99.9 %. A curve ends, with a dot and a dotted line,
    at the share that was carried at all: lower if messages were lost or replaced. Goals about
    percentiles are crosses: a curve meets one if it passes above and to the left.
    """

    def draw(axes: Axes) -> None:
        groups = [group for group in grouped(results) if group[1].curve]
        starts = [_start(result) for _, result in groups]
        most = max((result.curve[-1][0] for _, result in groups), default=1.0)
        top = max((1 - 1 / max(result.observed, 10) for _, result in groups), default=0.9)
        top = min(max(top, 0.9), _FINEST)
        for at, (label, result) in enumerate(groups):
            values, shares = zip(*result.curve, strict=True)
            heights = [min(share, top) for share in shares]
            style = look(at, label)
            axes.step(values, heights, where="post", **style)
            if result.carried < 1:
                # The share that never comes: on to the edge, dotted, with a mark where it ends.
                axes.plot([values[-1]], [heights[-1]], "o", color=style["color"], markersize=4)
                axes.plot(
                    [values[-1], most * 1.2], [heights[-1]] * 2, linestyle=":", linewidth=1.0,
                    color=style["color"],
                )  # fmt: skip
        least = min(starts, default=1.0)
        axes.set_xscale("log")
        axes.set_xlim(left=max(least / 1.5, 1e-6))
        _percent_axis(axes, top)
        _mark_goals(axes, goals, top)
        time_ticks(axes.xaxis)
        axes.set(title="Latency", xlabel="from push to processed", ylabel="of all messages")

    return _figure(draw, axes, legend=True)


def _percent_axis(axes: Axes, top: float) -> None:
    """Give an axis of shares a logarithmic tail, which ends below 100 %."""
    import numpy as np  # noqa: PLC0415 - comes with matplotlib

    def forward(shares: Any) -> Any:
        return -np.log10(np.maximum(1 - np.asarray(shares, dtype=float), 1e-9))

    def back(heights: Any) -> Any:
        return 1 - 10 ** -np.asarray(heights, dtype=float)

    axes.set_yscale("function", functions=(forward, back))
    ticks = [share for share in (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999) if share <= top]
    axes.set_yticks(ticks, [f"{share * 100:g}%" for share in ticks])
    axes.set_yticks([], minor=True)
    axes.set_ylim(0, top)


def _mark_goals(axes: Axes, goals: Sequence[Goal], top: float) -> None:
    """Mark the goals that are points of this figure: a time, and a share of the messages."""
    for goal in goals:
        place = goal.point()
        if place is not None and place[1] <= top:
            axes.plot(*place, "+", color="#b2182b", markersize=11, markeredgewidth=1.6, zorder=5)
            axes.annotate(str(goal), place, xytext=(5, -9), textcoords="offset points",
                          fontsize=7, color="#b2182b", zorder=5)  # fmt: skip


def _start(result: Result) -> float:
    """Return the latency from which on a curve is worth the room."""
    end = result.curve[-1][1]
    return next(value for value, share in result.curve if share >= min(_VISIBLE, end))


def batch_sizes(results: Sequence[Result], axes: Axes | None = None) -> Figure:
    """Draw the batch sizes over time: the largest of each moment."""
    return _over_time(results, "batch_series", ("Batch size", "messages per batch"), axes)


def depths(results: Sequence[Result], axes: Axes | None = None) -> Figure:
    """Draw how many messages were accumulated over time."""
    return _over_time(results, "depth_series", ("Depth", "messages waiting"), axes)


def _over_time(
    results: Sequence[Result], field: str, titles: tuple[str, str], axes: Axes | None
) -> Figure:
    def draw(axes: Axes) -> None:
        greatest = 0.0
        for at, (label, result) in enumerate(grouped(results)):
            points = _binned(getattr(result, field), result.duration)
            if points:
                times, values = zip(*points, strict=True)
                greatest = max(greatest, *values)
                axes.step(times, values, where="mid", **look(at, label))
        axes.set_xlim(left=0)
        if greatest > 50:  # noqa: PLR2004
            axes.set_yscale("symlog", linthresh=10)
            from matplotlib.ticker import FuncFormatter  # noqa: PLC0415

            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_ylim(bottom=0)
        axes.set(title=titles[0], xlabel="time, s", ylabel=titles[1])

    return _figure(draw, axes, legend=True)


def _binned(points: Sequence[tuple[float, float]], duration: float) -> list[tuple[float, float]]:
    """Return at most 160 points, of each stretch the largest, so that lines stay readable."""
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
    if axes is not None:
        _figure(lambda given: _scatter(given, results, _BY_THROUGHPUT), axes)
        _name_points(axes, results, _BY_THROUGHPUT)
        return axes.figure  # type: ignore[return-value]
    require_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    lines = sum(label.count("\n") + 1 for label, _ in _points(results))
    with rc_context(_STYLE):
        made = Figure(figsize=(10.6, max(4.0, 1.6 + 0.24 * lines)), layout="constrained")
        pair = made.subplots(1, 2, sharey=True)
        for place, side in zip(pair, (_BY_THROUGHPUT, _BY_TIME), strict=True):
            _scatter(place, results, side)
        pair[1].set_ylabel("")
        for place, side in zip(pair, (_BY_THROUGHPUT, _BY_TIME), strict=True):
            _name_points(place, results, side)
    return made


class _Side(NamedTuple):
    """What a frontier compares latency with."""

    title: str
    label: str
    figure: Callable[[Result], float]


_BY_THROUGHPUT = _Side(
    "Latency against throughput", "messages carried per second", lambda result: result.throughput
)
_BY_TIME = _Side(
    "Latency against executor time", "executor busy, %", lambda result: result.busy * 100
)


def _points(results: Sequence[Result]) -> list[tuple[str, Result]]:
    return [
        (label, result)
        for label, result in grouped(results, _POINT_WIDTH)
        if result.latency["p99"] > 0
    ]


def _scatter(axes: Axes, results: Sequence[Result], side: _Side) -> None:
    axes.set(title=side.title, xlabel=side.label, ylabel="p99 latency")
    points = _points(results)
    if not points:
        return
    worse = dominated(results)
    for at, (_, result) in enumerate(points):
        grey = result.policy in worse
        if "p99" in result.intervals:
            low, high = result.intervals["p99"]
            tail = result.latency["p99"]
            axes.errorbar(
                side.figure(result), tail, yerr=[[min(tail - low, 0.9 * tail)], [high - tail]],
                color=_GREY if grey else colour(at), linewidth=1.0, capsize=2, zorder=1.5,
            )  # fmt: skip
        axes.scatter(
            side.figure(result), result.latency["p99"], s=26 if grey else 52, clip_on=False,
            zorder=2 if grey else 3, color=_GREY if grey else colour(at), edgecolors="white",
            linewidths=0.6,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.margins(x=0.3, y=0.16)
    values = [side.figure(result) for _, result in points]
    if max(values) < 1.02 * min(values):
        axes.set_xlim(min(values) * 0.9, max(values) * 1.1)
    if side is _BY_TIME:  # there is room for labels, but no executor is busier than always
        axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= _WHOLE])
        axes.set_xlim(max(axes.get_xlim()[0], 0), min(axes.get_xlim()[1], _WHOLE))
    time_ticks(axes.yaxis)


def _name_points(axes: Axes, results: Sequence[Result], side: _Side) -> None:
    worse = dominated(results)
    place(
        axes,
        [
            Label(
                side.figure(result),
                result.latency["p99"],
                label,
                "#8a8a8a" if result.policy in worse else _dark(colour(at)),
                important=result.policy not in worse,
            )
            for at, (label, result) in enumerate(_points(results))
        ],
    )


def _dark(tone: str) -> str:
    """Return a colour dark enough for small letters on white."""
    return "#" + "".join(f"{int(int(tone[at : at + 2], 16) * 0.7):02x}" for at in (1, 3, 5))


def grouped(results: Sequence[Result], width: int = _LEGEND_WIDTH) -> list[tuple[str, Result]]:
    """Return results with labels; equal results share one label with all their names.

    A label says so if a policy did not carry everything, and is wrapped at `width` characters.
    """
    same: dict[Any, list[Result]] = {}
    for result in results:
        shape = (round(result.busy, 6), tuple(result.curve), tuple(result.batch_series))
        same.setdefault(shape, []).append(result)
    return [(_label(alike, width), alike[0]) for alike in same.values()]


def _label(alike: Sequence[Result], width: int) -> str:
    """Return the names of policies on as few lines as fit; a name is never broken."""
    names = [result.policy for result in alike]
    if alike[0].carried < 1:
        names[-1] += f" ({_percent(alike[0].carried)} carried)"
    lines = [names[0]]
    for name in names[1:]:
        if len(lines[-1]) + len(name) + 3 <= width:
            lines[-1] += f" = {name}"
        else:
            lines[-1] += " ="
            lines.append(name)
    return "\n".join(lines)


def _percent(share: float) -> str:
    """Return a share below 1 in percent; it is never rounded up to 100."""
    return f"{min(share * 100, 99.9):.3g}%"


def by_priority(results: Sequence[Result], axes: Axes | None = None) -> Figure:
    """Draw the 99th percentile of each priority."""

    def draw(axes: Axes) -> None:
        for at, (label, result) in enumerate(grouped(results)):
            tables = sorted(
                (priority, table) for priority, table in result.priorities.items() if table["count"]
            )
            if tables:
                latencies = [table["p99"] for _, table in tables]
                axes.plot([each for each, _ in tables], latencies, marker="o", **look(at, label))
        axes.set_yscale("log")
        time_ticks(axes.yaxis)
        axes.set(title="Latency by priority", xlabel="priority", ylabel="p99 latency")

    return _figure(draw, axes, legend=True)


def overview(results: Sequence[Result], title: str = "") -> Figure:
    """Draw all four in one figure."""
    require_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_STYLE):
        made = Figure(figsize=(10.5, 7.6), layout="constrained")
        places = made.subplots(2, 2)
        latency_cdf(results, places[0][0])
        _scatter(places[0][1], results, _BY_THROUGHPUT)
        batch_sizes(results, places[1][0])
        depths(results, places[1][1])
        _add_legend(made, places[0][0])
        if title:
            made.suptitle(title, x=0.01, ha="left", fontsize=10, color="#444444")
        _name_points(places[0][1], results, _BY_THROUGHPUT)
    return made


def require_matplotlib() -> None:
    """Check that figures can be drawn.

    Raises:
        MissingExtra: matplotlib, or what it needs, is not installed.

    """
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - an extra, and slow to import
    except ImportError as error:
        missing = (error.name or "matplotlib").partition(".")[0]
        msg = f"figures need {missing}: {install_hint('lab')}"
        raise MissingExtra(msg) from error


def _figure(draw: Callable[[Axes], None], axes: Axes | None, *, legend: bool = False) -> Figure:
    """Draw into the given axes, or into a figure of its own."""
    if axes is not None:
        draw(axes)
        return axes.figure  # type: ignore[return-value]
    return drawn(draw, (7.2, 4.0), legend=legend)


def drawn(
    draw: Callable[[Axes], None], size: tuple[float, float], *, legend: bool = False
) -> Figure:
    """Make a figure in the style of the lab; `size` is in inches."""
    require_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_STYLE):
        made = Figure(figsize=size, layout="constrained")
        axes = made.subplots()
        draw(axes)
        if legend:
            _add_legend(made, axes)
    return made


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Add a legend below, in as many columns as fit; the figure grows by what it needs."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    wide, high = figure.get_size_inches()
    longest = max(len(line) for label in labels for line in label.split("\n"))
    columns = max(1, min(4, int(wide / (longest * _LETTER + _KEY))))
    rows = math.ceil(sum(label.count("\n") + 1 for label in labels) / columns)
    figure.set_size_inches(wide, high + _ROW * max(rows - 2, 0))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)


def look(at: int, label: str) -> dict[str, Any]:
    """Return how the n-th curve looks: neighbours differ in colour and in style."""
    return {
        "color": colour(at),
        "linestyle": _LINES[at % len(_LINES)],
        "label": label,
        "alpha": 0.9,
    }


def colour(at: int) -> str:
    """Return the colour of the n-th of several."""
    return _COLOURS[at % len(_COLOURS)]


def time_ticks(axis: Any) -> None:
    """Label a logarithmic axis of times."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415

    low, high = axis.get_view_interval()
    narrow = high < 200 * max(low, 1e-9)
    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if narrow else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: seconds_text(float(f"{value:.3g}"))))
    axis.set_minor_formatter(NullFormatter())


def footer(figure: Figure, results: Sequence[Result], date: str) -> None:
    """Say below a figure when, with what and from which seeds it was made."""
    seeds = sorted({result.seed for result in results})
    runs = max((result.runs for result in results), default=1)
    shown = ", ".join(map(str, seeds)) or "-"
    last = f" and {runs - 1} more" if runs > 1 else ""
    version = sys.modules["actorflow"].__version__  # importing it would reach every other layer
    text = f"actorflow {version}, {date}, seed {shown}{last}"
    figure.text(0.995, 0.003, text, fontsize=6, color="#999999", ha="right", va="bottom")


def png(figure: Figure, dpi: int = 200) -> bytes:
    """Return a figure as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415

    out = io.BytesIO()
    FigureCanvasAgg(figure)
    # No version in the file: the same results make the same image.
    figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()


def save(figure: Figure, path: Path, dpi: int = 200) -> None:
    """Write a figure as PNG."""
    path.write_bytes(png(figure, dpi))
