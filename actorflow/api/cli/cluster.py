"""The commands for many engines on one store: run a worker, look at the cluster, try one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from actorflow.api.addresses import address_of
from actorflow.api.cli.cluster_schema import COMMANDS as SCHEMA_COMMANDS
from actorflow.api.cli.output import counted, note, say, say_json, table
from actorflow.api.cli.serve import Signals
from actorflow.api.cli.setup import App, load_setup, set_up
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from actorflow.api.addresses import Address
    from actorflow.api.http.server import ControlServer
    from actorflow.application import Engine
    from actorflow.engine.stores.nats.server import NatsServer
    from actorflow.engine.stores.postgres.server import PostgresServer
    from actorflow.engine.stores.protocol import Store

__all__ = ["COMMANDS", "HELP"]

HELP = "Run workers that share one store, and look at them."

_RETRY = 1.0  # seconds between two tries to open a store

Where = Annotated[str, typer.Argument(metavar="URL", help="A store that engines share.")]


def worker(
    url: Where,
    *,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:SETUP",
            help="setup(engine) registers taskers, workers and kinds; not needed for plans alone.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Shown by `cluster status`; by default the host name."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds that runs and tasks have to finish at the end.")
    ] = 5.0,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a server that cannot be reached.")
    ] = 0.0,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz there."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=0, help="Jobs of plans at the same time; by default one for each core."),
    ] = None,
    offers: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A resource that jobs may need, as gpu; repeatable."),
    ] = None,
) -> None:
    """Run a worker until SIGINT or SIGTERM; then hand its partitions over.

    Any number of them, on any machines, share the work of one store.
    """
    address = None if http is None else address_of(f"tcp://{http}")
    if app is None:
        sys.path.insert(0, "")  # jobs may be functions of modules in the working directory
    setup = None if app is None else load_setup(app)
    from actorflow.application import Engine  # noqa: PLC0415 - after the arguments were checked

    asked = Signals()
    with asked:
        store = _open_patiently(url, name, wait, asked)
        if store is None:
            return
        engine = Engine(store)
        monitor = None
        try:
            if app is not None and setup is not None:
                set_up(app, setup, engine)
            if jobs is not None or offers or not engine.plans.has_workers:
                engine.plans.workers(jobs, offers=offers or ())
            engine.resume()
            if address is not None:
                monitor = _open_monitor(engine, address)
            say(f"worker {getattr(store, 'name', name)}, process {os.getpid()}", flush=True)
            asked.wait()
        finally:
            engine.close(timeout)  # `/healthz` answers meanwhile
            if monitor is not None:
                monitor.close()
    note(f"left {url.partition('?')[0].rpartition('@')[2]}")


def _open_monitor(engine: Engine, address: Address) -> ControlServer:
    from actorflow.api.http.server import open_monitor  # noqa: PLC0415 - an extra

    server = open_monitor(engine, address)
    say(f"monitor at http://{str(server.address).removeprefix('tcp://')}", flush=True)
    return server


def status(
    url: Where,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the workers, their leases and partitions, and the age of waiting messages."""
    store: Any = _open(url)
    try:
        found = store.status()
    finally:
        store.close()
    if json:
        say_json(found._asdict() | {"members": [each._asdict() for each in found.members],
                                    "tasks": [each._asdict() for each in found.tasks]})  # fmt: skip
        return
    if found.members:
        head = ("worker", "lease", "partitions", "active", "waiting", "lag", "version")
        rows = [
            (each.name, f"{each.lease:.1f} s", len(each.partitions), each.executions,
             each.messages, f"{each.lag:.1f} s", each.version or "unknown")
            for each in found.members
        ]  # fmt: skip
        table(head, rows)
    else:
        say("no worker is alive")
    if found.unowned:
        say(f"{counted(len(found.unowned), 'partition')} of {found.partitions} without an owner")
    for tasks in found.tasks:
        say(f"{counted(tasks.open, 'open task')} for {tasks.tasker!r}")
    for kind, count in found.kinds.items():
        say(f"{counted(count, 'execution')} of kind {kind!r} with messages that wait")


def dev(
    *,
    app: App,
    on: Annotated[str, typer.Option(metavar="SERVER", help="postgres or nats.")] = "postgres",
    workers: Annotated[int, typer.Option(min=1, help="How many workers.")] = 3,
    directory: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Where the server keeps its data; a temporary folder by default."
        ),
    ] = None,
) -> None:
    """Start a server from its wheel and some workers on this machine, until SIGINT or SIGTERM."""
    load_setup(app)
    from actorflow.cluster.guardian import Guardian  # noqa: PLC0415 - after the arguments

    asked = Signals()
    with asked, _server(on, directory) as server:
        url = f"{server.url}/dev" if on == "nats" else server.url
        command = [sys.executable, "-m", "actorflow.cli", "cluster", "worker", url, "--app"]
        running = [
            subprocess.Popen([*command, app, "--name", f"dev-{number}"])  # noqa: S603 - ours
            for number in range(1, workers + 1)
        ]
        guardian = Guardian()
        for process in running:
            guardian.watch(process.pid, signal.SIGTERM)
        try:
            say(f"{url} has {counted(workers, 'worker')}; stop with SIGINT or SIGTERM", flush=True)
            asked.wait()
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
            guardian.close()


def _server(on: str, directory: str | None) -> PostgresServer | NatsServer:
    """Start a server, which ends with the block that it is used in."""
    if directory == "":
        msg = "--directory '' names no folder: leave it out for a temporary one"
        raise typer.BadParameter(msg)
    if on == "postgres":
        from actorflow.engine.stores.postgres.server import PostgresServer  # noqa: PLC0415 - an extra

        return PostgresServer(directory)
    if on == "nats":
        from actorflow.engine.stores.nats.server import NatsServer  # noqa: PLC0415 - an extra

        return NatsServer(directory)
    msg = f"--on {on!r}: there are 'postgres' and 'nats'"
    raise typer.BadParameter(msg)


def _open_patiently(url: str, name: str | None, seconds: float, asked: Signals) -> Store | None:
    """Open a store; try for some time while it refuses. `None`: a signal came first.

    Raises:
        StoreRefused: the time is over.

    """
    from actorflow.engine.errors import StoreRefused  # noqa: PLC0415

    end = monotonic() + seconds
    noted = False
    while True:
        try:
            return _open(url, name)
        except StoreRefused as error:
            left = end - monotonic()
            if left <= 0:
                raise
            if not noted:
                noted = True
                note(f"{error}; trying again for {left:.0f} s")
            if asked.wait(min(left, _RETRY)):
                return None


def _open(url: str, name: str | None = None) -> Store:
    """Open a store that engines share.

    Raises:
        BadOption: it is one for a single engine.

    """
    from actorflow.engine.stores.opening import open_store, scheme_of  # noqa: PLC0415

    if scheme_of(url) is None:
        msg = f"{url!r} is a file, which one engine uses: name a server, as in postgresql://host/db"
        raise BadOption(msg)
    store = open_store(url, name=name)
    if not store.traits.shared:
        store.close()
        msg = f"{url!r} is for one engine: name a server, as in postgresql://host/db"
        raise BadOption(msg)
    return store


COMMANDS = {"worker": worker, "status": status, "dev": dev, **SCHEMA_COMMANDS}
