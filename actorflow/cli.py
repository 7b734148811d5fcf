"""The command `actorflow`. It needs the extra `cli`; importing this module does not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def application() -> typer.Typer:
    """Build the command line; raise ImportError where typer is not installed."""
    import typer  # noqa: PLC0415 - an extra, and slow to import

    app = typer.Typer(no_args_is_help=True, add_completion=False)

    @app.callback()
    def actorflow() -> None:
        """Workers that take everything that arrived while they were busy.

        Exit codes: 0, it is done; 1, the engine or the store refused it; 2, wrong arguments; 130,
        Ctrl-C.
        """

    @app.command()
    def version() -> None:
        """Print the version of actorflow."""
        from actorflow import __version__  # noqa: PLC0415 - so that --help does not load the library

        typer.echo(__version__)

    # Everything behind `lab` is parsed by the lab itself, which is imported only then.
    @app.command(
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )
    def lab(arguments: list[str] | None = typer.Argument(None, metavar="...")) -> None:  # noqa: B008
        """Compare batching policies on your traffic: simulate, measure, advise."""
        try:
            from actorflow.lab.commands import app as commands  # noqa: PLC0415
        except ImportError as error:
            sys.exit(f"the policy lab needs {error.name}: pip install 'actorflow[lab]'")
        commands(arguments or [], prog_name="actorflow lab")

    @app.command(
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )
    def flow(arguments: list[str] | None = typer.Argument(None, metavar="...")) -> None:  # noqa: B008
        """Run, check, format and trace flows."""
        from actorflow.flows.service.commands import commands  # noqa: PLC0415 - only when it is called

        commands(arguments or [], prog_name="actorflow flow")

    @app.command(
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )
    def plan(arguments: list[str] | None = typer.Argument(None, metavar="...")) -> None:  # noqa: B008
        """Run plans (graphs of jobs), show them, and say why a job runs."""
        from actorflow.plans.commands import commands  # noqa: PLC0415 - only when it is called

        commands(arguments or [], prog_name="actorflow plan")

    from actorflow.web.commands.mounting import mount  # noqa: PLC0415 - only for the command line

    mount(app)
    return app


def main() -> None:
    """Run the command line of this process."""
    try:
        app = application()
    except ImportError as error:
        sys.exit(f"the command line needs {error.name}: pip install 'actorflow[cli]'")
    app()


if __name__ == "__main__":
    main()
