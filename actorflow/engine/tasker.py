"""One tasker: a worker that calls a function with one task at a time, several at once."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.runtime.errors import BadJob, BadOption, StopTimeout, WorkerStopped
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.log import log
from actorflow.runtime.supervision.spec import Backoff
from actorflow.runtime.worker.deferred import Deferred
from actorflow.runtime.worker.port import Port
from actorflow.runtime.worker.spec import spawn
from behaviours import Chunk, Queue
from behaviours.arguments import choice, count, seconds
from behaviours.base import adapt, release

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import TaskRow
    from actorflow.engine.tasks import Taskers

__all__ = ["HOLD", "Task", "Tasker"]


class _Hold:
    """The type of `HOLD`."""

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
        """Ask for another `timeout` seconds; return whether the task is still wanted."""
        return self._beat()


class _Ticket:
    """Learns of a task that never reaches the function."""

    __slots__ = ("row", "tasker")

    def __init__(self, tasker: Tasker, row: TaskRow) -> None:
        self.tasker = tasker
        self.row = row

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Count a task that the behaviour dropped or replaced as failed."""
        if error is not None and not isinstance(error, WorkerStopped):
            self.tasker.taskers.attempt_failed(self.row, error)


class Tasker:
    """A function that does tasks. See `Engine.tasker` for the options.

    It is a worker with `concurrency=n`. A task occupies one of the n places until the function
    returns or the time of the attempt is up, whichever comes first.
    """

    def __init__(
        self,
        taskers: Taskers,
        name: str,
        do: Callable[..., Any] | str,
        *,
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
        self.retries = count(retries, "retries", "retries=3", least=0, error=BadOption)
        if timeout is not None:
            seconds(timeout, "timeout", "timeout=60.0", zero=False, error=BadOption)
        choice(executor, "executor", ("pool", "process"), error=BadOption)
        self.taskers = taskers
        self.backoff = backoff or Backoff(initial=1.0, maximum=300.0, jitter=0.1)
        self._processes: Any = None
        if executor == "process":
            from actorflow.engine.processes import ProcessTasker  # noqa: PLC0415 - loads processes

            given = self._processes = ProcessTasker(name, given)
        self._do = given
        self.timeout = timeout
        self._on_cancel = on_cancel
        self._asynchronous = inspect.iscoroutinefunction(given)
        self._stopped = False
        self._running: set[str] = set()
        adapted = adapt(behaviour)
        release(adapted)  # its owner is the chunk, or the worker
        one_by_one = Chunk(adapted, 1) if adapted.traits.divisible else adapted
        self._worker = spawn(self._start_batch, behaviour=one_by_one, **options)
        self._port = Port(self._worker)

    def take(self, row: TaskRow) -> None:
        """Queue a task. Thread-safe."""
        task = Task(
            row.id,
            row.execution,
            row.tasker,
            bodies.decode(row.body),
            row.attempts + 1,
            partial(self._beat, row),
        )
        try:
            refused = self._port.offer([(task, _Ticket(self, row))])
        except WorkerStopped:
            return  # the engine is being closed: the task is in the store
        for _, error in refused:
            self.taskers.attempt_failed(row, error)

    # Doing tasks.

    def _do_now(self, batch: Any, _state: None) -> None:
        """Do the tasks of a batch: one, unless the behaviour cannot be divided."""
        for task in batch if type(batch) is list else [batch]:
            self._run(task, _NEVER_LEFT)

    def _start(self, batch: Any, _state: None) -> Deferred:
        """Start the tasks of a batch, each when the one before has left its place."""
        task, *others = batch if type(batch) is list else [batch]
        left = Deferred()
        self._running.add(task.id)
        left.then(lambda _error, _result: self._running.discard(task.id))
        if self._asynchronous:
            LOOP.call_soon(partial(LOOP.spawn, partial(self._run_async, task, left)))
        else:
            POOL.submit(_Call(partial(self._run, task, left)))
        if not others:
            return left
        all_left = Deferred()
        left.then(lambda _error, _result: self._start(others, None).then(all_left.resolve))
        return all_left

    def _begin(self, task: Task, left: Deferred) -> TaskRow | None:
        """Return the stored task if it is still wanted, and begin its lease."""
        row = self.taskers.row(task.id)
        if row is None or row.attempts + 1 != task.attempt or self._stopped:
            return None
        if self.timeout is not None:
            self.taskers.lease(row, self.timeout, partial(self._expire, task, left))
        return row

    def _expire(self, task: Task, left: Deferred, error: Exception) -> None:
        """Free the place of an attempt whose time is up. In the clock's thread."""
        if self._processes is not None:
            self._processes.kill(task, error)
        left.resolve()

    def _beat(self, row: TaskRow) -> bool:
        if self.timeout is None:
            return self.taskers.is_current(row)
        return self.taskers.lease(row, self.timeout)

    def _run(self, task: Task, left: Deferred) -> None:
        """Do one task. In a thread of the pool."""
        try:
            row = self._begin(task, left)
            if row is None:
                return
            try:
                result = self._do(task)
            except BaseException as error:  # noqa: BLE001 - retried, or told to the execution
                self.taskers.attempt_failed(row, error)
            else:
                self.taskers.attempt_done(row, result)
        finally:
            left.resolve()

    async def _run_async(self, task: Task, left: Deferred) -> None:
        """Like `_run`, on the event loop."""
        try:
            row = self._begin(task, left)
            if row is None:
                return
            try:
                result = await self._do(task)
            except BaseException as error:  # noqa: BLE001 - retried, or told to the execution
                self.taskers.attempt_failed(row, error)
            else:
                self.taskers.attempt_done(row, result)
        finally:
            left.resolve()

    def cancel(self, row: TaskRow) -> None:
        """Call `on_cancel` for a task that is not wanted any more."""
        if self._on_cancel is None:
            return
        task = Task(row.id, row.execution, row.tasker, bodies.decode(row.body), row.attempts + 1)
        try:
            self._on_cancel(task)
        except Exception as error:  # noqa: BLE001 - the task is cancelled all the same
            log.error("on_cancel failed", task=row.id, exc_info=error)

    def stop(self) -> None:
        """Start no more tasks."""
        self._stopped = True
        self._port.finish()

    def close(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for the tasks that are under way."""
        try:
            self._worker.stop(drain=False, timeout=timeout)
        except StopTimeout:
            log.warning("tasks were left running", tasks=sorted(self._running))
        if self._processes is not None:
            self._processes.close()


class _Call:
    """A function in the queue of the pool."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
