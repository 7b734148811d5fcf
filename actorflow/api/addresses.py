"""Where an engine is steered: a Unix socket beside its store, or a TCP port."""

from __future__ import annotations

import ipaddress
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.engine.stores.opening import scheme_of
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Address",
    "TcpAddress",
    "UnixAddress",
    "address_of",
    "bindable",
    "is_loopback",
    "is_socket",
    "socket_beside",
]

_LONGEST = 100  # bytes of the name of a Unix socket; systems allow 104 to 108
_PORTS = range(1, 65_536)
_DESCRIPTORS = Path("/proc/self/fd")  # on Linux: a short name for every folder that is open


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket in the file system. Access to the file is access to the engine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A port of a host. Access to the engine needs the token."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"


Address = UnixAddress | TcpAddress


def address_of(text: str | os.PathLike[str]) -> Address:
    """Return the address that a string names: `tcp://HOST:PORT`, or the path of a socket.

    >>> address_of("tcp://127.0.0.1:4000"), address_of("/run/orders.sock")
    (TcpAddress(host='127.0.0.1', port=4000), UnixAddress(path=PosixPath('/run/orders.sock')))

    Raises:
        BadOption: it names neither.

    """
    scheme = scheme_of(text)
    if scheme is None:
        return UnixAddress(Path.cwd() / text)
    host, _, port = str(text).partition("://")[2].rpartition(":")
    if scheme != "tcp" or not host or not port.isascii() or not port.isdigit():
        msg = f"{str(text)!r} is not an address: write tcp://127.0.0.1:4000, or a path"
        raise BadOption(msg)
    if int(port) not in _PORTS:
        msg = f"{str(text)!r} has port {port}: choose one between 1 and {_PORTS[-1]:,}"
        raise BadOption(msg)
    return TcpAddress(host.removeprefix("[").removesuffix("]"), int(port))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host of that name.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def bindable(path: Path) -> Iterator[str]:
    """Yield a name under which a socket can be bound or connected, however long its path is.

    Raises:
        BadOption: the system has no other name for one that is too long.

    """
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    if len(os.fsencode(path.name)) > _LONGEST // 2 or not _DESCRIPTORS.is_dir():
        msg = f"{path} is too long for a socket: choose a path of at most {_LONGEST} bytes"
        raise BadOption(msg)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(_DESCRIPTORS / str(folder) / path.name)
    finally:
        os.close(folder)


def socket_beside(where: Any) -> Path | None:
    """Return the socket that an engine opens by default; `None` where its store is not a file.

    >>> socket_beside("sqlite:///var/lib/orders.db")
    PosixPath('/var/lib/orders.db.sock')
    """
    scheme = scheme_of(where)
    if where == ":memory:" or scheme not in (None, "sqlite"):
        return None
    path = str(where) if scheme is None else str(where).partition("://")[2]
    return Path(f"{os.path.realpath(path)}.sock")


def is_socket(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a Unix socket under that name."""
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False
