"""One tasker: a worker that calls a function with one task at a time, several at once."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count as count_from
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from actorflow.engine import bodies
from actorflow.engine.errors import TaskCrashed
from actorflow.runtime.errors import BadJob, BadOption, StopTimeout, WorkerStopped
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.lanes.relay import RELAY, Pace
from actorflow.runtime.log import log
from actorflow.runtime.supervision.spec import Backoff
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.options import MOST_AT_ONCE
from actorflow.runtime.worker.port import Port
from actorflow.runtime.worker.process.options import Processes
from actorflow.runtime.worker.spec import spawn
from behaviours import Chunk, Queue
from behaviours.arguments import choice, count, function, seconds
from behaviours.base import adapt, release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.stores.protocol import TaskRow
    from actorflow.engine.tasks.board import Board
    from actorflow.runtime.lanes.lane import Lane

__all__ = ["HOLD", "Task", "Tasker", "function_of"]


_SLOW = 0.0005  # seconds that a task takes during which others had better run


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


class Task(Struct, frozen=True):
    """What a tasker is called with."""

    id: str
    """Stable: the same over retries and restarts. Deduplicate by it."""
    execution: str
    tasker: str
    body: Any
    attempt: int
    """1 for the first."""
    priority: int = 0
    timeout: float | None = None
    """Seconds for this attempt, if the task has a time of its own."""
    _beat: Callable[[], bool] = _wanted

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} for {self.tasker!r}: {self.body!r:.200}>"

    def heartbeat(self) -> bool:
        """Ask for another `timeout` seconds; return whether the task is still wanted."""
        return self._beat()


def function_of(do: Callable[..., Any] | str, timeout: float | None) -> Callable[..., Any]:
    """Return the function of a tasker, which may be given as a URL.

    Raises:
        BadOption: it is text, and not an HTTP URL.

    """
    if not isinstance(do, str):
        return do
    from actorflow.engine.tasks.http import http_tasker  # noqa: PLC0415 - loads urllib

    return http_tasker(do, timeout)


class _Ticket:
    """Learns of a task that never reaches the function."""

    __slots__ = ("row", "tasker")

    def __init__(self, tasker: Tasker, row: TaskRow) -> None:
        self.tasker = tasker
        self.row = row

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Count a task that the behaviour dropped or replaced as failed."""
        if error is not None and not isinstance(error, WorkerStopped):
            self.tasker.board.attempt_failed(self.row, error)


