"""One tasker: a worker that hands tasks, one at a time, to a function, so many at once."""

from __future__ import annotations

import inspect
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.runtime.errors import BadJob, BadOption, WorkerStopped
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.log import log
from actorflow.runtime.supervision.spec import Backoff
from actorflow.runtime.worker.deferred import Deferred
from actorflow.runtime.worker.executor import Executor
from actorflow.runtime.worker.ref import spawn
from behaviours import Chunk, Queue
from behaviours.base import adapt, release

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import TaskRow
    from actorflow.engine.tasks import Taskers

__all__ = ["HOLD", "Task", "Tasker"]


class _Hold:
    """What a tasker returns to answer later."""

    def __repr__(self) -> str:
        return "HOLD"

    def __reduce__(self) -> str:
        return "HOLD"  # the same one in every process


HOLD = _Hold()
"""Return this from a tasker to answer later, with `engine.return_task(id, value)`."""


def _wanted() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Task:
    """What a tasker is called with."""

    id: str
    """Stable: the same over retries and restarts. Deduplicate by it."""
    execution: str
    tasker: str
    body: Any
    attempt: int
    """1 for the first."""
    _beat: Callable[[], bool] = field(default=_wanted, repr=False, compare=False)

    def heartbeat(self) -> bool:
        """Ask for another `timeout` seconds; `False` says that the task is not wanted any more."""
        return self._beat()


class _Front(Executor):
    """Starts tasks as the behaviour hands them over, while there are places."""

    state: Tasker

    def handle(self, batch: Any) -> Any:
        """Start the tasks; done when all have been started and a place is free."""
        tasks = list(batch) if type(batch) is list else [batch]
        tasks.reverse()
        deferred = Deferred()
        self.state.fill(tasks, deferred)
        return deferred


class _Ticket:
    """Hears of a task that never reaches the function."""

    __slots__ = ("row", "tasker")

    def __init__(self, tasker: Tasker, row: TaskRow) -> None:
        self.tasker = tasker
        self.row = row

    def resolve(self, error: BaseException | None = None) -> None:
        """Count a task that the behaviour dropped or replaced as failed."""
        if error is not None and not isinstance(error, WorkerStopped):
            self.tasker.taskers.attempt_failed(self.row, error)


