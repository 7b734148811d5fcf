"""The commands that run an engine as a process."""

from __future__ import annotations

import os
import signal
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from actorflow.api.addresses import is_loopback, socket_beside
from actorflow.api.cli.connect import TOKEN
from actorflow.api.cli.output import note, say
from actorflow.api.cli.setup import App, load_setup, set_up
from actorflow.engine.stores.opening import without_password
from actorflow.runtime.lanes.wakeup import Wakeup
from actorflow.workflows.remote import LEASE

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.application import Engine

__all__ = ["COMMANDS", "Signals"]

_POLL = 0.25  # seconds between two checks for a signal
_INTERRUPTED = 130  # what shells expect of a program that a second Ctrl-C has ended


NewFile = Annotated[str, typer.Argument(metavar="STORE", help="A file; created if missing.")]
NewStore = Annotated[
    str, typer.Argument(metavar="STORE", help="A file or URL; created if missing.")
]
Timeout = Annotated[
    float, typer.Option(min=0, help="Seconds that runs and tasks have to finish at the end.")
]


def serve(
    store: NewFile,
    *,
    app: App,
    tcp: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Also listen on a port; needs --token-env."),
    ] = None,
    token_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The environment variable that holds the token."),
    ] = None,
    timeout: Timeout = 5.0,
) -> None:
    """Run an engine until SIGINT or SIGTERM.

    The other commands reach it meanwhile. The exit code is 0 after an orderly end; 1 if the setup
    fails; 2 for wrong arguments; 4 if another process has the store; 130 if a second signal ended
    it while it was still closing.
    """
    control, token = _control(tcp, token_env)
    setup = load_setup(app)

    def begin(engine: Engine) -> str:
        set_up(app, setup, engine)
        return f"serving {without_password(store)}"

    _run(store, begin, timeout, control=control, token=token)


def agent(
    store: NewStore,
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 finds a free one.")] = 4001,
    host: Annotated[
        str, typer.Option(help=f"Where to listen; {TOKEN} must be set if it is not loopback.")
    ] = "127.0.0.1",
    app: Annotated[
        str | None,
        typer.Option(metavar="MODULE:SETUP", help="setup(engine) registers everything in Python."),
    ] = None,
    workflow: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=LANG", help="A workflow, and the language of its code."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=LANG", help="A task, and the language of its code."),
    ] = None,
    env: Annotated[
        str, typer.Option(help="The environment of these workflows and tasks.")
    ] = "default",
    lease: Annotated[
        float, typer.Option(help="Seconds that a worker has for its next request about a job.")
    ] = LEASE,
    timeout: Timeout = 5.0,
) -> None:
    """Run an engine for workers of other languages.

    They ask it for jobs over HTTP. If the environment variable ACTORFLOW_TOKEN is set, every
    request must carry it. Exit codes are those of `serve`.
    """
    token = os.environ.get(TOKEN) or None
    if token is None and not is_loopback(host):
        msg = f"--host {host} can be reached from elsewhere: set {TOKEN}, or listen on 127.0.0.1"
        raise typer.BadParameter(msg)
    setup = None if app is None else load_setup(app)
    workflows, tasks = _languages("--workflow", workflow), _languages("--task", task)

    def begin(engine: Engine) -> str:
        if app is not None and setup is not None:
            set_up(app, setup, engine)
        for name, lang in workflows:
            engine.workflows.remote(name, lang=lang, env=env, lease=lease)
        for name, lang in tasks:
            engine.workflows.remote_tasks(name, lang=lang, env=env, lease=lease)
        url = engine.serve_agent(host=host, port=port, token=token)
        return f"serving {without_password(store)} at {url}"

    _run(store, begin, timeout, control=socket_beside(store) is not None)


def _languages(option: str, given: list[str] | None) -> list[tuple[str, str]]:
    found = []
    for each in given or ():
        name, _, lang = each.rpartition("=")
        if not name or not lang:
            msg = f"{option} {each!r}: write NAME=LANG, such as Order=javascript"
            raise typer.BadParameter(msg)
        found.append((name, lang))
    return found


def _run(store: str, begin: Callable[[Engine], str], timeout: float, **options: Any) -> None:
    """Run an engine between `begin`, which says what to print, and a signal."""
    from actorflow.application import Engine  # noqa: PLC0415 - after the arguments were checked

    asked = Signals()
    with asked:
        engine = Engine(store, **options)
        try:
            told = begin(engine)
            engine.resume()
            say(f"{told}, process {os.getpid()}; stop with SIGINT or SIGTERM", flush=True)
            asked.wait()
        finally:
            engine.close(timeout)
    note(f"closed {without_password(store)}")


def _control(tcp: str | None, token_env: str | None) -> tuple[Any, str | None]:
    if tcp is None:
        if token_env is not None:
            msg = "--token-env is for --tcp: the socket beside the store is open to its owner only"
            raise typer.BadParameter(msg)
        return True, None
    if token_env is None:
        msg = "--tcp needs --token-env NAME: without a token, the port is open to every program"
        raise typer.BadParameter(msg)
    token = os.environ.get(token_env)
    if not token:
        msg = f"--token-env {token_env}: that variable is not set, or empty"
        raise typer.BadParameter(msg)
    return [True, f"tcp://{tcp}"], token


class Signals:
    """Waits for SIGINT or SIGTERM; a second one ends the process."""

    def __init__(self) -> None:
        self._asked = False
        # Not a threading.Event: the handler may interrupt its wait() while that holds its lock, and
        # set() would then wait for this very thread.
        self._wakeup = Wakeup()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._asked:
            os._exit(_INTERRUPTED)
        self._asked = True
        self._wakeup.wake()

    def wait(self, timeout: float = inf) -> bool:
        """Return when the first one has come, or the time is over; return whether it has come.

        The system may deliver a signal to any thread, and only the main thread runs the handler:
        it has to wake by itself. A process that was stopped (SIGSTOP) meets that as a rule.
        """
        end = monotonic() + timeout
        while not self._asked:
            left = end - monotonic()
            if left <= 0:
                return False
            self._wakeup.wait(min(_POLL, left))
        return True


COMMANDS = {"serve": serve, "agent": agent}
