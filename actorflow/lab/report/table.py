"""The table of results, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.lab.models.notation import seconds_text
from actorflow.lab.report.dominance import dominated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from actorflow.lab.run.result import Result

__all__ = ["HEADINGS", "as_table", "rows"]

HEADINGS = (
    "policy", "msgs/s", "p50", "p90", "p99", "p99.9", "max", "batch", "largest", "busy",
    "lost", "replaced", "depth", "fairness",
)  # fmt: skip
_WIDE_ONLY = {"p90", "p99.9", "max", "largest", "depth", "fairness"}


def rows(results: Sequence[Result]) -> list[list[str]]:
    """Give the cells of the table, one row per result."""
    return [_row(result) for result in results]


def _row(result: Result) -> list[str]:
    latency = result.latency
    return [
        result.policy,
        _whole(result.throughput) + _spread(result, "throughput", _whole),
        seconds_text(latency["p50"]) + _spread(result, "p50", seconds_text),
        *(seconds_text(latency[name]) for name in ("p90", "p99", "p99.9", "max")),
        f"{result.batch_mean:,.3g}" if result.batch_mean < 1000 else _whole(result.batch_mean),  # noqa: PLR2004
        _whole(result.batch_max),
        f"{result.busy:.0%}",
        _share(result.lost, result.arrived),
        _share(result.replaced + result.merged, result.arrived),
        _whole(result.peak_depth),
        f"{result.fairness:.2f}",
    ]


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _spread(result: Result, name: str, show: Any) -> str:
    """Show half of the confidence interval, where there is one."""
    if name not in result.intervals:
        return ""
    low, high = result.intervals[name]
    return f" ±{show((high - low) / 2)}"


def _share(count: int, total: int) -> str:
    if not count:
        return "-"
    share = count / max(total, 1)
    return f"{share:.1%}" if share >= 0.001 else f"{count}"  # noqa: PLR2004


def as_table(results: Sequence[Result], title: str = "", *, narrow: bool = False) -> Table:
    """Give a table for the terminal; dominated policies are dim, the best of a column green.

    A `narrow` one leaves out what matters less.
    """
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - an extra
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title or None, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    shown = [at for at, name in enumerate(HEADINGS) if not (narrow and name in _WIDE_ONLY)]
    for heading in (HEADINGS[at] for at in shown):
        justify: Any = "left" if heading == "policy" else "right"
        table.add_column(heading, justify=justify, no_wrap=heading != "policy", overflow="fold")
    worse = dominated(results)
    least = {
        at: min((result.latency[name] for result in results), default=0.0)
        for at, name in ((2, "p50"), (3, "p90"), (4, "p99"), (5, "p99.9"), (6, "max"))
    }
    for result, cells in zip(results, rows(results), strict=True):
        best = {at for at, low in least.items() if result.latency[HEADINGS[at]] <= low}
        table.add_row(
            *(Text(cells[at], style="bold green" if at in best else "") for at in shown),
            style="dim" if result.policy in worse else "",
        )
    return table
