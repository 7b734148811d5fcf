"""What `--app MODULE:SETUP` names: a function that registers a user's code on an engine."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from actorflow.runtime.errors import ActorflowError, told_with_place

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["App", "BadSetup", "load_setup", "set_up"]

App = Annotated[
    str,
    typer.Option(
        metavar="MODULE:SETUP",
        help="setup(engine) registers taskers, workers and kinds, before anything runs.",
    ),
]


class BadSetup(ActorflowError):
    """What `--app` names cannot be used."""


def load_setup(app: str) -> Callable[[Any], Any]:
    """Return the function that `MODULE:SETUP` names.

    Raises:
        BadSetup: it cannot be imported or called.
        typer.BadParameter: the text names none.

    """
    module, _, name = app.partition(":")
    if not module or not name:
        msg = f"--app {app!r}: write MODULE:SETUP, such as orders.engine:setup"
        raise typer.BadParameter(msg)
    sys.path.insert(0, "")  # modules of the working directory, as python -m does
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:
        msg = f"--app {app!r} cannot be loaded: {told_with_place(error)}"
        raise BadSetup(msg) from error
    if not callable(found):
        msg = f"--app {app!r} is {found!r:.80}, which cannot be called as setup(engine)"
        raise BadSetup(msg)
    setup: Callable[[Any], Any] = found
    return setup


def set_up(app: str, setup: Callable[[Any], Any], engine: Any) -> None:
    """Call the function for an engine.

    Raises:
        BadSetup: it raised.

    """
    try:
        setup(engine)
    except ActorflowError:
        raise
    except Exception as error:
        msg = f"--app {app!r} raised {told_with_place(error)}"
        raise BadSetup(msg) from error
