"""Tasks: work that executions hand out, done by taskers, which are workers.

A task is stored when its execution commits, handed out after, and removed in the same commit that
stores its result: at least once, each time with the same id to deduplicate by. A tasker is a
worker: it takes a behaviour to throttle, bound or order its tasks.
"""

from __future__ import annotations

import random
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.errors import TaskTimeout, text_of
from actorflow.engine.stores.protocol import Change
from actorflow.engine.tasks.tasker import HOLD, Tasker
from actorflow.runtime.errors import BadOption
from actorflow.runtime.log import log
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.engine.engine import Engine
    from actorflow.engine.stores.protocol import TaskRow
    from actorflow.runtime.clock import Timer

__all__ = ["Taskers"]


class _Open:
    """A task that waits for its result."""

    __slots__ = ("expired", "lease", "row")

    def __init__(self, row: TaskRow) -> None:
        self.row = row
        self.lease: Timer | None = None
        self.expired: Callable[[Exception], None] | None = None


class Taskers:
    """The taskers of an engine and the tasks that are out. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._taskers: dict[str, Tasker] = {}
        self._open: dict[str, _Open] = {}
        self._waiting: dict[str, list[TaskRow]] = {}  # for taskers that are not there
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
            msg = f"there is a tasker {name!r} already; give this one another name"
            raise BadOption(msg)
        tasker = Tasker(self, name, do, clock=self._engine.worker_clock, **options)
        with self._lock:
            self._taskers[name] = tasker
            waiting = self._waiting.pop(name, [])
        self.hand_out(waiting)

    # Handing out.

    def hand_out(self, rows: Iterable[TaskRow]) -> None:
        """Hand stored tasks to their taskers, now or when they are due."""
        clock = self._engine.clock
        for row in rows:
            with self._lock:
                self._open[row.id] = _Open(row)
                tasker = self._taskers.get(row.tasker)
                if tasker is None:
                    waiting = self._waiting.setdefault(row.tasker, [])
                    waiting.append(row)
                    first = len(waiting) == 1
            if tasker is None:
                if first:
                    log.warning("no such tasker; its tasks wait", tasker=row.tasker, task=row.id)
            elif row.due > clock.now():
                clock.call_at(row.due, lambda tasker=tasker, row=row: tasker.take(row))
            else:
                tasker.take(row)

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
        """Let an attempt run for `seconds` from now; return whether it is still wanted.

        `expired(error)` is called when the time is up, before the attempt counts as failed with
        that error. Without it, the one of the last call remains.
        """
        clock = self._engine.clock
        with self._lock:
            found = self._open.get(row.id)
            if found is None or found.row.attempts != row.attempts or self._engine.closed:
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
        if row is None or tasker is None or tasker.timeout is None:
            return row is not None
        return self.lease(row, tasker.timeout)

    # Results. The first one counts.

    def _close_task(self, task: str, attempts: int | None = None) -> TaskRow | None:
        """Remove a task; return it, or `None` if it is gone or another attempt is under way."""
        with self._lock:
            found = self._open.get(task)
            if found is None or (attempts is not None and found.row.attempts != attempts):
                return None
            del self._open[task]
            if found.lease is not None:
                found.lease.cancel()
            waiting = self._waiting.get(found.row.tasker)
            if waiting is not None:
                self._waiting[found.row.tasker] = [row for row in waiting if row.id != task]
            return found.row

    def succeed(self, task: str, value: Any) -> bool:
        """Store the result of a task as a message to its execution; return whether it counts.

        Raises:
            NotStorable: the value is not plain data; the task stays open.

        """
        body = bodies.encode({"task": task, "ok": True, "value": value})
        row = self._close_task(task)
        if row is None:
            return False
        self.done += 1
        self._end(row, body)
        return True

    def fail(self, task: str, error: BaseException) -> bool:
        """Store the failure of a task as a message to its execution; return whether it counts."""
        row = self._close_task(task)
        if row is None:
            return False
        self._end_failed(row, error)
        return True

    def _end_failed(self, row: TaskRow, error: BaseException) -> None:
        self.failed += 1
        text = {"kind": type(error).__name__, "message": text_of(error)}
        self._end(row, bodies.encode({"task": row.id, "ok": False, "error": text}))

    def _end(self, row: TaskRow, body: bytes) -> None:
        """Deliver the answer to its execution, or store it where that is not live."""
        engine = self._engine
        if engine.writer.quiet and engine.host.offer(row.execution, bodies.decode(body), task=row):
            return
        self.store_answer(row, body)

    def store_answer(self, row: TaskRow, body: bytes) -> None:
        """Replace a task by a message to its execution. Thread-safe."""
        engine = self._engine
        change = Change(
            row.execution,
            at=float(engine.clock.now()),
            messages=((row.execution, body),),
            finished_tasks=(row.id,),
        )

        def committed(change: Change, error: Exception | None) -> None:
            if error is None:
                engine.host.deliver_rows(change.rows)
            else:
                log.error("the result of a task is lost", task=row.id, error=str(error))

        engine.writer.submit(change, committed, insist=True)

    def attempt_done(self, row: TaskRow, result: Any) -> None:
        """Handle what a tasker returned."""
        if result is HOLD:
            return
        try:
            self.succeed(row.id, result)
        except Exception as error:  # noqa: BLE001 - it cannot be stored: the task has failed
            self.attempt_failed(row, error, final=True)

    def attempt_failed(self, row: TaskRow, error: BaseException, *, final: bool = False) -> None:
        """Handle a failed attempt: try again later, or notify the execution."""
        tasker = self._taskers.get(row.tasker)
        if self._engine.closed or tasker is None:
            return  # it is in the store, and begins again
        if final or row.attempts >= tasker.retries:
            if self._close_task(row.id, row.attempts) is not None:
                self._end_failed(row, error)
            return
        delay = tasker.backoff.delay(row.attempts, random.random())  # noqa: S311 - jitter
        due = float(self._engine.clock.now() + delay)
        again = row._replace(attempts=row.attempts + 1, due=due)
        with self._lock:
            found = self._open.get(row.id)
            if found is None or found.row.attempts != row.attempts:
                return  # answered, cancelled, or a later attempt is under way
            if found.lease is not None:
                found.lease.cancel()
            self._open[row.id] = _Open(again)
        self.retried += 1
        log.warning("task failed; it is tried again", task=row.id, error=brief(error))

        def committed(_change: Change, _error: Exception | None) -> None:
            if self.is_current(again):
                self.hand_out((again,))

        self._engine.writer.submit(Change(row.execution, tasks=(again,)), committed, insist=True)

    def cancel(self, tasks: Iterable[str]) -> None:
        """Forget tasks that their execution does not want any more; notify their taskers."""
        for task in tasks:
            row = self._close_task(task)
            tasker = None if row is None else self._taskers.get(row.tasker)
            if row is not None and tasker is not None:
                tasker.cancel(row)

    def cancel_all(self, execution: str) -> None:
        """Forget all tasks of an execution. O(n)."""
        with self._lock:
            tasks = [each.row.id for each in self._open.values() if each.row.execution == execution]
        self.cancel(tasks)

    def close(self, timeout: float) -> None:
        """Stop the taskers within `timeout` seconds; unfinished tasks stay in the store."""
        with self._lock:
            for each in self._open.values():
                if each.lease is not None:
                    each.lease.cancel()
        end = monotonic() + timeout
        taskers = list(self._taskers.values())
        for tasker in taskers:
            tasker.stop()
        for tasker in taskers:
            tasker.close(max(end - monotonic(), 0.0))
