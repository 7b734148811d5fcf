"""Taskers in other processes: one for each place, started when it is needed.

A process does one task after the other. If it hangs, it is killed when the time of its task is up.
If it dies, only its own task fails; the next task gets a new process.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import threading
from contextlib import suppress
from inspect import isawaitable
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection  # noqa: TC003 - loads what ends processes at exit
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from actorflow.engine.errors import TaskCrashed, TaskFailed, text_of
from actorflow.engine.tasks.tasker import Task
from actorflow.runtime.errors import BadJob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["ProcessTasker"]

_GRACE = 1.0  # seconds for processes with nothing to do to end by themselves
_CONTEXT = get_context("spawn")  # a fork would take over locks that threads hold


class ProcessTasker:
    """Calls a function in other processes: one that can be imported there. Thread-safe.

    Raises:
        BadJob: it cannot be sent to another process.

    """

    def __init__(self, name: str, do: Callable[[Task], Any]) -> None:
        try:
            self._pickled = pickle.dumps(do)
        except Exception as error:
            msg = (
                f"tasker {name!r} cannot run in another process: {do!r} cannot be sent there "
                f"({error}); give a function at the top of a module that can be imported"
            )
            raise BadJob(msg) from error
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: dict[tuple[str, int], _Attempt] = {}
        self._closed = False
        _OPEN.add(self)

    def __call__(self, task: Task) -> Any:
        """Do a task in another process, and wait. In a thread of the pool.

        Raises:
            TaskCrashed: its process has ended.
            TaskFailed: it cannot send what the function returned or raised.
            Exception: what the function raised, or what it was killed for.

        """
        key = task.id, task.attempt
        attempt = _Attempt()
        with self._lock:
            self._busy[key] = attempt
        try:
            return self._do(task, attempt).result()
        finally:
            with self._lock:
                del self._busy[key]

    def _do(self, task: Task, attempt: _Attempt) -> _Answer:
        child = self._take()
        answer = None
        try:
            with self._lock:
                attempt.child = child
                wanted = attempt.error is None and not self._closed
            if wanted:
                answer = child.do(task)
        except (EOFError, OSError):
            pass  # it has died
        finally:
            self._put_back(child, attempt, whole=answer is not None)
        if attempt.error is not None:
            raise attempt.error
        if answer is None:
            raise child.died_doing(task)
        return answer

    def _take(self) -> _Child:
        """Return a process that is idle, or start one."""
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                return _Child(self._name, self._pickled)
            if child.is_alive:
                return child

    def _put_back(self, child: _Child, attempt: _Attempt, *, whole: bool) -> None:
        """Keep a process for the next task, if it is still good for one."""
        with self._lock:
            attempt.child = None
            wanted = attempt.error is None and not self._closed
            if whole and wanted:
                self._idle.append(child)
                return
        if not wanted:
            child.kill()
        child.wait(_GRACE)

    def kill(self, task: Task, error: Exception) -> None:
        """End an attempt that is under way with that error: kill its process. Thread-safe."""
        with self._lock:
            attempt = self._busy.get((task.id, task.attempt))
            if attempt is not None:
                attempt.error = error
                if attempt.child is not None:
                    attempt.child.kill()

    def close(self) -> None:
        """End the processes; those that are busy are killed."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for attempt in self._busy.values():
                if attempt.child is not None:
                    attempt.child.kill()
        for child in idle:
            child.dismiss()
        end = monotonic() + _GRACE
        for child in idle:
            child.wait(max(end - monotonic(), 0.0))


_OPEN: WeakSet[ProcessTasker] = WeakSet()


@atexit.register
def _close_all() -> None:
    """End what is left when the interpreter ends, which would wait for these processes."""
    for tasker in list(_OPEN):
        tasker.close()


class _Attempt:
    """An attempt at a task that is under way."""

    __slots__ = ("child", "error")

    def __init__(self) -> None:
        self.child: _Child | None = None
        self.error: Exception | None = None
        """What it was killed for."""


