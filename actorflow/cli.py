"""The command `actorflow`. It needs the extra `cli`; importing this module does not.

This module imports nothing else of actorflow at its top, so that `main` handles Ctrl-C during all
imports that take time.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer


def application() -> typer.Typer:
    """Build the command line; raise ImportError where typer is not installed."""
    import typer  # noqa: PLC0415 - an extra, and slow to import

    from actorflow.api.cli.register import Group  # noqa: PLC0415 - needs typer

    app = typer.Typer(no_args_is_help=True, cls=Group, pretty_exceptions_enable=False)

    def show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
        if wanted:
            from actorflow import __version__  # noqa: PLC0415 - so that --help stays fast

            typer.echo(f"actorflow {__version__}")
            raise typer.Exit

    @app.callback()
    def actorflow(
        *,
        version: bool = typer.Option(
            False,  # noqa: FBT003 - the default
            "--version",
            callback=show_version,
            is_eager=True,
            help="Print the version.",
        ),
    ) -> None:
        """Workers that take everything that arrived while they were busy.

        STORE is a file, a URL, or a live engine; by default what ACTORFLOW_STORE says.

        Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 refused, 130 interrupted.
        """

    return app


_INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C


def main() -> None:
    """Run the command line of this process."""
    try:
        try:
            app: Any = application()
        except ImportError as error:
            from actorflow.runtime.errors import install_hint  # noqa: PLC0415 - rarely needed

            sys.exit(f"actorflow: the command line needs {error.name}; {install_hint('cli')}")
        app(prog_name="actorflow")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
