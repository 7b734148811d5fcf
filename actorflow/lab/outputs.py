"""Where the commands put what they found: the terminal, files, and the exit code."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from actorflow.lab.report.figures import FIGURES, require_matplotlib, save
from actorflow.lab.report.files import as_csv, as_json
from actorflow.lab.report.html import as_html
from actorflow.lab.report.table import as_table
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from actorflow.lab.run.result import Result, RunFailed

__all__ = ["INTERRUPTED", "Done", "Outputs"]

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
_WIDE = 140  # columns that the whole table needs
_STDOUT = Path("-")


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files to write. They are checked before anything runs: a measurement takes minutes."""

    json: Path | None = None
    csv: Path | None = None
    html: Path | None = None
    figures: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be written."""
        given = {"--json -": self.json, "--csv -": self.csv, "--html -": self.html}
        shared = [name for name, path in given.items() if path == _STDOUT]
        if len(shared) > 1:
            msg = (
                f"{' and '.join(shared)} cannot share standard output; write one of them to a file"
            )
            raise BadOption(msg)
        for path in (self.json, self.csv, self.html):
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
        """Write a text to a file, or to standard output, if it is asked for."""
        if path == _STDOUT:
            typer.echo(text, nl=not text.endswith("\n"))
        elif path is not None:
            path.write_text(text, encoding="utf-8")

    def announce(self) -> None:
        """Print what was written."""
        for path in (self.json, self.csv, self.html, self.figures):
            if path is not None and path != _STDOUT:
                typer.echo(f"wrote {path}", err=self.on_stdout)


@dataclass(frozen=True, slots=True)
class Done:
    """The results of running several policies."""

    results: list[Result]
    interrupted: bool = False
    failure: RunFailed | None = None

    def report(self, parameters: dict[str, Any], outputs: Outputs) -> None:
        """Print the table, write the files, and end with the right exit code."""
        results, complete = self.results, not self.interrupted and self.failure is None
        if complete and results and not any(result.arrived for result in results):
            msg = "there is no message in this traffic; make it longer, or raise its rate"
            raise BadOption(msg)
        if results and not outputs.on_stdout:
            console = Console()
            title = ", ".join(f"{name} {value}" for name, value in parameters.items())
            console.print(as_table(results, title, narrow=console.width < _WIDE))
        outputs.write(outputs.json, as_json(results, parameters, complete=complete))
        outputs.write(outputs.csv, as_csv(results))
        if outputs.html is not None:
            outputs.write(outputs.html, as_html(results, parameters, complete=complete))
        if outputs.figures is not None and results:
            for name, draw in FIGURES.items():
                save(draw(results), outputs.figures / f"{name}.png")
        outputs.announce()
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


def _check_writable(path: Path) -> None:
    """Refuse a path that cannot become a file."""
    if not path.parent.is_dir():
        msg = f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}; create it"
        raise BadOption(msg)
    target = path if path.exists() else path.parent
    if path.is_dir() or not os.access(target, os.W_OK):
        msg = f"cannot write {str(path)!r}: it is a folder, or you may not write there"
        raise BadOption(msg)
