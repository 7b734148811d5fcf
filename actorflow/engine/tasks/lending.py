"""Tasks that another process does: where several share a store, any that has the tasker may.

The owner of an execution hands a task to the least busy of those who have its tasker, by a commit
that notes to whom. It keeps the task itself if it has the tasker and a free place, so that most
tasks cost no commit of their own. Whoever has got a task does it like one of its own, and its
answer is a message to the execution. If it dies, the owner sees that in the ring, counts the
attempt, and hands the task to somebody else.

Nothing is kept here that is not in the store: whoever owns the execution next goes on.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

from actorflow.engine.errors import TaskCrashed
from actorflow.engine.stores.protocol import Change
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.engine.core import Core
    from actorflow.engine.stores.protocol import Peer, SharedStore, TaskRow
    from actorflow.engine.tasks.board import Board
    from actorflow.engine.tasks.tasker import Tasker

__all__ = ["Lending", "least_busy"]

_MOST = 10_000  # tasks that one process has at the same time, about


def least_busy(
    peers: Sequence[Peer], tasker: str, handed: Mapping[str, int], mine: int | None, me: str
) -> str | None:
    """Return the process that should do a task instead of this one; `None`: none should.

    Args:
        peers: those who are alive.
        tasker: what the task needs.
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


class Lending:
    """Hands tasks to others, and takes those that others hand out. In the writer's thread."""

    def __init__(self, core: Core, board: Board) -> None:
        self._core = core
        self._board = board
        self._store = cast("SharedStore", core.store)
        self._peers: Sequence[Peer] = ()
        self._names: set[str] = set()
        self._handed: Counter[str] = Counter()
        self.moving: set[str] = set()
        """Tasks that are about to get another worker: nobody here begins them."""

    # The owner.

    def lend(self, row: TaskRow, tasker: Tasker | None) -> bool:
        """Hand a task to another process, if one should do it; return whether that is so."""
        board = self._board
        if tasker is not None and board.held(row.tasker) < tasker.places:
            return False
        peers = self._store.peers()
        if peers is not self._peers:
            self._peers = peers
            self._handed.clear()
        mine = None if tasker is None else len(board)
        worker = least_busy(peers, row.tasker, self._handed, mine, self._store.name)
        if worker is None:
            return False
        self._handed[worker] += 1
        self._move(row._replace(worker=worker))
        return True

    def _move(self, row: TaskRow) -> None:
        """Note who does a task; hand it out afterwards if that is nobody."""
        self.moving.add(row.id)
        epoch = self._core.ownership.epoch_of(row.execution)

        def moved(change: Change, error: Exception | None) -> None:
            self.moving.discard(row.id)
            if error is None and change.committed and row.worker is None:
                self._board.hand_out((row,))
                self._board.pass_on()

        change = Change(row.execution, epoch=epoch, retried=(row,))
        self._core.writer.submit(change, moved, insist=True)

    def look(self) -> None:
        """Look at what was handed out, and at what waits for taskers of others."""
        self.announce()
        peers = self._store.peers()
        if not peers:
            return  # nobody knows who is alive
        names = {peer.name for peer in peers}
        if names != self._names:  # who has left has given back what it had not done
            self._names = names
            self._board.resume()
        for row in self._store.lent():
            if row.worker not in names and row.id not in self.moving:
                self._take_back(row)
        here = set(self._board.names())
        for tasker in sorted({name for peer in peers for name in peer.taskers} - here):
            self._lend_waiting(tasker)
        self.borrow()

    def _take_back(self, row: TaskRow) -> None:
        """Count an attempt that has ended with its process."""
        again = row._replace(attempts=row.attempts + 1, worker=None)
        log.warning("the worker of a task is gone", task=row.id, worker=row.worker)
        if again.attempts > self._board.crashes_of(row):
            text = f"the process ended {again.attempts} times while this task was under way"
            self._board.fail(row.id, TaskCrashed(text))
        else:
            self._move(again)

    def _lend_waiting(self, tasker: str) -> None:
        """Hand out tasks that wait for a tasker which only others have."""
        after = None
        while True:
            page = self._store.open(tasker=tasker, after=after)
            for row in page.rows:
                if row.worker is None and row.id not in self.moving and not self.lend(row, None):
                    return
            after = page.after
            if after is None:
                return

    # Whoever gets a task.

    def announce(self) -> None:
        """Announce which taskers and which code are here, and how many tasks they have."""
        kinds = list(self._core.kinds.values())
        codes = {code for kind in kinds if (code := getattr(kind, "code", None)) is not None}
        self._store.serve(self._board.names(), len(self._board), codes)

    def borrow(self) -> None:
        """Begin the tasks that others have handed to this process; end those that are gone."""
        rows = self._store.lent(self._store.name)
        self._board.take_borrowed(rows)
