"""The table of results, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.lab.models.notation import seconds_text
from actorflow.lab.run.result import dominated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from actorflow.lab.run.result import Result

__all__ = ["HEADINGS", "as_table", "rows"]

HEADINGS = (
    "policy", "msgs/s", "p50", "p90", "p99", "p99.9", "max", "batch", "largest", "busy",
    "lost", "replaced", "merged", "depth", "fairness",
)  # fmt: skip
_LATENCIES = ("p50", "p90", "p99", "p99.9", "max")
_WIDE_ONLY = {"p90", "p99.9", "max", "largest", "merged", "depth", "fairness"}


def rows(results: Sequence[Result]) -> list[list[str]]:
    """Return the cells of the table, one row per result."""
    return [_row(result) for result in results]


def _row(result: Result) -> list[str]:
    latencies = [_latency(result, name) for name in _LATENCIES]
    return [
        result.policy,
        _whole(result.throughput) + _spread(result, "throughput", _whole),
        *latencies,
        f"{result.batch_mean:,.3g}" if result.batch_mean < 1000 else _whole(result.batch_mean),  # noqa: PLR2004
        _whole(result.batch_max),
        f"{result.busy:.0%}" + _spread(result, "busy", "{:.0%}".format),
        _share(result.lost, result.arrived),
        _share(result.replaced, result.arrived),
        _share(result.merged, result.arrived),
        _whole(result.peak_depth),
        f"{result.fairness:.2f}",
    ]


def _latency(result: Result, name: str) -> str:
    """Return a percentile with its interval, or how many messages it would need."""
    if not result.processed:
        return "-"
    if needed := result.needed(name):
        return f"n/a (needs {needed})"
    return seconds_text(result.latency[name]) + _spread(result, name, seconds_text)


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _spread(result: Result, name: str, show: Any) -> str:
    """Return half of the confidence interval, where there is one."""
    if name not in result.intervals:
        return ""
    low, high = result.intervals[name]
    return f" ±{show(float(f'{(high - low) / 2:.2g}'))}"


def _share(count: int, total: int) -> str:
    if not count:
        return "-"
    share = count / max(total, 1)
    return f"{share:.1%}" if share >= 0.001 else f"{count}"  # noqa: PLR2004


def as_table(
    results: Sequence[Result],
    title: str = "",
    *,
    narrow: bool = False,
) -> Table:
    """Return a table for the terminal; dominated policies are dim.

    The least latency among the policies that carry the most messages is green. A `narrow` table
    leaves out what matters less.
    """
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - an extra
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(
        title=title or None,
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    left_out = _WIDE_ONLY if narrow else set()
    if narrow and not any(result.replaced for result in results):
        left_out = left_out | {"replaced"}
    shown = [at for at, name in enumerate(HEADINGS) if name not in left_out]
    for heading in (HEADINGS[at] for at in shown):
        justify: Any = "left" if heading == "policy" else "right"
        table.add_column(
            heading,
            justify=justify,
            no_wrap=heading != "policy",
            overflow="fold",
            min_width=12 if heading == "policy" else None,
        )
    worse = dominated(results)
    best = _best(results)
    for result, cells in zip(results, rows(results), strict=True):
        table.add_row(
            *(
                Text(
                    _cut(cells[at], at, narrow=narrow),
                    style="bold green" if (result.policy, at) in best else "",
                )
                for at in shown
            ),
            style="dim" if result.policy in worse else "",
        )
    return table


def _cut(cell: str, at: int, *, narrow: bool) -> str:
    """Leave out intervals that a narrow table has no room for."""
    return cell.partition(" ±")[0] if narrow and HEADINGS[at] in ("msgs/s", "busy") else cell


def _best(results: Sequence[Result]) -> set[tuple[str, int]]:
    """Return the cells with the least latency, among the policies that carry the most."""
    working = [result for result in results if result.processed]
    most = max((result.carried for result in working), default=0.0)
    rivals = [result for result in working if result.carried == most]
    return {
        (result.policy, HEADINGS.index(name))
        for name in _LATENCIES
        for result in rivals
        if not result.needed(name)
        if result.latency[name] <= min(rival.latency[name] for rival in rivals)
    }
