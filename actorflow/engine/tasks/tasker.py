"""One tasker: a worker that calls a function with one task at a time, several at once."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from functools import partial
from heapq import heappop, heappush
from itertools import count as count_from
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.behaviours import Chunk, Queue
from actorflow.behaviours.adapt import adapt, refuse_preempting, release
from actorflow.behaviours.arguments import choice, count, function
from actorflow.engine import bodies
from actorflow.engine.errors import TaskCrashed
from actorflow.engine.tasks.task import MARKS, TaskAttempt, split
from actorflow.runtime import tracing
from actorflow.runtime.errors import BadJob, BadOption, StopTimeout, WorkerStopped
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.lanes.serial_lane import SlowCallDetector
from actorflow.runtime.log import log
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.options import MOST_AT_ONCE
from actorflow.runtime.worker.port import Port
from actorflow.runtime.worker.process.options import Processes
from actorflow.runtime.worker.spec import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actorflow.engine.stores.protocol import TaskRow
    from actorflow.engine.tasks.attempt_rules import AttemptRules
    from actorflow.runtime.environment import Environment
    from actorflow.runtime.lanes.lane import RuntimeLane

__all__ = ["Tasker", "function_of"]


_SLOW = 0.0005  # seconds that a task takes during which others had better run


class TaskReports(Protocol):
    """What a tasker needs of the table of tasks, and reports to it. Thread-safe."""

    environment: Environment

    def row(self, task: str) -> TaskRow | None:
        """Return a task that waits for its result."""

    def is_current(self, row: TaskRow) -> bool:
        """Return whether this attempt at a task is still wanted."""

    def begin(self, row: TaskRow, go_on: Callable[[], None]) -> bool:
        """Record that an attempt begins; return whether it may right now."""

    def limit(self, row: TaskRow, seconds: float, expired: Callable[[Exception], None]) -> None:
        """End an attempt after `seconds`, whatever it reports."""

    def note_progress(self, row: TaskRow, progress: Any) -> None:
        """Store how far an attempt has come."""

    def lease(
        self, row: TaskRow, seconds: float, expired: Callable[[Exception], None] | None = None
    ) -> bool:
        """Allow an attempt `seconds` from now; return whether it is still wanted."""

    def attempt_done(self, row: TaskRow, result: Any) -> None:
        """Handle the result of an attempt."""

    def attempt_failed(self, row: TaskRow, error: BaseException, *, final: bool = False) -> bool:
        """Handle a failed attempt; return whether it counts."""


def function_of(do: Callable[..., Any] | str, timeout: float | None) -> Callable[..., Any]:
    """Return the function of a tasker, which may be given as a URL.

    Raises:
        BadOption: it is text, and not an HTTP URL.
        BadJob: it cannot be called with a task.

    """
    if not isinstance(do, str):
        if callable(do):
            _require_parameter(do)
        return do
    from actorflow.engine.tasks.http import http_tasker  # noqa: PLC0415 - loads urllib

    return http_tasker(do, timeout)


def _require_parameter(do: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(do)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(do, "__name__", "tasker")
        raise BadJob(
            f"a tasker is called with the task, and {name}{signature} cannot be: {error}; write "
            f"def {name}(task)"
        ) from None


class _Ticket:
    """Learns of a task that never reaches the function."""

    __slots__ = ("row", "tasker")

    def __init__(self, tasker: Tasker, row: TaskRow) -> None:
        self.tasker = tasker
        self.row = row

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Count a task that the behaviour dropped or replaced as failed."""
        if error is not None and not isinstance(error, WorkerStopped):
            self.tasker.table.attempt_failed(self.row, error)


