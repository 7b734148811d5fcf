"""The report as one HTML file that needs nothing else: tables, figures, parameters."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.notation import seconds_text
from actorflow.lab.report.figures import png
from actorflow.lab.report.gallery import figure
from actorflow.lab.report.table import HEADINGS, rows
from actorflow.lab.run.result import dominated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.lab.run.goals import Goal
    from actorflow.lab.run.result import Result

__all__ = ["as_html"]

_CAPTIONS = {
    "latency": "The share of all messages that was carried within a time, with a logarithmic tail: "
    "left is better. A curve that ends in a dotted line lost or replaced the rest.",
    "waits": "What the messages about the 99th percentile waited for: the policy that held them "
    "back, an executor that was busy, or the call itself.",
    "frontier": "The 99th percentile against throughput, and against the executor's time. Policies "
    "that another one dominates are grey.",
    "outcomes": "What became of all messages.",
    "latency-time": "The 99th percentile of the messages that arrived in each stretch of time. "
    "Rings are stretches in which messages were lost or replaced.",
    "batches": "How many messages a call of the job got: the largest batch of each moment.",
    "batch-sizes": "The share of the messages in batches up to a size.",
    "depth": "How many messages were waiting: the most at each moment.",
}
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.note { color: #777; } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap; }
td { border-top: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; } tr.dominated td { color: #999; }
code { font-size: .95em; } figure { margin: 1rem 0; }
figure img { max-width: 100%; background: white; border-radius: 6px; }
figcaption { color: #777; font-size: .9rem; }
"""


def as_html(
    results: Sequence[Result],
    parameters: Mapping[str, Any],
    *,
    complete: bool = True,
    goals: Sequence[Goal] = (),
) -> str:
    """Return the report, with the figures inside."""
    note = (
        ""
        if complete
        else "<p><strong>Interrupted: these are the policies done by then.</strong></p>"
    )
    facts = "".join(
        f"<tr><td>{escape(str(name))}</td><td><code>{escape(str(value))}</code></td></tr>"
        for name, value in parameters.items()
    )
    drawn = "".join(
        f'<figure><img alt="{name}" src="{_data_uri(png(figure(name, results, goals)))}">'
        f"<figcaption>{caption}</figcaption></figure>"
        for name, caption in _CAPTIONS.items()
        if results
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>actorflow: policies compared</title><style>{_STYLE}</style></head><body>"
        f"<h1>Policies compared</h1>{note}<table>{facts}</table>"
        f'<h2>Results</h2><div class="wide">{_table(results)}</div>'
        '<p class="note">Latency from push to processed, of the messages that were processed. '
        "Grey: another policy carries as many messages, is as good in throughput, p99 and executor "
        f"time, and is better in one of them.</p>{_errors(results)}"
        f"<h2>Figures</h2>{drawn}{_priorities(results)}</body></html>\n"
    )


def _errors(results: Sequence[Result]) -> str:
    """Return the first error of each policy that had one."""
    return "".join(
        f"<p>Errors with <code>{escape(result.policy)}</code>, the first: "
        f"<code>{escape(result.error)}</code></p>"
        for result in results
        if result.error
    )


def _data_uri(image: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}"


def _table(results: Sequence[Result]) -> str:
    worse = dominated(results)
    head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    body = "".join(
        f"<tr{' class=dominated' if result.policy in worse else ''}>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for result, cells in zip(results, rows(results), strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _priorities(results: Sequence[Result]) -> str:
    """Return the latencies of each priority, if there is more than one."""
    known = sorted({priority for result in results for priority in result.priorities}, reverse=True)
    if len(known) < 2:  # noqa: PLR2004
        return ""
    head = "".join(f"<th>{priority:g}</th>" for priority in known)
    body = "".join(
        f"<tr><td>{escape(result.policy)}</td>"
        + "".join(f"<td>{_p99(result, priority)}</td>" for priority in known)
        + "</tr>"
        for result in results
    )
    return (
        "<h2>p99 by priority</h2>"
        f'<div class="wide"><table><tr><th>policy</th>{head}</tr>{body}</table></div>'
    )


def _p99(result: Result, priority: float) -> str:
    table = result.priorities.get(priority)
    return "-" if table is None or not table["count"] else seconds_text(table["p99"])
