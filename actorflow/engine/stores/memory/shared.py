"""A store in memory that several engines of one process share: `memory://name`.

All of them see the same rows and divide the partitions as engines on Postgres or NATS do, with
leases and epochs. It outlives each engine and ends with the last one that has it open. For tests of
a cluster in one process, and for executions that need not outlive the process.
"""

from __future__ import annotations

import threading
import uuid
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from actorflow.cluster.membership import Membership
from actorflow.cluster.ring import CheckIn, EpochJournal, RingOptions, Roll, check_in
from actorflow.engine.stores.member_store import MemberStore
from actorflow.engine.stores.memory.status import tables_status
from actorflow.engine.stores.memory.store import MemoryStore
from actorflow.engine.stores.memory.tables import Tables, concerned
from actorflow.engine.stores.protocol import StoreTraits, partition_of
from actorflow.runtime.errors import BadOption
from actorflow.runtime.fork import after_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from actorflow.cluster.ring import Holding, JournalEntry, View
    from actorflow.cluster.status import ClusterStatus
    from actorflow.engine.stores.protocol import Change, TaskRow, Wake

__all__ = ["PARTITIONS", "SharedMemory", "SharedMemoryStore", "open_shared"]

PARTITIONS = 16
"""The number of partitions of a new store."""

_LEASE = 10.0


class SharedMemory:
    """The rows and the register that several stores have in common.

    Args:
        partitions: how many parts the executions are divided into.
        time: returns the time by which leases end and timers are due.

    """

    def __init__(self, partitions: int = PARTITIONS, time: Callable[[], float] = time) -> None:
        self.partitions = partitions
        self.time = time
        self.tables = Tables()
        self.roll = Roll.of(partitions)
        self.journal = EpochJournal()
        self.lock = threading.Lock()
        self.stores: list[SharedMemoryStore] = []
        """The stores that are open, in the order of their opening."""


