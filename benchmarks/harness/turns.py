"""Run cases in turn, each in its own process, and collect their results.

Other load on the machine then affects all cases alike, and no case inherits threads or memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.harness.machine import Others, busy, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "Case",
    "Figures",
    "Found",
    "Goal",
    "answer",
    "command_line",
    "goal_lines",
    "measure",
    "measure_chosen",
    "median",
    "over",
    "page",
    "section_lines",
]

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
_PATIENCE = 900.0

Figures = dict[str, float]
Found = dict[str, dict[str, list[Figures]]]
"""By section and label, the figures of each round."""


class Case(NamedTuple):
    """Something to measure."""

    section: str
    label: str
    load: str
    options: Mapping[str, Any]
    once: bool = False
    """Run the case in one round only, because it is slow."""


class Goal(NamedTuple):
    """A goal and its measured figure; `None` if it was not measured."""

    name: str
    limit: str
    value: float | None
    met: bool | None

    @classmethod
    def of(cls, name: str, limit: str, value: float | None, holds: Callable[[float], bool]) -> Goal:
        """Return a goal with its verdict."""
        return cls(name, limit, value, None if value is None else holds(value))

    @property
    def verdict(self) -> str:
        """Whether it was reached."""
        return "-" if self.met is None else "met" if self.met else "MISSED"

    @property
    def reached(self) -> str:
        """The value as a text."""
        return "-" if self.value is None else f"{self.value:,.2f}"


def command_line(
    about: str | None,
    loads: Mapping[str, Callable[..., Figures]],
    arguments: Sequence[str] | None,
    *,
    rounds: int = 3,
    page: tuple[str, Path, str] | None = None,
) -> argparse.Namespace:
    """Read the command line of a script; measure its case and end the process if it names one.

    `page` is one more option that writes a page, with its default and its help.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes, once")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--only", default="", help="sections whose name contains this")
    pages = [("--markdown", RESULTS, "write this page, or RESULTS.md")]
    for option, default, text in pages if page is None else [*pages, page]:
        parser.add_argument(option, nargs="?", type=Path, const=default, metavar="PAGE", help=text)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.case:
        answer(given.case, loads)
    return given


def measure_chosen(
    given: argparse.Namespace,
    script: str,
    cases: Iterable[Case],
    goals: Callable[[Found], Iterable[Goal]],
) -> Found:
    """Measure the cases that a command line chooses; print which goals were reached."""
    chosen = [case for case in cases if given.only in case.section]
    found = measure(script, chosen, 1 if given.quick else given.rounds)
    for goal in goals(found):
        if goal.value is not None:
            print(f"{goal.name:80} {goal.limit:>10} {goal.reached:>12}  {goal.verdict}")
    return found


def answer(text: str, loads: Mapping[str, Callable[..., Figures]]) -> None:
    """Measure the case that a command line names, print its figures, and end the process."""
    load, label, options, folder = json.loads(text)
    print(json.dumps(loads[load](Path(folder), label, **options)))
    sys.stdout.flush()
    os._exit(0)  # peers leave threads running


def _run(script: str, case: Case) -> Figures:
    given = [case.load, case.label, dict(case.options)]
    others = Others()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603 - our own interpreter on our own file
            [sys.executable, script, "--case", json.dumps([*given, folder])],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    if done.returncode:
        return {"error": float("nan"), done.stderr.strip().splitlines()[-1][:120]: 0.0}
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    if (share := others.share()) is not None:
        figures["others_cpu"] = share
    return figures


def measure(script: str, chosen: Iterable[Case], rounds: int) -> Found:
    """Run the cases in turn, for a number of rounds."""
    found: Found = {}
    chosen = list(chosen)
    for round_ in range(rounds):
        for case in chosen:
            if round_ and case.once:
                continue
            figures = _run(script, case)
            found.setdefault(case.section, {}).setdefault(case.label, []).append(figures)
            text = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())
            print(f"{case.section:32} {case.label:22} {text}", flush=True)
    return found


def median(found: Found, section: str, label: str, figure: str) -> float | None:
    """Return the median of the rounds."""
    values = [
        each[figure]
        for each in found.get(section, {}).get(label, [])
        if each.get(figure) is not None
    ]
    return statistics.median(values) if values else None


def over(ours: float | None, theirs: float | None) -> float | None:
    """Return a ratio, if both were measured."""
    return None if ours is None or not theirs else ours / theirs


def page(
    title: str, peers: Mapping[str, str | None], method: str, goals: Iterable[Goal], found: Found
) -> str:
    """Return a section of RESULTS.md: the machine, the peers' versions, goals and medians."""
    lines = [f"## {title}", ""]
    lines += [f"- {name}: {value}" for name, value in describe().items()]
    lines += [f"- {name}: {value or 'not installed, left out'}" for name, value in peers.items()]
    if (load := busy()) is not None:
        text = f"The machine was busy with something else (load {load:.1f}): a sketch, to be run"
        lines += ["", f"{text} again when it is quiet."]
    return "\n".join([*lines, "", method, "", *goal_lines(goals), *section_lines(found)])


def goal_lines(goals: Iterable[Goal]) -> list[str]:
    """Return the goals as a table in Markdown."""
    lines = ["| goal | limit | reached |  |", "| --- | ---: | ---: | --- |"]
    return lines + [f"| {each.name} | {each.limit} | {each.reached} | {each.verdict} |"
                    for each in goals]  # fmt: skip


def section_lines(found: Found) -> list[str]:
    """Return the medians of all sections as tables in Markdown."""
    lines: list[str] = []
    for section, rows in found.items():
        names = list(dict.fromkeys(name for each in rows.values() for name in each[0]))
        lines += ["", f"### {section}", "", f"| case | {' | '.join(names)} |"]
        lines.append("| --- |" + " ---: |" * len(names))
        for label in rows:
            cells = [median(found, section, label, name) for name in names]
            shown = ["-" if cell is None else f"{cell:,.2f}" for cell in cells]
            lines.append(f"| {label} | {' | '.join(shown)} |")
    return lines
