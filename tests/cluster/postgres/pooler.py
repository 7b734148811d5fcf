"""A pooler in transaction mode, as pgbouncer is one: few connections to the server for many.

A client has a connection of the server from its first message until the server says that no
transaction is open any more. The next transaction gets another one.
"""

from __future__ import annotations

import queue
import select
import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

__all__ = ["Pooler"]

_VERSION = 196_608
_NO_ENCRYPTION = (80_877_103, 80_877_104)
_ASKS = (b"Q", b"S", b"F")  # each is answered by one "ready for query"


class _Frames:
    """Messages of a connection: a letter, a length, and the rest."""

    def __init__(self, connection: socket.socket) -> None:
        # Else each small message waits 40 ms for the answer to the one before.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self._data = b""

    def read(self) -> Iterator[tuple[bytes, bytes]]:
        """Read from the socket; yield the kind of each message, and the whole of it."""
        more = self.socket.recv(65_536)
        if not more:
            raise ConnectionResetError
        self._data += more
        while len(self._data) >= 5:
            size = 1 + struct.unpack("!I", self._data[1:5])[0]
            if len(self._data) < size:
                return
            frame, self._data = self._data[:size], self._data[size:]
            yield frame[:1], frame


class Pooler:
    """Listens on a port of its own.

    Args:
        port: where the server listens.
        servers: how many connections to it there are.

    """

    def __init__(self, port: int, servers: int = 3) -> None:
        self._target = ("127.0.0.1", port)
        self._free: queue.Queue[_Frames] = queue.Queue()
        self._greeting = b""
        self._sockets: list[socket.socket] = []
        self.clients = 0
        self.servers = servers
        for _ in range(servers):
            self._add_server()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _add_server(self) -> None:
        server = _Frames(socket.create_connection(self._target))
        self._sockets.append(server.socket)
        names = b"user\0postgres\0database\0postgres\0\0"
        server.socket.sendall(struct.pack("!II", 8 + len(names), _VERSION) + names)
        greeting: list[tuple[bytes, bytes]] = []
        while not greeting or greeting[-1][0] != b"Z":
            greeting += server.read()
        self._greeting = b"".join(frame for _, frame in greeting)
        self._free.put(server)

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        server: _Frames | None = None
        try:
            if not self._greet(connection):
                return
            self.clients += 1
            client, pending, begun = _Frames(connection), 0, False
            while True:
                for frames in self._ready(client, server):
                    for kind, frame in frames.read():
                        if frames is client:
                            if kind == b"X":
                                return
                            server = server or self._free.get()
                            begun = kind not in _ASKS  # the rest of it is on its way
                            pending += not begun
                            server.socket.sendall(frame)
                            continue
                        connection.sendall(frame)
                        pending -= kind == b"Z"
                        if kind == b"Z" and not pending and not begun and frame[5:6] == b"I":
                            self._free.put(frames)
                            server = None
        except (OSError, ValueError):
            pass  # the client is gone, or the pooler: `select` refuses a socket that is closed
        finally:
            connection.close()
            if server is not None:  # in the middle of a transaction
                server.socket.close()
                with suppress(OSError):
                    self._add_server()

    @staticmethod
    def _ready(client: _Frames, server: _Frames | None) -> list[_Frames]:
        both = [client] if server is None else [server, client]
        ready, _, _ = select.select([each.socket for each in both], [], [])
        return [each for each in both if each.socket in ready]

    def _greet(self, client: socket.socket) -> bool:
        """Handle the startup phase; return whether messages will follow."""
        while True:
            size, what = struct.unpack("!II", self._exactly(client, 8))
            self._exactly(client, size - 8)
            if what in _NO_ENCRYPTION:
                client.sendall(b"N")
            else:
                client.sendall(self._greeting)
                return bool(what == _VERSION)

    @staticmethod
    def _exactly(client: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = client.recv(size - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