class SharedMemoryStore(MemberStore, MemoryStore):
    """One engine's view of a shared memory.

    Args:
        memory: the rows and the register.
        name: of the engine; another one for each life of an engine.
        options: of the ring.
        membership: makes what takes part in the ring.

    """

    def __init__(
        self,
        memory: SharedMemory,
        name: str,
        options: RingOptions | None = None,
        *,
        membership: Callable[[str, Any, RingOptions], Membership] = Membership,
    ) -> None:
        super().__init__()
        self.traits = StoreTraits(shared=True, partitions=memory.partitions)
        self.name = name
        self._memory = memory
        self._tables = memory.tables
        self._lock = memory.lock
        self._wakes: list[Wake] = []
        self._options = options or RingOptions(lease=_LEASE)
        self._membership = membership(name, self, self._options)
        memory.stores.append(self)

    # Writing.

    def _apply(self, change: Change) -> None:
        super()._apply(change)
        if change.epoch is not None:
            partition = self._partition_of(change.execution)
            self._memory.journal.note(partition, change.epoch, self.name)

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply the changes, and wake the engines that they concern. O(their rows)."""
        super().commit(changes)
        for change in changes:
            if change.refusal is not None and change.refusal.reason == "fenced":
                partition = self._partition_of(change.execution)
                if self.owned().get(partition) == change.epoch:  # we believe to own it
                    self._membership.fenced(partition)
        self._tell_others([change for change in changes if change.committed])

    def restore(self, rows: Iterator[tuple[str, tuple[Any, ...]]]) -> int:
        """Fill an empty store; return how many rows. O(n)."""
        count = super().restore(rows)
        with self._lock:
            self._memory.tables.__dict__.update(self._tables.__dict__)  # all others refer to it
            self._tables = self._memory.tables
        return count

    def _tell_others(self, done: Sequence[Change]) -> None:
        if any(change.watches or change.cancelled_watches for change in done):
            self.wake_others(None)
            return
        for worker in {task.worker: None for each in done for task in each.retried}:
            if worker is not None:
                self.wake_others((), worker)
        names = tuple(dict.fromkeys(name for change in done for name in concerned(change)))
        if names:
            self.wake_others(names)

    def wake_others(self, executions: Sequence[str] | None, only: str | None = None) -> None:
        """Make the other engines, or one of them, look at some executions; see `Wake`."""
        for store in list(self._memory.stores):
            if store is not self and only in (None, store.name):
                self.notify(store, partial(store.woken, executions))

    def notify(self, store: SharedMemoryStore, deliver: Callable[[], None]) -> None:
        """Tell another engine something, by a call of its store."""
        del store  # a store with a network in between looks at it
        deliver()

    def woken(self, executions: Sequence[str] | None) -> None:
        """Wake the subscribers of this store."""
        for wake in list(self._wakes):
            wake(executions)

    # Ownership.

    def _partition_of(self, execution: str) -> int:
        return partition_of(execution, self.traits.partitions)

    def _epoch_of(self, execution: str) -> int:
        return self._memory.roll.holdings[self._partition_of(execution)].epoch

    def _is_visible(self, execution: str) -> bool:
        return not self._joined or self._partition_of(execution) in self._membership.owned()

    def _check_joinable(self) -> None:
        self._require_open()

    def follow(self, execution: str) -> None:
        """Do nothing: every engine hears of all commits."""

    def lent(self, worker: str | None = None) -> list[TaskRow]:
        """Return tasks lent to `worker`, or all lent tasks in owned partitions.

        O(all open tasks).
        """
        with self._lock:
            self._require_open()
            return [
                row
                for row in self._tables.tasks.rows.values()
                if (row.worker == worker if worker is not None else row.worker is not None)
                and (worker is not None or self._is_visible(row.execution))
            ]

    def status(self) -> ClusterStatus:
        """Return the members, their leases and partitions, and the waiting messages.

        O(active executions).
        """
        with self._lock:
            self._require_open()
            return tables_status(self._tables, self._memory.roll.view(self._memory.time()))

    def check_in(self, request: CheckIn) -> View:
        """Pass a request to the register. For the membership."""
        with self._lock:
            self._require_open()
            return check_in(self._memory.roll, request, self._memory.time())

    def journal(self) -> tuple[list[JournalEntry], list[Holding]]:
        """Return the first commit of each member in each epoch, and the register. O(n)."""
        with self._lock:
            self._require_open()
            return self._memory.journal.entries(), list(self._memory.roll.holdings)

    def hint(self, member: str) -> None:
        """Ask another member to check in soon. For the membership."""
        for store in list(self._memory.stores):
            if store.name == member:
                self.notify(store, store.hinted)

    def hinted(self) -> None:
        """Check in soon: another member has handed something over."""
        self._membership.hurry()

    # Wake-ups.

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Call `wake(executions)` when others have stored something; return how to end that."""
        self._wakes.append(wake)

        def end() -> None:
            if wake in self._wakes:
                self._wakes.remove(wake)

        return end

    def look(self) -> None:
        """Wake all subscribers to look at everything."""
        self.woken(None)

    def close(self) -> None:
        """Release all partitions, and forget everything if this is the last view."""
        if self._closed:
            return
        if self._leave():
            self.check_in(CheckIn(self.name, self._options.lease, leave=True))
        super().close()
        self._memory.stores.remove(self)


_SHARED: dict[str, SharedMemory] = {}  # the open ones, by name
_OPENING = threading.Lock()


def open_shared(url: str, *, name: str | None = None) -> SharedMemoryStore:
    """Open the store that `memory://name?partitions=16&lease=10` names, in this process.

    Raises:
        BadOption: the URL cannot be read, or others have the store open with other partitions.

    """
    parts = urlsplit(url)
    known = {"partitions": 0, "lease": _LEASE}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key not in known:
            msg = f"{url!r}: there is no option {key!r}; there are {', '.join(known)}"
            raise BadOption(msg)
        try:
            known[key] = type(known[key])(value)
        except ValueError:
            known[key] = -1
        if known[key] <= 0:
            msg = f"{url!r}: {key}={value!r} must be a number above 0, as in {key}=8"
            raise BadOption(msg)
    asked = int(known["partitions"])
    with _OPENING:
        memory = _SHARED.get(parts.netloc)
        if memory is None or not memory.stores:
            memory = _SHARED[parts.netloc] = SharedMemory(asked or PARTITIONS)
        if asked not in (0, memory.partitions):
            msg = f"{url!r}: the store is open with {memory.partitions} partitions"
            raise BadOption(msg)
        token = uuid.uuid4().hex[:6]  # an engine that is opened again is another member
        options = RingOptions(lease=known["lease"])
        return SharedMemoryStore(memory, f"{name or 'engine'}-{token}", options)


after_fork(_SHARED.clear)
