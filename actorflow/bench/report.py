"""Results for people and programs: a table on the terminal, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from actorflow.bench.goals import seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from actorflow.bench.results import Result

__all__ = ["HEADINGS", "as_csv", "as_json", "as_table", "dominated", "rows"]

HEADINGS = (
    "policy", "msgs/s", "p50", "p90", "p99", "p99.9", "max", "batch", "largest", "busy",
    "lost", "replaced", "depth", "fairness",
)  # fmt: skip
_CURVES = ("curve", "depth_series", "batch_series")
_WIDE_ONLY = {"p90", "p99.9", "max", "largest", "depth", "fairness"}
_CLOSE = 0.005  # throughputs that differ by less are the same


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


def dominated(results: Sequence[Result]) -> set[str]:
    """Name the policies that another one beats in throughput, p99 and busy share at once.

    As good in all of them and better in one is a beating; so is the same policy's being lossy.
    """
    return {
        result.policy
        for result in results
        if any(_beats(other, result) for other in results if other is not result)
    }


def _beats(one: Result, other: Result) -> bool:
    pairs = [
        (one.throughput, other.throughput * (1 - _CLOSE), other.throughput * (1 + _CLOSE)),
        (
            -one.latency["p99"],
            -other.latency["p99"] * (1 + _CLOSE),
            -other.latency["p99"] * (1 - _CLOSE),
        ),
        (-one.busy, -other.busy - _CLOSE, -other.busy + _CLOSE),
        (-one.lost, -other.lost, -other.lost),
    ]
    return all(mine >= least for mine, least, _ in pairs) and any(
        mine > most for mine, _, most in pairs
    )


def as_json(
    results: Sequence[Result], parameters: Mapping[str, Any], *, complete: bool = True
) -> str:
    """Give everything, curves included."""
    found = {
        "parameters": dict(parameters),
        "complete": complete,
        "results": [result.as_dict() for result in results],
    }
    return json.dumps(found, indent=1, default=str)


def as_csv(results: Sequence[Result]) -> str:
    """Give one line per policy, without the curves."""
    out = io.StringIO()
    flat = [_flat(result) for result in results]
    names = list(dict.fromkeys(name for row in flat for name in row))
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def _flat(result: Result) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in result.as_dict().items():
        if name in _CURVES or name == "priorities":
            continue
        if name == "latency":
            row |= value
        elif name == "intervals":
            for figure, (low, high) in value.items():
                row |= {f"{figure}_low": low, f"{figure}_high": high}
        else:
            row[name] = value
    return row
