"""Further figures: figures over time, batch sizes, where latency comes from, losses, capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.lab.report.figures import colour, drawn, grouped, look, time_ticks
from actorflow.lab.run.intervals import samples_needed
from actorflow.lab.run.waits import PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from actorflow.lab.run.capacity import Capacity
    from actorflow.lab.run.goals import Goal
    from actorflow.lab.run.result import Result

__all__ = ["batch_histogram", "capacity_curves", "latency_over_time", "outcomes", "waits"]

_PARTS = dict(zip(PARTS, ("#e69f00", "#b8b8b8", "#0072b2"), strict=True))
_OUTCOMES = {
    "processed": "#0072b2", "merged": "#56b4e9", "replaced": "#e69f00", "dropped": "#d55e00",
    "rejected": "#cc79a7", "expired": "#b2182b", "failed": "#333333", "abandoned": "#8c6d31",
    "unaccounted": "#888888",
}  # fmt: skip
_NARROW = 0.04  # a share of a bar below which its number does not fit


def latency_over_time(results: Sequence[Result], goals: Sequence[Goal] = ()) -> Figure:
    """Draw the p99 of the messages that arrived in each stretch; rings are stretches with loss."""

    def draw(axes: Axes) -> None:
        for at, (label, result) in enumerate(grouped(results)):
            points = joined(result.time_series)
            if not points:
                continue
            times, _, shares, _, tails = zip(*points, strict=True)
            axes.plot(times, tails, **look(at, label))
            lossy = [(time, p99) for time, share, p99 in zip(times, shares, tails, strict=True)
                     if share < 1]  # fmt: skip
            if lossy:
                axes.plot(*zip(*lossy, strict=True), "o", color=colour(at), markersize=4,
                          markerfacecolor="white", linestyle="none")  # fmt: skip
        for goal in goals:
            if goal.figure == "p99" and not goal.only:
                _goal_line(goal, axes)
        axes.set_xlim(left=0)
        axes.set_yscale("log")
        time_ticks(axes.yaxis)
        axes.set(title="p99 over time", xlabel="time of arrival, s", ylabel="p99 latency")

    return drawn(draw, (7.2, 4.0), legend=True)


def joined(points: Sequence[tuple[float, int, float, float, float]]) -> list[Any]:
    """Return stretches of time, joined until a p99 means something: the worst p99 of each."""
    needed = samples_needed(0.99)
    found: list[Any] = []
    group: list[tuple[float, int, float, float, float]] = []
    for point in points:
        group.append(point)
        if sum(each[1] * each[2] for each in group) >= needed:
            found.append(_join(group))
            group = []
    if group and not found:
        found.append(_join(group))
    return found


def _join(group: Sequence[tuple[float, int, float, float, float]]) -> Any:
    arrived = sum(each[1] for each in group)
    share = sum(each[1] * each[2] for each in group) / max(arrived, 1)
    return (
        group[0][0],
        arrived,
        share,
        max(each[3] for each in group),
        max(each[4] for each in group),
    )


def _goal_line(goal: Goal, axes: Axes) -> None:
    """Draw a limit of p99 as a thin line with its text."""
    axes.axhline(goal.limit, color="#b2182b", linewidth=0.9, linestyle=(0, (5, 3)), zorder=1)
    axes.annotate(
        str(goal), (0.995, goal.limit), xycoords=axes.get_yaxis_transform(), xytext=(0, 2),
        textcoords="offset points", fontsize=7, ha="right", va="bottom", color="#b2182b",
    )  # fmt: skip


def batch_histogram(results: Sequence[Result]) -> Figure:
    """Draw how many of the messages were in batches of each size, cumulated."""

    def draw(axes: Axes) -> None:
        for at, (label, result) in enumerate(grouped(results)):
            total = sum(size * count for size, count in result.batch_histogram.items())
            seen = 0
            sizes, shares = [], []
            for size, count in sorted(result.batch_histogram.items()):
                seen += size * count
                sizes.append(size)
                shares.append(100 * seen / total)
            if sizes:
                axes.step([sizes[0], *sizes], [0, *shares], where="post", **look(at, label))
        axes.set_xscale("log")
        axes.set_ylim(0, 100)
        axes.set(
            title="Batch sizes", xlabel="messages per batch",
            ylabel="messages in batches up to this size, %",
        )  # fmt: skip
        _plain_ticks(axes.xaxis)

    return drawn(draw, (7.2, 4.0), legend=True)


def _plain_ticks(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: PLC0415 - slow to import

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.set_minor_formatter(NullFormatter())


def waits(results: Sequence[Result]) -> Figure:
    """Draw what the p99 of each policy is made of: waiting for the batch, an executor, service."""
    groups = [(label, result) for label, result in grouped(results) if result.split.get("p99")]

    def draw(axes: Axes) -> None:
        for place, (_, result) in enumerate(groups):
            left = 0.0
            for name, tone in _PARTS.items():
                width = result.split["p99"][name] * 1000
                axes.barh(place, width, left=left, color=tone, label=_label(name, place))
                left += width
        _bars(axes, [label for label, _ in groups])
        axes.set(title="What p99 is made of", xlabel="latency, ms")

    return drawn(draw, (7.2, 1.5 + 0.34 * max(len(groups), 1)), legend=True)


def _label(name: str, place: int) -> str:
    text = name if name == "service" else f"waiting for the {name}"
    return text.replace("the executor", "an executor") if place == 0 else f"_{text}"


def outcomes(results: Sequence[Result]) -> Figure:
    """Draw what happened to all messages of each policy."""
    groups = grouped(results)

    def draw(axes: Axes) -> None:
        named: set[str] = set()
        for place, (_, result) in enumerate(groups):
            left = 0.0
            for name, tone in _OUTCOMES.items():
                share = getattr(result, name) / max(result.arrived, 1)
                if not share:
                    continue
                label = f"_{name}" if name in named else name
                named.add(name)
                axes.barh(place, share * 100, left=left * 100, color=tone, label=label)
                if share > _NARROW:
                    axes.text((left + share / 2) * 100, place, f"{share:.0%}", ha="center",
                              va="center", fontsize=7, color="white")  # fmt: skip
                left += share
        _bars(axes, [label for label, _ in groups])
        axes.set_xlim(0, 100)
        axes.set(title="What happened to the messages", xlabel="of all messages, %")

    return drawn(draw, (7.2, 1.5 + 0.34 * max(len(groups), 1)), legend=True)


def _bars(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    axes.grid(visible=False, axis="y")


def capacity_curves(found: Sequence[Capacity]) -> Figure:
    """Draw p99 and goodput against the rate, with the sustainable rate and its interval."""

    def draw(axes: Axes) -> None:
        beside = axes.twinx()
        beside.grid(visible=False)
        beside.spines["right"].set_visible(True)
        for at, each in enumerate(found):
            rates = [point.rate for point in each.curve]
            tails = [point.p99 for point in each.curve]
            low = [max(point.p99 - point.p99_interval[0], 0.0) for point in each.curve]
            low = [min(error, tail * 0.9) for error, tail in zip(low, tails, strict=True)]
            high = [max(point.p99_interval[1] - point.p99, 0.0) for point in each.curve]
            axes.errorbar(
                rates, tails, yerr=(low, high), marker="o", markersize=3.5, capsize=2,
                **look(at, f"p99, {each.policy}"),
            )  # fmt: skip
            beside.plot(rates, [point.goodput for point in each.curve], color=colour(at),
                        linewidth=1.0, linestyle=":")  # fmt: skip
            axes.plot([], [], color=colour(at), linewidth=1.0, linestyle=":",
                      label=f"in time per second, {each.policy}")  # fmt: skip
            if each.rate:
                axes.axvspan(*each.interval, color=colour(at), alpha=0.12, linewidth=0)
                axes.axvline(each.rate, color=colour(at), linewidth=1.0)
                axes.annotate(
                    f"{each.rate:,.0f}/s", (each.rate, 1), xycoords=axes.get_xaxis_transform(),
                    xytext=(3, -9 - 10 * at), textcoords="offset points", fontsize=7,
                    color=colour(at),
                )  # fmt: skip
        axes.set_yscale("log")
        time_ticks(axes.yaxis)
        for goal in found[0].goals if found else ():
            if goal.figure == "p99" and not goal.only:
                _goal_line(goal, axes)
        axes.set_xlim(left=0)
        beside.set_ylim(bottom=0)
        beside.set_ylabel("messages in time per second (dotted)")
        axes.set(title="Capacity", xlabel="messages per second", ylabel="p99 latency")

    return drawn(draw, (7.6, 4.4), legend=True)
