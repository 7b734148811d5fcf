"""`actorflow tour`: the tour of the README, from a checkout or from the installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["COMMANDS"]

_SCRIPT = Path(__file__).parents[1] / "tour.py.txt"
"""A link to examples/tour.py; a copy of it in a wheel."""


def tour(
    sections: Annotated[
        list[str] | None, typer.Argument(metavar="[SECTION]...", help="Only these.")
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Do not wait between sections.")] = False,
) -> None:
    """Show what actorflow does, in a minute."""
    arguments = [*(sections or ()), *(["--all"] if all_ else [])]
    done = subprocess.run([sys.executable, str(_SCRIPT), *arguments], check=False)  # noqa: S603 - ours
    if done.returncode:
        raise typer.Exit(done.returncode)


COMMANDS = {"tour": tour}