class _Attempt:
    """An attempt at the first task of a batch, and what is left of the batch.

    Only a behaviour that cannot be divided makes batches of several tasks. They are done one after
    the other, in one place.
    """

    __slots__ = ("_coroutine", "_others", "_place", "_present", "_tasker", "_unwanted", "task")

    def __init__(self, tasker: Tasker, tasks: list[Task], place: Deferred) -> None:
        self.task, *self._others = tasks
        self._tasker = tasker
        self._place = place
        self._present = [None]
        self._coroutine: asyncio.Task[Any] | None = None
        self._unwanted = False
        tasker.running.add(self.task.id)

    def run(self) -> None:
        """Do the task, or start it on the event loop. In the lane of the tasker."""
        row = self._begin()
        if row is None:
            return
        if self._tasker.asynchronous:
            LOOP.spawn(lambda: self._run_async(row))
            return
        try:
            if self._tasker.processes is not None:
                self._tasker.processes.begin(self.task, partial(self._end, row))
                return
            begin = self._tasker.pace.begin()
            result = self._tasker.do(self.task)
        except BaseException as error:  # noqa: BLE001 - retried, or told to the execution
            self._end(row, error)
        else:
            self._tasker.pace.end(begin)
            self._end(row, None, result)

    async def _run_async(self, row: TaskRow) -> None:
        self._coroutine = asyncio.current_task()
        self._tasker.coroutines[row.id] = self
        try:
            result = await self._tasker.do(self.task)
        except BaseException as error:  # noqa: BLE001 - as above
            if self._unwanted:
                self._leave()  # nobody waits for how it has ended
            else:
                self._end(row, error)
        else:
            self._end(row, None, result)
        finally:
            if self._tasker.coroutines.get(row.id) is self:
                del self._tasker.coroutines[row.id]

    def cancel_coroutine(self) -> None:
        """Cancel the function at its next `await`. In the thread of the loop."""
        if self._coroutine is not None and not self._coroutine.done():
            self._unwanted = True
            self._coroutine.cancel()

    def _begin(self) -> TaskRow | None:
        """Begin the lease of the task and return it as stored; leave if it is not wanted."""
        tasker = self._tasker
        row = tasker.board.row(self.task.id)
        if row is None or row.attempts + 1 != self.task.attempt or tasker.stopped:
            self._leave()
            return None
        if not tasker.board.begin(row, self._go_on):
            return None
        timeout = tasker.board.timeout_of(row, tasker)
        if timeout is not None:
            tasker.board.lease(row, timeout, self._expire)
        return row

    def _go_on(self) -> None:
        """Begin again: the attempt is noted in the store now."""
        self._tasker.lane.submit(self)

    def _expire(self, error: Exception) -> None:
        """Leave because the time is up, although the function runs on. In the clock's thread."""
        if self._tasker.processes is not None:
            self._tasker.processes.kill(self.task, error)
        self._leave()

    def _end(self, row: TaskRow, error: BaseException | None, result: Any = None) -> None:
        """Pass on what the function returned or raised, and leave."""
        board = self._tasker.board
        try:
            if error is None:
                board.attempt_done(row, result)
            else:
                board.attempt_failed(row, error)
        except Exception as failure:  # noqa: BLE001 - a single task must not end its tasker
            log.error("the outcome of a task is lost", task=row.id, exc_info=failure)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Make room for the next task. Thread-safe; the first call counts."""
        try:
            self._present.pop()
        except IndexError:
            return
        self._tasker.running.discard(self.task.id)
        if self._others:
            self._tasker.lane.submit(_Attempt(self._tasker, self._others, self._place))
        else:
            self._place.resolve()


class _Cancel:
    """Calls a user's function with a task that is not wanted any more."""

    __slots__ = ("_on_cancel", "_row")

    def __init__(self, on_cancel: Callable[[Task], Any], row: TaskRow) -> None:
        self._on_cancel = on_cancel
        self._row = row

    def run(self) -> None:
        """Call it. Only the pool does so."""
        row = self._row
        task = Task(row.id, row.execution, row.tasker, bodies.decode(row.body), row.attempts + 1)
        try:
            result = self._on_cancel(task)
            if inspect.iscoroutine(result):
                LOOP.call_soon(partial(LOOP.spawn, partial(_finish, result)))
        except BaseException as error:  # noqa: BLE001 - the task is cancelled all the same
            log.error("on_cancel failed", task=row.id, exc_info=error)


class _Kill:
    """Kills the process of a task that is not wanted any more."""

    __slots__ = ("_processes", "_row")

    def __init__(self, processes: Any, row: TaskRow) -> None:
        self._processes = processes
        self._row = row

    def run(self) -> None:
        """Kill it, if it runs. Only the pool does so."""
        row = self._row
        task = Task(row.id, row.execution, row.tasker, None, row.attempts + 1)
        self._processes.kill(task, TaskCrashed(f"task {row.id!r} was cancelled"))


async def _finish(coroutine: Any) -> None:
    try:
        await coroutine
    except BaseException as error:  # noqa: BLE001 - the task is cancelled all the same
        log.error("on_cancel failed", exc_info=error)


def _done() -> Deferred:
    place = Deferred()
    place.resolve()
    return place


