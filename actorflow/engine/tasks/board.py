"""The board: tasks that executions have handed out, and the taskers that do them.

A task is stored when its execution commits, handed out after, and removed in the same commit that
stores its result: at least once, each time with the same id to deduplicate by.

Attempts are counted, also those that ended with the process: where a store was not closed, a task
that is read from it may have been under way when an earlier process died. Before it begins again,
that is noted there.
"""

from __future__ import annotations

import random
import threading
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.envelopes import TaskEnded, TaskStarted, failure_of, pack
from actorflow.engine.errors import TaskCrashed, TaskFailed, TaskTimeout, TaskWithdrawn
from actorflow.engine.execution.writing.writer import AGAIN
from actorflow.engine.stores.protocol import Answer, Change, NewMessage
from actorflow.engine.tasks.lending import Lending
from actorflow.engine.tasks.outstanding import Outstanding
from actorflow.engine.tasks.tasker import HOLD, Tasker
from actorflow.runtime.errors import BadOption
from actorflow.runtime.log import log
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.engine.core import Core
    from actorflow.engine.stores.protocol import TaskRow

__all__ = ["CRASHES", "Board"]

CRASHES = 2
"""How often a task is begun again after its process has ended, if its retries are fewer."""

_WINDOW = 10_000  # tasks of one tasker that are in memory at the same time, about


