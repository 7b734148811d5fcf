"""What must hold in every history. The checks watch the store from outside, and keep books."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from actorflow.cluster.ring import Verdict, desired_owners
from actorflow.engine.envelopes import TimerFired, unpack
from actorflow.engine.kind import ENDED
from actorflow.engine.stores.protocol import NEVER_RUN, Duplicate

if TYPE_CHECKING:
    from actorflow.cluster.ring import Post
    from actorflow.engine.stores.protocol import Change, MessageRow
    from actorflow.testing.simulation.store import SharedStore
    from actorflow.testing.simulation.world import World

__all__ = ["Broken", "Checks"]

_ALL = 1_000_000


class Broken(AssertionError):
    """Something that must hold does not.

    `about` names the execution, partition or worker, to find the lines that matter.
    """

    def __init__(self, rule: str, what: str, *about: object) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        self.about = about


class Checks:
    """Checks what must hold in one history, step by step."""

    def __init__(self, world: World, store: SharedStore) -> None:
        self._world = world
        self._store = store
        self.acked: dict[Any, str] = {}
        """Messages whose sender was told that they are stored, by their ids."""
        self.cancelled: set[str] = set()
        """Executions whose cancelling was acknowledged."""
        self._consumed: set[Any] = set()
        self._revisions: dict[str, Any] = {}
        self._epochs: dict[int, int] = defaultdict(int)
        self._committers: dict[tuple[int, int], str] = {}
        self._timers: dict[tuple[str, str], float] = {}
        self._processed: set[tuple[str, str]] = set()
        self._emitted: set[tuple[str, str]] = set()
        store.observers.append(self._applied)

    # While it runs.

    def started(self, worker: str, partition: int, epoch: int, execution: str) -> None:
        """Check a run that starts: its worker owns the partition, by the store's clock."""
        holding = self._store.roll.holdings[partition]
        if holding.epoch > epoch or holding.until <= self._store.now:
            late = self._store.now - holding.until
            raise Broken(
                "C3",
                f"{worker} starts a run of {execution!r} in partition {partition}, epoch {epoch}, "
                f"but the store says {holding}, {late:.3f} s ago",
                execution, partition, worker,
            )  # fmt: skip

    def processing(self, worker: str, post: Post) -> None:
        """Check a wake-up of a timer: one member acts on each once."""
        if post.tracker is None:
            return
        key = worker, post.id
        if key in self._processed:
            what = f"{worker} acts twice on the same timer: {post.id}"
            raise Broken("B10", what, post.execution, worker)
        self._processed.add(key)

    def emitting(self, worker: str, post: Post) -> None:
        """Check a wake-up that a member sends: one for each timer, unless it passes one on."""
        if post.tracker is None or post.hops:
            return
        key = worker, post.id
        if key in self._emitted:
            what = f"{worker} sends the same timer twice: {post.id}"
            raise Broken("B10", what, post.execution, worker)
        self._emitted.add(key)

    def processed(self, worker: str, post: Post, verdict: Verdict) -> None:
        """Note the end of a wake-up: one that is not done may be repeated."""
        if verdict is not Verdict.DONE:
            self._processed.discard((worker, post.id))

    def _applied(self, change: Change, who: str) -> None:
        """Check a change that the store has just applied."""
        name = change.execution
        if change.expected is not None:
            before = self._revisions.get(name, NEVER_RUN)
            if change.expected != before:
                what = f"{who} has replaced revision {before} of {name!r} by a run on an older one"
                raise Broken("C7", what, name, who)
            self._revisions[name] = change.revision
        if change.epoch is not None:
            self._check_epoch(change, who)
        taken = {*change.consumed, *(letter.id for letter in change.dead)}
        if change.expected is not None:
            for message in sorted(taken & self._consumed):
                what = f"message {message} went into the state of {name!r} twice"
                raise Broken("twice", what, name, who)
        self._consumed |= taken
        self._note_timers(change, who)
        if change.expected is not None:
            self._world.note(
                who, "commits", name, "revision", change.revision, "epoch", change.epoch,
                "consumes", list(change.consumed), change.status,
            )  # fmt: skip

    def _check_epoch(self, change: Change, who: str) -> None:
        partition, epoch = self._store.partition(change.execution), change.epoch or 0
        if epoch < self._epochs[partition]:
            what = (
                f"{who} commits {change.execution!r} in epoch {epoch} of partition {partition}, "
                f"after a commit in epoch {self._epochs[partition]}"
            )
            raise Broken("C6", what, change.execution, partition, who)
        self._epochs[partition] = epoch
        other = self._committers.setdefault((partition, epoch), who)
        if other != who:
            what = f"{other} and {who} both commit in epoch {epoch} of partition {partition}"
            raise Broken("C6", what, change.execution, partition, who, other)

    def _note_timers(self, change: Change, who: str) -> None:
        name, timers = change.execution, self._timers
        if change.clear:
            for key in [key for key in timers if key[0] == name]:
                del timers[key]
        for key in change.cancelled_timers:
            timers.pop(key, None)
        for row in (*change.rows, *change.extra):
            if not isinstance(row, Duplicate) and row.type == "timer":
                self._note_fired(row, who)
        for timer in change.timers:
            timers[timer.execution, timer.id] = timer.due

    def _note_fired(self, row: MessageRow, who: str) -> None:
        fired = unpack(row.id, row.at, row.type, row.body)
        assert isinstance(fired, TimerFired)
        key = row.execution, fired.timer
        if self._timers.get(key) != fired.due:
            what = f"{who} fires timer {fired.timer!r} of {row.execution!r}, which is not set"
            raise Broken("C17", what, row.execution, who)
        if self._store.now < fired.due:
            early = fired.due - self._store.now
            what = f"{who} fires timer {fired.timer!r} of {row.execution!r} {early:.3f} s early"
            raise Broken("C19", what, row.execution, who)
        del self._timers[key]

    # When it has ended.

    def unsettled(self, ring: tuple[str, ...], owned: dict[int, str], horizon: float) -> str | None:
        """Return what has not come to rest; `None` if all has.

        Timers that are due after the horizon, by the store's clock, may stay.
        """
        store = self._store
        for row in store.pending(limit=_ALL).rows:
            return f"message {row.id} to {row.execution!r} waits"
        for task in store.open(limit=_ALL).rows:
            return f"task {task.id!r} of tasker {task.tasker!r} is open"
        for timer in store.due(1):
            if timer.due <= max(store.now, horizon):
                return f"timer {timer.id!r} of {timer.execution!r} is due at {timer.due}"
        wanted = dict(enumerate(desired_owners(ring, store.traits.partitions)))
        if owned != wanted:
            return f"partitions are owned by {owned}, and should be by {wanted}"
        return None

    def check_end(self) -> None:
        """Check the books."""
        store = self._store
        dead = {letter.id for letter in store.dead(limit=_ALL).rows}
        for message, name in self.acked.items():
            if message not in self._consumed and message not in dead:
                what = f"message {message} to {name!r} was acknowledged and never processed"
                raise Broken("lost", what, name)
        for name in self.cancelled:
            row = store.execution(name)
            if row is None or row.status not in ENDED:
                raise Broken("C7", f"{name!r} was cancelled, and goes on", name)
        stored = {(row.execution, row.id): row.due for row in store.due(_ALL)}
        if stored != self._timers:
            odd = min(set(stored.items()) ^ set(self._timers.items()))
            raise Broken(
                "C17", f"timer {odd} is stored without being set, or the reverse", odd[0][0]
            )
