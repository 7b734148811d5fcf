"""Follows a store that several engines share: messages of other engines, partitions that move.

The store says when to look, and at what. The engine evicts the executions of a partition that it
has lost, and reads those of a partition that it has gained. A store of one engine never calls this.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, cast

from actorflow.engine.errors import StoreRefused
from actorflow.engine.kind import ENDED, Status
from actorflow.runtime.log import log
from actorflow.runtime.telemetry.outages import outage_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.loaded import LoadedExecution
    from actorflow.engine.executions.ownership import Ownership
    from actorflow.engine.executions.table import ExecutionTable
    from actorflow.engine.executions.waiters import Waiters, Watches
    from actorflow.engine.kind import Kind
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import SharedStore, Store
    from actorflow.engine.tasks.table import TaskTable
    from actorflow.engine.timers import Timers
    from actorflow.runtime.clock import Clock

__all__ = ["Sharing"]

_LATER = 0.5  # seconds after which a store that could not be read is looked at again
_AGAIN = 0.02  # seconds between looks at whether evicted executions have stopped


class Sharing:
    """Follows changes of other engines and of ownership. In the writer's thread, except `woken`."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        state: EngineState,
        clock: Clock,
        *,
        kinds: dict[str, Kind],
        ownership: Ownership,
        table: ExecutionTable,
        waiters: Waiters,
        watches: Watches,
        tasks: TaskTable,
        timers: Timers,
    ) -> None:
        self._store = cast("SharedStore", store)
        self._writer = writer
        self._state = state
        self._clock = clock
        self._kinds = kinds
        self._ownership = ownership
        self._table = table
        self._waiters = waiters
        self._watches = watches
        self._tasks = tasks
        self._timers = timers
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._all = False
        self._borrowed = False
        self._scheduled = False
        self._leaving: dict[int, list[LoadedExecution]] = {}
        table.listeners.moved = self.evict

    def woken(self, executions: Sequence[str] | None) -> None:
        """Schedule a look at some executions, at everything, or at tasks if none is named.

        Thread-safe.
        """
        with self._lock:
            if executions is None:
                self._all = True
            elif executions:
                self._names.update(executions)
            else:
                self._borrowed = True
            if self._scheduled:
                return
            self._scheduled = True
        self._writer.call(self._look)

    def join(self) -> None:
        """Begin to own partitions, if the store has several owners."""
        if self._ownership.shared:
            self._store.join()
            self._ownership.followed = dict(self._store.owned())

    def _look(self) -> None:
        """Read messages that other engines may have stored."""
        with self._lock:
            everything, tasks, names = self._all, self._borrowed, self._names
            self._all, self._borrowed, self._names, self._scheduled = False, False, set(), False
        if self._state.closed:
            return
        try:
            self._look_at_all(names, everything=everything)
            if tasks and not everything:
                self._tasks.look(borrowed=True)
        except StoreRefused as error:  # what there was to look at is still there
            outage_of(self._store).failed(error, "the store cannot be read")
            for due, executions in ((everything, None), (names, tuple(sorted(names))), (tasks, ())):
                if due:
                    self._clock.call_at(self._clock.now() + _LATER, partial(self.woken, executions))

    def _look_at_all(self, names: set[str], *, everything: bool) -> None:
        self._resolve_waiters(None if everything else names)
        if not self._state.resumed:
            return
        if everything:
            self._watches.reload(self._store)
            self._follow()
            self._table.backlog.look()
            self._timers.start()
            self._tasks.look()
        elif self._tasks.borrows_from(names):
            self._tasks.look(borrowed=True)
        for name in sorted(names):
            if self._ownership.runs(name):
                self._look_at(name)

    def _resolve_waiters(self, names: Iterable[str] | None) -> None:
        """Resolve the tickets of callers that wait for executions which may run elsewhere."""
        waiters = self._waiters
        watched = waiters.names() if names is None else waiters.names() & set(names)
        if watched:
            for row in self._store.executions(sorted(watched)).values():
                if row.status != Status.ACTIVE:
                    waiters.tell(row.id, row)
        for kind in list(self._kinds.values()):
            others: Waiters | None = getattr(kind, "waiters", None)
            if others:
                inside = others.names() if names is None else others.names() & set(names)
                for name in sorted(inside):
                    if not self._ownership.runs(name):
                        others.tell(name)
        for name in self._ownership.awaited(names):
            self._ownership.tell_processed(name)

    def _look_at(self, name: str) -> None:
        """Read messages for an execution of ours, or note that another engine has ended it."""
        live = self._table.find(name)
        if live is None:
            self._table.backlog.read_now(name)
            return
        row = self._store.execution(name)
        if row is not None and row.status in ENDED and live.status not in ENDED:
            live.has_state = False
            live.status = Status(row.status)
            self._tasks.cancel_all(name)
            self._watches.forget(name)
            self._waiters.tell(name, row)
            self._table.after_commit(live)
            return
        self._table.backlog.look_at(live)

    # Partitions that are gained and lost.

    def _follow(self) -> None:
        """Follow the ownership of partitions.

        The partitions to be drained are asked for, not concluded from the last look: one may have
        been gained and lost between the two.
        """
        ownership = self._ownership
        owned, draining = dict(self._store.owned()), self._store.draining()
        if owned == ownership.followed and not draining:
            return
        before, ownership.followed = ownership.followed, owned
        lost = [number for number, epoch in before.items() if owned.get(number) != epoch]
        for number in draining:
            self._leaving.setdefault(number, [])
        for live in self._table.all():
            if not ownership.keeps(live.id, live.epoch):
                self.evict(live)
        if owned != before:
            log.info("partitions owned", count=len(owned), lost=len(lost))
        self._tasks.forget_unowned(ownership.runs)
        self._tasks.resume()
        self._release_partitions()

    def evict(self, live: LoadedExecution) -> None:
        """Stop an execution here, after the run that is under way."""
        partition = self._ownership.partition_of(live.id)
        self._leaving.setdefault(partition, []).append(live)
        self._table.evict(live)
        self._look_soon()

    def _look_soon(self) -> None:
        self._clock.call_at(self._clock.now() + _AGAIN, self._on_alarm)

    def _on_alarm(self) -> None:
        self._writer.call(self._release_partitions)

    def _release_partitions(self) -> None:
        """Release the partitions in which nothing runs any more."""
        for number, lives in list(self._leaving.items()):
            lives[:] = [live for live in lives if live.port is not None and not live.has_ended]
            if not lives:
                del self._leaving[number]
                if number not in self._store.owned():
                    self._store.drained(number)
        if self._leaving:
            self._look_soon()
