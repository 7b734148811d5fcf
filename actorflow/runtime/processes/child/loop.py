"""The loop of a worker process: read a call, run it, send the outcome.

The completion of a call is sent before the next one begins, and the process notes in its page
which call it has begun. So whenever it dies, its parent knows exactly which call was in hand.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import signal
import threading
import time
from collections import deque
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NoReturn

from actorflow.runtime.errors import NotSendable, kind_and_text, text_of, traceback_of
from actorflow.runtime.fork import after_fork
from actorflow.runtime.processes.child import limits
from actorflow.runtime.processes.child.capture import Capture
from actorflow.runtime.processes.child.heartbeat import install
from actorflow.runtime.processes.memory import SharedPage
from actorflow.runtime.processes.packed import pack_value, unpack
from actorflow.runtime.processes.wire import (
    BEAT,
    BEATEN,
    CALL,
    FAILED,
    HELLO,
    LEAVE,
    LOST,
    OK,
    OK_WITH,
    SKIPPED,
    UNFIT,
    Channel,
    WireFrame,
    encode,
)

if TYPE_CHECKING:
    import socket

__all__ = ["serve"]


def serve(endpoint: socket.socket) -> None:
    """Run calls until the parent closes its end or asks to leave. In the worker process."""
    # Ctrl-C is for the parent, which decides. Programs started here would inherit SIG_IGN.
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, lambda _number, _frame: None)
    endpoint.setblocking(True)  # noqa: FBT003 - the name of the standard library
    child = _Child(Channel(endpoint))
    install(child)
    with contextlib.suppress(EOFError, ConnectionError):
        child.run()
    endpoint.close()


class _Child:
    """One worker process, seen from the inside."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._frames: deque[WireFrame] = deque()
        self._reading = threading.Lock()
        self.sequence = 0
        """The call in hand; 0 between calls."""
        self._forked = False
        """Whether this is a copy in a process that the function in hand has forked."""
        self._capture = Capture()
        after_fork(self._leave_parent)

    def _leave_parent(self) -> None:
        """Close the socket in a forked child, which must not answer the call."""
        self._forked = True
        self._reading = threading.Lock()
        self._channel.close()

    def _next(self) -> WireFrame:
        """Return the next frame, in its order. Only with the lock."""
        while not self._frames:
            self._frames.extend(self._channel.receive())
        return self._frames.popleft()

    def run(self) -> None:
        """Get ready, then run calls.

        Raises:
            EOFError, ConnectionError: the parent has gone.

        """
        first = self._next()
        self._page = SharedPage(self._next().file)
        os.close(self._page.take())
        try:
            setup, self._measures = unpack(first.data, first.buffers)
            if setup is not None:
                function, args = pickle.loads(setup)  # noqa: S301 - from our own parent
                function(*args)
        except BaseException as error:  # noqa: BLE001 - the parent gets the error
            self._send(UNFIT, 0, self._failure(error))
            return
        self._send(HELLO, os.getpid())
        while True:
            with self._reading:
                frame = self._next()
            if frame.kind == CALL:
                if self._page.begin(frame.sequence):
                    self._call(frame)
                else:
                    self._send(SKIPPED, frame.sequence)
            elif frame.kind == LEAVE:
                return

    def _send(self, kind: int, sequence: int, packed: Any = None, **numbers: Any) -> None:
        self._channel.send(*encode(kind, sequence, packed, **numbers))

    def _call(self, frame: WireFrame) -> None:
        """Run one call, and send the outcome."""
        sequence = self.sequence = frame.sequence
        kind = OK
        started = time.time()
        try:
            if frame.data is None:
                raise OSError(errno.EMFILE, LOST)  # noqa: TRY301 - sent like all other errors
            function, args, *rest = unpack(frame.data, frame.buffers)
            if frame.number or frame.first:
                limits.limit(frame.number, frame.first)
            try:
                value = function(*args, **rest[0]) if rest else function(*args)
                if type(value) is CoroutineType:
                    import asyncio  # noqa: PLC0415 - a sixth of the time that the first process takes

                    value = asyncio.run(value)
            finally:
                if frame.number or frame.first:
                    limits.unlimit()
            if self._forked:
                os._exit(0)
            ended = time.time()
            said = self._capture.take()
            if said is not None:
                kind = OK_WITH
                value = value, *said
            packed = _packed_result(value, function)
        except BaseException as error:  # noqa: BLE001 - every way out of a call ends here
            if self._forked:
                _exit_with(error)
            ended = time.time()
            kind = FAILED
            packed = self._failure(error)
        rss = limits.resident() if self._measures else 0
        data, file = encode(kind, sequence, packed, number=rss, first=started, second=ended)
        with self._reading:  # a heartbeat of another thread must not come after this
            self.sequence = 0
            self._channel.send(data, file)

    def _failure(self, error: BaseException) -> Any:
        """Pack what a function raised, with its traceback and what it said before."""
        stack = error.__traceback__
        while stack is not None and stack.tb_frame.f_code.co_filename == __file__:
            stack = stack.tb_next  # our own frames explain nothing
        text = traceback_of(error, stack=stack)
        said = self._capture.take() or ("", "", ())
        try:
            isinstance(error, NotSendable)  # raises if `__class__` does: the parent would fail
            packed = pack_value((error, text, *said))
            unpack(packed.data, packed.buffers)  # some can be pickled, and not made again
        except BaseException as why:  # noqa: BLE001 - user code may raise anything
            said_of_it = f"it cannot be sent to another process: {text_of(why)}"
            msg = f"{kind_and_text(error)} ({said_of_it})"
            packed = pack_value((NotSendable(msg), text, *said))
        return packed

    def beat(self, sequence: int, *values: Any) -> bool:
        """Ask the parent whether a call is still wanted; `False` when it has ended. Thread-safe.

        `values` are sent with the question. A process that the function has forked cannot ask, and
        gets True.
        """
        if self._forked:
            return True
        with self._reading:
            if not sequence or sequence != self.sequence:
                return False
            self._send(BEAT, sequence, pack_value(values) if values else None)
            other: list[WireFrame] = []
            try:
                while (frame := self._next()).kind != BEATEN:
                    other.append(frame)
            finally:
                self._frames.extendleft(reversed(other))
            return bool(frame.number)


def _exit_with(error: BaseException) -> NoReturn:
    """End a process that a function has forked, as Python ends one after an error."""
    code: object = 1
    if isinstance(error, SystemExit):
        code = error.code
    if not isinstance(error, SystemExit) or isinstance(code, str):
        text = code if isinstance(code, str) else traceback_of(error)
        with contextlib.suppress(OSError):
            os.write(2, f"{text.rstrip()}\n".encode(errors="backslashreplace"))
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def _packed_result(value: Any, function: Any) -> Any:
    try:
        return pack_value(value)
    except Exception as error:
        name = getattr(function, "__qualname__", None) or repr(function)
        msg = f"what {name} returned (it cannot be sent to another process: {text_of(error)})"
        raise NotSendable(msg) from error
