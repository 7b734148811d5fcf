"""Measure workers beside their peers: bursts, crowds, round trips, populations.

python benchmarks/workers.py                    all tables, in about six minutes
python benchmarks/workers.py --only burst-1     one section
python benchmarks/workers.py --markdown         ... and into benchmarks/RESULTS.md
python benchmarks/workers.py --quick            tiny sizes, to see that everything runs
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cases import FULL, LOADS, QUICK, missing, sections
from benchmarks.machine import busy, describe, processors
from benchmarks.measure import Case, measure, run_case
from benchmarks.report import as_json, as_markdown, as_text, errors, put_between_markers

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parent / "RESULTS.md"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [section.name for section in sections(QUICK)]
    parser.add_argument("--only", nargs="+", choices=names, metavar="SECTION", help=str(names))
    parser.add_argument("--rounds", type=int, help="how often each case is run")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, all in one process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument(
        "--markdown", nargs="?", type=Path, const=RESULTS, metavar="FILE",
        help=f"put the tables into FILE (by default {RESULTS.name})",
    )  # fmt: skip
    parser.add_argument("--child", metavar="JSON", help=argparse.SUPPRESS)
    return parser


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say; the exit code is 1 if a case failed."""
    options = _parser().parse_args(arguments)
    if options.child:
        print(json.dumps(run_case(Case(**json.loads(options.child)), LOADS)))
        return 0
    chosen = [
        section
        for section in sections(QUICK if options.quick else FULL, rounds=options.rounds)
        if not options.only or section.name in options.only
    ]
    machine = describe()
    notes = []
    if absent := missing():
        notes.append(f"Not in this tree, so not measured: {', '.join(absent)}.")
    if (load := busy()) is not None:
        notes.append(
            f"The machine was busy with something else before the run (load {load:.1f} on "
            f"{processors()} processors): a sketch, to be run again when it is quiet."
        )
    if options.quick:
        notes.append("A quick run: the figures mean nothing.")
    script = None if options.quick else Path(__file__)
    try:
        results = measure(chosen, LOADS, script=script, tell=_tell)
    finally:
        gc.unfreeze()  # a quick run freezes the heap of this very process, again and again
    print(as_text(chosen, results, machine, notes))
    if options.json:
        options.json.write_text(as_json(results, machine, notes), encoding="utf-8")
    if options.markdown:
        put_between_markers(options.markdown, as_markdown(chosen, results, machine, notes))
    return 1 if errors(results) else 0


if __name__ == "__main__":
    sys.exit(main())
