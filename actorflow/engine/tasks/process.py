"""Taskers in other processes: a pool with a process for each place, started when it is needed.

If a process hangs, it is killed when the time of its task is up. If it dies, only its own task
fails; the next task gets a new process.
"""

from __future__ import annotations

import pickle
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import TaskCrashed, TaskFailed
from actorflow.engine.tasks.task import TaskAttempt
from actorflow.runtime.errors import BadJob, LaunchFailed, NotSendable, ProcessCrashed
from actorflow.runtime.processes.call import CallEnded, ProcessCall
from actorflow.runtime.processes.child.heartbeat import bound_heartbeat
from actorflow.runtime.processes.launcher import how_it_ended
from actorflow.runtime.processes.packed import pack
from actorflow.runtime.processes.process_pool import ProcessPool
from actorflow.runtime.worker.process.lane import repeat_output

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.worker.process.options import Processes

__all__ = ["ProcessTasker"]


class ProcessTasker:
    """Calls a function in other processes: one that can be imported there. Thread-safe.

    Args:
        name: of the tasker.
        do: the function.
        places: how many processes there are at the same time.
        given: how they are started, renewed and limited.

    Raises:
        BadJob: it cannot be sent to another process.

    """

    def __init__(
        self, name: str, do: Callable[[TaskAttempt], Any], places: int, given: Processes
    ) -> None:
        try:
            # By name only: another process may do the task, long after this one has ended.
            self._errand = _Errand(name, pickle.dumps(do))
        except Exception as error:
            msg = (
                f"tasker {name!r} cannot run in another process: {do!r} cannot be sent there "
                f"({error}); give a function at the top of a module that can be imported"
            )
            raise BadJob(msg) from error
        self._name = name
        self._closed = False
        self._lock = threading.Lock()
        self._in_hand: dict[tuple[str, int], _InHand] = {}
        # Without a reserve: there is a process for each place.
        self._pool = ProcessPool(places, prefetch=0, name=f"tasker-{name}", **given.pool_options())
        self._given = given

    def begin(self, task: TaskAttempt, ended: Callable[[BaseException | None, Any], None]) -> None:
        """Run a task in another process; `ended(error, result)` is called once.

        In the thread of the pool: it must be short. Never blocks. An attempt that is in hand is not
        run twice: an engine that has lost an execution and got it back hands its tasks out again.

        Raises:
            BadJob: the task cannot be sent to another process.
            WorkerStopped: it is closed.

        """
        name = task.id, task.attempt
        with self._lock:
            known = self._in_hand.get(name)
            if known is not None:
                known.join(task, ended)
                return
            errand = self._in_hand[name] = _InHand(task, ended)

        def report(what: CallEnded) -> None:
            with self._lock:
                self._in_hand.pop(name, None)
            if self._closed and not what.ok:
                return  # the engine is being closed: the task is in the store
            try:
                repeat_output(what)
            finally:
                errand.end(None if what.error is None else self._error(task, what), what.result)

        fields = task.id, task.execution, task.tasker, task.body, task.attempt, task.last_progress
        given = self._given
        try:
            payload = pack(self._errand, (fields,))
            call = ProcessCall(
                name, payload, timeout=given.timeout, memory=given.memory, heartbeat=errand.beat
            )
            self._pool.submit(call, report)
        except BaseException:
            with self._lock:
                self._in_hand.pop(name, None)
            raise

    def _error(self, task: TaskAttempt, ended: CallEnded) -> BaseException:
        """Return the error that the execution gets."""
        error = ended.error
        if isinstance(error, NotSendable):
            return TaskFailed(str(error))
        if isinstance(error, LaunchFailed):
            return TaskCrashed(str(error))
        if isinstance(error, ProcessCrashed):
            return TaskCrashed(
                f"process {ended.pid} of tasker {self._name!r} {how_it_ended(error.exitcode)} "
                f"while it did task {task.id!r}"
            )
        assert error is not None  # noqa: S101 - only called for failures
        return error

    def kill(self, task: TaskAttempt, error: Exception) -> None:
        """End an attempt that is under way with that error: kill its process. Thread-safe."""
        self._pool.cancel((task.id, task.attempt), error)

    def close(self) -> None:
        """End the processes; kill the busy ones."""
        self._closed = True
        self._pool.close()


class _InHand:
    """An attempt that a process makes, and the callbacks of all that asked for it."""

    def __init__(
        self, task: TaskAttempt, ended: Callable[[BaseException | None, Any], None]
    ) -> None:
        self._task = task
        self._ended = [ended]

    def join(self, task: TaskAttempt, ended: Callable[[BaseException | None, Any], None]) -> None:
        """Report to one more; the last is asked whether the task is still wanted."""
        self._task = task
        self._ended.append(ended)

    def beat(self, *progress: Any) -> bool:
        """Pass on a heartbeat, or progress; return whether the task is still wanted."""
        return self._task.progress(*progress) if progress else self._task.heartbeat()

    def end(self, error: BaseException | None, result: Any) -> None:
        """Report to all. The board counts the first."""
        for ended in self._ended:
            ended(error, result)


class _Errand:
    """What runs in the other process: the tasker's function, with a task made again."""

    def __init__(self, tasker: str, do: bytes) -> None:
        self._tasker = tasker
        self._do = do
        self.__qualname__ = f"tasker {tasker!r}"  # for errors

    def __reduce__(self) -> tuple[Any, ...]:
        return _Errand, (self._tasker, self._do)

    def __call__(self, fields: tuple[Any, ...]) -> Any:
        """Do a task."""
        name, execution, tasker, body, attempt, progress = fields
        beat = bound_heartbeat()
        task = TaskAttempt(
            name, execution, tasker, body, attempt, last_progress=progress, _beat=beat
        )
        return _function_of(self._do)(task)


@lru_cache(maxsize=16)
def _function_of(do: bytes) -> Any:
    return pickle.loads(do)  # noqa: S301 - from our own parent
