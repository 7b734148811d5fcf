"""Write results to the terminal and to files (JSON, CSV, HTML, figures); choose the exit code."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from actorflow.lab.models.notation import seconds_text
from actorflow.lab.report.chrome_trace import chrome_trace
from actorflow.lab.report.figures import require_matplotlib
from actorflow.lab.report.gallery import draw_all
from actorflow.lab.report.html import as_html
from actorflow.lab.report.table import as_table
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.lab.run.goals import Goal
    from actorflow.lab.run.result import Result, RunFailed

__all__ = ["INTERRUPTED", "LabResults", "Outputs", "as_csv", "as_json", "draw_all"]

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
_WIDE = 190  # columns that the whole table needs
_STDOUT = Path("-")


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files to write. They are checked before anything runs: a measurement takes minutes."""

    json: Path | None = None
    csv: Path | None = None
    html: Path | None = None
    figures: Path | None = None
    perfetto: Path | None = None

    def __post_init__(self) -> None:
        """Validate the outputs."""
        given = {"--json -": self.json, "--csv -": self.csv, "--html -": self.html}
        shared = [name for name, path in given.items() if path == _STDOUT]
        if len(shared) > 1:
            msg = (
                f"{' and '.join(shared)} cannot share standard output; write one of them to a file"
            )
            raise BadOption(msg)
        for path in (self.json, self.csv, self.html, self.perfetto):
            if path is not None and path != _STDOUT:
                _check_writable(path)
        if self.html is not None or self.figures is not None:
            require_matplotlib()
        if self.figures is not None:
            self.figures.mkdir(parents=True, exist_ok=True)

    @property
    def on_stdout(self) -> bool:
        """Whether standard output belongs to a program, so that nothing else is printed there."""
        return _STDOUT in (self.json, self.csv, self.html)

    def write(self, path: Path | None, text: str) -> None:
        """Write a string to a file or to standard output, if requested."""
        if path == _STDOUT:
            typer.echo(text, nl=not text.endswith("\n"))
        elif path is not None:
            path.write_text(text, encoding="utf-8")

    def announce(self) -> None:
        """Print the names of the written files."""
        for path in (self.json, self.csv, self.html, self.figures, self.perfetto):
            if path is not None and path != _STDOUT:
                typer.echo(f"wrote {path}", err=self.on_stdout)


@dataclass(frozen=True, slots=True)
class LabResults:
    """The results of running several policies."""

    results: list[Result]
    interrupted: bool = False
    failure: RunFailed | None = None

    def report(
        self,
        parameters: dict[str, Any],
        outputs: Outputs,
        *,
        goals: Sequence[Goal] = (),
        within: float | None = None,
    ) -> None:
        """Print the table, write the files, and end with the right exit code."""
        results, complete = self.results, not self.interrupted and self.failure is None
        if complete and results and not any(result.arrived for result in results):
            msg = "there is no message in this traffic; make it longer, or raise its rate"
            raise BadOption(msg)
        if results and not outputs.on_stdout:
            console = Console()
            title = ", ".join(f"{name} {value}" for name, value in parameters.items())
            narrow = console.width < _WIDE
            console.print(as_table(results, title, narrow=narrow))
            for line in remarks(results, within):
                typer.echo(line)
        self._write(parameters, outputs, goals, complete=complete)
        for result in results:
            if result.error:
                share = (result.failed + result.rejected) / result.arrived
                why = f"{share:.1%} of the messages failed; the first error: {result.error}"
                typer.echo(f"warning: {result.policy}: {why}", err=True)
        if self.failure is not None:
            raise self.failure
        if self.interrupted:
            typer.echo("interrupted: these are the policies done by then", err=True)
            raise typer.Exit(INTERRUPTED)

    def _write(
        self,
        parameters: dict[str, Any],
        outputs: Outputs,
        goals: Sequence[Goal],
        *,
        complete: bool,
    ) -> None:
        """Write the files."""
        results = self.results
        outputs.write(outputs.json, as_json(results, parameters, complete=complete))
        outputs.write(outputs.csv, as_csv(results))
        if outputs.html is not None:
            outputs.write(
                outputs.html, as_html(results, parameters, complete=complete, goals=goals)
            )
        if outputs.figures is not None and results:
            draw_all(results, outputs.figures, goals)
        if outputs.perfetto is not None and results:
            outputs.write(outputs.perfetto, chrome_trace(results))
        outputs.announce()


def remarks(results: Sequence[Result], within: float | None = None) -> list[str]:
    """Return what a table has no room for: where p99 comes from, clients, verdicts, the lag."""
    lines = []
    for result in results:
        if within is not None:
            lines.append(
                f"{result.policy}: {result.within(within):.2%} in {seconds_text(within)}, "
                f"{result.goodput(within):,.0f} messages/s"
            )
        parts = result.split.get("p99", {})
        if result.processed and not result.needed("p99") and parts:
            made = ", ".join(f"{name} {seconds_text(value)}" for name, value in parts.items())
            lines.append(f"{result.policy}: p99 is {made}")
        if result.cost:
            lines.append(f"{result.policy}: {result.executors} executors cost {result.cost:.4g}")
        if result.clients:
            seen = ", ".join(
                f"{name.replace('_', ' ')} {value:,.0f}"
                for name, value in result.clients.items()
                if name not in ("p50", "p99")
            )
            tail = seconds_text(result.clients["p99"])
            lines.append(f"{result.policy}: clients: {seen}, p99 {tail}")
        if result.steady is False:
            lines.append(f"{result.policy}: no steady state; its figures depend on the duration")
        for goal, verdict in result.verdicts.items():
            lines.append(f"{result.policy}: {goal}: {verdict}")
        if result.lag is not None:
            lines.append(f"{result.policy}: the generator was late by {result.lag:.2%} at most")
    return lines


def _check_writable(path: Path) -> None:
    """Refuse a path that cannot become a file."""
    if not path.parent.is_dir():
        msg = f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}; create it"
        raise BadOption(msg)
    target = path if path.exists() else path.parent
    if path.is_dir() or not os.access(target, os.W_OK):
        msg = f"cannot write {str(path)!r}: it is a folder, or you may not write there"
        raise BadOption(msg)


_CURVES = (
    "curve", "depth_series", "batch_series", "time_series", "batch_log", "batch_histogram",
    "priorities", "verdicts",
)  # fmt: skip


def as_json(
    results: Sequence[Result], parameters: Mapping[str, Any], *, complete: bool = True
) -> str:
    """Return everything as JSON, curves included."""
    found = {
        "parameters": dict(parameters),
        "complete": complete,
        "results": [result.as_dict() for result in results],
    }
    return json.dumps(found, indent=1, default=str)


def as_csv(results: Sequence[Result]) -> str:
    """Return one line per policy, without the curves."""
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
        if name in _CURVES:
            continue
        if name == "latency":
            row |= value
        elif name == "clients":
            row |= {f"clients_{figure}": each for figure, each in value.items()}
        elif name == "split":
            row |= {
                f"{figure}_{part}": each
                for figure, parts in value.items()
                for part, each in parts.items()
            }
        elif name == "intervals":
            for figure, (low, high) in value.items():
                row |= {f"{figure}_low": low, f"{figure}_high": high}
        else:
            row[name] = value
    return row
