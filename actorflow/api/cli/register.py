"""Load commands when they are called; end them with one style of errors and the right code."""

from __future__ import annotations

import os
import sys
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from actorflow.api.cli.table import COMMANDS, Entry

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Group", "exit_code", "load"]

_FAILED, _USAGE, _NOT_FOUND, _REFUSED, _INTERRUPTED = 1, 2, 3, 4, 130
STORE = "ACTORFLOW_STORE"
"""The environment variable that names the store of commands that are given none."""
_SUFFIXES = (".db", ".sqlite", ".sqlite3", ".sock")


class StoreCommand(TyperCommand):
    """A command whose first argument may come from the environment.

    `actorflow show orders.db o-1` and, with `ACTORFLOW_STORE=orders.db`, `actorflow show o-1`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the store of the environment in front if the arguments name none."""
        store = os.environ.get(STORE)
        wanted = [each for each in self.params if each.param_type_name == "argument"]
        if store and wanted and wanted[0].name == "store":
            given = self._arguments(ctx, args)
            needed = sum(1 for each in wanted if each.required)
            if len(given) < needed or (len(given) < len(wanted) and not _is_store(given)):
                args = [store, *args]
        return super().parse_args(ctx, args)

    def _arguments(self, ctx: Any, args: list[str]) -> list[str]:
        """Return those arguments that are neither options nor values of options."""
        with_value = {
            name
            for each in self.get_params(ctx)
            if each.param_type_name == "option" and not getattr(each, "is_flag", False)
            for name in each.opts
        }
        found: list[str] = []
        rest = iter(args)
        for each in rest:
            if each == "--":
                return [*found, *rest]
            if each in with_value:
                next(rest, None)
            elif each == "-" or not each.startswith("-"):
                found.append(each)
        return found


def _is_store(given: list[str]) -> bool:
    first = given[0] if given else ""
    named = "://" in first or first == ":memory:" or first.endswith(_SUFFIXES)
    return named or (bool(first) and Path(first).exists())


class Group(TyperGroup):
    """The group of all commands; each is loaded when it is called."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Return the names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """Return a command with its help and nothing else, for lists of commands."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        return TyperCommand(cmd_name, help=entry.help, rich_help_panel=entry.panel, params=[])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name, and the rest of them."""
        entry = COMMANDS.get(args[0]) if args else None
        if entry is None:
            return super().resolve_command(ctx, args)
        return args[0], load(args[0], entry), args[1:]

    def main(  # type: ignore[override] # what typer passes is passed on
        self,
        args: Any = None,
        prog_name: str | None = None,
        *,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line; tell errors in one line, and end with the code of the error."""
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
        except _CLICK_ERROR as error:
            _tell(_usage_text(error))
            code = error.exit_code
        except typer.Abort:
            _tell("cancelled; nothing was done")
            code = _INTERRUPTED
        if standalone_mode:
            sys.exit(code or 0)
        return code


_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]  # typer has it, and gives it no public name


def _usage_text(error: Any) -> str:
    text = error.format_message().rstrip(".")
    path = getattr(getattr(error, "ctx", None), "command_path", "actorflow")
    hint = ""
    if "Missing argument 'STORE'" in text:
        hint = f" name it, or set {STORE};"
    return f"{text[:1].lower()}{text[1:]};{hint} see `{path} --help`"


def load(name: str, entry: Entry) -> Any:
    """Return a command, ready to run."""
    if ":" in entry.module:
        return _foreign(name, entry)
    room = import_module(f"actorflow.api.cli.{entry.module}")
    app = typer.Typer(add_completion=False)
    if room.COMMANDS.get(name) is None:
        group = typer.Typer(no_args_is_help=True, help=room.HELP, add_completion=False)
        for each, command in room.COMMANDS.items():
            group.command(each, cls=StoreCommand)(_telling(command))
        made: Any = typer.main.get_group(group)
    else:
        command = room.COMMANDS[name]
        if command.__name__ == "<lambda>":  # made of a verb, now that it is wanted
            command = command()
        app.command(name, cls=StoreCommand)(_telling(command))
        made = typer.main.get_command(app)
    made.name = name
    return made


def _foreign(name: str, entry: Entry) -> Any:
    """Return the commands of a package that has its own."""
    module, _, attribute = entry.module.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except ImportError as error:
        from actorflow.runtime.errors import install_hint  # noqa: PLC0415 - rarely needed

        _tell(f"`actorflow {name}` needs {error.name}; {install_hint(name)}")
        sys.exit(_FAILED)
    made = typer.main.get_command(found)
    made.name = name
    return made


def _tell(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"actorflow: {text}\n")


def _telling(command: Callable[..., None]) -> Callable[..., None]:
    """Print errors as one line on stderr, and exit with the code of the error."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (BrokenPipeError, _CLICK_ERROR, typer.Exit, typer.Abort):
            raise  # `| head` has seen enough: typer ends quietly
        except (Exception, SystemExit) as error:
            code = exit_code(error)
            if code is None:
                raise
            _tell(str(error))
            sys.exit(code)

    return run


def exit_code(error: BaseException) -> int | None:
    """Return the exit code that an error becomes; `None` for errors that are our mistakes."""
    from actorflow.api import errors  # noqa: PLC0415 - only where something went wrong
    from actorflow.runtime.errors import ActorflowError, BadOption  # noqa: PLC0415

    if isinstance(error, errors.ControlError):
        return _REFUSED if error.status in (401, 403) else _FAILED
    if isinstance(error, errors.NOT_FOUND):
        return _NOT_FOUND
    if isinstance(error, errors.REFUSED):
        return _REFUSED
    if isinstance(error, (BadOption, ValueError, TypeError)):
        return _USAGE
    return _FAILED if isinstance(error, (ActorflowError, OSError)) else None
