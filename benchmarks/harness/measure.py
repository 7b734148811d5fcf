"""How loads are run: each in a process of its own, interleaved and repeated.

The cases of a section take turns (A B C, A B C, ...), so that other activity on the machine
affects all of them. For the same reason, a ratio of two cases is computed within each round; the
median of the rounds is reported.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Case", "Figures", "Result", "Results", "Section", "measure", "ratio", "run_case"]

_PATIENCE = 180.0  # seconds for one case in its process

Figures: TypeAlias = dict[str, float]
"""The figures of one run, by name."""

Loads: TypeAlias = "Mapping[str, Callable[..., Figures]]"
"""Loads by name."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of a table: a load on a subject."""

    label: str
    load: str
    subject: str
    options: dict[str, Any] = field(default_factory=dict)
    pinned: bool = False
    """Run it on one processor."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One table: cases that are compared with each other."""

    name: str
    title: str
    cases: tuple[Case, ...]
    rounds: int


@dataclass(kw_only=True)
class Result:
    """The figures of all rounds of a case."""

    case: Case
    figures: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def median(self, figure: str) -> float | None:
        """Return the median of the rounds; `None` if there is no such figure."""
        values = self.figures.get(figure)
        return statistics.median(values) if values else None

    def spread(self, figure: str) -> tuple[float, float] | None:
        """Return the minimum and the maximum of the rounds."""
        values = self.figures.get(figure)
        return (min(values), max(values)) if values else None


Results: TypeAlias = "dict[str, dict[str, Result]]"
"""Results by the name of the section and the label of the case."""


def ratio(above: Result | None, below: Result | None, figure: str) -> float | None:
    """Return the median of the ratios within each round."""
    if above is None or below is None:
        return None
    pairs = zip(above.figures.get(figure, ()), below.figures.get(figure, ()), strict=False)
    ratios = [first / second for first, second in pairs if second]
    return statistics.median(ratios) if ratios else None


@contextlib.contextmanager
def _pinned(*, pinned: bool) -> Iterator[None]:
    """Keep this thread, and threads started by it, on one processor."""
    if not pinned or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run_case(case: Case, loads: Loads) -> Figures:
    """Run a case in this process."""
    with _pinned(pinned=case.pinned):
        return loads[case.load](case.subject, **case.options)


def _run_apart(case: Case, script: Path) -> Figures:
    """Run a case in a fresh process, whose heap and pool no other case has filled."""
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, str(script), "--child", json.dumps(asdict(case))],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        msg = f"exit code {done.returncode}: {last[0]}"
        raise RuntimeError(msg)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(
    sections: Sequence[Section],
    loads: Loads,
    *,
    script: Path | None,
    report: Callable[[str], None] = lambda _text: None,
) -> Results:
    """Run all cases of all sections.

    Args:
        sections: what to run.
        loads: the loads that cases name.
        script: runs a case given as `--child JSON`; `None` runs all cases in this process, which
            is quick and only shows that they run.
        report: called with a line of text for each step.

    """
    results: Results = {}
    for section in sections:
        begin = time.monotonic()
        rows = results[section.name] = {case.label: Result(case=case) for case in section.cases}
        for number in range(section.rounds):
            for case in section.cases:
                report(f"{section.title}, round {number + 1} of {section.rounds}: {case.label}")
                result = rows[case.label]
                try:
                    found = _run_apart(case, script) if script else run_case(case, loads)
                except Exception as error:  # noqa: BLE001 - the other cases are worth having
                    result.errors.append(f"{type(error).__name__}: {error}")
                    continue
                for name, value in found.items():
                    result.figures.setdefault(name, []).append(value)
        report(f"{section.title}: {time.monotonic() - begin:.0f} s")
    return results