class Board:
    """The taskers of an engine and the tasks that are out. Thread-safe."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._taskers: dict[str, Tasker] = {}
        self._open: dict[str, Outstanding] = {}
        self._of: dict[str, set[str]] = {}  # by execution: its tasks in memory
        self._held: dict[str, int] = {}  # by tasker: how many of its tasks are in memory
        self._behind: set[str] = set()  # taskers with tasks in the store that are not in memory
        self._fresh: set[str] = set()  # tasks that are not in memory, and that nobody has begun
        self._ended: set[str] = set()  # tasks that have a result which is not committed yet
        self._handed: dict[Tasker, list[TaskRow]] = {}  # out of this commit, and not queued yet
        self._lending = Lending(core, self) if core.store.traits.shared else None
        self.done = 0
        self.failed = 0
        self.retried = 0

    def __len__(self) -> int:
        return len(self._open)

    def names(self) -> list[str]:
        """Return the names of all taskers."""
        return list(self._taskers)

    def register(self, name: str, do: Callable[..., Any] | str, options: dict[str, Any]) -> None:
        """Add a tasker; tasks that have been waiting for it are handed out."""
        if name in self._taskers:
            raise _taken(name)
        tasker = Tasker(self, name, do, clock=self._core.worker_clock, **options)
        with self._lock:
            first = self._taskers.setdefault(name, tasker)
        if first is not tasker:  # another thread was faster
            tasker.stop()
            tasker.close(0.0)
            raise _taken(name)
        if self._core.resumed:
            self._core.writer.call(lambda: self._catch_up(name))
            if self._lending is not None:
                self._core.writer.call(self._lending.announce)

    def resume(self) -> None:
        """Hand out what is stored. In the writer's thread."""
        for name in list(self._taskers):
            self._catch_up(name)
        if self._lending is not None:
            self._lending.announce()

    def look(self, *, borrowed: bool = False) -> None:
        """Look at what processes hand to each other, or only at what is to be done here.

        In the writer's thread.
        """
        if self._lending is not None:
            self._lending.borrow() if borrowed else self._lending.look()

    def let_go(self, keeps: Callable[[str], bool]) -> None:
        """Forget tasks of executions that run elsewhere now. In the writer's thread.

        Those that are under way go on, and their answers count if they come first.
        """
        with self._lock:
            gone = [
                task
                for name in self._of
                if not keeps(name)
                for task in self._of[name]
                if self._open[task].row.worker is None
            ]
        for task in gone:
            self._close_task(task)
            self._ended.discard(task)

    # Handing out.

    def hand_out(self, rows: Iterable[TaskRow]) -> None:
        """Take tasks that were just stored; `pass_on` queues them. In the writer's thread."""
        for row in rows:
            if not self._core.ownership.runs(row.execution):
                continue
            tasker = self._taskers.get(row.tasker)
            if self._lending is not None and self._lending.lend(row, tasker):
                continue
            if tasker is None:
                if row.tasker not in self._behind:
                    log.warning("no such tasker; its tasks wait", tasker=row.tasker, task=row.id)
                self._leave_behind(row)
            elif row.tasker in self._behind or self._held.get(row.tasker, 0) >= _WINDOW:
                self._leave_behind(row)
            elif row.due > self._core.clock.now():
                self._take(tasker, Outstanding(row))
            else:
                self._note(Outstanding(row))
                self._handed.setdefault(tasker, []).append(row)

    def pass_on(self) -> None:
        """Queue the tasks of all changes of a commit, those of one tasker together."""
        while self._handed:
            tasker, rows = self._handed.popitem()
            tasker.take_many(rows)

    def held(self, tasker: str) -> int:
        """Return how many tasks of a tasker are in memory."""
        return self._held.get(tasker, 0)

    def _leave_behind(self, row: TaskRow) -> None:
        """Leave a new task in the store; it is read when its tasker has room."""
        self._behind.add(row.tasker)
        if self._core.ownership.is_suspect(row.execution):
            self._fresh.add(row.id)

    def _take(self, tasker: Tasker, task: Outstanding) -> None:
        row = task.row
        self._note(task)
        self._pass_on(tasker, row)

    def _note(self, task: Outstanding) -> None:
        row = task.row
        with self._lock:
            self._open[row.id] = task
            self._of.setdefault(row.execution, set()).add(row.id)
            self._held[row.tasker] = self._held.get(row.tasker, 0) + 1

    def _pass_on(self, tasker: Tasker, row: TaskRow) -> None:
        """Hand a task to its tasker, now or when it is due."""
        clock = self._core.clock
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

    def _catch_up(self, name: str) -> None:
        """Hand out tasks that are in the store and not in memory. In the writer's thread."""
        tasker = self._taskers.get(name)
        core = self._core
        if tasker is None or core.closed:
            return
        cursor = None
        try:
            while self._held.get(name, 0) < _WINDOW:
                page = core.store.open(tasker=name, after=cursor)
                for row in page.rows:
                    if not self._is_lent(row) and not self._knows(row.id):
                        self._recover(tasker, row)
                cursor = page.after
                if cursor is None:
                    self._behind.discard(name)
                    return
        except Exception as error:  # noqa: BLE001 - they are stored: look again
            log.error("tasks cannot be read; trying again", tasker=name, exc_info=error)
            self._look_again(partial(self._catch_up, name))
        self._behind.add(name)

    def _look_again(self, look: Callable[[], None]) -> None:
        """Make a call in the writer's thread when the store can perhaps be read."""
        core = self._core
        core.clock.call_at(core.clock.now() + AGAIN, lambda: core.writer.call(look))

    def _is_lent(self, row: TaskRow) -> bool:
        """Return whether another process does a task: not if the store was shared once."""
        return row.worker is not None and self._lending is not None

    def _knows(self, task: str) -> bool:
        """Return whether a task is out, answered, or about to be handed to somebody else."""
        moving = () if self._lending is None else self._lending.moving
        return task in self._open or task in self._ended or task in moving

    def take_borrowed(self, rows: Sequence[TaskRow]) -> None:
        """Do what others have handed to this process; stop what they do not want any more."""
        for row in rows:
            tasker = self._taskers.get(row.tasker)
            if tasker is not None and not self._knows(row.id):
                self._take(tasker, Outstanding(row))
        wanted = {row.id for row in rows}
        with self._lock:
            gone = [task for task, found in self._open.items()
                    if found.row.worker is not None and task not in wanted]  # fmt: skip
        self.finished(gone)

    def borrows_from(self, executions: Iterable[str]) -> bool:
        """Return whether there are tasks here of some of these, which run elsewhere."""
        runs = self._core.ownership.runs
        return any(name in self._of and not runs(name) for name in executions)

    def crashes_of(self, row: TaskRow) -> int:
        """Return how often a task is begun again after its process has ended."""
        tasker = self._taskers.get(row.tasker)
        retries = row.retries if tasker is None else self._retries(tasker, row)
        return max(retries or 0, CRASHES)

    def _recover(self, tasker: Tasker, row: TaskRow) -> None:
        """Hand out a task that an earlier process may have begun, if that did not end well."""
        if not self._core.ownership.is_suspect(row.execution) or row.id in self._fresh:
            self._fresh.discard(row.id)
            self._take(tasker, Outstanding(row))
            return
        again = row._replace(attempts=row.attempts + 1)
        if again.attempts > self.crashes_of(row):
            self._note(Outstanding(row))
            text = f"the process ended {again.attempts} times while this task was under way"
            self.fail(row.id, TaskCrashed(text))
            return
        self._take(tasker, Outstanding(again, recovered=True))

    @staticmethod
    def _retries(tasker: Tasker, row: TaskRow) -> int:
        return tasker.retries if row.retries is None else row.retries

    def timeout_of(self, row: TaskRow, tasker: Tasker) -> float | None:
        """Return the seconds that one attempt has."""
        return tasker.timeout if row.timeout is None else row.timeout

    def begin(self, row: TaskRow, go_on: Callable[[], None]) -> bool:
        """Note that an attempt begins; return whether it may right now.

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
            self._core.writer.submit(change, lambda _change, _error: go_on(), insist=True)
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
            change = Change(row.execution, at=self._core.clock.now(), messages=(message,))
            self._core.writer.submit(change, self._told, insist=True)

    def _told(self, change: Change, error: Exception | None) -> None:
        if error is None:
            self._core.host.deliver_rows(change.rows)

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
        clock = self._core.clock
        with self._lock:
            found = self._open.get(row.id)
            if found is None or found.row.attempts != row.attempts or self._core.closed:
                return False
            if found.lease is not None:
                found.lease.cancel()
            if expired is not None:
                found.expired = expired
            found.lease = clock.call_at(
                clock.now() + seconds, lambda: self._on_expiry(row, seconds)
            )
            return True

    def _on_expiry(self, row: TaskRow, seconds: float) -> None:
        """Count an attempt as failed whose time is up. In the clock's thread."""
        found = self._open.get(row.id)
        if found is None or found.row.attempts != row.attempts:
            return
        error = TaskTimeout(
            f"tasker {row.tasker!r} sent neither an answer nor a heartbeat for task {row.id!r} "
            f"within {seconds} s"
        )
        if found.expired is not None:
            found.expired(error)
        self.attempt_failed(row, error)

    def heartbeat(self, task: str) -> bool:
        """Renew the timeout of a task; return whether it is still wanted."""
        row = self.row(task)
        tasker = None if row is None else self._taskers.get(row.tasker)
        if row is None or tasker is None:
            return row is not None
        timeout = self.timeout_of(row, tasker)
        return True if timeout is None else self.lease(row, timeout)

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
            if found is None:
                look = stored and attempts is None and task not in self._ended
                row = self._core.store.task(task) if look else None
                if row is None or (not begun and self._is_lent(row)):
                    return None
                self._fresh.discard(task)
                self._ended.add(task)
                return row
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
        if row.tasker in self._behind and held < _WINDOW // 2 and not self._core.closed:
            self._core.writer.call(lambda: self._catch_up(row.tasker))
        return row

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
        ended = TaskEnded(None, self._core.clock.now(), task, "ok", bodies.decode(data))
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
                self._core.clock.now(),
                row.id,
                "crashed" if crashed else "failed",
                error=told or failure_of(error),
            ),
            done,
        )

    def _end(self, row: TaskRow, ended: TaskEnded, done: Any = None) -> None:
        """Deliver the answer to its execution; store it where that is not live, or `done` waits."""
        core = self._core
        # A `TaskStarted` is stored, so the answer must not overtake it.
        quick = done is None and not row.tell_start and core.writer.quiet
        if quick and core.host.offer(row.execution, ended, task=row):
            return
        self.store_answer(row, *pack(ended), done)

    def store_answer(self, row: TaskRow, type: str, body: bytes, done: Any = None) -> None:  # noqa: A002
        """Replace a task by a message to its execution. Thread-safe."""
        core = self._core
        message = NewMessage(row.execution, type, body)
        change = Change(row.execution, at=core.clock.now(), answers=(Answer(row.id, message),))

        def committed(change: Change, error: Exception | None) -> None:
            if error is None:
                self._ended.discard(row.id)
                core.host.deliver_rows(change.extra)
            else:  # the engine is closed: the task is in the store, and begins again
                log.warning("the result of a task is lost", task=row.id, error=str(error))
            if done is not None:
                done.resolve(error, answer=bool(change.extra))

        core.writer.submit(change, committed, insist=True, waiter=done)

    def attempt_done(self, row: TaskRow, result: Any) -> None:
        """Handle what a tasker returned."""
        if result is HOLD:
            if row.attempts:  # it ended well: it must not count when it is read again
                held = row._replace(attempts=row.attempts - 1)
                self._core.writer.submit(Change(row.execution, retried=(held,)), None)
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
        if self._core.closed or tasker is None:
            return False  # it is in the store, and begins again
        if final or row.attempts >= max(self._retries(tasker, row), least):
            counts = self._close_task(row.id, row.attempts) is not None
            if counts:
                self._end_failed(row, error, done)
            return counts
        delay = tasker.backoff.delay(row.attempts, random.random())  # noqa: S311 - jitter
        due = self._core.clock.now() + delay
        again = row._replace(attempts=row.attempts + 1, due=due)
        with self._lock:
            found = self._open.get(row.id)
            if found is None or found.row.attempts != row.attempts:
                return False
            found.cancel_timers()
            self._open[row.id] = Outstanding(again)
        self.retried += 1
        log.warning("task failed; it is tried again", task=row.id, error=brief(error))

        def committed(_change: Change, error: Exception | None) -> None:
            if self.is_current(again):
                self._pass_on(tasker, again)
            if done is not None:
                done.resolve(error)

        change = Change(row.execution, retried=(again,))
        self._core.writer.submit(change, committed, insist=True, waiter=done)
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
            tasker = None if row is None else self._taskers.get(row.tasker)
            if row is not None and tasker is not None:
                tasker.cancel(row)

    def withdraw(self, tasks: Iterable[str]) -> None:
        """Take back tasks that have not begun: each ends as failed. In the writer's thread."""
        for task in tasks:
            try:
                row = self._close_task(task, begun=False)
            except Exception as error:  # noqa: BLE001 - it is stored: look again
                log.error("a task cannot be read; trying again", task=task, error=str(error))
                self._look_again(partial(self.withdraw, (task,)))
                continue
            if row is not None:
                failure = failure_of(TaskWithdrawn(f"task {task!r} was taken back"))
                now = self._core.clock.now()
                self._end(row, TaskEnded(None, now, task, "failed", error=failure))

    def cancel_all(self, execution: str) -> None:
        """Forget all tasks of an execution that has ended."""
        with self._lock:
            tasks = list(self._of.get(execution, ()))
        self.finished(tasks)

    def close(self, timeout: float) -> None:
        """Stop the taskers within `timeout` seconds; unfinished tasks stay in the store."""
        with self._lock:
            for each in self._open.values():
                each.cancel_timers()
        end = monotonic() + timeout
        taskers = list(self._taskers.values())
        for tasker in taskers:
            tasker.stop()
        for tasker in taskers:
            tasker.close(max(end - monotonic(), 0.0))
        self._give_back()

    def _give_back(self) -> None:
        """Let the owners hand out again what was not done here: that is no failed attempt."""
        with self._lock:
            rows = [each.row for each in self._open.values() if each.row.worker is not None]
        for row in rows:
            change = Change(row.execution, retried=(row._replace(worker=None),))
            self._core.writer.submit(change)


def _taken(name: str) -> BadOption:
    return BadOption(f"there is a tasker {name!r} already; give this one another name")