class Tasker:
    """A function that does tasks. See `Engine.tasker` for the options."""

    def __init__(
        self,
        taskers: Taskers,
        name: str,
        do: Callable[..., Any] | str,
        *,
        concurrency: int = 1,
        retries: int = 0,
        backoff: Backoff | None = None,
        timeout: float | None = None,
        on_cancel: Callable[[Task], Any] | None = None,
        behaviour: Any = Queue,
        executor: str = "pool",
        **options: Any,
    ) -> None:
        given: Any = do
        if isinstance(given, str):
            from actorflow.engine.remote import http_tasker  # noqa: PLC0415 - loads urllib

            given = http_tasker(given, timeout)
        if not callable(given):
            msg = f"tasker {name!r} is {do!r}, which cannot be called as tasker(task)"
            raise BadJob(msg)
        numbers: tuple[tuple[str, Any, int], ...] = (
            ("concurrency", concurrency, 1),
            ("retries", retries, 0),
        )
        for option, value, least in numbers:
            if not isinstance(value, int) or value < least:
                msg = f"{option}={value!r} must be a whole number >= {least}"
                raise BadOption(msg)
        if timeout is not None and not timeout > 0:
            msg = f"timeout={timeout!r} must be a positive number of seconds, or None"
            raise BadOption(msg)
        if executor not in {"pool", "process"}:
            msg = f"executor={executor!r} of tasker {name!r} must be 'pool' or 'process'"
            raise BadOption(msg)
        self.taskers = taskers
        self.retries = retries
        self.backoff = backoff or Backoff(initial=1.0, maximum=300.0, jitter=0.1)
        self._processes: Any = None
        if executor == "process":
            from actorflow.engine.processes import ProcessTasker  # noqa: PLC0415 - loads processes

            given = self._processes = ProcessTasker(name, given)
        self._do = given
        self.timeout = timeout
        self._on_cancel = on_cancel
        self._asynchronous = inspect.iscoroutinefunction(given)
        self._lock = threading.Lock()
        self._free = concurrency
        self._todo: list[Task] = []
        self._filling: Deferred | None = None
        self._stopped = False
        self._running: set[str] = set()
        self._ended = threading.Condition(self._lock)
        adapted = adapt(behaviour)
        release(adapted)  # its owner is the chunk, or the worker
        one_by_one = Chunk(adapted, 1) if adapted.traits.divisible else adapted
        self._worker = spawn(_Front, state=self, behaviour=one_by_one, **options)

    def take(self, row: TaskRow) -> None:
        """Queue a task. Any thread."""
        task = Task(
            row.id,
            row.execution,
            row.tasker,
            bodies.decode(row.body),
            row.attempts + 1,
            partial(self._beat, row),
        )
        ticket = _Ticket(self, row)
        try:
            refused = self._worker.actor.offer_many([(task, ticket)])
        except WorkerStopped:
            return  # the engine is being closed: the task is in the store
        for _, error in refused:
            self.taskers.attempt_failed(row, error)

    # Places.

    def fill(self, tasks: list[Task], deferred: Deferred) -> None:
        """Start tasks, the last one first, as places become free. In the lane's thread."""
        with self._lock:
            stopped = self._stopped
            if not stopped:
                self._todo = tasks
                self._filling = deferred
        if stopped:
            deferred.resolve()
        else:
            self._fill()

    def _fill(self) -> None:
        while True:
            with self._lock:
                if self._filling is None:
                    return
                if not self._todo and self._free:
                    deferred, self._filling = self._filling, None
                    task = None
                elif self._todo and self._free:
                    task = self._todo.pop()
                    self._free -= 1
                    self._running.add(task.id)
                else:
                    return
            if task is None:
                deferred.resolve()
                return
            if self._asynchronous:
                LOOP.call_soon(partial(LOOP.spawn, partial(self._run_async, task)))
            else:
                POOL.submit(_Call(self, task))

    def _leave(self, place: _Place) -> None:
        """Free a place, once: its task has ended, or its time is up."""
        with self._lock:
            if place.left:
                return
            place.left = True
            self._free += 1
            self._running.discard(place.task)
            self._ended.notify_all()
        self._fill()

    # Doing a task.

    def _row(self, task: Task) -> TaskRow | None:
        found = self.taskers.row(task.id)
        return found if found is not None and found.attempts + 1 == task.attempt else None

    def _begin(self, task: Task, place: _Place) -> TaskRow | None:
        """Give the stored task if it is still wanted, and begin its lease."""
        row = self._row(task)
        if row is None:
            return None
        if self.timeout is not None:
            self.taskers.lease(row, self.timeout, partial(self._expire, task, place))
        return row

    def _expire(self, task: Task, place: _Place, error: Exception) -> None:
        """Give up an attempt whose time is up. In the clock's thread."""
        if self._processes is not None:
            self._processes.kill(task, error)
        self._leave(place)

    def _beat(self, row: TaskRow) -> bool:
        if self.timeout is None:
            return self.taskers.is_current(row)
        return self.taskers.lease(row, self.timeout)

    def run(self, task: Task) -> None:
        """Do one task. In a thread of the pool."""
        place = _Place(task.id)
        try:
            row = self._begin(task, place)
            if row is None:
                return
            try:
                result = self._do(task)
            except BaseException as error:  # noqa: BLE001 - retried, or told to the execution
                self.taskers.attempt_failed(row, error)
            else:
                self.taskers.attempt_done(row, result)
        finally:
            self._leave(place)

    async def _run_async(self, task: Task) -> None:
        place = _Place(task.id)
        try:
            row = self._begin(task, place)
            if row is None:
                return
            try:
                result = await self._do(task)
            except BaseException as error:  # noqa: BLE001 - retried, or told to the execution
                self.taskers.attempt_failed(row, error)
            else:
                self.taskers.attempt_done(row, result)
        finally:
            self._leave(place)

    def cancel(self, row: TaskRow) -> None:
        """Tell the user's code that a task is not wanted any more."""
        if self._on_cancel is None:
            return
        task = Task(row.id, row.execution, row.tasker, bodies.decode(row.body), row.attempts + 1)
        try:
            self._on_cancel(task)
        except Exception as error:  # noqa: BLE001 - the task is cancelled all the same
            log.error("on_cancel failed", task=row.id, exc_info=error)

    def stop(self) -> None:
        """Begin no more tasks."""
        with self._lock:
            self._stopped = True
            self._todo = []
            filling, self._filling = self._filling, None
        if filling is not None:
            filling.resolve()
        self._worker.stop(drain=False, block=False)

    def close(self, timeout: float) -> None:
        """Wait so long for the tasks that are being done."""
        with self._ended:
            if not self._ended.wait_for(lambda: not self._running, timeout):
                log.warning("tasks were left running", tasks=sorted(self._running))
        if self._processes is not None:
            self._processes.close()


class _Place:
    """One of the places that a tasker has."""

    __slots__ = ("left", "task")

    def __init__(self, task: str) -> None:
        self.task = task
        self.left = False


class _Call:
    """A task in the pool's queue."""

    __slots__ = ("_task", "_tasker")

    def __init__(self, tasker: Tasker, task: Task) -> None:
        self._tasker = tasker
        self._task = task

    def run(self) -> None:
        """Do it. Only the pool calls this."""
        self._tasker.run(self._task)
