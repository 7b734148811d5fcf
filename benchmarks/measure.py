"""How loads are run: each in a process of its own, interleaved, repeated, summed up.

The cases of a section take turns (A B C, A B C, ...), so that whatever else the machine does
meanwhile falls on all of them. A ratio of two cases is taken within each round and then summed
up, for the same reason.
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
"""What one run of a case found."""

Loads: TypeAlias = "Mapping[str, Callable[..., Figures]]"
"""What a case can run, by name."""


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
    """What the rounds of a case found, figure by figure."""

    case: Case
    figures: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def median(self, figure: str) -> float | None:
        """Give the middle of the rounds; `None` if there is no such figure."""
        values = self.figures.get(figure)
        return statistics.median(values) if values else None

    def spread(self, figure: str) -> tuple[float, float] | None:
        """Give the least and the greatest."""
        values = self.figures.get(figure)
        return (min(values), max(values)) if values else None


Results: TypeAlias = "dict[str, dict[str, Result]]"
"""Results by the name of the section and the label of the case."""


def ratio(above: Result | None, below: Result | None, figure: str) -> float | None:
    """Give the median of the ratios within each round."""
    if above is None or below is None:
        return None
    pairs = zip(above.figures.get(figure, ()), below.figures.get(figure, ()), strict=False)
    ratios = [first / second for first, second in pairs if second]
    return statistics.median(ratios) if ratios else None


@contextlib.contextmanager
def _pinned(*, pinned: bool) -> Iterator[None]:
    """Keep this thread, and those that it starts, on one processor."""
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
    """Run a case in a fresh process, so that no other case has filled its heap or its pool."""
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, str(script), "--child", json.dumps(asdict(case))],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["nothing was said"]
        msg = f"exit code {done.returncode}: {last[0]}"
        raise RuntimeError(msg)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(
    sections: Sequence[Section],
    loads: Loads,
    *,
    script: Path | None,
    tell: Callable[[str], None] = lambda _text: None,
) -> Results:
    """Run all cases of all sections.

    Args:
        sections: what to run.
        loads: the loads that cases name.
        script: runs a case given as `--child JSON`; `None` runs them all in this process, which
            is quick and good for nothing but to see that they run.
        tell: called with what is going on.

    """
    results: Results = {}
    for section in sections:
        begin = time.monotonic()
        rows = results[section.name] = {case.label: Result(case=case) for case in section.cases}
        for number in range(section.rounds):
            for case in section.cases:
                tell(f"{section.title}, round {number + 1} of {section.rounds}: {case.label}")
                result = rows[case.label]
                try:
                    found = _run_apart(case, script) if script else run_case(case, loads)
                except Exception as error:  # noqa: BLE001 - the other cases are worth having
                    result.errors.append(f"{type(error).__name__}: {error}")
                    continue
                for name, value in found.items():
                    result.figures.setdefault(name, []).append(value)
        tell(f"{section.title}: {time.monotonic() - begin:.0f} s")
    return results
