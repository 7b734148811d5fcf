"""Which executions this engine may run, where several engines share a store.

A store that is shared divides its executions into partitions, and gives each to one engine for as
long as that renews its lease. So what is owned can change at any time: executions of a partition
that is lost are let go of, those of one that is gained are looked for in the store. Every commit of
an owner names the epoch in which it owns the partition; the store refuses one that is over.

In a store of one engine everything is owned, and none of this costs anything.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from actorflow.engine.errors import EngineClosed, StoreRefused
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.stores.protocol import partition_of
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.engine.core import Core
    from actorflow.engine.execution.live import Live
    from actorflow.engine.execution.watching import Waiters
    from actorflow.engine.stores.protocol import SharedStore

__all__ = ["MOVED", "Ownership"]

MOVED = "the execution has moved to another engine, where its messages are processed"

_LATER = 0.5  # seconds after which a store that could not be read is looked at again
_AGAIN = 0.02  # seconds after which it is seen whether executions that were let go of have ended
_WINDOW = 10_000  # messages of one execution that are looked through for one that is awaited


class Ownership:
    """What an engine owns. All but `woken`, `epoch_of` and `runs` in the writer's thread."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._store = cast("SharedStore", core.store)
        self._partitions = core.store.traits.partitions
        self.shared = core.store.traits.shared
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._all = False
        self._tasks = False
        self._scheduled = False
        self._before: dict[int, int] = {}
        self._leaving: dict[int, list[Live]] = {}
        self._awaited: dict[str, dict[Any, Any]] = {}

    # Any thread.

    def epoch_of(self, execution: str) -> int | None:
        """Return the epoch that commits of an execution have to name; `None`: none."""
        if not self.shared:
            return None
        return self._store.owned().get(partition_of(execution, self._partitions))

    def runs(self, execution: str) -> bool:
        """Return whether an execution may run here now."""
        return not self.shared or self.epoch_of(execution) is not None

    def keeps(self, live: Live) -> bool:
        """Return whether a live execution may go on: it is owned since it was woken."""
        return not self.shared or self.epoch_of(live.id) == live.epoch

    def is_suspect(self, execution: str) -> bool:
        """Return whether what is stored of an execution may have ended a process before."""
        if not self.shared:
            return self._core.store.left_open
        return self._store.inherited(partition_of(execution, self._partitions))

    def has_code(self, code: str) -> bool:
        """Return whether another worker that is alive has announced this `code` of a kind."""
        if not self.shared:
            return False
        me = self._store.name
        return any(code in peer.codes for peer in self._store.peers() if peer.name != me)

    def follow(self, execution: str) -> None:
        """Ask for news of the next commits of an execution, also of one that another engine owns.

        Called before whatever is waited for is asked for, so that nothing is missed.
        """
        if self.shared and not self.runs(execution):
            self._store.follow(execution)

    def woken(self, executions: Sequence[str] | None) -> None:
        """Schedule a look at some executions, at everything, or at tasks if none is named."""
        with self._lock:
            if executions is None:
                self._all = True
            elif executions:
                self._names.update(executions)
            else:
                self._tasks = True
            if self._scheduled:
                return
            self._scheduled = True
        self._core.writer.call(self._look)

    # The writer's thread.

    def join(self) -> None:
        """Begin to own something, where that is divided."""
        if self.shared:
            self._store.join()
            self._before = dict(self._store.owned())

    def _look(self) -> None:
        """Look at what others may have stored."""
        with self._lock:
            everything, tasks, names = self._all, self._tasks, self._names
            self._all, self._tasks, self._names, self._scheduled = False, False, set(), False
        if self._core.closed:
            return
        try:
            self._look_at_all(names, everything=everything)
            if tasks and not everything:
                self._core.board.look(borrowed=True)
        except StoreRefused as error:  # what there was to look at is still there
            log.warning("the store cannot be read; looking again", error=str(error))
            for due, executions in ((everything, None), (names, tuple(names)), (tasks, ())):
                if due:
                    SYSTEM.call_at(SYSTEM.now() + _LATER, partial(self.woken, executions))

    def _look_at_all(self, names: set[str], *, everything: bool) -> None:
        core = self._core
        self._tell_waiting(None if everything else names)
        if not core.resumed:
            return
        if everything:
            core.watches.reload(core.store)
            self._follow()
            core.host.backlog.look()
            core.timers.start()
            core.board.look()
        elif core.board.borrows_from(names):
            core.board.look(borrowed=True)
        for name in names:
            if self.runs(name):
                self._look_at(name)

    def _tell_waiting(self, names: Iterable[str] | None) -> None:
        """Resolve the tickets of callers that wait for executions which may run elsewhere."""
        core = self._core
        watched = core.watchers.names() if names is None else core.watchers.names() & set(names)
        if watched:
            for row in core.store.executions(sorted(watched)).values():
                if row.status != Status.ACTIVE:
                    core.watchers.tell(row.id, row)
        for kind in list(core.kinds.values()):
            waiters: Waiters | None = getattr(kind, "waiters", None)
            if waiters:
                inside = waiters.names() if names is None else waiters.names() & set(names)
                for name in inside:
                    if not self.runs(name):
                        waiters.tell(name)
        awaited = self._awaited.keys() if names is None else self._awaited.keys() & set(names)
        for name in list(awaited):
            self._tell_processed(name)

    def _look_at(self, name: str) -> None:
        """Take what others have sent to an execution of ours; or see that they have ended it."""
        core = self._core
        live = core.host.find(name)
        if live is None:
            core.host.backlog.read_now(name)
            return
        row = core.store.execution(name)
        if row is not None and row.status in ENDED and live.status not in ENDED:
            live.loaded = False
            live.status = Status(row.status)
            core.board.cancel_all(name)
            core.watches.forget(name)
            core.watchers.tell(name, row)
            core.host.settle(live)
            return
        core.host.backlog.look_at(live)

    # What is gained and lost.

    def _follow(self) -> None:
        """Follow what is owned.

        What is to be drained is asked for, not concluded from what was owned at the last look: it
        may have been gained and lost between the two.
        """
        core = self._core
        owned, draining = dict(self._store.owned()), self._store.draining()
        if owned == self._before and not draining:
            return
        before, self._before = self._before, owned
        lost = [number for number, epoch in before.items() if owned.get(number) != epoch]
        for number in draining:
            self._leaving.setdefault(number, [])
        for live in core.host.all():
            if not self.keeps(live):
                self.let_go(live)
        if owned != before:
            log.info("partitions owned", count=len(owned), lost=len(lost))
        core.board.let_go(self.runs)
        core.board.resume()
        self._see_leaving()

    def let_go(self, live: Live) -> None:
        """End an execution here, after the run that is under way."""
        partition = partition_of(live.id, self._partitions)
        self._leaving.setdefault(partition, []).append(live)
        self._core.host.let_go(live, EngineClosed(MOVED))
        SYSTEM.call_at(SYSTEM.now() + _AGAIN, self._on_alarm)

    def _on_alarm(self) -> None:
        self._core.writer.call(self._see_leaving)

    def _see_leaving(self) -> None:
        """Release the partitions in which nothing runs any more."""
        for number, lives in list(self._leaving.items()):
            lives[:] = [live for live in lives if live.port is not None and not live.has_ended]
            if not lives:
                del self._leaving[number]
                if number not in self._store.owned():
                    self._store.drained(number)
        if self._leaving:
            SYSTEM.call_at(SYSTEM.now() + _AGAIN, self._on_alarm)

    # Messages that are processed elsewhere.

    def await_processed(self, execution: str, waiters: dict[Any, Any]) -> None:
        """Resolve waiters once the messages of these ids have been processed, wherever."""
        if waiters:
            self._awaited.setdefault(execution, {}).update(waiters)

    def _tell_processed(self, name: str) -> None:
        waiting = self._awaited[name]
        page = self._core.store.pending(execution=name, limit=_WINDOW)
        left = {row.id for row in page.rows}
        last = page.rows[-1].id if page.after is not None else None
        for number in [each for each in waiting if each not in left]:
            if last is None or number < last:
                waiting.pop(number).resolve(self._core.host.refusal_of(number))
        if not waiting:
            del self._awaited[name]

    def close(self, error: BaseException) -> None:
        """Resolve the remaining tickets."""
        for waiting in self._awaited.values():
            for waiter in waiting.values():
                self._core.in_lane("a waiter", partial(waiter.resolve, error))
        self._awaited.clear()
