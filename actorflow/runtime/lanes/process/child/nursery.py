"""The process that forks worker processes: it has one thread, so that forking it is safe.

It has imported the main module and this package once, so that a worker process starts in a few
milliseconds. It ends, and kills its children, when the process that has started it ends.
"""

from __future__ import annotations

import array
import os
import selectors
import signal
import socket
import sys
import warnings
from contextlib import suppress
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NoReturn

from actorflow.runtime.lanes.process.child.loop import serve
from actorflow.runtime.lanes.process.child.parent import die_with_parent, load_prctl
from actorflow.runtime.lanes.process.launcher import REQUEST

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

__all__ = ["tend"]

_FORK = get_context("fork")


def tend(control: socket.socket) -> NoReturn:
    """Start and kill processes as the parent asks, and report their ends."""
    _Nursery(control).run()


class _Nursery:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, tuple[ForkProcess, int]] = {}
        self._pid = os.getpid()
        self._unread = b""
        self._files: list[int] = []

    def run(self) -> NoReturn:
        """Serve the parent until it has gone."""
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
        load_prctl()  # here, so that no child has to
        bell, self._ring = socket.socketpair()
        bell.setblocking(False)  # noqa: FBT003 - the name of the standard library
        self._ring.setblocking(False)  # noqa: FBT003
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGINT, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._ring.fileno(), warn_on_full_buffer=False)
        self._bell = bell
        with selectors.DefaultSelector() as self._selector:
            self._selector.register(self._control, selectors.EVENT_READ)
            self._selector.register(bell, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in self._selector.select()}
                if bell in ready:
                    with suppress(BlockingIOError):
                        bell.recv(4096)
                    self._reap()
                if self._control in ready:
                    self._read()

    def _read(self) -> None:
        """Do what the parent asks for."""
        try:
            data, ancillary, _, _ = self._control.recvmsg(4096, socket.CMSG_SPACE(4 * 128))
        except ConnectionError:
            data, ancillary = b"", []
        if not data:
            self._end()
        for _, _, value in ancillary:
            files = array.array("i")
            files.frombytes(value[: len(value) - len(value) % 4])
            for file in files:
                os.set_inheritable(file, False)  # noqa: FBT003 - the name of the standard library
                self._files.append(file)
        self._unread += data
        while len(self._unread) >= REQUEST.size:
            what, worker = REQUEST.unpack_from(self._unread)
            self._unread = self._unread[REQUEST.size :]
            if what == b"S":
                endpoint, status = self._files[:2]
                del self._files[:2]
                self._start(worker, endpoint, status)
            elif worker in self._children:
                _kill(self._children[worker][0])

    def _start(self, worker: int, endpoint: int, status: int) -> None:
        child = _FORK.Process(
            target=self._become, args=(endpoint,), name=f"actorflow-worker-{worker}"
        )
        try:
            child.start()
        except OSError as error:  # the limits of the process or of the machine
            os.close(endpoint)
            _report(status, f"failed {type(error).__name__}: {error}")
            os.close(status)
            return
        os.close(endpoint)
        assert child.pid is not None  # noqa: S101 - it was started
        with suppress(OSError):
            os.setpgid(child.pid, child.pid)
        self._children[worker] = child, status
        _report(status, f"pid {child.pid}")

    def _become(self, endpoint: int) -> None:
        """Leave everything of the parent behind, and work. In the child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with suppress(OSError):
            os.setpgid(0, 0)
        self._selector.close()
        for each in (self._control, self._bell, self._ring):
            each.close()
        for _, status in self._children.values():
            os.close(status)
        self._children.clear()
        _reseed()
        with socket.socket(fileno=endpoint) as end:
            die_with_parent(self._pid, end)
            serve(end)

    def _reap(self) -> None:
        """Report the children that have ended."""
        for worker, (child, status) in list(self._children.items()):
            code = child.exitcode
            if code is not None:
                del self._children[worker]
                child.close()
                _report(status, f"exit {code}")
                os.close(status)

    def _end(self) -> NoReturn:
        """Take the children along: they have nobody to work for."""
        for child, _ in self._children.values():
            _kill(child)
        os._exit(0)


def _reseed() -> None:
    """Seed what Python does not seed after a fork: numpy has random numbers of its own."""
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()


def _kill(child: Any) -> None:
    """Kill a child, and the programs that it has started."""
    if child.exitcode is not None:
        return  # the number may belong to another process by now
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(OSError):
        child.kill()


def _report(status: int, text: str) -> None:
    with suppress(OSError):  # the parent has gone
        os.write(status, f"{text}\n".encode())