class Tasker:
    """A function that does tasks. See `Engine.tasker` for the options.

    It is a worker with `concurrency=n`. A task has one of the n places until the function returns
    or the time of the attempt is up, whichever comes first.
    """

    def __init__(
        self,
        board: Board,
        name: str,
        do: Callable[..., Any] | str,
        *,
        retries: int = 0,
        backoff: Backoff | None = None,
        timeout: float | None = None,
        on_cancel: Callable[[Task], Any] | None = None,
        behaviour: Any = None,
        executor: str | Processes = "pool",
        kills: bool = False,
        passes_on: bool = False,
        **options: Any,
    ) -> None:
        given: Any = function_of(do, timeout)
        if not callable(given):
            msg = f"tasker {name!r} is {do!r}, which cannot be called as tasker(task)"
            raise BadJob(msg)
        self.retries = count(retries, "retries", "retries=3", least=0, error=BadOption)
        if timeout is not None:
            seconds(timeout, "timeout", "timeout=60.0", zero=False, error=BadOption)
        if on_cancel is not None:
            function(on_cancel, "on_cancel", "on_cancel=withdraw", error=BadOption)
        chosen = executor if isinstance(executor, Processes) else None
        choice("process" if chosen else executor, "executor", ("pool", "process"), error=BadOption)
        pause: object = backoff
        if not isinstance(pause, Backoff | None):
            msg = f"backoff={pause!r:.80} must be a Backoff, as in af.Backoff(initial=1.0)"
            raise BadOption(msg)
        self.board = board
        self.backoff = backoff or Backoff(initial=1.0, maximum=300.0, jitter=0.1)
        self.processes: Any = None
        if chosen is not None or executor == "process":
            from actorflow.engine.tasks.process import ProcessTasker  # noqa: PLC0415 - loads processes

            places = options.get("concurrency", 1)
            count(places, "concurrency", "concurrency=4", most=MOST_AT_ONCE, error=BadOption)
            self.processes = ProcessTasker(name, given, places, chosen or Processes())
        self.do = given
        self.timeout = timeout
        self._on_cancel = on_cancel
        self._kills = kills
        self.passes_on = passes_on
        """Whether the function only passes tasks on: they start later, with `Board.tell_start`."""
        self.asynchronous = inspect.iscoroutinefunction(given) and self.processes is None
        self.cancels = self.asynchronous and kills
        """Whether coroutines that are not wanted any more are cancelled."""
        self.coroutines: dict[str, _Attempt] = {}
        """The attempts on the event loop, by task. For the thread of the loop only."""
        self.lane: Lane = LOOP if self.asynchronous else RELAY
        self.pace = Pace(_SLOW)
        self.stopped = False
        self.running: set[str] = set()
        self._urgent: list[tuple[int, int, TaskRow]] = []  # a heap, if nobody chose a behaviour
        self._number = count_from(0)
        job = self._start if behaviour is not None else self._start_most_urgent
        adapted = adapt(Queue() if behaviour is None else behaviour)
        release(adapted)  # its owner is the chunk, or the worker
        self.places: int = options.get("concurrency", 1)
        """How many tasks it does at the same time."""
        one_by_one = Chunk(adapted, 1) if adapted.traits.divisible else adapted
        self._worker = spawn(job, behaviour=one_by_one, executor=self.lane, **options)
        self._port = Port(self._worker)
        # Code of a user decides about the order: it is not called by the writer, who would wait.
        self._door: deque[TaskRow] | None = None if behaviour is None else deque()
        self._gate: list[None] = [None]  # the token of whoever lets tasks in

    def take(self, row: TaskRow) -> None:
        """Queue a task, or have it queued. Thread-safe."""
        self.take_many((row,))

    def take_many(self, rows: Sequence[TaskRow]) -> None:
        """Queue tasks, or have them queued. Thread-safe."""
        if self._door is None:
            self._push(rows)
            return
        self._door.extend(rows)
        self._enter()

    def _push(self, rows: Sequence[TaskRow]) -> None:
        """Queue tasks by their priorities.

        The worker gets a token for each, and looks which task is the most urgent when it starts
        one: a plain line costs a fraction of a `Priority`.
        """
        for row in rows:
            heappush(self._urgent, (-row.priority, next(self._number), row))
        try:
            for _ in rows:
                self._worker.push(None)
        except WorkerStopped:
            return  # the engine is being closed: the tasks are in the store

    def _enter(self) -> None:
        try:
            self._gate.pop()
        except IndexError:
            return  # somebody is at the door
        POOL.submit(self)

    def run(self) -> None:
        """Accumulate the tasks that wait at the door. Only the pool calls this."""
        door = self._door
        assert door is not None  # noqa: S101 - only those with a door submit themselves
        while door:
            row = door.popleft()
            try:
                self._offer((row,))
            except BaseException as error:  # noqa: BLE001 - a user's code: other tasks go on
                self.board.attempt_failed(row, error)
        self._gate.append(None)
        if door:  # more has come meanwhile
            self._enter()

    def _offer(self, rows: Sequence[TaskRow]) -> None:
        pairs = []
        for row in rows:
            try:
                pairs.append((self._task(row), _Ticket(self, row)))
            except ValueError as error:  # its body cannot be read; the others go on
                self.board.attempt_failed(row, error, final=True)
        try:
            refused = self._port.offer(pairs) if pairs else []
        except WorkerStopped:
            return  # the engine is being closed: the tasks are in the store
        ticket: Any
        for ticket, refusal in refused:
            self.board.attempt_failed(ticket.row, refusal)

    def _task(self, row: TaskRow) -> Task:
        return Task(
            row.id,
            row.execution,
            row.tasker,
            bodies.decode(row.body),
            row.attempts + 1,
            row.priority,
            row.timeout,
            partial(self._beat, row),
        )

    def _start_most_urgent(self, _token: Any, state: None) -> Deferred:
        """Start the task that is next by its priority; in order of arrival among equals."""
        row = heappop(self._urgent)[-1]
        try:
            task = self._task(row)
        except ValueError as error:  # its body cannot be read; the others go on
            self.board.attempt_failed(row, error, final=True)
            return _done()
        return self._start(task, state)

    def _start(self, batch: Any, _state: None) -> Deferred:
        """Start the tasks of a batch: one, unless the behaviour cannot be divided."""
        place = Deferred()
        attempt = _Attempt(self, batch if type(batch) is list else [batch], place)
        if (self.timeout is None and attempt.task.timeout is None) or self.asynchronous:
            attempt.run()
        else:  # its time may be up before the function returns
            self.lane.submit(attempt)
        return place

    def _beat(self, row: TaskRow) -> bool:
        timeout = self.board.timeout_of(row, self)
        if timeout is None:
            return self.board.is_current(row)
        return self.board.lease(row, timeout)

    def cancel(self, row: TaskRow) -> None:
        """Stop a task that is not wanted any more. Thread-safe.

        Its `on_cancel` is called in a lane.
        """
        if self.processes is not None and self._kills:
            POOL.submit(_Kill(self.processes, row))
        if self.cancels:
            LOOP.call_soon(partial(self._cancel_coroutines, row.id))
        if self._on_cancel is not None:
            POOL.submit(_Cancel(self._on_cancel, row))

    def _cancel_coroutines(self, *tasks: str) -> None:
        for task in tasks:
            attempt = self.coroutines.get(task)
            if attempt is not None:
                attempt.cancel_coroutine()

    def stop(self) -> None:
        """Start no more tasks."""
        self.stopped = True
        self._port.finish()

    def close(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for the tasks that are under way."""
        try:
            self._worker.stop(drain=False, timeout=timeout)
        except StopTimeout:
            left = sorted(self.running)
            if self.cancels:
                LOOP.call_soon(partial(self._cancel_coroutines, *left))
            if left:  # else none of them had begun
                log.warning("tasks were left running", tasks=left)
        if self.processes is not None:
            self.processes.close()
