"""Launchers start the processes of a pool: by forking a prepared one, or each one afresh."""

from __future__ import annotations

import array
import atexit
import itertools
import os
import select
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from typing import Protocol

from actorflow.runtime.errors import LaunchFailed
from actorflow.runtime.fork import after_fork
from actorflow.runtime.log import log
from actorflow.runtime.processes.child.parent import has_ended, kill_group
from actorflow.runtime.processes.interpreter import start_interpreter
from actorflow.runtime.processes.wire import REQUEST

__all__ = ["FORKSERVER", "Forkserver", "Handle", "Launcher", "Spawn", "how_it_ended"]


_PATIENCE = 5.0  # seconds that a stopped process that forks others is given to continue
_GRACE = 1.0  # seconds for the process that forks others to end by itself


class Handle(Protocol):
    """A process that was started."""

    pid: int | None
    """Its id; `None` while it is not known."""
    reason: str
    """Why it could not be started; empty if it was."""

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when `alive` is worth asking."""

    def alive(self) -> bool:
        """Return whether the process has not ended yet. Never blocks."""

    def kill(self) -> None:
        """End the process at once. Thread-safe; does nothing when it has ended."""

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the process has ended; return its exit code.

        A negative code is the number of the signal that ended it. `None` if it has not ended in
        time, or if nobody knows. Releases the file descriptor.
        """


class Launcher(Protocol):
    """Starts the processes of pools. One launcher may serve several."""

    def start(self, worker_id: int, endpoint: socket.socket) -> Handle:
        """Start a process that calls `serve(endpoint)`, from `.child.loop`. In the pool's thread.

        The endpoint stays open here: the pool closes it. Must not wait for the process.

        Raises:
            OSError, LaunchFailed: no process can be started; the pool tries again for a while.

        """


