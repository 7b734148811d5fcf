"""The engine: durable executions on one store, of any kind."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.behaviours import Queue
from actorflow.behaviours.arguments import choice, count, flag, seconds
from actorflow.engine.clock import WALL
from actorflow.engine.closer import EngineCloser
from actorflow.engine.errors import (
    KindMismatch,
    StoreRefused,
    UnknownExecution,
    UnknownKind,
    WaitTimeout,
)
from actorflow.engine.executions.sender import Confirmation
from actorflow.engine.handle import Execution
from actorflow.engine.ids import check_id, check_task_id, check_wait, unknown_execution
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.kinds.cron import CronKind
from actorflow.engine.kinds.lane import LANE, Lane, LaneKind
from actorflow.engine.kinds.worker import KIND, DurableJob, WorkerKind
from actorflow.engine.kinds.worker_handle import DurableWorker, DurableWorkers, name_of
from actorflow.engine.operations.bulk import ACTIONS, Bulk
from actorflow.engine.operations.maintenance import Upkeep
from actorflow.engine.parts import EngineParts
from actorflow.engine.schedules import Schedules
from actorflow.engine.statistics import EngineStatistics
from actorflow.engine.stores.encoded import check_encoding, encoded_store
from actorflow.engine.stores.opening import open_store
from actorflow.engine.stores.protocol import new_row
from actorflow.engine.tags import texts_of
from actorflow.runtime.environment import PROCESS
from actorflow.runtime.errors import BadOption, near
from actorflow.runtime.tickets import AsyncTicket, ThreadTicket, check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from actorflow.engine.commit.unknown_outcomes import Delivery
    from actorflow.engine.kind import Kind
    from actorflow.engine.operations.bulk import BulkResult
    from actorflow.engine.operations.dead_letters import Letters
    from actorflow.engine.schedules import Schedule
    from actorflow.engine.stores.encoded import Codec
    from actorflow.engine.stores.protocol import Store
    from actorflow.runtime.environment import Environment

__all__ = ["RETENTION", "BareEngine"]

RETENTION = 30 * 86_400.0
"""Seconds that executions are kept after they have ended, unless told otherwise: 30 days."""

_STORED = 5.0  # seconds that the answer to a task may take to be stored


class BareEngine:
    """Runs durable executions. Thread-safe.

    Args:
        where: a file, `":memory:"`, a URL such as `"sqlite://orders.db"`, or a store of your own.
        durability: for a file: `"full"`, `"normal"` or `"off"`; see `SqliteStore`.
        check: for a file: check its structure when it is opened.
        retention: seconds that executions are kept after they have ended; `None`: forever.
        max_live: the number of idle executions that stay in memory.
        clock: the source of time; tests pass a virtual one.
        worker: whether this engine runs executions of a shared store. With `False` it starts,
            sends, cancels, reads and waits, and other engines run them.
        codec: encrypts stored data, as in `af.Encrypted(key)`.
        environment: its lanes and its steady clock; a simulation passes others.

    Stored work does not run before `resume()`, or the first `send`, `start`, `wait` or push: so
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
        codec: Codec | None = None,
        environment: Environment = PROCESS,
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
            msg = f"worker=False: {type(store).__name__} is for one engine, so nothing would run"
            raise BadOption(msg)
        try:
            store = encoded_store(store, codec)
            self.parts = EngineParts(
                store,
                clock=clock,
                max_live=max_live,
                retention=retention,
                environment=environment,
            )
            """Its parts, for kinds of execution with verbs of their own."""
            self.parts.state.passive = not worker
            try:
                check_encoding(store)
            except StoreRefused:  # it cannot be read now: check before anything is run
                self.parts.before_resume.append(partial(check_encoding, store))
            self._workers = WorkerKind()
            self.parts.register(self._workers)
            self.parts.register(CronKind())
            self.parts.register(LaneKind())
        except BaseException:
            store.close()
            raise
        self.schedules = Schedules(self.parts)
        """What happens by the clock."""
        self.upkeep = Upkeep(
            store, self.parts.retention, self.parts.state, self.parts.table.evict_ended
        )
        """Purging and copying the store."""
        self._bulk = Bulk(
            store,
            self.parts.state,
            self.parts.writer,
            cancellation=self.parts.cancellation,
            kinds=self.parts.kinds,
        )
        self._closing = EngineCloser(self.parts)

    # Beginning.

    def register(self, kind: Kind) -> None:
        """Make a kind of execution known.

        Raises:
            BadOption: there is one of that name.

        """
        self.parts.register(kind)

    def resume(self, what: Lane | str | None = None) -> None:
        """Start to run stored messages, timers and tasks; or resume a paused lane or tasker.

        The first `send`, `start`, `wait` or push does the same. Register kinds, workers and taskers
        before; messages and tasks for a missing one wait until it is registered.

        Args:
            what: a lane, or the name of a tasker, that was paused.

        """
        self.parts.state.require_open()
        self.parts.resume()
        if what is not None:
            self._steer(what, "resume")

    async def aresume(self, what: Lane | str | None = None) -> None:
        """Like `resume`, from a task of any event loop."""
        await asyncio.to_thread(self.resume, what)

    def pause(self, what: Lane | str) -> None:
        """Start nothing more in a lane, or no more tasks of a tasker, until `resume(what)`.

        Whatever has begun continues. A lane stays paused after a restart, for all engines. A tasker
        is paused in this engine, until that is closed; its tasks wait in the store.

        Raises:
            BadOption: there is no such tasker.

        """
        self.parts.state.require_open()
        self._steer(what, "pause")

    async def apause(self, what: Lane | str) -> None:
        """Like `pause`, from a task of any event loop."""
        await asyncio.to_thread(self.pause, what)

    def _steer(self, what: Lane | str, verb: str) -> None:
        if not isinstance(what, Lane):
            self.parts.tasks.pause(what, paused=verb == "pause")
            return
        done, body = ThreadTicket(), {"do": verb}
        self.parts.sender.append(what.execution, LANE, (body,), processed=done)
        self.parts.writer.wait_for(done, None, body)

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
            behaviour: how messages accumulate: a behaviour such as `Queue()`, which is copied
                each time that the worker is loaded; or its class, or a factory.
            throttle: seconds between the starts of two calls, at least.
            on_failure: as for `spawn`; a message that is given up becomes a stored dead letter. The
                default finds the message that fails and delivers the others.

        Raises:
            KindMismatch: the store has another kind of execution under that name.

        """
        parts = self.parts
        parts.state.require_open()
        row = parts.store.execution(check_id(name, "a worker"))
        if row is not None and row.kind != KIND:
            msg = f"execution {name!r} is of kind {row.kind!r}, not a worker: choose another name"
            raise KindMismatch(msg)
        given = DurableJob(
            job, state=state, behaviour=behaviour, throttle=throttle, on_failure=on_failure
        )
        self._workers.add(name, given)
        if parts.state.resumed:
            parts.writer.call_and_wait(lambda: parts.table.backlog.read_now(name))
        return DurableWorker(parts, name, self._workers)

    def workers(
        self,
        pattern: str,
        job: Callable[..., Any],
        *,
        state: Any = None,
        behaviour: Any = Queue,
        throttle: float | None = None,
        on_failure: Any = "isolate",
    ) -> DurableWorkers:
        """Return a family of durable workers, one for each key: `accounts["7"].push(40)`.

        Each has its own state, and processes its messages one batch at a time. Only those with
        messages are in memory.

        Args:
            pattern: their names, with `{id}` where the key goes, as in `"account/{id}"`.
            job: as for `worker`; if it has a parameter `key`, it gets the key.
            state: the first state of each.
            behaviour: how the messages of one worker accumulate.
            throttle: as for `worker`, of one worker.
            on_failure: as for `worker`.

        """
        parts = self.parts
        parts.state.require_open()
        given = DurableJob(
            job, state=state, behaviour=behaviour, throttle=throttle, on_failure=on_failure,
            keyed=True,
        )  # fmt: skip
        family = DurableWorkers(parts, self._workers, pattern, given)
        if parts.state.resumed:
            parts.writer.call(partial(parts.table.backlog.recover, KIND))
        return family

    def tasker(self, name: str, do: Callable[..., Any] | str, **options: Any) -> None:
        """Register a tasker: `do(task)` is called for each task, sync or async; or a URL.

        Options:
            concurrency: tasks at the same time (1).
            retries: how often a task that fails is tried again (0), after a `backoff`
                (`Backoff(initial=1.0, maximum=300.0, jitter=0.1)`).
            retry_on, give_up_on: exception classes: only those of `retry_on` are tried again
                (all), and those of `give_up_on` never are.
            timeout: seconds after which an attempt without an answer or a `task.heartbeat()`
                ends and counts as failed: a coroutine is cancelled, a process killed, and the
                result of a thread ignored. Its place goes to others.
            heartbeat: seconds between two calls of `task.heartbeat()` or `task.progress(x)`, at
                most. Then they do not extend the `timeout`.
            behaviour, throttle: as for `spawn`, of `TaskAttempt` objects: rate, order, bounds.
            executor: `"pool"`, or `"process"` to call it in other processes, where a task whose
                time is up is killed; give a function at the top of a module then. An
                `af.Processes(renew_after=100, setup=...)` is the same with other values.
            kills: of processes: kill one whose task is not wanted any more, at once.
            on_cancel: called with a task that is not wanted any more.
        """
        self.parts.state.require_open()
        self.parts.tasks.register(check_id(name, "a tasker"), do, options)

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
            BadOption: the expression or the zone cannot be read, or it is not a worker.

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
            self.parts.transactions.create(connection, name, kind, body)
            return Execution(self.parts, new_row(name, kind, self.parts.clock.now()))
        name, done = self._begin(kind, id), ThreadTicket()
        self.parts.sender.create(name, kind, body, done)
        self.parts.sender.wait_created(done)
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
                BareEngine.start, self, kind, body, id=id, connection=connection
            )
        name, done = self._begin(kind, id), AsyncTicket()
        self.parts.sender.create(name, kind, body, done)
        await self.parts.writer.await_for(done, None, body)
        return self._started(name, kind)

    def _started(self, name: str, kind: str) -> Execution:
        found = self.execution(name)
        if found.kind != kind:
            msg = f"execution {name!r} is of kind {found.kind!r}, not {kind!r}: choose another id"
            raise KindMismatch(msg)
        return found

    def _begin(self, kind: str, given: str | None) -> str:
        parts = self.parts
        if kind not in parts.kinds:
            msg = f"kind {kind!r} is not registered{near(kind, parts.kinds)}"
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
            kind: create the execution, of this kind, if no execution has this id.
            key: only the first message with the same key counts, for a week.
            connection: a `psycopg.Connection` whose open transaction this joins: it happens when
                that commits, and never if it is rolled back. For engines on Postgres.

        Raises:
            UnknownExecution: no execution has this id.
            ExecutionEnded: it has ended.
            KindMismatch: it is of another kind.
            NotStorable: the body is not plain data.
            ActorflowError: its kind does not take such a message, as far as that can be said now.

        """
        if connection is not None:
            kind = kind or self._workers.kind_of(check_id(execution, "an execution"))
            self.parts.transactions.send(connection, execution, body, kind, key)
            return
        stored = self.parts.writer.wakes.ticket()
        self._send(execution, body, kind, key, stored, patience=inf)
        try:
            self.parts.writer.wait_for(stored, None, body)
        except UnknownExecution:  # finding those like it takes a while, and is done here
            raise unknown_execution(self.parts.store, execution) from None

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
            await self.parts.writer.await_for(stored, None, body)
        except UnknownExecution:
            raise await asyncio.to_thread(unknown_execution, self.parts.store, execution) from None

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
        self.parts.state.require_open()
        sender = self.parts.sender
        checked = sender.check_message(execution, kind, body)
        if checked is body:
            sender.append(execution, kind, (body,), stored=stored, key=key, patience=patience)
            return
        processed = Confirmation(stored)
        sender.append(
            execution, kind, (checked,), stored=processed.not_stored(), processed=processed, key=key
        )

    def wait(self, execution: str, timeout: float | None = None) -> Execution:
        """Wait until an execution is stuck or has ended.

        Raises:
            UnknownExecution: no execution has this id.
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
            self.parts.waiters.remove(execution, ticket)
        return self.execution(execution) if told is None else Execution(self.parts, told)

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
            self.parts.waiters.remove(execution, ticket)
        return self.execution(execution) if told is None else Execution(self.parts, told)

    @staticmethod
    def _not_in_time(execution: str, timeout: float | None) -> WaitTimeout:
        return WaitTimeout(f"execution {execution!r} did not end within {timeout} s")

    def _watch(self, execution: str, ticket: Any) -> Any:
        """Return an execution as it is now; `ticket` gets it as it is when it has ended."""
        self.parts.state.require_open()
        self.parts.resume()
        self.parts.waiters.add(execution, ticket)
        live = self.parts.table.find(execution)
        if live is not None and live.creates is None and live.status == Status.ACTIVE:
            return live  # its end resolves the waiter
        return self.parts.row(execution)

    def result(self, execution: str, timeout: float | None = None) -> Any:
        """Wait until an execution has ended, and return its result.

        Raises:
            ExecutionFailed: it has failed.
            ExecutionCancelled: it was cancelled.
            WaitTimeout: not in time. It goes on.

        """
        return self.wait(execution, timeout).result

    async def aresult(self, execution: str, timeout: float | None = None) -> Any:
        """Like `result`, from a task of any event loop."""
        return (await self.await_(execution, timeout)).result

    def cancel(self, execution: str, target: Any = None) -> bool:
        """Cancel an execution, or a part of it; return whether that was still there.

        Its kind may clean up first: a flow runs its handlers and stops its tasks. An execution
        whose kind has nothing to clean up ends at once: its messages, timers and tasks go,
        and a run that is under way is thrown away. `target` names a part of an execution, where
        the kind knows parts (a node of a flow).

        Raises:
            UnknownExecution: no execution has this id.

        """
        done = ThreadTicket()
        self.parts.state.require_open()
        self.parts.cancellation.cancel(execution, target, done)
        return bool(self.parts.writer.wait_for(done, None, execution))

    async def acancel(self, execution: str, target: Any = None) -> bool:
        """Like `cancel`, from a task of any event loop."""
        return await asyncio.to_thread(self.cancel, execution, target)

    def bulk(
        self,
        action: str,
        *,
        kind: str | None = None,
        status: Status | str | None = None,
        parent: str | None = None,
        tags: Mapping[str, Any] | None = None,
        ids: Iterable[str] | None = None,
    ) -> BulkResult:
        """Say a verb to all executions that filters choose; return once it is stored.

        All are sent before the first is awaited, so a thousand of them share a few commits.
        Executions that have ended are left out.

        Args:
            action: "cancel", "kill" (end without asking the kind), "pause" or "resume".
            kind: only executions of this kind, such as "workflow:Order".
            status: only executions with this status.
            parent: only children of this execution.
            tags: only executions that have all of these.
            ids: instead of filters, the ids of the executions.

        Raises:
            BadOption: there is no such action, or neither a filter nor ids are given.

        """
        choice(action, "action", ACTIONS, error=BadOption)
        filters = {"kind": kind, "status": status, "parent": parent, "tags": tags}
        if ids is None:
            if all(each is None for each in filters.values()):
                msg = f"bulk({action!r}) would choose everything: give a filter, or ids"
                raise BadOption(msg)
            found = self.executions(kind=kind, status=status, parent=parent, tags=tags)
            ids = [each.id for each in found if each.status not in ENDED]
        return self._bulk.run(action, ids)

    async def abulk(
        self,
        action: str,
        *,
        kind: str | None = None,
        status: Status | str | None = None,
        parent: str | None = None,
        tags: Mapping[str, Any] | None = None,
        ids: Iterable[str] | None = None,
    ) -> BulkResult:
        """Like `bulk`, from a task of any event loop."""
        return await asyncio.to_thread(
            self.bulk, action, kind=kind, status=status, parent=parent, tags=tags, ids=ids
        )

    def execution(self, execution: str) -> Execution:
        """Return an execution as it is stored.

        Raises:
            UnknownExecution: no execution has this id.

        """
        return Execution(self.parts, self.parts.row(execution))

    def executions(
        self,
        *,
        kind: str | None = None,
        status: Status | str | None = None,
        parent: str | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> Iterator[Execution]:
        """Yield executions in the order of their ids, read from the store in pages.

        With `tags`, only executions that have all of them: `tags={"customer": "c-7"}`.

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
            page = self.parts.store.listing(**wanted, after=cursor)
            for row in page.rows:
                yield Execution(self.parts, row)
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
        if not self._answer(self.parts.tasks.answer, task, value, done):
            return False
        return bool(self.parts.writer.wait_for(done, _STORED, task))

    async def areturn_task(self, task: str, value: Any = None) -> bool:
        """Like `return_task`, from a task of any event loop."""
        done = AsyncTicket()
        if not self._answer(self.parts.tasks.answer, task, value, done):
            return False
        return bool(await self.parts.writer.await_for(done, _STORED, task))

    def fail_task(self, task: str, error: BaseException) -> bool:
        """Record the failure of a task that a tasker holds; return whether it was still wanted.

        Raises:
            StoreFull: as for `return_task`.

        """
        done = ThreadTicket()
        if not self._answer(self.parts.tasks.fail, task, error, done):
            return False
        return bool(self.parts.writer.wait_for(done, _STORED, task))

    async def afail_task(self, task: str, error: BaseException) -> bool:
        """Like `fail_task`, from a task of any event loop."""
        done = AsyncTicket()
        if not self._answer(self.parts.tasks.fail, task, error, done):
            return False
        return bool(await self.parts.writer.await_for(done, _STORED, task))

    def _answer(
        self, answer: Callable[[str, Any, Any], bool], task: str, what: Any, done: Any
    ) -> bool:
        self.parts.state.require_open()
        self.parts.resume()
        return answer(check_task_id(task), what, done)

    def heartbeat(self, task: str) -> bool:
        """Renew the timeout of a task that a tasker holds; return whether it is still wanted."""
        self.parts.state.require_own_process()
        return self.parts.tasks.heartbeat(task)

    # Operations.

    def outcome(self, id: str) -> Delivery:  # noqa: A002 - what it is
        """Return what happened to a message whose sender got `OutcomeUnknown` with this id.

        The answer is `Delivery.UNKNOWN` until the store works again. It stays so if the engine was
        closed in between: then only a repetition with the same key is safe. O(1), thread-safe.
        """
        self.parts.state.require_own_process()
        return self.parts.writer.outcomes.of(id)

    def dead_letters(self, execution: str | None = None) -> Letters:
        """Return the dead letters: of one execution, or all."""
        if execution is not None:
            check_id(execution, "an execution")
        return self.parts.letters(execution)

    def statistics(self) -> EngineStatistics:
        """Return a picture of the engine. O(1)."""
        self.parts.state.require_own_process()
        return EngineStatistics.of(self.parts)

    # Ending.

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.parts.state.closed

    def close(self, timeout: float = 5.0) -> None:
        """Finish the current runs and tasks, commit them, and close the store.

        Stored data is never lost. Runs and tasks that take more than `timeout` seconds continue
        by themselves (coroutines of workflows are cancelled), but their results are not stored:
        the next engine begins them again. An engine that was not closed is closed when the
        interpreter ends. KeyboardInterrupt is raised at once; the engine still closes, and
        another call of `close` waits for that.
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
