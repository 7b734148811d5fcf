"""Frames on the socket between a pool and one of its processes.

A frame is a head of fixed size and a body. Bodies from `LARGE` bytes on, and buffers that pickle
keeps out of band, travel in a segment of shared memory: its file descriptor goes with the frame,
and the body only has the sizes of the parts. Several frames share a write where there are several.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.runtime.processes.memory import read_segment, write_segment
from actorflow.runtime.processes.packed import LARGE

if TYPE_CHECKING:
    from actorflow.runtime.processes.packed import Packed

__all__ = [
    "BEAT",
    "BEATEN",
    "CALL",
    "CONFIGURE",
    "FAILED",
    "HELLO",
    "LEAVE",
    "LOST",
    "OK",
    "OK_WITH",
    "PAGE",
    "REQUEST",
    "SKIPPED",
    "UNFIT",
    "Channel",
    "WireFrame",
    "encode",
]

REQUEST = struct.Struct("<cQ")
"""What a fork server is asked for (S: start, with two files; K: kill), and for which process."""

# From the parent.
CONFIGURE = 1
CALL = 2
LEAVE = 3
BEATEN = 4
"""The answer to a heartbeat; `number` is whether the call is still wanted."""
PAGE = 5
"""Comes with the file of the page that both share."""
# From the process.
HELLO = 16
OK = 17
"""The body is the result."""
OK_WITH = 18
"""The body is the result, the printed text, and warnings."""
FAILED = 19
SKIPPED = 20
BEAT = 21
UNFIT = 22
"""The setup failed; the body is why."""

if not hasattr(socket, "CMSG_SPACE"):
    msg = "worker processes need a POSIX system: Linux, macOS or the like"
    raise ImportError(msg)

LOST = "there was no file descriptor left to receive it with; raise the limit (ulimit -n)"
"""Why a frame arrives without its data."""

# kind, files, buffers, mark, length, sequence, number, two times
_HEAD = struct.Struct("<BBHIQQQdd")
_MARK = 0xAF10_F10D
"""Begins no text: what a job has written to all its files by mistake is no frame."""
_SIZE = _HEAD.size
_READ = 64 * 1024
_FILES_MOST = 128  # file descriptors in one write; Linux allows 253
_ANCILLARY = socket.CMSG_SPACE(_FILES_MOST * array.array("i").itemsize)
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class WireFrame(NamedTuple):
    """One message that was received."""

    kind: int
    sequence: int
    number: int
    first: float
    second: float
    data: Any
    """`None` if it was lost, see `LOST`."""
    buffers: list[Any]
    file: int | None
    """A file descriptor that does not belong to a segment."""


def encode(
    kind: int,
    sequence: int = 0,
    packed: Packed | None = None,
    *,
    number: int = 0,
    first: float = 0.0,
    second: float = 0.0,
    file: int | None = None,
) -> tuple[bytes, int | None]:
    """Return a frame as bytes, and the file descriptor that goes with it, if any.

    The descriptor of a segment is the caller's to close once it is sent.
    """
    if packed is None:
        files = 0 if file is None else 1
        return _HEAD.pack(kind, files, 0, _MARK, 0, sequence, number, first, second), file
    data, buffers = packed.data, packed.buffers
    if not buffers and len(data) < LARGE:
        head = _HEAD.pack(kind, 0, 0, _MARK, len(data), sequence, number, first, second)
        return head + data, None
    parts = [memoryview(data), *(each.raw() for each in buffers)]
    table = array.array("Q", [part.nbytes for part in parts]).tobytes()
    try:
        segment = write_segment(parts)
    except OSError:  # no more files or no more shared memory: then through the socket
        body = b"".join((table, *parts))
        head = _HEAD.pack(kind, 0, len(parts), _MARK, len(body), sequence, number, first, second)
        return head + body, None
    head = _HEAD.pack(kind, 1, len(parts), _MARK, len(table), sequence, number, first, second)
    return head + table, segment


class Channel:
    """One end of the socket: sends and receives frames. Not thread-safe."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._pieces: list[bytes] = []
        """The beginning of a frame whose rest has not arrived."""
        self._missing = 0
        """How many bytes must arrive before it is worth looking at the pieces."""
        self._files: deque[int] = deque()
        self._unsent: deque[tuple[bytes | memoryview, list[int]]] = deque()

    def receive(self) -> list[WireFrame]:
        """Return the frames that have arrived; with a blocking socket, wait for some bytes.

        Raises:
            BlockingIOError: nothing has arrived, and the socket does not block.
            EOFError: the other end is closed.
            OSError: the connection is broken, or somebody else has written to it.

        """
        data, ancillary, _flags, _ = self.socket.recvmsg(_READ, _ANCILLARY, _CLOEXEC)
        for level, kind, value in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                files = array.array("i")
                files.frombytes(value[: len(value) - len(value) % files.itemsize])
                self._files.extend(files)
        if not data:
            raise EOFError
        if self._pieces:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = b"".join(self._pieces)
            self._pieces.clear()
        return self._parse(data)

    def _parse(self, data: bytes) -> list[WireFrame]:
        frames = []
        at = 0
        end = len(data)
        while at < end:
            if end - at < _SIZE:
                self._missing = _SIZE - (end - at)
                self._pieces.append(data[at:])
                break
            kind, files, parts, mark, length, sequence, number, first, second = _HEAD.unpack_from(
                data, at
            )
            if mark != _MARK:
                raise ConnectionError("somebody else has written to the socket")
            stop = at + _SIZE + length
            if stop > end:
                self._missing = stop - end
                self._pieces.append(data[at:])
                break
            body: Any = data[at + _SIZE : stop]
            at = stop
            buffers: list[Any] = []
            file = None
            if files and not self._files:
                body = None  # the system had no file descriptor left for it
            elif parts:
                body, *buffers = self._large(body, parts, segment=bool(files))
            elif files:
                file = self._files.popleft()
            frames.append(WireFrame(kind, sequence, number, first, second, body, buffers, file))
        return frames

    def _large(self, body: bytes, parts: int, *, segment: bool) -> list[Any]:
        """Return the parts of a large frame."""
        sizes = array.array("Q")
        sizes.frombytes(body[: parts * sizes.itemsize])
        if segment:
            return read_segment(self._files.popleft(), sizes)
        found = []
        at = parts * sizes.itemsize
        for size in sizes:
            found.append(bytearray(body[at : at + size]))
            at += size
        return found

    def send(self, data: bytes, file: int | None = None) -> None:
        """Send all of it, with a socket that blocks; close the descriptor of a segment after that.

        Raises:
            OSError: the connection is broken.

        """
        if file is None:
            self.socket.sendall(data)
            return
        try:
            sent = self.socket.sendmsg([data], [_rights([file])])
        finally:
            os.close(file)
        if sent < len(data):
            self.socket.sendall(data[sent:])

    def post(self, frames: list[tuple[bytes, int | None]]) -> None:
        """Queue frames that `encode` has made, for `flush`. Owns their file descriptors."""
        start = 0
        while start < len(frames):
            part = frames[start : start + _FILES_MOST]
            files = [file for _, file in part if file is not None]
            self._unsent.append((b"".join([data for data, _ in part]), files))
            start += _FILES_MOST

    def flush(self) -> bool:
        """Send queued data, as far as the socket takes it; return whether that was all.

        Raises:
            OSError: the connection is broken.

        """
        unsent = self._unsent
        while unsent:
            data, files = unsent[0]
            try:
                if files:
                    sent = self.socket.sendmsg([data], [_rights(files)])
                else:
                    sent = self.socket.send(data)
            except BlockingIOError:
                return False
            for file in files:
                os.close(file)
            if sent == len(data):
                unsent.popleft()
            else:
                unsent[0] = memoryview(data)[sent:], []
        return True

    def close(self) -> None:
        """Close this end, and the files of frames that were not sent or not read."""
        self.socket.close()
        while self._files:
            os.close(self._files.popleft())
        while self._unsent:
            for file in self._unsent.popleft()[1]:
                os.close(file)


def _rights(files: list[int]) -> tuple[int, int, bytes]:
    return socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files).tobytes()
