"""The engine: durable executions on one store, of any kind."""

from __future__ import annotations

import asyncio
import uuid
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.engine.clock import WALL
from actorflow.engine.core import Core
from actorflow.engine.errors import KindMismatch, UnknownExecution, UnknownKind, WaitTimeout
from actorflow.engine.handle import Execution
from actorflow.engine.identifiers import check_id, check_task_id, check_wait, unknown_execution
from actorflow.engine.kind import Status
from actorflow.engine.kinds.cron import CronKind
from actorflow.engine.kinds.worker import KIND, DurableWorker, Job, WorkerKind, name_of
from actorflow.engine.lifetime import Closing
from actorflow.engine.operations.dead_letters import Letters
from actorflow.engine.operations.upkeep import Upkeep
from actorflow.engine.schedules import Schedules
from actorflow.engine.statistics import EngineStatistics
from actorflow.engine.stores.opening import open_store
from actorflow.engine.stores.protocol import new_row
from actorflow.engine.tags import texts_of
from actorflow.runtime.errors import BadOption, near
from actorflow.runtime.worker.tickets import AsyncTicket, ThreadTicket, check_timeout
from behaviours import Queue
from behaviours.arguments import count, flag, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from actorflow.engine.kind import Kind
    from actorflow.engine.schedules import Schedule
    from actorflow.engine.stores.protocol import Store

__all__ = ["RETENTION", "Engine"]

RETENTION = 30 * 86_400.0
"""Seconds that executions are kept after they have ended, unless told otherwise: 30 days."""

_STORED = 5.0  # seconds that the answer to a task may take to be stored


