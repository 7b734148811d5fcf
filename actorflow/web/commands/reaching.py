"""How a command reaches an engine: the live one through its socket, else the store itself."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from actorflow.engine.errors import StoreBusy
from actorflow.engine.stores.opening import open_store, scheme_of
from actorflow.runtime.errors import BadOption
from actorflow.web.addresses import is_socket, socket_beside
from actorflow.web.client import Client
from actorflow.web.errors import ControlUnreachable
from actorflow.web.steering import Steering

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.stores.protocol import Store

__all__ = ["TOKEN", "Verbs", "live", "looking", "reach"]

TOKEN = "ACTORFLOW_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable that holds the token of a TCP port."""

Verbs: TypeAlias = Client | Steering


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
def reach(where: str, *, to_change: bool = False) -> Iterator[Verbs]:
    """Yield the verbs on a live engine, or on a store without one.

    What is sent to a store without an engine waits there for the next one: nothing runs here.

    Raises:
        StoreBusy: its engine runs, and has no control socket.

    """
    client = live(where)
    if client is not None:
        yield client
        return
    from actorflow.application import Engine  # noqa: PLC0415 - a client needs none

    with looking(where) as store:
        if not to_change:
            with Engine(store) as engine:
                engine.core.passive = True
                yield Steering(engine)
            return
    try:
        engine = Engine(where)
    except StoreBusy as error:
        msg = f"{error}; open it with control=True, or with actorflow serve, to steer it"
        raise StoreBusy(msg) from None
    with engine:
        engine.core.passive = True
        yield Steering(engine)


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