class _Attempt:
    """An attempt at the first task of a batch, and the rest of the batch.

    Only a behaviour that cannot be divided makes batches of several tasks. They are done one after
    the other, in one place.
    """

    __slots__ = ("_coroutine", "_others", "_over", "_place", "_present", "_span", "_tasker", "task")

    def __init__(self, tasker: Tasker, tasks: list[TaskAttempt], place: Deferred) -> None:
        self.task, *self._others = tasks
        self._tasker = tasker
        self._place = place
        self._present = [None]
        self._coroutine: asyncio.Task[Any] | None = None
        self._over = False
        self._span: tracing.Span | None = None
        tasker.running[self.task.id] = self

    def run(self) -> None:
        """Do the task, or start it on the event loop. In the lane of the tasker."""
        row = self._begin()
        if row is None:
            return
        if tracing.TRACER is not None:
            self._begin_span(tracing.TRACER, row)
        if self._tasker.asynchronous:
            LOOP.spawn(lambda: self._run_async(row))
            return
        try:
            if self._tasker.processes is not None:
                self._tasker.processes.begin(self.task, partial(self._end, row))
                return
            begin = self._tasker.pace.begin()
            result = self._tasker.do(self.task) if self._span is None else self._do_traced()
        except BaseException as error:  # noqa: BLE001 - retried, or told to the execution
            self._end(row, error)
        else:
            self._tasker.pace.end(begin)
            self._end(row, None, result)

    async def _run_async(self, row: TaskRow) -> None:
        self._coroutine = asyncio.current_task()
        if self._over:  # before it began
            return
        try:
            if self._span is None:
                result = await self._tasker.do(self.task)
            else:
                with self._span.current():
                    result = await self._tasker.do(self.task)
        except BaseException as error:  # noqa: BLE001 - as above
            self._end(row, error)
        else:
            self._end(row, None, result)

    def _begin_span(self, tracer: tracing.Tracer, row: TaskRow) -> None:
        """Begin a span below that of the run which has asked for the task."""
        facts = {
            "actorflow.task": row.id,
            "actorflow.execution": row.execution,
            "actorflow.tasker": row.tasker,
            "actorflow.attempt": self.task.attempt,
        }
        context, _ = bodies.split_context(split(row.body)[0])
        self._span = tracer.start(f"task {row.tasker}", facts, [context])

    def _do_traced(self) -> Any:
        assert self._span is not None  # noqa: S101 - for mypy
        with self._span.current():
            return self._tasker.do(self.task)

    def end(self) -> None:
        """End it, because it is not wanted any more or its time is up. Thread-safe.

        A coroutine is cancelled at its next `await`; a thread goes on, and nobody looks at what it
        returns.
        """
        self._over = True
        if self._tasker.asynchronous:
            LOOP.call_soon(self._cancel_coroutine)
        self._leave()

    def _cancel_coroutine(self) -> None:
        if self._coroutine is not None and not self._coroutine.done():
            self._coroutine.cancel()

    def _begin(self) -> TaskRow | None:
        """Begin the lease of the task and return it as stored; leave if it is not wanted."""
        tasker = self._tasker
        row = tasker.table.row(self.task.id)
        if row is None or row.attempts + 1 != self.task.attempt or tasker.stopped:
            self._leave()
            return None
        if not tasker.table.begin(row, self._go_on):
            return None
        rules = tasker.rules
        if not rules.may_hang and row.timeout is None:
            return row
        lease, limit = rules.lease_of(row.timeout), rules.limit_of(row.timeout)
        if lease is not None:
            tasker.table.lease(row, lease, self._expire)
        if limit is not None:
            tasker.table.limit(row, limit, self._expire)
        return row

    def _go_on(self) -> None:
        """Begin again: the attempt is noted in the store now."""
        self._tasker.lane.submit(self)

    def _expire(self, error: Exception) -> None:
        """End it because its time is up. In the clock's thread."""
        if self._tasker.processes is not None:
            self._tasker.processes.kill(self.task, error)
        self.end()

    def _end(self, row: TaskRow, error: BaseException | None, result: Any = None) -> None:
        """Pass on what the function returned or raised, and leave."""
        if self._span is not None:
            self._span.end(error)
        if self._over:
            return
        table = self._tasker.table
        try:
            if error is None:
                table.attempt_done(row, result)
            else:
                self._fail(row, error)
        except Exception as failure:  # noqa: BLE001 - a single task must not end its tasker
            log.error("the outcome of a task is lost", task=row.id, exc_info=failure)
        finally:
            self._leave()

    def _fail(self, row: TaskRow, error: BaseException) -> None:
        """Handle a failed attempt; also of an error that raises when it is looked at."""
        table = self._tasker.table
        try:
            table.attempt_failed(row, error)
        except Exception as why:  # noqa: BLE001 - the class of the error is the user's
            table.attempt_failed(row, why)

    def _leave(self) -> None:
        """Make room for the next task. Thread-safe; the first call counts."""
        try:
            self._present.pop()
        except IndexError:
            return
        if self._span is not None:
            self._span.end()
        if self._tasker.running.get(self.task.id) is self:
            del self._tasker.running[self.task.id]
        if self._others:
            self._tasker.lane.submit(_Attempt(self._tasker, self._others, self._place))
        else:
            self._place.resolve()


