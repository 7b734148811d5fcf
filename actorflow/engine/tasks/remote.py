"""Remote tasks: where several engines share a store, any engine that has the tasker may do a task.

The owner of an execution lends a task to the least busy engine with its tasker, by a commit that
records the borrower. It keeps the task itself if it has the tasker and a free place, so that most
tasks cost no commit of their own. The borrower does the task like one of its own, and its answer is
a message to the execution. If the borrower dies, the owner sees that in the ring, counts the
attempt, and lends the task to another engine.

Everything kept here is also in the store, so the next owner of the execution can go on.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol, cast

from actorflow.engine.errors import TaskCrashed
from actorflow.engine.stores.protocol import Change
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from actorflow.cluster.membership import Peer
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.ownership import Ownership
    from actorflow.engine.kind import Kind
    from actorflow.engine.stores.protocol import SharedStore, Store, TaskRow
    from actorflow.engine.tasks.tasker import Tasker

__all__ = ["RemoteTasks", "least_busy"]

_MOST = 10_000  # tasks that one process has at the same time, about


def least_busy(
    peers: Sequence[Peer], tasker: str, handed: Mapping[str, int], mine: int | None, me: str
) -> str | None:
    """Return the process that should do a task instead of this one; `None`: none should.

    Args:
        peers: the members that are alive.
        tasker: the name of the tasker that the task needs.
        handed: how many tasks each has got since it said how busy it is.
        mine: how many tasks this process has, which keeps one more unless another has less than
            half as many; `None`: it has no such tasker.
        me: the name of this process.

    """
    load = {
        peer.name: peer.busy + handed.get(peer.name, 0)
        for peer in peers
        if peer.name != me and tasker in peer.taskers
    }
    least = min(load, key=lambda name: (load[name], name), default=None)
    if least is None or load[least] >= _MOST:
        return None
    return least if mine is None or 2 * load[least] < mine else None


class Local(Protocol):
    """The table of the tasks that are done here."""

    def __len__(self) -> int:
        """Return how many there are."""

    def names(self) -> list[str]:
        """Return the names of all taskers."""

    def held(self, tasker: str) -> int:
        """Return how many tasks of a tasker are in memory."""

    def knows(self, task: str) -> bool:
        """Return whether a task is out, answered, or about to be lent."""

    def hand_out(self, rows: Iterable[TaskRow]) -> None:
        """Hand out tasks that are stored."""

    def resume(self) -> None:
        """Lend out the stored tasks."""

    def crashes_of(self, row: TaskRow) -> int:
        """Return how often a task is begun again after its process has ended."""

    def fail(self, task: str, error: BaseException) -> bool:
        """Store the failure of a task."""

    def take_borrowed(self, rows: Sequence[TaskRow]) -> None:
        """Do the tasks that others have handed to this process."""


class RemoteTasks:
    """Lends tasks to other engines and borrows theirs. In the writer's thread."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        ownership: Ownership,
        kinds: dict[str, Kind],
        local: Local,
    ) -> None:
        self._store = cast("SharedStore", store)
        self._writer = writer
        self._ownership = ownership
        self._kinds = kinds
        self._local = local
        self._peers: Sequence[Peer] = ()
        self._names: set[str] = set()
        self._handed: Counter[str] = Counter()
        self.moving: set[str] = set()
        """Tasks that are about to be lent to another engine: they do not begin here."""

    # The owner.

    def lend(self, row: TaskRow, tasker: Tasker | None) -> bool:
        """Lend a task to another process if it should do it; return whether it was lent."""
        local = self._local
        if tasker is not None and local.held(row.tasker) < tasker.places:
            return False
        peers = self._store.peers()
        if peers is not self._peers:
            self._peers = peers
            self._handed.clear()
        mine = None if tasker is None else len(local)
        worker = least_busy(peers, row.tasker, self._handed, mine, self._store.name)
        if worker is None:
            return False
        self._handed[worker] += 1
        self._move(row._replace(worker=worker))
        return True

    def _move(self, row: TaskRow) -> None:
        """Record the borrower of a task; without one, hand it out here."""
        self.moving.add(row.id)
        epoch = self._ownership.epoch_of(row.execution)

        def moved(change: Change, error: Exception | None) -> None:
            self.moving.discard(row.id)
            if error is None and change.committed and row.worker is None:
                self._local.hand_out((row,))

        change = Change(row.execution, epoch=epoch, retried=(row,))
        self._writer.submit(change, moved, insist=True)

    def look(self) -> None:
        """Check lent tasks, and tasks that wait for a tasker of another engine."""
        self.announce()
        peers = self._store.peers()
        if not peers:
            return  # the living members are unknown
        names = {peer.name for peer in peers}
        if names != self._names:  # who has left has given back what it had not done
            self._names = names
            self._local.resume()
        for row in self._store.lent():
            if row.worker not in names and row.id not in self.moving:
                self._take_back(row)
        here = set(self._local.names())
        for tasker in sorted({name for peer in peers for name in peer.taskers} - here):
            self._lend_waiting(tasker)
        self.borrow()

    def _take_back(self, row: TaskRow) -> None:
        """Count an attempt that has ended with its process."""
        again = row._replace(attempts=row.attempts + 1, worker=None)
        log.warning("the worker of a task is gone", task=row.id, worker=row.worker)
        if again.attempts > self._local.crashes_of(row):
            text = f"the process ended {again.attempts} times while this task was under way"
            self._local.fail(row.id, TaskCrashed(text))
        else:
            self._move(again)

    def _lend_waiting(self, tasker: str) -> None:
        """Hand out tasks that wait for a tasker which only others have."""
        after = None
        while True:
            page = self._store.open(tasker=tasker, after=after)
            for row in page.rows:
                if row.worker is not None or self._local.knows(row.id):
                    continue  # it may have an answer that is not stored yet
                if not self.lend(row, None):
                    return
            after = page.after
            if after is None:
                return

    # The borrower's side.

    def announce(self) -> None:
        """Announce which taskers and which code are here, and how many tasks they have."""
        kinds = list(self._kinds.values())
        codes = {code for kind in kinds if (code := getattr(kind, "code", None)) is not None}
        self._store.serve(self._local.names(), self._local.__len__, codes)

    def borrow(self) -> None:
        """Begin tasks that others have lent to this engine; stop tasks that were taken back."""
        rows = self._store.lent(self._store.name)
        self._local.take_borrowed(rows)
