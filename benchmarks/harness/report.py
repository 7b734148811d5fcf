"""The results of a run as text, Markdown and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.harness.goals import goals
from benchmarks.harness.measure import ratio
from benchmarks.harness.tables import piped, plain
from benchmarks.loads.calls import PEER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.harness.goals import Goal
    from benchmarks.harness.measure import Result, Results, Section
    from benchmarks.harness.tables import Rows

__all__ = ["as_json", "as_markdown", "as_text", "errors"]

WORKEX = (
    "Workex on the BEAM, same machine class: 1.0-1.2 M messages/s (Queue), 0.9-1.1 M (Stack), "
    "0.7-0.8 M (Dict), 11 us and 5.6 kB per idle pair."
)
WORKEX_RATES = {"Queue": "1.0-1.2", "Stack": "0.9-1.1", "Unique": "0.7-0.8"}

METHOD = (
    "Every figure is the median of the rounds, with the minimum and the maximum beside it. The "
    "cases of a table take turns, each in a fresh process; a ratio is the median of the ratios "
    "within each round. Time runs from the first push until everything is processed; messages, "
    "workers and queues are made before. The heap is collected and frozen before the clock starts "
    "(`gc.freeze`), and the collector stays on. Statistics are on. Messages that a bound rejects "
    "or drops count as carried. Slow peers get fewer messages, as noted. A subject that is meant "
    "to be idle is left alone for 0.1 ms before each call, except with `help=True`, where the "
    "caller itself runs the job and no other thread has to come to rest."
)

_REFERENCES = ("bare list", "asyncio queue", "plain pykka")


def _number(value: float | None, scale: float = 1.0) -> str:
    if value is None:
        return "-"
    value /= scale
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _with_spread(result: Result, figure: str, scale: float = 1.0) -> list[str]:
    low, high = result.spread(figure) or (None, None)
    middle = _number(result.median(figure), scale)
    return [middle, "-" if low is None else f"{_number(low, scale)} .. {_number(high, scale)}"]


def _rates(rows: dict[str, Result], section: Section) -> Rows:
    found = {"bare list, extend": "bare list"} | {name: name for name in _REFERENCES}
    references = {label: name for label, name in found.items() if label in rows}
    bursts = section.name == "burst-1"
    table = [["", "M messages/s", "spread", *(f"x {name}" for name in references.values())]]
    table[0] += (["Workex"] if bursts else []) + ["note"]
    for label, result in rows.items():
        line = [label, *_with_spread(result, "rate", 1e6)]
        line += [_number(ratio(result, rows[other], "rate")) for other in references]
        line += [WORKEX_RATES.get(label, "")] if bursts else []
        table.append([*line, result.case.note])
    return table


def _times(rows: dict[str, Result]) -> Rows:
    flooded = any("flood rate" in each.figures for each in rows.values())
    flood = ["flood, M/s"] if flooded else []
    table = [["", "p50", "spread", "p99", "spread", *flood, "note"]]
    for label, result in rows.items():
        line = [label, *_with_spread(result, "p50"), *_with_spread(result, "p99")]
        line += [_number(result.median("flood rate"), 1e6)] if flooded else []
        table.append([*line, result.case.note])
    return table


def _mixed(rows: dict[str, Result]) -> Rows:
    """Return a table of all figures that there are."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row.figures))
    table = [["", *(name.replace("rate", "messages/s") for name in names), "note"]]
    for label, result in rows.items():
        cells = [_number(result.median(name)) for name in names]
        table.append([label, *cells, result.case.note])
    return table


def _calls(rows: dict[str, Result]) -> Rows:
    table = [["", "k calls/s", "spread", f"x {PEER}", "note"]]
    for label, row in rows.items():
        peer = rows.get(label.replace("af.batched", PEER))
        times = _number(ratio(row, peer, "rate"))
        table.append([label, *_with_spread(row, "rate", 1e3), times, row.case.note])
    return table


def _switch(rows: dict[str, Result]) -> Rows:
    table = [["", "M messages/s", "round trip p50, us", "p99, us", "flood, M/s"]]
    for label, row in rows.items():
        cells = [
            _number(row.median("rate"), 1e6),
            *(_number(row.median(p)) for p in ("p50", "p99")),
        ]
        table.append([label, *cells, _number(row.median("flood rate"), 1e6)])
    return table


def _table(section: Section, rows: dict[str, Result]) -> Rows:
    if section.name == "switch":
        return _switch(rows)
    if section.name == "population":
        return _mixed(rows)
    if section.name.startswith("calls"):
        return _calls(rows)
    figures = {name for row in rows.values() for name in row.figures}
    return _rates(rows, section) if "rate" in figures else _times(rows)


def _goal_rows(found: Sequence[Goal]) -> Rows:
    table = [["work", "ours", "reference", "ratio", "goal", "met"]]
    verdicts = {True: "yes", False: "NO", None: "not measured"}
    for goal in found:
        promise = goal.promise
        sign = ">=" if promise.at_least else "<="
        limit = f"{sign} {promise.limit:,g}"
        if promise.reference is None:
            limit += f" {promise.unit}"
        table.append(
            [
                promise.work,
                _with_unit(goal.ours, promise.unit),
                _with_unit(goal.reference, promise.unit),
                _number(goal.ratio),
                limit,
                verdicts[goal.met],
            ]
        )
    return table


def _with_unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{_number(value)} {unit}"


def _tables(sections: Sequence[Section], results: Results) -> Iterable[tuple[str, Rows]]:
    for section in sections:
        if rows := results.get(section.name):
            yield f"{section.title} ({section.rounds} rounds)", _table(section, rows)
    yield "Goals", _goal_rows(goals(results))


def errors(results: Results) -> list[str]:
    """Return the errors of all cases."""
    return [
        f"{section}: {label}: {error}"
        for section, rows in results.items()
        for label, row in rows.items()
        for error in row.errors
    ]


def as_text(
    sections: Sequence[Section], results: Results, machine: dict[str, str], notes: Sequence[str]
) -> str:
    """Return the tables for a terminal."""
    facts = "\n".join(f"{name}: {value}" for name, value in machine.items())
    tables = [f"{title}\n\n{plain(table)}" for title, table in _tables(sections, results)]
    return "\n\n".join([facts, *tables, WORKEX, *notes, *errors(results)])


def as_markdown(
    sections: Sequence[Section], results: Results, machine: dict[str, str], notes: Sequence[str]
) -> str:
    """Return the section of a page, goals first."""
    facts = "\n".join(f"- {name}: {value}" for name, value in machine.items())
    *tables, (_, goal_table) = _tables(sections, results)
    parts = ["## Workers", facts, METHOD, WORKEX, *notes, *errors(results)]
    parts += ["### Goals", piped(goal_table)]
    for title, table in tables:
        parts += [f"### {title}", piped(table)]
    return "\n\n".join(parts)


def as_json(results: Results, machine: dict[str, str], notes: Sequence[str]) -> str:
    """Return all figures, round by round."""
    found: dict[str, Any] = {
        "machine": machine,
        "notes": list(notes),
        "results": {
            section: {label: asdict(row) for label, row in rows.items()}
            for section, rows in results.items()
        },
        "goals": [asdict(goal) | {"met": goal.met} for goal in goals(results)],
        "workex": WORKEX,
    }
    return json.dumps(found, indent=2)
