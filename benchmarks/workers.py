"""Measure workers and their peers: bursts, crowds, round trips, populations, callers.

python benchmarks/workers.py                    all tables, in about ten minutes
python benchmarks/workers.py --goals            only the cases that the goals refer to
python benchmarks/workers.py --only burst-1     one section
python benchmarks/workers.py --markdown         ... and write them to benchmarks/RESULTS.md
python benchmarks/workers.py --quick            tiny sizes, to check that everything runs
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.cases import FULL, LOADS, QUICK, missing, sections
from benchmarks.harness.goals import wanted
from benchmarks.harness.machine import busy, describe, processors
from benchmarks.harness.measure import Case, measure, run_case
from benchmarks.harness.report import as_json, as_markdown, as_text, errors
from benchmarks.harness.tables import put_between_markers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness.measure import Section

RESULTS = Path(__file__).parent / "RESULTS.md"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [section.name for section in sections(QUICK)]
    parser.add_argument("--only", nargs="+", choices=names, metavar="SECTION", help=str(names))
    parser.add_argument("--goals", action="store_true", help="only what the goals refer to")
    parser.add_argument("--rounds", type=int, help="how often each case runs")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, all in one process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument(
        "--markdown", nargs="?", type=Path, const=RESULTS, metavar="FILE",
        help=f"put the tables into FILE (by default {RESULTS.name})",
    )  # fmt: skip
    parser.add_argument("--child", metavar="JSON", help=argparse.SUPPRESS)
    return parser


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _needed(section: Section) -> Section:
    """Return a section without the cases that no goal refers to."""
    labels = wanted(section)
    return replace(section, cases=tuple(case for case in section.cases if case.label in labels))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen cases; return the exit code, which is 1 if a case failed."""
    options = _parser().parse_args(arguments)
    if options.child:
        print(json.dumps(run_case(Case(**json.loads(options.child)), LOADS)))
        return 0
    chosen = [
        section
        for section in sections(QUICK if options.quick else FULL, rounds=options.rounds)
        if not options.only or section.name in options.only
    ]
    if options.goals:
        chosen = [_needed(section) for section in chosen if wanted(section)]
    machine = describe()
    notes = []
    if absent := missing():
        notes.append(f"Not installed, so not measured: {', '.join(absent)}.")
    if (load := busy()) is not None:
        notes.append(
            f"The machine was busy before the run (load {load:.1f} on {processors()} processors): "
            "the figures are rough, and only the ratios can be trusted."
        )
    if options.quick:
        notes.append("A quick run: the figures mean nothing.")
    script = None if options.quick else Path(__file__)
    try:
        results = measure(chosen, LOADS, script=script, report=_say)
    finally:
        gc.unfreeze()  # a quick run has frozen the heap of this very process
    print(as_text(chosen, results, machine, notes))
    if options.json:
        options.json.write_text(as_json(results, machine, notes), encoding="utf-8")
    if options.markdown:
        put_between_markers(
            options.markdown, as_markdown(chosen, results, machine, notes), "workers"
        )
    return 1 if errors(results) else 0


if __name__ == "__main__":
    sys.exit(main())