class Engine:
    """Runs durable executions. Thread-safe.

    Args:
        where: a file, `":memory:"`, a URL such as `"sqlite://orders.db"`, or a store of your own.
        durability: of a file: `"full"`, `"normal"` or `"off"`; see `SqliteStore`.
        check: of a file: check its structure when it is opened.
        retention: seconds that executions are kept after they have ended; `None`: for ever.
        max_live: executions that stay in memory although they have nothing to do.
        clock: where time comes from; tests give a virtual one.
        worker: of a store that several engines share: run executions here. Without, this engine
            starts, sends, cancels, looks and waits, and others do the work.

    Nothing that is stored runs before `resume()`, or the first `send`, `start`, `wait` or push: so
    kinds, workers and taskers can be registered in any order before.

    Raises:
        StoreBusy: another process has the store open for writing.
        StoreBroken: the file is torn, empty, not ours, or of another version.

    """

    def __init__(
        self,
        where: str | Path | Store = ":memory:",
        *,
        durability: str = "full",
        check: bool = True,
        retention: float | None = RETENTION,
        max_live: int = 1_000,
        clock: Any = WALL,
        worker: bool = True,
    ) -> None:
        if retention is not None:
            seconds(retention, "retention", "retention=30 * 86_400", error=BadOption)
        count(max_live, "max_live", "max_live=1_000", least=0, error=BadOption)
        flag(check, "check", "check=False", error=BadOption)
        flag(worker, "worker", "worker=False", error=BadOption)
        if not callable(getattr(clock, "now", None)) or not hasattr(clock, "call_at"):
            msg = f"clock={clock!r:.80} is not a clock: it needs now() and call_at(when, callback)"
            raise BadOption(msg)
        store = open_store(where, durability=durability, check=check)
        if not worker and not store.traits.shared:
            store.close()
            msg = f"worker=False: {type(store).__name__} is for one engine, so nobody would work"
            raise BadOption(msg)
        try:
            self.core = Core(store, clock=clock, max_live=max_live, retention=retention)
            """The inside, for those who build a kind of execution with verbs of its own."""
            self.core.passive = not worker
            self._workers = WorkerKind()
            self.core.register(self._workers)
            self.core.register(CronKind())
        except BaseException:
            store.close()
            raise
        self.schedules = Schedules(self.core)
        """What happens by the clock."""
        self.upkeep = Upkeep(self.core)
        """Purging and copying the store."""
        self._closing = Closing(self)

    # Beginning.

    def register(self, kind: Kind) -> None:
        """Make a kind of execution known.

        Raises:
            BadOption: there is one of that name.

        """
        self.core.register(kind)

    def resume(self) -> None:
        """Go on with everything that is stored: messages, timers, tasks.

        The first `send`, `start`, `wait` or push does so, too. Register kinds, workers and taskers
        before; what is for one that is missing waits for it.
        """
        self.core.refuse_if_closed()
        self.core.resume()

    async def aresume(self) -> None:
        """Like `resume`, from a task of any event loop."""
        await asyncio.to_thread(self.resume)

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
        """Return a durable worker: a new one, or the one of that name in the store.

        Args:
            name: its id in the store.
            job: a function `(batch, state) -> state` of plain data, or a coroutine function.
            state: the first state, if the store has none.
            behaviour: how messages accumulate: a class or factory, since another one is made
                each time that the worker is loaded.
            throttle: seconds between the starts of two calls, at least.
            on_failure: as for `spawn`; what is given up becomes a stored dead letter. The default
                finds the message that fails and delivers the others.

        Raises:
            KindMismatch: the store has another kind of execution under that name.

        """
        core = self.core
        core.refuse_if_closed()
        row = core.store.execution(check_id(name, "a worker"))
        if row is not None and row.kind != KIND:
            msg = f"execution {name!r} is of kind {row.kind!r}, not a worker: choose another name"
            raise KindMismatch(msg)
        given = Job(job, state=state, behaviour=behaviour, throttle=throttle, on_failure=on_failure)
        self._workers.add(name, given)
        if core.resumed:
            core.in_writer(lambda: core.host.backlog.read_now(name))
        return DurableWorker(core, name, self._workers)

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
                time is up is killed; give a function at the top of a module then. An
                `af.Processes(renew_after=100, setup=...)` is the same with other values.
            kills: of processes: kill one whose task is not wanted any more, at once.
            on_cancel: called with a task that is not wanted any more.
        """
        self.core.refuse_if_closed()
        self.core.board.register(check_id(name, "a tasker"), do, options)

    def every(
        self, name: str, cron: str, worker: DurableWorker, message: Any, *, zone: str = "UTC"
    ) -> Schedule:
        """Push a message to a durable worker by the clock, also after a restart.

        Args:
            name: the schedule's; the same name again replaces it, also after it was cancelled.
            cron: five fields, as in `"30 9 * * 1-5"`; or six, the first being seconds.
            worker: whose message it is.
            message: plain data.
            zone: the time zone that the fields are meant in.

        Times that went by while no engine ran count as one.

        Raises:
            BadOption: the expression or the zone cannot be read, or it is no worker.

        """
        plan = {"cron": cron, "zone": zone, "to": name_of(worker), "kind": KIND, "body": message}
        return self.schedules.set(name, plan)

    async def aevery(
        self, name: str, cron: str, worker: DurableWorker, message: Any, *, zone: str = "UTC"
    ) -> Schedule:
        """Like `every`, from a task of any event loop."""
        return await asyncio.to_thread(self.every, name, cron, worker, message, zone=zone)

    # Executions of any kind.

    def start(
        self,
        kind: str,
        body: Any = None,
        *,
        id: str | None = None,  # noqa: A002 - what it is
        connection: Any = None,
    ) -> Execution:
        """Start an execution of a registered kind; `body` is its first message.

        With an `id`, only the first call starts it: another one changes nothing and returns the
        same execution, as long as that is kept. With a `connection` (a `psycopg.Connection`, for
        engines on Postgres) it joins the open transaction: it happens when that commits, and never
        if it is rolled back.

        Raises:
            UnknownKind: no such kind is registered.
            KindMismatch: there is an execution of that id, and of another kind.

        """
        if connection is not None:
            name = self._begin(kind, id)
            self.core.joining.create(connection, name, kind, body)
            return Execution(self.core, new_row(name, kind, self.core.clock.now()))
        name, done = self._begin(kind, id), ThreadTicket()
        self.core.create(name, kind, body, done)
        self.core.wait_for(done, None, body)
        return self._started(name, kind)

    async def astart(
        self,
        kind: str,
        body: Any = None,
        *,
        id: str | None = None,  # noqa: A002 - what it is
        connection: Any = None,
    ) -> Execution:
        """Like `start`, from a task of any event loop."""
        if connection is not None:
            return await asyncio.to_thread(
                Engine.start, self, kind, body, id=id, connection=connection
            )
        name, done = self._begin(kind, id), AsyncTicket()
        self.core.create(name, kind, body, done)
        await self.core.await_for(done, None, body)
        return self._started(name, kind)

    def _started(self, name: str, kind: str) -> Execution:
        found = self.execution(name)
        if found.kind != kind:
            msg = f"execution {name!r} is of kind {found.kind!r}, not {kind!r}: choose another id"
            raise KindMismatch(msg)
        return found

    def _begin(self, kind: str, given: str | None) -> str:
        core = self.core
        if kind not in core.kinds:
            msg = f"kind {kind!r} is not registered{near(kind, core.kinds)}"
            raise UnknownKind(msg)
        return f"{kind}-{uuid.uuid4().hex}" if given is None else check_id(given, "an execution")

    def send(
        self,
        execution: str,
        body: Any,
        *,
        kind: str | None = None,
        key: str | None = None,
        connection: Any = None,
    ) -> None:
        """Send a message to an execution; return when it is stored.

        Args:
            execution: its id, or the name of a worker of this engine.
            body: plain data.
            kind: create the execution, of this kind, if there is none of that id.
            key: only the first message with the same key counts, for a week.
            connection: a `psycopg.Connection` whose open transaction this joins: it happens when
                that commits, and never if it is rolled back. For engines on Postgres.

        Raises:
            UnknownExecution: there is none of that id.
            ExecutionEnded: it has ended.
            KindMismatch: it is of another kind.
            NotStorable: the body is not plain data.
            ActorflowError: its kind does not take such a message, as far as that can be said now.

        """
        if connection is not None:
            kind = kind or self._workers.kind_of(check_id(execution, "an execution"))
            self.core.joining.send(connection, execution, body, kind, key)
            return
        stored = self.core.writer.wakes.ticket()
        self._send(execution, body, kind, key, stored, patience=inf)
        try:
            self.core.wait_for(stored, None, body)
        except UnknownExecution:  # finding those like it takes a while, and is done here
            raise unknown_execution(self.core.store, execution) from None

    async def asend(
        self,
        execution: str,
        body: Any,
        *,
        kind: str | None = None,
        key: str | None = None,
        connection: Any = None,
    ) -> None:
        """Like `send`, from a task of any event loop."""
        if connection is not None:
            await asyncio.to_thread(
                self.send, execution, body, kind=kind, key=key, connection=connection
            )
            return
        stored = AsyncTicket()
        self._send(execution, body, kind, key, stored)
        try:
            await self.core.await_for(stored, None, body)
        except UnknownExecution:
            raise await asyncio.to_thread(unknown_execution, self.core.store, execution) from None

    def _send(
        self,
        execution: str,
        body: Any,
        kind: str | None,
        key: str | None,
        stored: Any,
        *,
        patience: float = 0.0,
    ) -> None:
        check_id(execution, "an execution")
        kind = self._workers.kind_of(execution) if kind is None else check_id(kind, "a kind")
        self.core.refuse_if_closed()
        self.core.check_message(execution, kind, body)
        self.core.append(execution, kind, (body,), stored=stored, key=key, patience=patience)

    def wait(self, execution: str, timeout: float | None = None) -> Execution:
        """Wait until an execution is done, failed or cancelled.

        Raises:
            UnknownExecution: there is none of that id.
            WaitTimeout: not in time. It goes on.
            EngineClosed: the engine was closed before.

        """
        check_wait(execution, timeout)
        ticket = ThreadTicket()
        try:
            told = self._watch(execution, ticket)
            if told.status == Status.ACTIVE:
                if not ticket.wait(timeout):
                    raise self._not_in_time(execution, timeout)
                told = ticket.answer
            if ticket.error is not None:
                raise ticket.error
        finally:
            self.core.watchers.remove(execution, ticket)
        return self.execution(execution) if told is None else Execution(self.core, told)

    async def await_(self, execution: str, timeout: float | None = None) -> Execution:
        """Like `wait`, from a task of any event loop."""
        check_wait(execution, timeout)
        ticket = AsyncTicket()
        try:
            told = self._watch(execution, ticket)
            if told.status == Status.ACTIVE:
                if not await ticket.wait(timeout):
                    raise self._not_in_time(execution, timeout)
                told = ticket.answer
        finally:
            self.core.watchers.remove(execution, ticket)
        return self.execution(execution) if told is None else Execution(self.core, told)

    @staticmethod
    def _not_in_time(execution: str, timeout: float | None) -> WaitTimeout:
        return WaitTimeout(f"execution {execution!r} did not end within {timeout} s")

    def _watch(self, execution: str, ticket: Any) -> Any:
        """Return an execution as it is now; `ticket` gets it as it is when it has ended."""
        self.core.refuse_if_closed()
        self.core.resume()
        self.core.watchers.add(execution, ticket)
        live = self.core.host.find(execution)
        if live is not None and live.creates is None and live.status == Status.ACTIVE:
            return live  # its end will be told
        return self.core.row(execution)

    def result(self, execution: str, timeout: float | None = None) -> Any:
        """Wait until an execution has ended, and return its result.

        Raises:
            ExecutionFailed: it has failed.
            Cancelled: it was cancelled.
            WaitTimeout: not in time. It goes on.

        """
        return self.wait(execution, timeout).result

    async def aresult(self, execution: str, timeout: float | None = None) -> Any:
        """Like `result`, from a task of any event loop."""
        return (await self.await_(execution, timeout)).result

    def cancel(self, execution: str, target: Any = None) -> bool:
        """Cancel an execution, or a part of it; return whether that was still there.

        What its kind has to do first is done: handlers of a flow run, taskers are told. An
        execution of a kind that has nothing to do ends at once: its messages, timers and tasks go,
        and a run that is under way is thrown away. `target` names a part of an execution, where
        the kind knows parts (a node of a flow).

        Raises:
            UnknownExecution: there is none of that id.

        """
        done = ThreadTicket()
        self.core.refuse_if_closed()
        self.core.ending.cancel(execution, target, done)
        return bool(self.core.wait_for(done, None, execution))

    async def acancel(self, execution: str, target: Any = None) -> bool:
        """Like `cancel`, from a task of any event loop."""
        return await asyncio.to_thread(self.cancel, execution, target)

    def execution(self, execution: str) -> Execution:
        """Return an execution as it is stored.

        Raises:
            UnknownExecution: there is none of that id.

        """
        return Execution(self.core, self.core.row(execution))

    def executions(
        self,
        *,
        kind: str | None = None,
        status: Status | str | None = None,
        parent: str | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> Iterator[Execution]:
        """Yield executions in the order of their ids, read from the store in pages.

        With `tags`, only those that have all of these: `tags={"customer": "c-7"}`.

        Raises:
            BadOption: there is no such status, or no such tag can be.

        """
        if status is not None and status not in list(Status):
            known = ", ".join(repr(str(each)) for each in Status)
            msg = f"status={status!r:.80} is not a status; write one of {known}"
            raise BadOption(msg)
        for given, what in ((kind, "a kind"), (parent, "an execution")):
            if given is not None:
                check_id(given, what)
        wanted = {"kind": kind, "parent": parent, "tags": texts_of(tags or {})}
        return self._executions(wanted | {"status": None if status is None else str(status)})

    def _executions(self, wanted: dict[str, Any]) -> Iterator[Execution]:
        cursor = None
        while True:
            page = self.core.store.listing(**wanted, after=cursor)
            for row in page.rows:
                yield Execution(self.core, row)
            cursor = page.after
            if cursor is None:
                return

    # Tasks.

    def return_task(self, task: str, value: Any = None) -> bool:
        """Store the result of a task that a tasker holds; return whether it was still wanted.

        Raises:
            NotStorable: the value is not plain data.
            StoreFull: there is no room now; it is stored once there is, if the engine runs then.

        """
        done = ThreadTicket()
        if not self._answer(self.core.board.succeed, task, value, done):
            return False
        return bool(self.core.wait_for(done, _STORED, task))

    async def areturn_task(self, task: str, value: Any = None) -> bool:
        """Like `return_task`, from a task of any event loop."""
        done = AsyncTicket()
        if not self._answer(self.core.board.succeed, task, value, done):
            return False
        return bool(await self.core.await_for(done, _STORED, task))

    def fail_task(self, task: str, error: BaseException) -> bool:
        """Store that a task which a tasker holds has failed; return whether it was still wanted.

        Raises:
            StoreFull: as for `return_task`.

        """
        done = ThreadTicket()
        if not self._answer(self.core.board.fail, task, error, done):
            return False
        return bool(self.core.wait_for(done, _STORED, task))

    async def afail_task(self, task: str, error: BaseException) -> bool:
        """Like `fail_task`, from a task of any event loop."""
        done = AsyncTicket()
        if not self._answer(self.core.board.fail, task, error, done):
            return False
        return bool(await self.core.await_for(done, _STORED, task))

    def _answer(
        self, answer: Callable[[str, Any, Any], bool], task: str, what: Any, done: Any
    ) -> bool:
        self.core.refuse_if_closed()
        self.core.resume()
        return answer(check_task_id(task), what, done)

    def heartbeat(self, task: str) -> bool:
        """Renew the timeout of a task that a tasker holds; return whether it is still wanted."""
        self.core.refuse_if_abandoned()
        return self.core.board.heartbeat(task)

    # Operations.

    def dead_letters(self, execution: str | None = None) -> Letters:
        """Return the dead letters: of one execution, or all."""
        if execution is not None:
            check_id(execution, "an execution")
        return Letters(self.core, execution)

    def statistics(self) -> EngineStatistics:
        """Return a picture of the engine. O(1)."""
        self.core.refuse_if_abandoned()
        return EngineStatistics.of(self.core)

    # Ending.

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.core.closed

    def close(self, timeout: float = 5.0) -> None:
        """Finish what is running, commit it, and close the store. Nothing stored is lost.

        `timeout` seconds are left to the tasks and runs that are under way. Those that are not
        done then go on by themselves (coroutines of workflows are cancelled), but their results
        are no longer stored: they begin again with the next engine. An engine that was not closed
        is closed when the interpreter ends. KeyboardInterrupt is raised at once, and the engine is
        closed all the same: another call waits for that.
        """
        check_timeout(timeout)
        self._closing.run(timeout)

    async def aclose(self, timeout: float = 5.0) -> None:
        """Like `close`, from a task of any event loop."""
        await asyncio.to_thread(self.close, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
