"""`actorflow web`: the dashboard of a store, or of the live engine on it."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated, Any

import typer

from actorflow.api.addresses import is_loopback
from actorflow.api.cli.connect import TOKEN, reach
from actorflow.api.cli.demo import demo_engine
from actorflow.api.cli.output import say
from actorflow.engine.stores.opening import without_password
from actorflow.runtime.errors import BadOption, install_hint

__all__ = ["COMMANDS"]


def web(
    store: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE",
            envvar="ACTORFLOW_STORE",
            help="A file or URL; or the address of a live engine: a socket, or tcp://HOST:PORT.",
        ),
    ] = None,
    *,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 finds a free one.")] = 8_321,
    write: Annotated[
        bool, typer.Option("--write", help="Allow actions: send, cancel, retry, answer tasks.")
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Show an engine that generates its own load.")
    ] = False,
    reports: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Show the reports in this folder: what actorflow lab has written with --html or "
            "--json.",
        ),
    ] = None,
) -> None:
    """Serve the dashboard of a store until Ctrl-C.

    It is read-only and for programs of this machine. With --write, or on another host, the link
    that is printed holds a token: ACTORFLOW_TOKEN, or a new one.
    """
    app_of, server = _modules()
    if demo == (store is not None):
        msg = "name a store, or use --demo: actorflow web orders.db"
        raise BadOption(msg)
    needs_token = write or not is_loopback(host)
    token = (os.environ.get(TOKEN) or secrets.token_urlsafe()) if needs_token else None
    with ExitStack() as stack:
        if demo:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="actorflow-demo-"))
            store = f"{folder}/demo.db"
            # Its failures are meant to be seen on the pages, not in the terminal.
            logging.getLogger("actorflow").setLevel(logging.CRITICAL)
            stack.enter_context(demo_engine(store))
        where = str(store)
        if not demo:
            with reach(where):  # an error now is better than one on each page
                pass
        app = app_of(
            lambda change: reach(where, to_change=change),
            token=token,
            write=write,
            reports=reports,
        )
        listening = _listen(host, port)
        stack.callback(listening.close)
        shown = f"[{host}]" if ":" in host else host
        query = "" if token is None else f"?token={token}"
        say(
            f"dashboard of {'a demonstration' if demo else without_password(where)} at "
            f"http://{shown}:{listening.getsockname()[1]}/{query}; stop with Ctrl-C",
            flush=True,
        )
        config = server.Config(
            app,
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,  # pages that update themselves ask again
        )
        server.Server(config).run(sockets=[listening])


def _modules() -> tuple[Any, Any]:
    try:
        import uvicorn  # noqa: PLC0415 - an extra

        from actorflow.api.pages.app import store_app  # noqa: PLC0415 - needs the extra
    except ImportError as error:
        msg = f"the dashboard needs {error.name}: {install_hint('web')}"
        raise BadOption(msg) from error
    return store_app, uvicorn


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        msg = f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port"
        raise BadOption(msg) from error


COMMANDS = {"web": web}
