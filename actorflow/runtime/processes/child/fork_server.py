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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from actorflow.runtime.processes.child.loop import serve
from actorflow.runtime.processes.child.parent import (
    adopt_orphans,
    die_with_parent,
    has_ended,
    kill_group,
)
from actorflow.runtime.processes.wire import REQUEST

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

__all__ = ["tend"]

_FORK = get_context("fork")


def tend(control: socket.socket) -> NoReturn:
    """Start and kill processes as the parent asks, and report their ends."""
    _ForkServer(control).run()


class _ForkServer:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, tuple[ForkProcess, int]] = {}
        self._pid = os.getpid()
        self._unread = b""
        self._files: list[int] = []

    def run(self) -> NoReturn:
        """Serve the parent until it has gone."""
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
        adopt_orphans()
        wakeup, self._waker = socket.socketpair()
        wakeup.setblocking(False)  # noqa: FBT003 - the name of the standard library
        self._waker.setblocking(False)  # noqa: FBT003
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGINT, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._wakeup = wakeup
        with selectors.DefaultSelector() as self._selector:
            self._selector.register(self._control, selectors.EVENT_READ)
            self._selector.register(wakeup, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in self._selector.select()}
                if wakeup in ready:
                    with suppress(BlockingIOError):
                        wakeup.recv(4096)
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
            target=self._become, args=(endpoint, status), name=f"actorflow-worker-{worker}"
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

    def _become(self, endpoint: int, status: int) -> None:
        """Drop everything inherited from the parent, then work. In the child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with suppress(OSError):
            os.setpgid(0, 0)
        self._selector.close()
        for each in (self._control, self._wakeup, self._waker):
            each.close()
        # The parent learns from the end of a pipe that its server has been killed, so no process
        # that a call forks may hold one.
        for pipe in (status, *(other for _, other in self._children.values())):
            os.close(pipe)
        self._children.clear()
        _reseed()
        with socket.socket(fileno=endpoint) as end:
            die_with_parent(self._pid, end)
            serve(end)

    def _reap(self) -> None:
        """Report the children that have ended."""
        for worker, (child, status) in list(self._children.items()):
            if child.pid is None or not has_ended(child.pid):
                continue
            kill_group(child.pid)  # before its number can belong to another process
            code = child.exitcode
            if code is not None:
                del self._children[worker]
                child.close()
                _report(status, f"exit {code}")
                os.close(status)
        self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Wait for processes left behind by worker processes, so that none stays a zombie."""
        known = {child.pid for child, _ in self._children.values()}
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in known:  # ended meanwhile: its signal comes
                    return
                os.waitpid(ended.si_pid, 0)

    def _end(self) -> NoReturn:
        """Kill all children and orphans, because the program has ended."""
        for child, _ in self._children.values():
            _kill(child)
        for orphan in _orphans():
            with suppress(OSError):
                os.kill(orphan, signal.SIGKILL)
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
    kill_group(child.pid)
    with suppress(OSError):
        child.kill()


def _orphans() -> list[int]:
    """Return the processes that this one has adopted. Linux tells; elsewhere there are none."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    try:
        return [int(pid) for pid in path.read_text(encoding="ascii").split()]
    except OSError:
        return []


def _report(status: int, text: str) -> None:
    with suppress(OSError):  # the parent has gone
        os.write(status, f"{text}\n".encode())
