"""`actorflow new NAME`: a starter project with a worker, a workflow, tests and a Dockerfile."""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from actorflow.api.cli.output import say
from actorflow.runtime.errors import BadOption
from actorflow.runtime.installation import installed_from

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

__all__ = ["COMMANDS"]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_RENAMED = {"gitignore": ".gitignore"}


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The folder to make.")],
) -> None:
    """Create a starter project: a worker, a workflow, tests and a Dockerfile."""
    folder = Path(name)
    if not _NAME.fullmatch(folder.name):
        msg = (
            f"{folder.name!r} cannot be the name of a project: use small letters, digits, - and _, "
            "for example orders"
        )
        raise BadOption(msg)
    if folder.exists():
        msg = f"{folder} exists already: choose another name, or remove it first"
        raise BadOption(msg)
    words = {
        "NAME": folder.name,
        "INTERPRETER": sys.executable,
        "SOURCE": installed_from() or "actorflow",
    }
    for path, text in _starter(files("actorflow.api").joinpath("starter")):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_filled(text, words), encoding="utf-8")
    say(f"made {folder}: cd {folder} && make test")


def _starter(folder: Traversable, above: str = "") -> Iterator[tuple[str, str]]:
    for each in folder.iterdir():
        name = each.name.removesuffix(".txt")
        if each.is_dir():
            if name != "__pycache__":
                yield from _starter(each, f"{above}{name}/")
        else:
            name = _RENAMED.get(name, name)
            yield f"{above}{name}", each.read_text(encoding="utf-8")


def _filled(text: str, words: dict[str, str]) -> str:
    return re.sub(r"\b(NAME|INTERPRETER|SOURCE)\b", lambda found: words[found[1]], text)


COMMANDS = {"new": new}