class _Answer:
    """What came of a task."""

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self._value = value
        self._error = error

    def result(self) -> Any:
        """Return what the function returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._value


class _Child:
    """One process, as its parent sees it."""

    def __init__(self, tasker: str, pickled: bytes) -> None:
        self._pipe, there = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(
            target=_serve, args=(there, pickled), name=f"actorflow-{tasker}"
        )
        try:
            self._process.start()
        finally:
            there.close()  # only the child has the other end: when it dies, this one sees EOF

    def do(self, task: Task) -> _Answer:
        """Send a task, answer heartbeats, and wait for what comes of it."""
        self._pipe.send((task.id, task.execution, task.tasker, task.body, task.attempt))
        while (answer := self._pipe.recv()) is None:
            self._pipe.send(task.heartbeat())
        return answer  # type: ignore[no-any-return]

    def died_doing(self, task: Task) -> TaskCrashed:
        """Return the error that says why there is no answer."""
        code = self._process.exitcode
        how = f"with exit code {code}"
        if code is not None and code < 0:
            with suppress(ValueError):
                how = f"by {signal.Signals(-code).name}"
        return TaskCrashed(
            f"process {self._process.pid} of tasker {task.tasker!r} was ended {how} "
            f"while it did task {task.id!r}"
        )

    @property
    def is_alive(self) -> bool:
        """Whether it can take a task."""
        return self._process.is_alive()

    def kill(self) -> None:
        """End it at once; whoever waits for its answer gets EOF. Thread-safe."""
        self._process.kill()

    def dismiss(self) -> None:
        """Let it end by itself."""
        self._pipe.close()

    def wait(self, seconds: float) -> None:
        """Wait until it has ended; kill it when the time is up."""
        self._process.join(seconds)
        self._process.kill()
        self._pipe.close()


# In the other process.


class _Beat:
    """Passes heartbeats on to the parent, for as long as the task is being done."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._over = False

    def __call__(self) -> bool:
        with self._lock:
            if self._over:
                return False
            self._pipe.send(None)
            wanted: bool = self._pipe.recv()
            return wanted

    def end(self) -> None:
        """Take no more: the pipe is for the answer now."""
        with self._lock:
            self._over = True


def _serve(pipe: Connection, pickled: bytes) -> None:
    """Do tasks until the parent has gone."""
    # Ctrl-C is for the parent, which says when to end. Programs started here would inherit SIG_IGN.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    do: Any = None
    with suppress(EOFError, OSError):
        while True:
            name, execution, tasker, body, attempt = pipe.recv()
            beat = _Beat(pipe)
            try:
                do = do or pickle.loads(pickled)  # noqa: S301 - from our own parent
                value = do(Task(name, execution, tasker, body, attempt, _beat=beat))
                answer = _Answer(_awaited(value) if isawaitable(value) else value)
                sent = _pickled(answer, f"what tasker {tasker!r} returned")
            except BaseException as error:  # noqa: BLE001 - sent to the parent
                sent = _pickled(_Answer(error=error), f"{type(error).__name__}: {text_of(error)}")
            beat.end()
            pipe.send_bytes(sent)


def _end_with_parent() -> None:
    """End as soon as the parent has died: its task begins again with the next engine."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _awaited(value: Awaitable[Any]) -> Any:
    import asyncio  # noqa: PLC0415 - only for coroutine functions

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _pickled(answer: _Answer, what: str) -> bytes:
    """Return an answer as bytes, or the error that says why it cannot be pickled."""
    try:
        data = pickle.dumps(answer)
        pickle.loads(data)  # noqa: S301 - our own; some exceptions can be pickled and not made again
    except Exception as error:  # noqa: BLE001 - whatever a class of the user's raises
        failure = TaskFailed(f"{what} (it cannot be sent to another process: {text_of(error)})")
        return pickle.dumps(_Answer(error=failure))
    return data
