"""The table of tasks: the open tasks of executions, and the taskers that do them.

A task is stored when its execution commits, handed out after that, and removed in the same commit
that stores its result: at least once, each time with the same id to deduplicate by.

Attempts that ended with their process count as well: a task that is read from a store that
was not closed may have been under way when an earlier process died. That is noted in the store
before it begins again.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.engine import bodies
from actorflow.engine.commit.writer import AGAIN
from actorflow.engine.envelopes import TaskEnded, TaskStarted, failure_of, pack
from actorflow.engine.errors import TaskCrashed, TaskFailed, TaskTimeout, TaskWithdrawn
from actorflow.engine.stores.protocol import Change, NewMessage, TaskResult
from actorflow.engine.tasks.attempt_rules import AttemptRules
from actorflow.engine.tasks.remote import RemoteTasks
from actorflow.engine.tasks.task import HELD, OpenTask, split, with_progress
from actorflow.engine.tasks.tasker import Tasker
from actorflow.runtime import tracing
from actorflow.runtime.errors import BadOption, near
from actorflow.runtime.log import log
from actorflow.runtime.telemetry.outages import outage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.ownership import Ownership
    from actorflow.engine.executions.table import ExecutionTable
    from actorflow.engine.kind import Kind
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import Store, TaskRow
    from actorflow.runtime.clock import Clock
    from actorflow.runtime.environment import Environment

__all__ = ["CRASHES", "TaskTable"]

CRASHES = 2
"""How often a task is begun again after its process has ended, if its retries are fewer."""

_WINDOW = 10_000  # tasks of one tasker that are in memory at the same time, about


class TaskTable:
    """The taskers of an engine and the tasks that are out. Thread-safe.

    Args:
        store: where tasks are.
        clock: of the engine.
        worker_clock: by which taskers accumulate.
        writer: commits, and is the thread that hands out tasks.
        state: of the engine.
        environment: lanes, a steady clock, and the jitter of retries.
        kinds: of executions, whose code is announced to other engines.
        ownership: which executions run here.
        executions: those in memory, which get the answers.

    """

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        writer: Writer,
        state: EngineState,
        *,
        environment: Environment,
        worker_clock: Clock,
        kinds: dict[str, Kind],
        ownership: Ownership,
        executions: ExecutionTable,
    ) -> None:
        self._store = store
        self._clock = clock
        self._worker_clock = worker_clock
        self._writer = writer
        self._state = state
        self.environment = environment
        self._ownership = ownership
        self._executions = executions
        self._lock = threading.Lock()
        self._taskers: dict[str, Tasker] = {}
        self._names_of: dict[str, tuple[str, ...]] = {}  # of taskers that have several
        self._open: dict[str, OpenTask] = {}
        self._of: dict[str, set[str]] = {}  # by execution: its tasks in memory
        self._held: dict[str, int] = {}  # by tasker: how many of its tasks are in memory
        self._unread: set[str] = set()  # taskers with tasks in the store that are not in memory
        self._fresh: set[str] = set()  # tasks that are not in memory, and that nobody has begun
        self._contested: set[str] = set()  # tasks that another process may have begun, too
        self._ended: set[str] = set()  # tasks that have a result which is not committed yet
        self._handed: dict[Tasker, list[TaskRow]] = {}  # out of this commit, and not queued yet
        self._remote = (
            RemoteTasks(store, writer, ownership, kinds, self) if store.traits.shared else None
        )
        executions.listeners.tasks = self
        self.done = 0
        self.failed = 0
        self.retried = 0

    def __len__(self) -> int:
        return len(self._open)

    def names(self) -> list[str]:
        """Return the names of all taskers."""
        return list(self._taskers)

    def description(self, name: str) -> dict[str, Any] | None:
        """Return what a tasker says of its results: `help` and a JSON `schema`; else `None`."""
        tasker = self._taskers.get(name)
        describe = None if tasker is None else tasker.describe_result
        return None if describe is None else describe()

    def register(
        self,
        name: str,
        do: Callable[..., Any] | str,
        options: dict[str, Any],
        *,
        others: Sequence[str] = (),
    ) -> None:
        """Add a tasker; tasks that have been waiting for it are handed out.

        It also does tasks for the names in `others`, in the same places.
        """
        names = (name, *others)
        for each in names:
            if each in self._taskers:
                raise _taken(each)
        options = dict(options)
        rules = AttemptRules(
            **{each: options.pop(each) for each in AttemptRules.OPTIONS if each in options}
        )
        tasker = Tasker(self, name, do, rules=rules, clock=self._worker_clock, **options)
        with self._lock:
            taken = next((each for each in names if each in self._taskers), None)
            if taken is None:
                self._taskers |= dict.fromkeys(names, tasker)
                if others:
                    self._names_of |= dict.fromkeys(names, names)
        if taken is not None:  # another thread was faster
            tasker.stop()
            tasker.close(0.0)
            raise _taken(taken)
        if self._state.resumed:
            for each in names:
                self._writer.call(partial(self._read_on, each))
            if self._remote is not None:
                self._writer.call(self._remote.announce)

    def redefine(self, name: str, do: Callable[..., Any], options: dict[str, Any]) -> None:
        """Replace the function of a tasker and the rules of its attempts, from the next one on."""
        rules = AttemptRules(
            **{each: options[each] for each in AttemptRules.OPTIONS if each in options}
        )
        self._taskers[name].redefine(do, rules, options)

    def pause(self, name: str, *, paused: bool = True) -> None:
        """Pause or resume a tasker: while paused, it begins no tasks. Thread-safe.

        Raises:
            BadOption: there is no tasker of that name.

        """
        tasker = self._taskers.get(name)
        if tasker is None:
            raise BadOption(f"there is no tasker {name!r:.80}{near(name, self._taskers)}")
        tasker.pause(paused=paused)

    def is_paused(self, name: str) -> bool:
        """Return whether a tasker begins no more tasks."""
        tasker = self._taskers.get(name)
        return tasker is not None and tasker.paused

    def resume(self) -> None:
        """Hand out the stored tasks. In the writer's thread."""
        for name in list(self._taskers):
            self._read_on(name)
        if self._remote is not None:
            self._remote.announce()

    def look(self, *, borrowed: bool = False) -> None:
        """Check the tasks that engines lend to each other, or only those lent to this one.

        In the writer's thread.
        """
        if self._remote is not None:
            self._remote.borrow() if borrowed else self._remote.look()

    def forget_unowned(self, keeps: Callable[[str], bool]) -> None:
        """Forget tasks of executions that run elsewhere now. In the writer's thread.

        Tasks that are under way go on, and their answers count if they come first.
        """
        with self._lock:
            gone = [
                task
                for name in self._of
                if not keeps(name)
                for task in sorted(self._of[name])
                if self._open[task].row.worker is None
            ]
        for task in gone:
            self._close_task(task)
            self._ended.discard(task)

    # Handing out.

    def hand_out(self, rows: Iterable[TaskRow]) -> None:
        """Hand out tasks that were just stored. In the writer's thread.

        They are queued after the commit, those of one tasker together.
        """
        if self._writer.repeats:  # they may have been stored, read and done meanwhile
            for name in {row.tasker: None for row in rows}:
                self._read_on(name)
            return
        for row in rows:
            if not self._ownership.runs(row.execution):
                continue
            tasker = self._taskers.get(row.tasker)
            if self._remote is not None and self._remote.lend(row, tasker):
                continue
            self._hand_to(tasker, row)

    def _hand_to(self, tasker: Tasker | None, row: TaskRow) -> None:
        if tasker is None:
            if row.tasker not in self._unread:
                log.warning("no such tasker; its tasks wait", tasker=row.tasker, task=row.id)
            self._leave_in_store(row)
        elif row.tasker in self._unread or self._held.get(row.tasker, 0) >= _WINDOW:
            self._leave_in_store(row)
        elif row.due > self._clock.now():
            self._take(tasker, OpenTask(row))
        else:
            self._note(OpenTask(row))
            if not self._handed:
                self._writer.call_after(self._queue)
            self._handed.setdefault(tasker, []).append(row)

    def _queue(self) -> None:
        """Queue the tasks of all changes of a commit, those of one tasker together."""
        while self._handed:
            tasker, rows = self._handed.popitem()
            tasker.take_many(rows)

    def held(self, tasker: str) -> int:
        """Return how many tasks of a tasker are in memory, under all of its names."""
        names = self._names_of.get(tasker)
        if names is None:
            return self._held.get(tasker, 0)
        return sum(self._held.get(name, 0) for name in names)

    def _leave_in_store(self, row: TaskRow) -> None:
        """Leave a new task in the store; it is read when its tasker has room."""
        self._unread.add(row.tasker)
        if self._ownership.is_suspect(row.execution):
            self._fresh.add(row.id)

    def _take(self, tasker: Tasker, task: OpenTask) -> None:
        row = task.row
        self._note(task)
        self._pass_on(tasker, row)

    def _note(self, task: OpenTask) -> None:
        row = task.row
        with self._lock:
            self._open[row.id] = task
            self._of.setdefault(row.execution, set()).add(row.id)
            self._held[row.tasker] = self._held.get(row.tasker, 0) + 1

    def _pass_on(self, tasker: Tasker, row: TaskRow) -> None:
        """Hand a task to its tasker, now or when it is due."""
        clock = self._clock
        if row.due <= clock.now():
            tasker.take(row)
            return
        with self._lock:
            found = self._open.get(row.id)
            if found is not None and found.row.attempts == row.attempts:
                found.start = clock.call_at(row.due, lambda: self._on_due(tasker, row))

    def _on_due(self, tasker: Tasker, row: TaskRow) -> None:
        if self.is_current(row):
            tasker.take(row)

    def _read_on(self, name: str) -> None:
        """Hand out tasks that are in the store and not in memory. In the writer's thread."""
        tasker = self._taskers.get(name)
        if tasker is None or self._state.closed:
            return
        cursor = None
        try:
            while self._held.get(name, 0) < _WINDOW:
                page = self._store.open(tasker=name, after=cursor)
                for row in page.rows:
                    if not self._is_lent(row) and not self.knows(row.id):
                        if self._remote is not None:
                            self._contested.add(row.id)
                        self._recover(tasker, row)
                cursor = page.after
                if cursor is None:
                    self._unread.discard(name)
                    return
        except Exception as error:  # noqa: BLE001 - they are stored: look again
            outage_of(self._store).failed(error, f"tasks of {name!r} cannot be read")
            self._look_again(partial(self._read_on, name))
        self._unread.add(name)

    def _look_again(self, look: Callable[[], None]) -> None:
        """Make a call in the writer's thread when the store can perhaps be read."""
        self._clock.call_at(self._clock.now() + AGAIN, partial(self._writer.call, look))

    def _is_lent(self, row: TaskRow) -> bool:
        """Return whether another process does a task: not if the store was shared once."""
        return row.worker is not None and self._remote is not None

    def knows(self, task: str) -> bool:
        """Return whether a task is out, answered, or about to be lent to another engine."""
        moving = () if self._remote is None else self._remote.moving
        return task in self._open or task in self._ended or task in moving

    def take_borrowed(self, rows: Sequence[TaskRow]) -> None:
        """Do the tasks that others have lent to this engine; stop tasks that were taken back."""
        for row in rows:
            tasker = self._taskers.get(row.tasker)
            if tasker is not None and not self.knows(row.id):
                self._take(tasker, OpenTask(row))
        wanted = {row.id for row in rows}
        with self._lock:
            gone = [task for task, found in self._open.items()
                    if found.row.worker is not None and task not in wanted]  # fmt: skip
        self.finished(gone)

    def borrows_from(self, executions: Iterable[str]) -> bool:
        """Return whether there are tasks here of some of these, which run elsewhere."""
        runs = self._ownership.runs
        return any(name in self._of and not runs(name) for name in executions)

    def crashes_of(self, row: TaskRow) -> int:
        """Return how often a task is begun again after its process has ended."""
        tasker = self._taskers.get(row.tasker)
        retries = row.retries if tasker is None else self._retries(tasker, row)
        return max(retries or 0, CRASHES)

    def _recover(self, tasker: Tasker, row: TaskRow) -> None:
        """Hand out a task that an earlier process may have begun, if that did not end well."""
        if not self._ownership.is_suspect(row.execution) or row.id in self._fresh:
            self._fresh.discard(row.id)
            self._take(tasker, OpenTask(row))
            return
        again = row._replace(attempts=row.attempts + 1)
        if again.attempts > self.crashes_of(row):
            self._note(OpenTask(row))
            text = f"the process ended {again.attempts} times while this task was under way"
            self.fail(row.id, TaskCrashed(text))
            return
        self._take(tasker, OpenTask(again, recovered=True))

    @staticmethod
    def _retries(tasker: Tasker, row: TaskRow) -> int:
        return tasker.rules.retries if row.retries is None else row.retries

    def begin(self, row: TaskRow, go_on: Callable[[], None]) -> bool:
        """Record that an attempt begins; return whether it may right now.

        Otherwise `go_on()` is called once that is stored, or the task is gone. In the lane of the
        tasker.
        """
        with self._lock:
            found = self._open.get(row.id)
            if found is not None:
                found.begun = not found.recovered
        if found is None:
            go_on()
            return False
        if found.recovered:
            found.recovered = False
            change = Change(row.execution, retried=(row,))
            self._writer.submit(change, lambda _change, _error: go_on(), insist=True)
            return False
        tasker = self._taskers.get(row.tasker)
        if tasker is None or not tasker.passes_on:
            self.tell_start(row)
        return True

    def tell_start(self, row: TaskRow) -> None:
        """Send a `TaskStarted` to the execution, if it wants one. Thread-safe."""
        if row.tell_start:
            started = TaskStarted(None, 0.0, row.id, row.attempts + 1)
            message = NewMessage(row.execution, *pack(started))
            change = Change(row.execution, at=self._clock.now(), messages=(message,))
            self._writer.submit(change, self._told, insist=True)

    def _told(self, change: Change, error: Exception | None) -> None:
        if error is None:
            self._executions.deliver_rows(change.rows)

    def is_current(self, row: TaskRow) -> bool:
        """Return whether this attempt at a task is still wanted."""
        found = self._open.get(row.id)
        return found is not None and found.row.attempts == row.attempts

    def row(self, task: str) -> TaskRow | None:
        """Return a task that waits for its result."""
        found = self._open.get(task)
        return None if found is None else found.row

    def lease(
        self, row: TaskRow, seconds: float, expired: Callable[[Exception], None] | None = None
    ) -> bool:
        """Allow an attempt `seconds` from now; return whether it is still wanted.

        `expired(error)` is called when the time is up, before the attempt counts as failed with
        that error. Without it, the one of the last call remains.
        """
        clock = self._clock
        error = TaskTimeout(
            f"tasker {row.tasker!r} sent neither an answer nor a heartbeat for task {row.id!r} "
            f"within {seconds} s"
        )
        with self._lock:
            found = self._open.get(row.id)
            if found is None or found.row.attempts != row.attempts or self._state.closed:
                return False
            if found.lease is not None:
                found.lease.cancel()
            if expired is not None:
                found.expired = expired
            found.lease = clock.call_at(clock.now() + seconds, lambda: self._on_expiry(row, error))
            return True

    def limit(self, row: TaskRow, seconds: float, expired: Callable[[Exception], None]) -> None:
        """End an attempt after `seconds`, whatever it reports; `expired` is as for `lease`."""
        clock = self._clock
        error = TaskTimeout(
            f"attempt {row.attempts + 1} at task {row.id!r} of {row.tasker!r} took longer than "
            f"{seconds} s"
        )
        with self._lock:
            found = self._open.get(row.id)
            if found is not None and found.row.attempts == row.attempts and not self._state.closed:
                found.expired = expired
                found.limit = clock.call_at(
                    clock.now() + seconds, lambda: self._on_expiry(row, error)
                )

    def _on_expiry(self, row: TaskRow, error: TaskTimeout) -> None:
        """Count an attempt as failed whose time is up. In the clock's thread."""
        found = self._open.get(row.id)
        if found is None or found.row.attempts != row.attempts:
            return
        if found.expired is not None:
            found.expired(error)
        self.attempt_failed(row, error)

    def heartbeat(self, task: str) -> bool:
        """Renew the timeout of a task; return whether it is still wanted."""
        row = self.row(task)
        tasker = None if row is None else self._taskers.get(row.tasker)
        if row is None or tasker is None:
            return row is not None
        lease = tasker.rules.lease_of(row.timeout)
        return self.is_current(row) if lease is None else self.lease(row, lease)

    def note_progress(self, row: TaskRow, progress: Any) -> None:
        """Store the progress of an attempt, now or after the current commit. Thread-safe.

        Raises:
            NotStorable: it is not plain data.

        """
        body = with_progress(row.body, progress)
        with self._lock:
            found = self._open.get(row.id)
            if found is None or found.row.attempts != row.attempts:
                return
            found.row = found.row._replace(body=body)
            busy, found.noting = found.noting is not None, body
        if not busy:
            self._store_progress(found)

    def _store_progress(self, task: OpenTask) -> None:
        """Store the newest progress of an attempt; one commit at a time for each task."""
        row = task.row

        def stored(_change: Change, error: Exception | None) -> None:
            if error is not None:
                log.warning("progress of a task is lost", task=row.id, error=brief(error))
            with self._lock:
                again = task.noting is not row.body and self._open.get(row.id) is task
                if not again:
                    task.noting = None
            if again:
                self._store_progress(task)

        with self._lock:  # a later attempt must not be followed by an earlier one
            if self._open.get(row.id) is task:
                self._writer.submit(Change(row.execution, retried=(row,)), stored)

    # Results. The first one counts.

    def _close_task(
        self, task: str, attempts: int | None = None, *, begun: bool = True, stored: bool = True
    ) -> TaskRow | None:
        """Remove a task; return it, or `None` if it is gone or another attempt is under way.

        With `begun=False`, one that may have begun is left alone; with `stored=False`, one that is
        not in memory.
        """
        with self._lock:
            found = self._open.get(task)
            look = found is None and stored and attempts is None and task not in self._ended
        if look:  # without the lock: the store may be slow
            row = self._store.task(task)
            with self._lock:
                found = self._open.get(task)
                if found is None:
                    if row is None or task in self._ended or (not begun and self._is_lent(row)):
                        return None
                    self._fresh.discard(task)
                    self._ended.add(task)
                    return row
        with self._lock:
            found = self._open.get(task)
            if found is None:
                return None
            if attempts is not None and found.row.attempts != attempts:
                return None
            if found.begun and not begun:
                return None
            del self._open[task]
            self._ended.add(task)
            found.cancel_timers()
            row = found.row
            mine = self._of[row.execution]
            mine.discard(task)
            if not mine:
                del self._of[row.execution]
            held = self._held[row.tasker] = self._held[row.tasker] - 1
        if row.tasker in self._unread and held < _WINDOW // 2 and not self._state.closed:
            self._writer.call(lambda: self._read_on(row.tasker))
        return row

    def answer(self, task: str, value: Any, done: Any = None) -> bool:
        """Like `succeed`, with a value from outside, which its tasker checks.

        Raises:
            TypeError: the tasker declares results of another type; the task stays open.

        """
        row = self.row(task)
        tasker = None if row is None else self._taskers.get(row.tasker)
        if tasker is not None and tasker.check_result is not None:
            value = tasker.check_result(value)
        return self.succeed(task, value, done)

    def succeed(self, task: str, value: Any, done: Any = None) -> bool:
        """Store the result of a task as a message to its execution; return whether it counts.

        `done` is resolved when it is stored, if it counts.

        Raises:
            NotStorable: the value is not plain data; the task stays open.

        """
        data = bodies.encode(value)
        row = self._close_task(task)
        if row is None:
            return False
        self.done += 1
        ended = TaskEnded(None, self._clock.now(), task, "ok", bodies.decode(data))
        self._end(row, ended, done)
        return True

    def fail(self, task: str, error: BaseException, done: Any = None) -> bool:
        """Store the failure of a task as a message to its execution; return whether it counts.

        `done` is resolved when it is stored, if it counts.
        """
        if not isinstance(error, BaseException):
            raise BadOption(
                f"error must be an exception, as in ValueError('no'), not {error!r:.80}"
            )
        row = self._close_task(task)
        if row is None:
            return False
        self._end_failed(row, error, done)
        return True

    def _end_failed(self, row: TaskRow, error: BaseException, done: Any = None) -> None:
        self.failed += 1
        crashed = isinstance(error, (TaskCrashed, TaskTimeout))
        told = error.failure if isinstance(error, TaskFailed) else None
        log.warning("task failed", task=row.id, tasker=row.tasker, error=brief(error))
        self._end(
            row,
            TaskEnded(
                None,
                self._clock.now(),
                row.id,
                "crashed" if crashed else "failed",
                error=told or failure_of(error),
            ),
            done,
        )

    def _end(self, row: TaskRow, ended: TaskEnded, done: Any = None) -> None:
        """Deliver the answer to its execution; store it where that is not live, or `done` waits."""
        # A `TaskStarted` is stored, so the answer must not overtake it.
        quick = done is None and not row.tell_start and self._writer.quiet
        if tracing.TRACER is not None:
            quick = False  # the context of the task is stored with its answer
        if self._remote is not None and (row.attempts or row.id in self._contested):
            # Another process may be doing it, too: only the store knows whose answer is the first.
            self._contested.discard(row.id)
            quick = False
        if quick and self._executions.offer(row.execution, ended, task=row):
            return
        self.store_answer(row, *pack(ended), done)

    def store_answer(self, row: TaskRow, type: str, body: bytes, done: Any = None) -> None:  # noqa: A002
        """Replace a task by a message to its execution. Thread-safe."""
        if row.body[0] in bodies.EXTENSIONS:
            body = bodies.with_context_of(split(row.body)[0], body)
        message = NewMessage(row.execution, type, body)
        change = Change(
            row.execution, at=self._clock.now(), task_results=(TaskResult(row.id, message),)
        )

        def committed(change: Change, error: Exception | None) -> None:
            if error is None:
                self._ended.discard(row.id)
                self._executions.deliver_rows(change.resulting_messages)
            else:  # the engine is closed: the task is in the store, and begins again
                log.warning("the result of a task is lost", task=row.id, error=str(error))
            if done is not None:
                done.resolve(error, answer=bool(change.resulting_messages))

        self._writer.submit(change, committed, insist=True, waiter=done)

    def attempt_done(self, row: TaskRow, result: Any) -> None:
        """Handle what a tasker returned."""
        if result is HELD:
            if row.attempts:  # it ended well: it must not count when it is read again
                held = (self.row(row.id) or row)._replace(attempts=row.attempts - 1)
                self._writer.submit(Change(row.execution, retried=(held,)), None)
            return
        try:
            self.succeed(row.id, result)
        except Exception as error:  # noqa: BLE001 - it cannot be stored: the task has failed
            self.attempt_failed(row, error, final=True)

    def attempt_failed(
        self,
        row: TaskRow,
        error: BaseException,
        *,
        final: bool = False,
        least: int = 0,
        done: Any = None,
    ) -> bool:
        """Handle a failed attempt: try again later, or notify the execution.

        Return whether it counts: not if the task was answered or cancelled, or a later attempt is
        under way.

        Args:
            row: the task as this attempt has got it.
            error: why it failed.
            final: do not try again.
            least: try again this often, even if the tasker has fewer retries.
            done: is resolved when that is stored, if it counts.

        """
        tasker = self._taskers.get(row.tasker)
        if self._state.closed or tasker is None:
            return False  # it is in the store, and begins again
        final = final or tasker.rules.gives_up_on(error)
        if final or row.attempts >= max(self._retries(tasker, row), least):
            counts = self._close_task(row.id, row.attempts) is not None
            if counts:
                self._end_failed(row, error, done)
            return counts
        delay = tasker.rules.backoff.delay(row.attempts, self.environment.random())
        due = self._clock.now() + delay
        with self._lock:
            found = self._open.get(row.id)
            if found is None or found.row.attempts != row.attempts:
                return False
            found.cancel_timers()
            again = found.row._replace(attempts=row.attempts + 1, due=due)
            self._open[row.id] = OpenTask(again)
        self.retried += 1
        log.warning("task failed; it is tried again", task=row.id, error=brief(error))

        def committed(_change: Change, error: Exception | None) -> None:
            if self.is_current(again):
                self._pass_on(tasker, again)
            if done is not None:
                done.resolve(error)

        change = Change(row.execution, retried=(again,))
        self._writer.submit(change, committed, insist=True, waiter=done)
        return True

    def finished(self, tasks: Iterable[str]) -> None:
        """Forget tasks that are gone from the store; tell the taskers of those still under way."""
        for task in tasks:
            if task in self._ended:  # it was answered
                self._ended.discard(task)
                continue
            row = self._close_task(task, stored=False)
            self._ended.discard(task)
            self._fresh.discard(task)
            self._contested.discard(task)
            tasker = None if row is None else self._taskers.get(row.tasker)
            if row is not None and tasker is not None:
                tasker.cancel(row)

    def withdraw(self, tasks: Iterable[str]) -> None:
        """Take back tasks that have not begun: each ends as failed. In the writer's thread."""
        for task in tasks:
            try:
                row = self._close_task(task, begun=False)
            except Exception as error:  # noqa: BLE001 - it is stored: look again
                outage_of(self._store).failed(error, f"task {task!r} cannot be read")
                self._look_again(partial(self.withdraw, (task,)))
                continue
            if row is not None:
                failure = failure_of(TaskWithdrawn(f"task {task!r} was taken back"))
                now = self._clock.now()
                self._end(row, TaskEnded(None, now, task, "failed", error=failure))

    def cancel_all(self, execution: str) -> None:
        """Forget all tasks of an execution that has ended."""
        with self._lock:
            tasks = sorted(self._of.get(execution, ()))
        self.finished(tasks)

    def close(self, timeout: float) -> None:
        """Stop the taskers within `timeout` seconds; unfinished tasks stay in the store."""
        with self._lock:
            for each in self._open.values():
                each.cancel_timers()
        now = self.environment.clock.now
        end = now() + timeout
        taskers = list(dict.fromkeys(self._taskers.values()))
        for tasker in taskers:
            tasker.stop()
        for tasker in taskers:
            tasker.close(max(end - now(), 0.0))
        self._give_back()

    def _give_back(self) -> None:
        """Return unfinished tasks to their owners; this does not count as a failed attempt."""
        with self._lock:
            rows = [each.row for each in self._open.values() if each.row.worker is not None]
        for row in rows:
            change = Change(row.execution, retried=(row._replace(worker=None),))
            self._writer.submit(change)


def _taken(name: str) -> BadOption:
    return BadOption(f"there is a tasker {name!r} already; give this one another name")
