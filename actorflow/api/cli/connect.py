"""How a command reaches an engine: the live one through its socket, else the store itself."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.api.addresses import is_socket, socket_beside
from actorflow.api.client import Client
from actorflow.api.errors import ControlUnreachable
from actorflow.api.verbs.table import Verbs
from actorflow.engine.errors import StoreBusy
from actorflow.engine.stores.opening import open_store, scheme_of
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.stores.protocol import Store

__all__ = ["TOKEN", "Reached", "live", "looking", "reach"]

TOKEN = "ACTORFLOW_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable that holds the token of a TCP port."""

Reached: TypeAlias = Client | Verbs


def live(where: str) -> Client | None:
    """Return a client of the engine that runs on a store, or at an address; `None` without one.

    Raises:
        ControlUnreachable: there is an engine that cannot be asked, or none at that address.

    """
    token = os.environ.get(TOKEN)
    if scheme_of(where) == "tcp" or is_socket(where):
        client = Client(where, token=token)
        client.health()
        return client
    beside = socket_beside(where)
    if beside is None or not is_socket(beside):
        return None
    client = Client(beside, token=token)
    try:
        client.health()
    except ControlUnreachable as error:
        if isinstance(error.__cause__, (ConnectionError, FileNotFoundError)):
            return None  # its engine is dead, or has just been closed
        raise
    return client


@contextmanager
def reach(where: str, *, to_change: bool = False, kinds: bool = True) -> Iterator[Reached]:
    """Yield the verbs on a live engine, or on a store without one.

    Messages to a store without an engine wait there for the next one; nothing runs here. Without
    `kinds`, the verbs know no flows, workflows and plans, which take time to import: enough for
    lists.

    Raises:
        StoreBusy: its engine runs, and has no control socket.

    """
    client = live(where)
    if client is not None:
        yield client
        return
    Engine = _engine_class(kinds=kinds)  # noqa: N806 - a class
    with looking(where) as store:
        if not to_change:
            with Engine(store) as engine:
                engine.parts.state.passive = True
                yield Verbs(engine)
            return
    try:
        engine = Engine(where)
    except StoreBusy as error:
        msg = f"{error}; open it with control=True, or with actorflow serve, to steer it"
        raise StoreBusy(msg) from None
    with engine:
        engine.parts.state.passive = True
        yield Verbs(engine)


def _engine_class(*, kinds: bool) -> type[Any]:
    """Import as little as will do; a client needs no engine."""
    if kinds:
        from actorflow.application import Engine  # noqa: PLC0415

        return Engine
    from actorflow.engine.engine import BareEngine as Plain  # noqa: PLC0415

    return Plain


@contextmanager
def looking(where: str) -> Iterator[Store]:
    """Yield a store to look at, also while its engine runs."""
    if scheme_of(where) == "tcp" or is_socket(where):
        msg = f"{where} is a live engine, and this reads the store itself: name its file"
        raise BadOption(msg)
    store = open_store(where, read_only=True)
    try:
        yield store
    finally:
        store.close()