class Forkserver:
    """Forks worker processes off one that has imported the main module before.

    That one has a single thread, so forking it is safe. A worker process starts in milliseconds,
    and shares the memory of imported modules. `FORKSERVER` is the one of the process, for all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._popen: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        after_fork(self._after_fork)

    def start(self, worker_id: int, endpoint: socket.socket) -> Handle:
        """Ask for a process to be forked. See `Launcher`."""
        news, status = os.pipe()
        number = next(self._numbers)
        try:
            with self._lock:
                control = self._running()
                files = array.array("i", [endpoint.fileno(), status])
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files.tobytes())]
                try:
                    control.sendmsg([REQUEST.pack(b"S", number)], rights)
                except ConnectionError as error:
                    raise LaunchFailed(self._end() or str(error)) from error
        except BaseException:
            os.close(news)
            raise
        finally:
            os.close(status)
        return _Forked(self, number, news)

    def _running(self) -> socket.socket:
        """Return the socket to the process that forks, which is started if it does not run."""
        if self._popen is not None and self._popen.poll() is not None:
            self._forget()
        if self._control is None:
            ours, theirs = socket.socketpair()
            try:
                popen = start_interpreter("fork server", theirs)
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            self._popen, self._control = popen, ours
            _watch_for_stops(popen)
        return self._control

    def kill(self, number: int) -> None:
        """Ask for a process to be killed. Thread-safe."""
        with self._lock:
            if self._control is not None:
                with suppress(OSError):  # it has ended, and its children with it
                    self._control.sendall(REQUEST.pack(b"K", number))

    def end(self) -> str:
        """Return how the forking process has ended. Thread-safe."""
        with self._lock:
            return self._end()

    def _end(self) -> str:
        """Like `end`. Only with the lock."""
        if self._popen is None:
            return "the process that forks worker processes was closed"
        try:
            code = self._popen.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return ""
        return f"the process that forks worker processes {how_it_ended(code)}{self._last_words()}"

    def _last_words(self) -> str:
        """Return what it has said about its end."""
        from actorflow.runtime.processes.packed import unpack  # noqa: PLC0415 - rarely needed
        from actorflow.runtime.processes.wire import UNFIT, Channel  # noqa: PLC0415

        if self._control is None:
            return ""
        self._control.setblocking(False)  # noqa: FBT003 - the name of the standard library
        with suppress(OSError, EOFError):
            for frame in Channel(self._control).receive():
                if frame.kind == UNFIT:
                    self._words = f": {unpack(frame.data, frame.buffers)[0]}"
        return self._words

    _words = ""

    def close(self) -> None:
        """End the process that forks, and its children with it."""
        with self._lock:
            popen = self._popen
            self._forget()
        if popen is not None:
            try:
                popen.wait(_GRACE)
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait()

    def _forget(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control = self._popen = None
        self._words = ""

    def _after_fork(self) -> None:
        """Start afresh: the process belongs to the parent."""
        self._lock = threading.Lock()
        if self._popen is not None:
            self._popen.returncode = 0  # not a child of this process
        self._forget()


def _watch_for_stops(popen: subprocess.Popen[bytes]) -> None:
    """Kill the process that forks others if it is stopped for longer than it takes to go on.

    While it is stopped, nobody learns that a worker process has ended, and none can be started.
    Its thread sleeps in the kernel until the process stops or ends. Does nothing on systems that
    do not report this.
    """
    if hasattr(os, "waitid"):
        threading.Thread(
            target=_kill_if_stopped, args=(popen,), name="actorflow-stopped", daemon=True
        ).start()


def _kill_if_stopped(popen: subprocess.Popen[bytes]) -> None:
    what = os.WSTOPPED | os.WNOWAIT  # `popen` is to learn of the end
    with suppress(ChildProcessError):  # it has ended, and `popen` knows
        while (found := os.waitid(os.P_PID, popen.pid, what | os.WEXITED)) is not None:
            if found.si_code != os.CLD_STOPPED:
                return
            time.sleep(_PATIENCE)  # with Ctrl-Z and `fg`, it is continued together with us
            if os.waitid(os.P_PID, popen.pid, what | os.WNOHANG) is not None:
                log.warning(
                    "the process that forks worker processes is stopped; it is replaced",
                    pid=popen.pid,
                )
                popen.kill()
                return


class _Forked:
    """A process that was forked for us."""

    def __init__(self, launcher: Forkserver, number: int, news: int) -> None:
        self.pid: int | None = None
        self.reason = ""
        self._launcher = launcher
        self._number = number
        self._news = news
        self._unread = b""
        self._code: int | None = None
        self._ended = False
        os.set_blocking(news, False)

    def fileno(self) -> int:
        return self._news

    def alive(self) -> bool:
        if not self._ended:
            try:
                data = os.read(self._news, 4096)
            except BlockingIOError:
                return True
            if not data:
                self._ended = True
                self.reason = self._launcher.end()
                if self.pid is not None:
                    kill_group(self.pid)  # nobody else does, since the fork server is dead
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._learn(*line.decode().split(" ", 1))
        return not self._ended

    def _learn(self, what: str, value: str) -> None:
        if what == "pid":
            self.pid = int(value)
            return
        self._ended = True
        if what == "exit":
            self._code = int(value)
        else:
            self.reason = value

    def kill(self) -> None:
        if not self._ended:
            self._launcher.kill(self._number)

    def wait(self, timeout: float | None = None) -> int | None:
        while self.alive():
            if not select.select([self._news], [], [], timeout)[0]:
                return None
        if self._news >= 0:
            os.close(self._news)
            self._news = -1
        return self._code


class Spawn:
    """Starts each worker process as a fresh interpreter: slower, and nothing is inherited."""

    def start(self, worker_id: int, endpoint: socket.socket) -> Handle:
        """Start an interpreter. See `Launcher`."""
        return _Spawned(start_interpreter("worker", endpoint))


class _Spawned:
    """A process that this one has started."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.pid: int | None = popen.pid
        self.reason = ""
        self._popen = popen
        self._file = _end_of(popen)

    def fileno(self) -> int:
        return self._file

    def alive(self) -> bool:
        if self._popen.returncode is None and has_ended(self._popen.pid):
            kill_group(self._popen.pid)  # before its number can belong to another process
        return self._popen.poll() is None

    def kill(self) -> None:
        if not self.alive():
            return
        kill_group(self._popen.pid)
        self._popen.kill()

    def wait(self, timeout: float | None = None) -> int | None:
        try:
            code = self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        return code


def _end_of(popen: subprocess.Popen[bytes]) -> int:
    """Return a file descriptor that becomes readable when a process has ended."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(popen.pid)
    news, held = os.pipe()

    def wait() -> None:
        popen.wait()
        os.close(held)

    threading.Thread(target=wait, name="actorflow-end", daemon=True).start()
    return news


def how_it_ended(code: int | None) -> str:
    """Return how a process has ended, by its exit code."""
    if code is None:
        return "was ended"
    if code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"was ended with exit code {code}"


FORKSERVER = Forkserver()
"""The launcher that pools use unless told otherwise."""

atexit.register(FORKSERVER.close)
