"""The command that runs an engine as a process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Annotated, Any

import typer

from actorflow.web.commands.printing import note, say
from actorflow.web.commands.setups import App, load_setup, set_up

__all__ = ["COMMANDS"]

_INTERRUPTED = 130  # what shells expect of a program that a second Ctrl-C has ended


def serve(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A file or URL; made if need be.")],
    *,
    app: App,
    tcp: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Listen there, too; needs --token-env."),
    ] = None,
    token_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The environment variable that holds the token."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds for what is under way at the end.")
    ] = 5.0,
) -> None:
    """Run an engine until SIGINT or SIGTERM; steer it with the other commands meanwhile.

    The exit code is 0 after an orderly end; 1 if the store or the setup is refused; 2 for wrong
    arguments; 130 if a second signal ended it while it was still closing.
    """
    control, token = _control(tcp, token_env)
    setup = load_setup(app)
    from actorflow.application import Engine  # noqa: PLC0415 - after the arguments were checked

    asked = _Signals()
    with asked:
        engine = Engine(store, control=control, token=token)
        try:
            set_up(app, setup, engine)
            engine.resume()
            say(f"serving {store}, process {os.getpid()}; stop with SIGINT or SIGTERM")
            sys.stdout.flush()
            asked.wait()
        finally:
            engine.close(timeout)
    note(f"closed {store}")


def _control(tcp: str | None, token_env: str | None) -> tuple[Any, str | None]:
    if tcp is None:
        if token_env is not None:
            msg = "--token-env is for --tcp: the socket beside the store is open to its owner only"
            raise typer.BadParameter(msg)
        return True, None
    if token_env is None:
        msg = "--tcp needs --token-env NAME: whoever reaches the port could steer the engine"
        raise typer.BadParameter(msg)
    token = os.environ.get(token_env)
    if not token:
        msg = f"--token-env {token_env}: that variable is not set, or empty"
        raise typer.BadParameter(msg)
    return [True, f"tcp://{tcp}"], token


class _Signals:
    """Waits for SIGINT or SIGTERM; a second one ends the process."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._asked.is_set():
            os._exit(_INTERRUPTED)
        self._asked.set()

    def wait(self) -> None:
        """Return when the first one has come."""
        self._asked.wait()


COMMANDS = {"serve": serve}