class _Cancel:
    """Calls a user's function with a task that is not wanted any more."""

    __slots__ = ("_on_cancel", "_row")

    def __init__(self, on_cancel: Callable[[TaskAttempt], Any], row: TaskRow) -> None:
        self._on_cancel = on_cancel
        self._row = row

    def run(self) -> None:
        """Call it. Only the pool does so."""
        row = self._row
        body = bodies.decode(split(row.body)[0])
        task = TaskAttempt(row.id, row.execution, row.tasker, body, row.attempts + 1)
        try:
            result = self._on_cancel(task)
            if inspect.iscoroutine(result):
                LOOP.call_soon(partial(LOOP.spawn, partial(_finish, result)))
        except BaseException as error:  # noqa: BLE001 - the task is cancelled anyway
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
        task = TaskAttempt(row.id, row.execution, row.tasker, None, row.attempts + 1)
        self._processes.kill(task, TaskCrashed(f"task {row.id!r} was cancelled"))


async def _finish(coroutine: Any) -> None:
    try:
        await coroutine
    except BaseException as error:  # noqa: BLE001 - the task is cancelled anyway
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
        table: TaskReports,
        name: str,
        do: Callable[..., Any] | str,
        *,
        rules: AttemptRules,
        on_cancel: Callable[[TaskAttempt], Any] | None = None,
        behaviour: Any = None,
        executor: str | Processes = "pool",
        kills: bool = False,
        passes_on: bool = False,
        check_result: Callable[[Any], Any] | None = None,
        describe_result: Callable[[], dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        given: Any = function_of(do, rules.timeout)
        if not callable(given):
            msg = f"tasker {name!r} is {do!r}, which cannot be called as tasker(task)"
            raise BadJob(msg)
        if on_cancel is not None:
            function(on_cancel, "on_cancel", "on_cancel=withdraw", error=BadOption)
        chosen = executor if isinstance(executor, Processes) else None
        choice("process" if chosen else executor, "executor", ("pool", "process"), error=BadOption)
        self.table = table
        self.rules = rules
        self.processes: Any = None
        if chosen is not None or executor == "process":
            from actorflow.engine.tasks.process import ProcessTasker  # noqa: PLC0415 - loads processes

            places = options.get("concurrency", 1)
            count(places, "concurrency", "concurrency=4", most=MOST_AT_ONCE, error=BadOption)
            self.processes = ProcessTasker(name, given, places, chosen or Processes())
        self.do = given
        self.check_result = check_result
        """Converts a result from outside to its stored form, or raises."""
        self.describe_result = describe_result
        """Says what results are: `help` and a JSON `schema`."""
        self._on_cancel = on_cancel
        self._kills = kills
        self.passes_on = passes_on
        """Whether the function only passes tasks on: they start later, with `tell_start`."""
        self.asynchronous = inspect.iscoroutinefunction(given) and self.processes is None
        self.lane: RuntimeLane = LOOP if self.asynchronous else table.environment.serial_lane
        self.pace = SlowCallDetector(_SLOW)
        self.stopped = False
        self.paused = False
        self._pausing = Lock()
        self.running: dict[str, _Attempt] = {}
        """The attempts that are under way, by task."""
        self._urgent: list[tuple[int, int, TaskRow]] = []  # a heap, if nobody chose a behaviour
        self._number = count_from(0)
        job = self._start if behaviour is not None else self._start_most_urgent
        adapted = adapt(Queue() if behaviour is None else behaviour)
        refuse_preempting(adapted, "an agent that does tasks", BadOption)
        release(adapted)  # its owner is the chunk, or the worker
        self.places: int = options.get("concurrency", 1)
        """How many tasks it does at the same time."""
        one_by_one = Chunk(adapted, 1) if adapted.traits.divisible else adapted
        self._worker = spawn(job, behaviour=one_by_one, executor=self.lane, **options)
        self._worker.actor.settings.title = f"tasker {name}"  # for people who look at workers
        self._port = Port(self._worker)
        # Code of a user decides about the order: it is not called by the writer, who would wait.
        self._unadmitted: deque[TaskRow] | None = None if behaviour is None else deque()
        self._gate: list[None] = [None]  # the token of the thread that admits tasks

    def redefine(
        self,
        do: Callable[..., Any],
        rules: AttemptRules,
        options: Mapping[str, Any],
    ) -> None:
        """Call another function from the next attempt on, in the same place.

        Not for worker processes. A coroutine function is replaced by another one only.
        """
        self.do, self.rules = do, rules
        self.check_result = options.get("check_result")
        self.describe_result = options.get("describe_result")

    def pause(self, *, paused: bool) -> None:
        """Begin no more tasks, or go on. Thread-safe."""
        with self._pausing:
            if paused != self.paused:
                self.paused = paused
                (self._worker.pause if paused else self._worker.resume)()

    def take(self, row: TaskRow) -> None:
        """Queue a task, or have it queued. Thread-safe."""
        self.take_many((row,))

    def take_many(self, rows: Sequence[TaskRow]) -> None:
        """Queue tasks, or have them queued. Thread-safe."""
        if self._unadmitted is None:
            self._push(rows)
            return
        self._unadmitted.extend(rows)
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
            return  # another thread admits them
        self.table.environment.pool.submit(self)

    def run(self) -> None:
        """Accumulate the tasks that wait for admission. Only the pool calls this."""
        unadmitted = self._unadmitted
        assert unadmitted is not None  # noqa: S101 - only a tasker with such a line submits itself
        while unadmitted:
            row = unadmitted.popleft()
            try:
                self._offer((row,))
            except BaseException as error:  # noqa: BLE001 - a user's code: other tasks go on
                self.table.attempt_failed(row, error)
        self._gate.append(None)
        if unadmitted:  # more has come meanwhile
            self._enter()

    def _offer(self, rows: Sequence[TaskRow]) -> None:
        pairs = []
        for row in rows:
            try:
                pairs.append((self._task(row), _Ticket(self, row)))
            except ValueError as error:  # its body cannot be read; the others go on
                self.table.attempt_failed(row, error, final=True)
        try:
            refused = self._port.offer(pairs) if pairs else []
        except WorkerStopped:
            return  # the engine is being closed: the tasks are in the store
        ticket: Any
        for ticket, refusal in refused:
            self.table.attempt_failed(ticket.row, refusal)

    def _task(self, row: TaskRow) -> TaskAttempt:
        body, progress = row.body, None
        if body[0] in MARKS:
            body, progress = split(body)
        return TaskAttempt(
            row.id,
            row.execution,
            row.tasker,
            bodies.decode(body),
            row.attempts + 1,
            row.priority,
            row.timeout,
            progress,
            _beat=partial(self._beat, row),
        )

    def _start_most_urgent(self, _token: Any, state: None) -> Deferred:
        """Start the task that is next by its priority; in order of arrival among equals."""
        row = heappop(self._urgent)[-1]
        try:
            task = self._task(row)
        except ValueError as error:  # its body cannot be read; the others go on
            self.table.attempt_failed(row, error, final=True)
            return _done()
        return self._start(task, state)

    def _start(self, batch: Any, _state: None) -> Deferred:
        """Start the tasks of a batch: one, unless the behaviour cannot be divided."""
        place = Deferred()
        attempt = _Attempt(self, batch if type(batch) is list else [batch], place)
        if self.asynchronous or not (self.rules.may_hang or attempt.task.timeout):
            attempt.run()
        else:  # its time may be up before the function returns
            self.lane.submit(attempt)
        return place

    def _beat(self, row: TaskRow, *progress: Any) -> bool:
        if progress:
            self.table.note_progress(row, progress[0])
        lease = self.rules.lease_of(row.timeout)
        return self.table.is_current(row) if lease is None else self.table.lease(row, lease)

    def cancel(self, row: TaskRow) -> None:
        """Stop a task that is not wanted any more. Thread-safe.

        Its `on_cancel` is called in a lane.
        """
        if self.processes is not None and self._kills:
            self.table.environment.pool.submit(_Kill(self.processes, row))
        attempt = self.running.get(row.id)
        if attempt is not None and (self._kills if self.asynchronous else self.rules.may_hang):
            attempt.end()
        if self._on_cancel is not None:
            self.table.environment.pool.submit(_Cancel(self._on_cancel, row))

    def stop(self) -> None:
        """Start no more tasks."""
        self.stopped = True
        self._port.finish()

    def close(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for the tasks that are under way."""
        try:
            self._worker.stop(drain=False, timeout=timeout)
        except StopTimeout:
            running = dict(self.running)
            left = sorted(running)
            if self.asynchronous and self._kills:
                for attempt in running.values():
                    attempt.end()
            if left:  # else none of them had begun
                log.warning("tasks were left running", tasks=left)
        if self.processes is not None:
            self.processes.close()
