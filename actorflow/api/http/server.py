"""Control sockets: an engine that is steered while it runs. Needs the extra `web`.

Each socket is served by uvicorn in a thread of its own, with an event loop of its own.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import uvicorn

from actorflow.api.addresses import (
    Address,
    TcpAddress,
    UnixAddress,
    address_of,
    bindable,
    is_loopback,
    is_socket,
    socket_beside,
)
from actorflow.api.http.app import create_app, create_monitor
from actorflow.behaviours.arguments import count
from actorflow.runtime.errors import BadOption
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from fastapi import FastAPI

    from actorflow.engine.engine import BareEngine

__all__ = ["ControlServer", "open_agent", "open_controls", "open_monitor"]

_BACKLOG = 128
_OWNER_ONLY = 0o600
_GRACE = 1  # seconds for the requests that are under way
_PATIENCE = 5.0  # seconds for the thread after that


def check_controls(control: Any, token: str | None) -> list[Address | None]:
    """Return the addresses of `Engine(control=..., token=...)`; `None` stands beside the store.

    Raises:
        BadOption: one of them is not an address, or TCP has no token.

    """
    wanted = list(control) if isinstance(control, (list, tuple)) else [control]
    addresses = [_address(each) for each in wanted]
    _check_token(token)
    if token is None and any(isinstance(each, TcpAddress) for each in addresses):
        msg = "a TCP port is open to everybody who reaches it: add token=secrets.token_urlsafe()"
        raise BadOption(msg)
    return addresses


def open_controls(engine: BareEngine, control: Any, token: str | None) -> list[ControlServer]:
    """Open the sockets that `Engine(control=..., token=...)` names.

    Raises:
        BadOption: there is no place for one, one is in use, or TCP has no token.

    """
    addresses = [each or _beside(engine) for each in check_controls(control, token)]
    opened: list[ControlServer] = []
    try:
        for address in addresses:
            needed = token if isinstance(address, TcpAddress) or len(addresses) == 1 else None
            opened.append(_serve_engine(engine, address, needed))
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened


def open_agent(engine: BareEngine, host: str, port: int, token: str | None) -> ControlServer:
    """Open the port that `engine.serve_agent(...)` names; 0 finds a free one.

    Raises:
        BadOption: it is in use, or is not loopback and has no token.

    """
    _check_token(token)
    port = count(port, "port", "serve_agent(port=4001)", least=0, most=65_535, error=BadOption)
    if token is None and not is_loopback(host):
        msg = (
            f"host={host!r} can be reached from elsewhere: add token=secrets.token_urlsafe(), or "
            "listen on 127.0.0.1"
        )
        raise BadOption(msg)
    return _serve_engine(engine, TcpAddress(host, port), token)


def open_monitor(engine: BareEngine, address: Address) -> ControlServer:
    """Open a port for monitors: `/metrics`, `/healthz` and `/readyz`. It needs no token.

    Raises:
        BadOption: the address is in use.

    """
    return ControlServer(create_monitor(engine), address)


def _serve_engine(engine: BareEngine, address: Address, token: str | None) -> ControlServer:
    local = token is None and isinstance(address, TcpAddress)
    return ControlServer(create_app(engine, token, local=local), address)


def _check_token(token: str | None) -> None:
    ascii_text = isinstance(token, str) and token.isascii() and token.isprintable()
    if token is not None and not (token and ascii_text):
        msg = "token= must be a string of ASCII characters, such as secrets.token_urlsafe()"
        raise BadOption(msg)


def _address(wanted: Any) -> Address | None:
    if isinstance(wanted, (str, os.PathLike)):
        return address_of(wanted)
    if wanted is not True:
        msg = f"control={wanted!r:.80} is not an address: write True, a path or 'tcp://127.0.0.1:4000'"
        raise BadOption(msg)
    return None


def _beside(engine: BareEngine) -> Address:
    path = getattr(engine.parts.store, "path", None)
    beside = None if path is None else socket_beside(path)
    if beside is None:
        msg = "this store is not a file, so control=True has no place: write control='/run/my.sock'"
        raise BadOption(msg)
    return address_of(beside)


class ControlServer:
    """One socket, and the thread that serves it. It serves from its construction on.

    Args:
        app: answers the requests.
        address: where. A Unix socket is made with mode 0600; a stale one is replaced.

    """

    def __init__(self, app: FastAPI, address: Address) -> None:
        self._socket = _listen(address)
        if isinstance(address, TcpAddress):
            address = TcpAddress(address.host, self._socket.getsockname()[1])
        self.address = address
        self._mark = _mark_of(address)
        self._waits = app.state.waits
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._serve, name=f"actorflow-control {address}", daemon=True
        )
        self._thread.start()
        _open_servers.add(self)
        log.info("control socket opened", address=str(address))

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # noqa: BLE001 - the engine goes on without
            log.error("control socket failed", address=str(self.address), exc_info=error)

    def close(self) -> None:
        """Answer pending requests, then close and remove the socket. Idempotent."""
        if self not in _open_servers:
            return
        _open_servers.discard(self)
        self._waits.close()
        self._server.should_exit = True
        self._thread.join(_GRACE + _PATIENCE)
        self._socket.close()
        if isinstance(self.address, UnixAddress) and _mark_of(self.address) == self._mark:
            with suppress(OSError):
                self.address.path.unlink()

    def disown(self) -> None:
        """Close the inherited descriptor in a forked child: the socket is the parent's."""
        self._socket.close()


_open_servers: WeakSet[ControlServer] = WeakSet()


def _mark_of(address: Address) -> tuple[int, int] | None:
    """Return what tells our socket from one that another engine has made under the same name."""
    if not isinstance(address, UnixAddress):
        return None
    try:
        found = address.path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _listen(address: Address) -> socket.socket:
    try:
        return _listen_tcp(address) if isinstance(address, TcpAddress) else _listen_unix(address)
    except OSError as error:
        msg = f"the control socket {address} cannot be opened: {error.strerror or error}"
        raise BadOption(msg) from error


def _listen_tcp(address: TcpAddress) -> socket.socket:
    family, *_ = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    # With the protocol, or asyncio would not turn off Nagle's algorithm: 40 ms for each answer.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address.host, address.port))
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _listen_unix(address: UnixAddress) -> socket.socket:
    path = address.path
    if not hasattr(socket, "AF_UNIX"):
        msg = "this system has no Unix sockets: use control='tcp://127.0.0.1:4000' and token="
        raise BadOption(msg)
    if path.is_symlink() or path.exists():
        _remove_stale(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with bindable(path) as name:
            made.bind(name)
        path.chmod(_OWNER_ONLY)  # nobody can connect before listen()
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _remove_stale(path: Any) -> None:
    """Remove the socket of an engine that is dead; refuse anything else."""
    if path.is_symlink() or not is_socket(path):
        msg = f"{path} is there, and is not a socket: choose another path"
        raise BadOption(msg)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            with bindable(path) as name:
                probe.connect(name)
        except ConnectionRefusedError:
            path.unlink()
            return
        except FileNotFoundError:
            return
    msg = f"{path} belongs to another engine that runs: choose another path"
    raise BadOption(msg)


def _after_fork() -> None:
    for server in list(_open_servers):
        server.disown()
    _open_servers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
