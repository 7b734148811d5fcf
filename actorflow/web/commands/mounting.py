"""All commands, mounted on one application; errors of the engine become exit code 1."""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer

from actorflow.runtime.errors import ActorflowError
from actorflow.web.commands import cluster, keeping, looking, serving, steering, workflows

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["mount"]


def mount(app: typer.Typer) -> None:
    """Add the commands to an application."""
    for module in (serving, looking, steering, keeping):
        for name, command in module.COMMANDS.items():
            app.command(name)(_telling(command))
    for title, room in (("workflows", workflows), ("cluster", cluster)):
        group = typer.Typer(no_args_is_help=True, help=room.HELP)
        for name, command in room.COMMANDS.items():
            group.command(name)(_telling(command))
        app.add_typer(group, name=title)


def _telling(command: Callable[..., None]) -> Callable[..., None]:
    """Print what is refused as one line on stderr, and exit with 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except BrokenPipeError:  # `| head` has seen enough: typer ends quietly
            raise
        except (ActorflowError, ValueError, TypeError, OSError) as error:  # the rest: ids, files
            sys.exit(f"actorflow: {error}")

    return run
