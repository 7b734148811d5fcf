"""The engine: durable executions on one store."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.clock import WALL
from actorflow.engine.cron import next_time
from actorflow.engine.errors import EngineClosed, StoreFull, UnknownExecution, WaitTimeout
from actorflow.engine.execution.failpoints import failpoint
from actorflow.engine.execution.host import Host
from actorflow.engine.execution.timers import Timers
from actorflow.engine.execution.writer import AGAIN, Append, Writer
from actorflow.engine.kind import Status
from actorflow.engine.kinds.cron import CronKind
from actorflow.engine.kinds.worker import DurableWorker, WorkerKind
from actorflow.engine.operations.dead_letters import Letters
from actorflow.engine.stores.opening import open_store
from actorflow.engine.stores.protocol import Change
from actorflow.engine.tasks.board import Taskers
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import BadOption, PushTimeout, near
from actorflow.runtime.log import log
from actorflow.runtime.worker.tickets import ThreadTicket
from behaviours import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from actorflow.engine.kind import Kind
    from actorflow.engine.stores.protocol import ExecutionRow, MessageRow, Store

__all__ = ["Engine", "EngineStatistics"]

_LEAST = 0.1  # seconds that a run has to end, however long the tasks have taken before
_PURGE_EVERY = 3_600.0  # seconds between looking for what has been kept long enough


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatistics:
    """An engine at one moment."""

    live: int
    """Executions in memory."""
    commits: int
    changes: int
    """Changes in these commits; many messages from outside are one."""
    messages: int
    """Messages from outside that were stored."""
    refused: int
    """Commits that the store refused."""
    lost: int
    """Messages of a plain `push` that were lost with them."""
    waiting: int
    """Entries that wait for the next commit."""
    timers_fired: int
    tasks: int
    """Tasks that wait for their result."""
    tasks_done: int
    tasks_failed: int
    tasks_retried: int


class Engine:
    """Runs durable executions. Safe in any thread.

    Args:
        where: a file, `":memory:"`, a URL such as `"sqlite://orders.db"`, or a store of your own.
        durability: of a file: `"full"`, `"normal"` or `"off"`; see `SqliteStore`.
        check: of a file: read and verify everything when it is opened.
        retention: seconds that ended executions and history are kept; for ever by default.
        max_live: executions that stay in memory although they have nothing to do.
        clock: where time comes from; tests give a virtual one.

    Opening an engine on a store goes on with everything that was not finished: messages that
    were not consumed, timers, tasks. What is for a kind or a tasker that is not registered yet
    waits for it.

    Raises:
        StoreBusy: another process has the store open for writing.
        StoreBroken: the file is torn, empty, not ours, or of a newer version.

    """

    def __init__(
        self,
        where: str | Path | Store = ":memory:",
        *,
        durability: str = "full",
        check: bool = True,
        retention: float | None = None,
        max_live: int = 1_000,
        clock: Any = WALL,
    ) -> None:
        self.clock = clock
        self.worker_clock = SYSTEM if clock is WALL else clock
        self.store = open_store(where, durability=durability, check=check)
        self.kinds: dict[str, Kind] = {}
        self.closed = False
        self._retention = retention
        self._lock = threading.Lock()
        self._watchers: dict[str, list[ThreadTicket]] = {}
        self.host = Host(self, max_live)
        self.timers = Timers(self)
        self.taskers = Taskers(self)
        self.writer = Writer(self.store, clock, self.host.deliver)
        self.register(CronKind(clock))
        self._recover()

    # Beginning again.

    def _recover(self) -> None:
        """Go on with tasks and timers; messages go on when their kinds are registered."""
        tasks = list(self.store.rows("tasks"))
        self.taskers.hand_out(tasks)
        if tasks:
            log.info("recovered", tasks=len(tasks))
        self.timers.start()
        if self._retention is not None:
            self.writer.call(self._purge_old)

    def register(self, kind: Kind) -> None:
        """Make a kind of execution known; what was kept for it goes on.

        Raises:
            BadOption: there is one of that name.

        """
        with self._lock:
            if kind.name in self.kinds:
                msg = f"there is a kind {kind.name!r} already; give this one another name"
                raise BadOption(msg)

        def begin() -> None:  # in the writer's thread, so that nothing is delivered twice
            rows = list(self.store.pending(kind.name))
            self.kinds[kind.name] = kind
            self.host.recover(rows, kind.name)
            if rows:
                log.info("recovered", kind=kind.name, messages=len(rows))

        self._in_writer(begin)

    # What users call.

    def worker(
        self,
        name: str,
        job: Callable[[Any, Any], Any],
        *,
        state: Any = None,
        behaviour: Any = Queue,
        throttle: float | None = None,
        on_failure: Any = "isolate",
    ) -> DurableWorker:
        """Start a durable worker, or go on with the one of that name in the store.

        Args:
            name: its id in the store.
            job: a function `(batch, state) -> state` of plain data, or a coroutine function.
            state: the first state, if the store has none.
            behaviour: how messages accumulate: a class or factory, since it is made anew when
                the worker comes back to life.
            throttle: seconds between the starts of two calls, at least.
            on_failure: as for `spawn`; what is given up becomes a stored dead letter. The default
                finds the message that fails and delivers the others.

        """
        kind = WorkerKind(
            name, job, state=state, behaviour=behaviour, throttle=throttle, on_failure=on_failure
        )
        self.register(kind)
        return DurableWorker(self, name, kind)

    def tasker(self, name: str, do: Callable[..., Any] | str, **options: Any) -> None:
        """Register a tasker: `do(task)` is called for each task, sync or async; or a URL.

        Options:
            concurrency: tasks at the same time (1).
            retries: how often a task that fails is tried again (0), after a `backoff`
                (`Backoff(initial=1.0, maximum=300.0, jitter=0.1)`).
            timeout: seconds after which an attempt without an answer or a `task.heartbeat()`
                counts as failed; its place goes to others.
            behaviour, throttle: as for `spawn`, of `Task` objects: rate, order, bounds.
            executor: `"pool"`, or `"process"` to call it in other processes, where a task whose
                time is up is killed; give a function at the top of a module then.
            on_cancel: called with a task that is not wanted any more.
        """
        self.taskers.register(name, do, options)

    def send(self, execution: str, body: Any, *, kind: str | None = None) -> None:
        """Send a message to an execution, made if `kind` says so; return when it is stored."""
        stored = ThreadTicket()
        self.append(execution, kind, (body,), stored=stored)
        self.await_ticket(stored, None, body)

    def every(
        self, name: str, cron: str, worker: DurableWorker, message: Any, *, zone: str = "UTC"
    ) -> None:
        """Push a message to a durable worker by the clock, also after a restart.

        Args:
            name: the schedule's; the same name again sets it anew.
            cron: five fields, as in `"30 9 * * 1-5"`; or six, the first being seconds.
            worker: whose message it is.
            message: plain data.
            zone: the time zone that the fields are meant in.

        Times that went by while no engine ran count as one. It is the execution `cron:NAME`:
        cancel that to end it.

        Raises:
            BadOption: the expression or the zone cannot be read.

        """
        next_time(cron, self.clock.now(), zone)
        body = {"cron": cron, "zone": zone, "to": worker.name, "kind": worker.kind, "body": message}
        self.send(f"cron:{name}", {"set": body}, kind=CronKind.name)

    def return_task(self, task: str, value: Any = None) -> bool:
        """Give the result of a task that a tasker holds; tell whether it was still wanted."""
        self._refuse_if_closed()
        return self.taskers.succeed(task, value)

    def fail_task(self, task: str, error: BaseException) -> bool:
        """Say that a task that a tasker holds has failed; tell whether it was still wanted."""
        self._refuse_if_closed()
        return self.taskers.fail(task, error)

    def heartbeat(self, task: str) -> bool:
        """Give a task that a tasker holds its timeout again; tell whether it is still wanted."""
        return self.taskers.heartbeat(task)

    def row(self, execution: str) -> ExecutionRow:
        """Give an execution as it is stored.

        Raises:
            UnknownExecution: there is none of that id.

        """
        row = self.store.execution(execution)
        if row is None:
            names = [row.id for row in self.store.rows("executions", limit=1_000)]
            msg = f"there is no execution {execution!r}{near(execution, names)}"
            raise UnknownExecution(msg)
        return row

    def wait(self, execution: str, timeout: float | None = None) -> ExecutionRow:
        """Wait until an execution is done, failed or cancelled.

        Raises:
            WaitTimeout: not in time.
            EngineClosed: the engine was closed before.

        """
        ticket = ThreadTicket()
        with self._lock:
            self._refuse_if_closed()
            self._watchers.setdefault(execution, []).append(ticket)
        row = self.store.execution(execution)
        if row is not None and row.status != Status.ACTIVE:
            self._forget_watcher(execution, ticket)
            return row
        if not ticket.wait(timeout):
            self._forget_watcher(execution, ticket)
            msg = f"execution {execution!r} did not end within {timeout} s"
            raise WaitTimeout(msg)
        if ticket.error is not None:
            raise ticket.error
        return self.row(execution)

    def _forget_watcher(self, execution: str, ticket: ThreadTicket) -> None:
        with self._lock:
            tickets = self._watchers.get(execution, [])
            if ticket in tickets:
                tickets.remove(ticket)
            if not tickets:
                self._watchers.pop(execution, None)

    def cancel(self, execution: str) -> bool:
        """End an execution: its messages, timers and tasks go; tell whether it was still there.

        A run that is under way is thrown away. What it has to undo is for its kind: send it a
        message instead where there is something.

        Raises:
            UnknownExecution: there is none of that id.

        """
        while True:
            row = self.row(execution)
            if row.status in {Status.DONE, Status.CANCELLED}:
                return False
            change = Change(
                execution,
                kind=row.kind,
                expected=row.revision,
                state=row.state,
                status=Status.CANCELLED,
                at=float(self.clock.now()),
                clear=True,
            )
            done = ThreadTicket()

            def committed(
                change: Change, error: Exception | None, done: ThreadTicket = done
            ) -> None:
                if change.committed:
                    self.taskers.cancel_all(change.execution)
                    self._tell_watchers(change.execution)
                done.resolve(error)

            self.submit(change, committed)
            self.await_ticket(done, None, execution)
            if change.committed:
                return True

    def dead_letters(self, execution: str | None = None) -> Letters:
        """Give the dead letters: of one execution, or all."""
        return Letters(self, execution)

    def purge(self, *, before: float) -> int:
        """Forget executions that ended before a moment, and history older than it; count them."""
        count: int = self._in_writer(lambda: self.store.purge(before=before))
        return count

    def _in_writer(self, function: Callable[[], Any]) -> Any:
        """Call a function in the writer's thread; give what it gives, or raise what it raises."""
        done = ThreadTicket()

        def call() -> None:
            try:
                done.answer = function()
            except Exception as error:  # noqa: BLE001 - the caller's
                done.resolve(error)
            else:
                done.resolve()

        self._refuse_if_closed()
        self.writer.call(call)
        self.await_ticket(done, None, function)
        return done.answer

    def _purge_old(self) -> None:
        """Forget what has been kept long enough. In the writer's thread."""
        if self._retention is None or self.closed:
            return
        now = self.clock.now()
        self.clock.call_at(now + _PURGE_EVERY, lambda: self.writer.call(self._purge_old))
        self.store.purge(before=now - self._retention)

    def backup(self, path: str | Path) -> None:
        """Copy the store to a new file while the engine runs."""
        copy = getattr(self.store, "backup", None)
        if copy is None:
            msg = f"{type(self.store).__name__} has no backup; export it instead"
            raise BadOption(msg)
        copy(path)

    def statistics(self) -> EngineStatistics:
        """Take a picture of the engine. O(1)."""
        writer, taskers = self.writer, self.taskers
        return EngineStatistics(
            live=len(self.host),
            commits=writer.commits,
            changes=writer.changes,
            messages=writer.messages,
            refused=writer.refused,
            lost=writer.lost,
            waiting=writer.waiting,
            timers_fired=self.timers.fired,
            tasks=len(taskers),
            tasks_done=taskers.done,
            tasks_failed=taskers.failed,
            tasks_retried=taskers.retried,
        )

    # What the parts of the engine use.

    def _refuse_if_closed(self) -> None:
        if self.closed:
            msg = "the engine has been closed"
            raise EngineClosed(msg)

    def submit(self, change: Change, then: Callable[[Change, Exception | None], None]) -> None:
        """Have a change committed, on behalf of a caller who is told if that fails."""
        self._refuse_if_closed()
        self.writer.submit(change, then)

    def append(
        self,
        execution: str,
        kind: str | None,
        messages: Sequence[Any],
        *,
        stored: Any = None,
        processed: Any = None,
    ) -> None:
        """Store messages and deliver them; tell when they are stored, when processed."""
        self._refuse_if_closed()
        encode = bodies.encode
        data = [encode(message) for message in messages]
        writer = self.writer
        if writer.refusal is not None and stored is None and processed is None:
            since, why = writer.refusal
            if self.clock.now() - since < AGAIN:  # nobody would hear of it otherwise
                raise StoreFull(why)
        writer.append(Append(execution, kind, data, stored, processed))

    def append_waiting(self, execution: str, kind: str, message: Any, processed: Any) -> None:
        """Have a message processed whose pusher waits for that: stored first only if need be."""
        self._refuse_if_closed()
        if self.writer.quiet:
            body = bodies.decode(bodies.encode(message))
            if self.host.offer(execution, body, processed):
                return
        self.append(execution, kind, (message,), processed=processed)

    def append_late(self, execution: str, kind: str, message: Any, processed: Any) -> None:
        """Store a message after all that was to be processed without. Any thread."""
        try:
            self.append(execution, kind, (message,), processed=processed)
        except EngineClosed as error:
            if processed is not None:
                processed.resolve(error)

    def await_ticket(self, ticket: ThreadTicket, timeout: float | None, message: Any) -> None:
        """Wait for a ticket, and raise what it was resolved with."""
        if not ticket.wait(timeout):
            msg = f"{message!r:.200} was not done within {timeout} s; it may be yet"
            raise PushTimeout(msg)
        if ticket.error is not None:
            raise ticket.error

    async def await_async(self, ticket: Any, timeout: float | None, message: Any) -> None:
        """Do as `await_ticket`, on an event loop."""
        if not await ticket.wait(timeout):
            msg = f"{message!r:.200} was not done within {timeout} s; it may be yet"
            raise PushTimeout(msg)

    def dispatch(self, change: Change, rows: Sequence[MessageRow]) -> None:
        """Send out what a committed change says. In the writer's thread."""
        if change.timers:
            self.timers.added(change.timers)
        if change.finished_tasks:
            self.taskers.cancel(change.finished_tasks)
        if change.tasks:
            self.taskers.hand_out(change.tasks)
        failpoint("dispatch.inside")
        if rows:
            self.host.deliver_rows(rows)
        if change.status != Status.ACTIVE:
            self._tell_watchers(change.execution)

    def _tell_watchers(self, execution: str, error: BaseException | None = None) -> None:
        with self._lock:
            tickets = self._watchers.pop(execution, [])
        for ticket in tickets:
            ticket.resolve(error)

    # Ending.

    def close(self, timeout: float = 5.0) -> None:
        """Finish what is running, commit it, and let go of the store. Nothing stored is lost.

        `timeout` seconds are left to the tasks and runs that are under way. Those that are not
        done then go on by themselves, but what they come to is not stored any more: they begin
        again with the next engine.
        """
        end = monotonic() + timeout
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self.timers.close()
        self.taskers.close(timeout)
        self.writer.stop_insisting()  # or an execution would wait for room for ever
        self.host.close(max(end - monotonic(), _LEAST))
        self.writer.close()
        self.host.tell_waiting()
        self.store.close()
        error = EngineClosed("the engine was closed before the execution ended")
        for execution in list(self._watchers):
            self._tell_watchers(execution, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
