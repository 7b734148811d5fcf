"""The parts of an engine: made here in the order of their dependencies, begun and ended together.

store <- commit <- executions <- tasks, timers <- engine: each part gets what it needs in its
constructor, knows nothing above it, and reports upward through the listeners that are set here.
Kinds of execution with verbs of their own (flows, workflows, plans) use the parts directly; the
engine that users see forwards to them.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from actorflow.engine.clock import WALL, EngineClock, StoreClock
from actorflow.engine.commit.writer import Writer
from actorflow.engine.errors import EngineClosed, StoreRefused
from actorflow.engine.executions.cancellation import Cancellation
from actorflow.engine.executions.ownership import Ownership
from actorflow.engine.executions.sender import Sender
from actorflow.engine.executions.table import ExecutionTable
from actorflow.engine.executions.user_transactions import UserTransactions
from actorflow.engine.executions.waiters import Waiters, Watches
from actorflow.engine.ids import check_id, execution_row
from actorflow.engine.kind import Status
from actorflow.engine.operations.dead_letters import Letters
from actorflow.engine.operations.maintenance import Retention
from actorflow.engine.shared_store import Sharing
from actorflow.engine.state import EngineState
from actorflow.engine.tasks.table import TaskTable
from actorflow.engine.timers import Timers
from actorflow.runtime.environment import PROCESS
from actorflow.runtime.errors import BadOption
from actorflow.runtime.lanes.lane import call_in
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.executions.loaded import LoadedExecution
    from actorflow.engine.kind import Kind
    from actorflow.engine.stores.protocol import ExecutionRow, SharedStore, Store
    from actorflow.runtime.environment import Environment

__all__ = ["LAST_COMMIT", "EngineParts"]

LAST_COMMIT = 5.0
"""Seconds that the last commit of an engine may take, however short its time to close is."""

_NEEDED = ("name", "options", "decode", "encode", "run")  # methods and fields of every kind
_LEAST = 0.1  # seconds that runs have to end, however long the tasks have taken before


class AbandonedStore:
    """Replaces the store in the child of a fork, because the parent owns it: each use raises."""

    def __init__(self, store: Store, why: str) -> None:
        self._store = store  # kept, because only the parent may close it
        self._why = why

    def __getattr__(self, name: str) -> Any:
        raise EngineClosed(self._why)


class EngineParts:
    """The parts of one engine. Thread-safe."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Any = WALL,
        max_live: int = 1_000,
        retention: float | None = None,
        keys_for: float = 7 * 86_400.0,
        environment: Environment = PROCESS,
    ) -> None:
        self.store = store
        self.environment = environment
        """Its steady clock, lanes and threads."""
        shared = clock is WALL and store.traits.shared
        self.clock = EngineClock(
            StoreClock(cast("SharedStore", store).time, environment.clock) if shared else clock
        )
        self.worker_clock = environment.clock if clock is WALL else clock
        self.state = EngineState()
        self.kinds: dict[str, Kind] = {}
        self.before_resume: list[Callable[[], object]] = []
        """Called in the writer's thread before recovery starts: kinds register what they need."""
        self.waiters = Waiters()
        """Callers that wait until an execution is stuck or has ended."""
        self.watches = Watches()
        self.ownership = Ownership(store)
        loaded: dict[str, LoadedExecution] = {}
        state, kinds, ownership = self.state, self.kinds, self.ownership
        self.writer = Writer(store, self.clock, state, environment, loaded.get)
        self.table = ExecutionTable(
            store, self.clock, self.writer, state,
            environment=environment, worker_clock=self.worker_clock,
            kinds=kinds, ownership=ownership, waiters=self.waiters, watches=self.watches,
            loaded=loaded, max_live=max_live,
        )  # fmt: skip
        self.cancellation = Cancellation(
            store, self.clock, self.writer, state,
            pool=environment.pool, kinds=kinds, table=self.table, waiters=self.waiters,
            watches=self.watches,
        )  # fmt: skip
        self.transactions = UserTransactions(store, self.clock, state)
        self.sender = Sender(
            store, self.clock, self.writer, state, environment,
            kinds=kinds, ownership=ownership, table=self.table, resume=self.resume,
        )  # fmt: skip
        self.tasks = TaskTable(
            store, self.clock, self.writer, state,
            environment=environment, worker_clock=self.worker_clock,
            kinds=kinds, ownership=ownership, executions=self.table,
        )  # fmt: skip
        self.timers = Timers(
            store, self.clock, self.writer, state, ownership=ownership, executions=self.table
        )
        self.retention = Retention(
            store, self.clock, self.writer, state, seconds=retention, keys_for=keys_for
        )
        self._sharing = Sharing(
            store, self.writer, state, environment.clock,
            kinds=kinds, ownership=ownership, table=self.table, waiters=self.waiters,
            watches=self.watches, tasks=self.tasks, timers=self.timers,
        )  # fmt: skip
        self._lock = threading.Lock()
        self._resuming = threading.Lock()
        self._unsubscribe = store.subscribe(self._sharing.woken)

    def row(self, execution: str) -> ExecutionRow:
        """Return an execution as it is stored.

        Raises:
            UnknownExecution: it does not exist.

        """
        return execution_row(self.store, self.state, execution)

    def status(self, execution: str) -> Status:
        """Return the status of an execution. O(1) if it is in memory here.

        Raises:
            UnknownExecution: it does not exist.

        """
        live = self.table.find(execution)
        if live is not None and live.has_state and live.creates is None:
            status = live.status
            if not live.has_ended and self.ownership.keeps(execution, live.epoch):
                return status
        return Status(self.row(execution).status)

    def letters(self, execution: str | None = None) -> Letters:
        """Return the dead letters of an execution, or all."""
        return Letters(
            self.store, self.clock, self.writer, self.state, table=self.table, execution=execution
        )

    # Beginning.

    def register(self, kind: Kind) -> None:
        """Register a kind; once the engine runs, its stored messages are delivered.

        Raises:
            BadOption: it is not a kind, or there is one of that name.

        """
        missing = [each for each in _NEEDED if not hasattr(kind, each)]
        if missing or isinstance(kind, type):
            why = f"it has no {missing[0]}" if missing else "it is a class: write register(Kind())"
            raise BadOption(f"{kind!r:.80} is not a kind of execution: {why}")
        check_id(kind.name, "a kind")
        with self._lock:
            self.state.require_open()
            if kind.name in self.kinds:
                msg = f"there is a kind {kind.name!r} already; give this one another name"
                raise BadOption(msg)
            self.kinds[kind.name] = kind
        if self.state.resumed:
            self.writer.call_and_wait(partial(self.table.backlog.recover, kind.name))

    def resume(self) -> None:
        """Begin to run everything that is stored. Does nothing the second time.

        Raises:
            Exception: the store cannot be read; the next call tries again.

        """
        state = self.state
        if state.resumed or state.passive:
            return
        with self._resuming:
            if not state.resumed:
                self.writer.call_and_wait(self._begin)

    def _begin(self) -> None:
        """Begin, in the writer's thread, so that no message is delivered twice."""
        if self.state.resumed:
            return
        for call in self.before_resume:
            call()
        self._sharing.join()
        self.watches.reload(self.store)
        self.state.resumed = True
        try:
            self.table.backlog.quarantine.count_last()
            self.table.backlog.recover()
            self.timers.start()
        except BaseException:
            self.state.resumed = False
            raise
        self.tasks.resume()
        self.retention.begin()

    # Ending.

    def abandon(self) -> None:
        """Refuse every use from now on: in the child of a fork all belongs to the parent."""
        self.store = cast("Store", AbandonedStore(self.store, str(self.state.abandon())))

    def close(self, timeout: float) -> None:
        """Finish running batches, commit them, and close the store."""
        now = self.environment.clock.now
        end = now() + timeout
        with self._lock:
            if self.state.closed:
                return
            if not self.state.resumed and not self.state.passive:
                self._warn_of_unfinished()
            self.state.closed = True
        self._unsubscribe()
        self.timers.close()
        self.tasks.close(timeout)
        self.writer.stop_insisting()  # or an execution would wait for room forever
        self.table.close(max(end - now(), _LEAST))
        ended = self.writer.close(max(end - now(), LAST_COMMIT))
        self.table.resolve_waiters()
        error = EngineClosed("the engine was closed before that was processed")
        for waiter in self.ownership.close():
            call_in(self.environment.pool, "a waiter", partial(waiter.resolve, error))
        if ended:
            self.store.close()
        else:
            log.error("a commit hangs; the store is closed when it ends", store=repr(self.store))
            late = partial(self.writer.when_idle, self.store.close)
            self.environment.background("actorflow-closing", late)
        self.waiters.close(EngineClosed("the engine was closed before the execution ended"))
        self.clock.close()

    def _warn_of_unfinished(self) -> None:
        try:
            waiting = self._unfinished()
        except StoreRefused:
            return
        if waiting:
            log.warning(
                "the store has unfinished work, which never began to run: call engine.resume()",
                **waiting,
            )

    def _unfinished(self) -> dict[str, Any]:
        """Return how many messages, timers and tasks wait in the store, and for which executions.

        At most 100 of each are counted, and three executions named.
        """
        found: dict[str, Sequence[Any]] = {
            "messages": self.store.pending(limit=100).rows,
            "timers": self.store.due(100),
            "tasks": self.store.open(limit=100).rows,
        }
        waiting: dict[str, Any] = {name: len(rows) for name, rows in found.items() if rows}
        if waiting:
            names = dict.fromkeys(row.execution for rows in found.values() for row in rows)
            waiting["executions"] = ", ".join([*names][:3]) + (", ..." if len(names) > 3 else "")  # noqa: PLR2004
        return waiting
