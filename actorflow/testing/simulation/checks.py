"""The invariants of every history, checked from outside against a record of all requests."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from actorflow.cluster.ring import desired_owners
from actorflow.engine.envelopes import TimerFired, unpack
from actorflow.engine.kind import ENDED
from actorflow.engine.stores.protocol import NEVER_RUN, DuplicateKey, partition_of
from actorflow.testing.simulation.world import START, InvariantBroken

if TYPE_CHECKING:
    from actorflow.application import Engine
    from actorflow.engine.stores.protocol import Change, MessageRow, Store
    from actorflow.testing.simulation.store import Network
    from actorflow.testing.simulation.world import World

__all__ = ["Checks"]

_ALL = 1_000_000


class Checks:
    """Checks the invariants of one history, step by step."""

    def __init__(self, world: World, network: Network, store: Store) -> None:
        self._world = world
        self._network = network
        self._store = store
        self.acked: dict[Any, str] = {}
        """Acknowledged messages by id: the sender knows that they are stored."""
        self.cancelled: set[str] = set()
        """Executions whose cancelling was acknowledged."""
        self._consumed: set[Any] = set()
        self._revisions: dict[str, Any] = {}
        self._epochs: dict[int, int] = defaultdict(int)
        self._committers: dict[tuple[int, int], str] = {}
        self._timers: dict[tuple[str, str], float] = {}
        network.observers.append(self._applied)

    # While it runs.

    def watch(self, engine: Engine, kind: Any) -> None:
        """Check each run of a kind when it starts."""
        run = kind.run

        def checked(context: Any, *args: Any) -> Any:
            self.started(engine.parts.store.name, context.id)  # type: ignore[attr-defined]
            return run(context, *args)

        kind.run = checked

    def started(self, worker: str, execution: str) -> None:
        """Check a run that starts: its engine owns the partition, by the store's clock."""
        number = self._partition(execution)
        holding = self._network.memory.roll.holdings[number]
        now = self._network.memory.time()
        if holding.owner != worker or holding.until <= now:
            what = (
                f"{worker} starts a run of {execution!r} in partition {number}, but the store says "
                f"{holding}; the lease ended {now - holding.until:.3f} s ago"
            )
            raise self._broken("C3", what, execution, number, worker)

    def _partition(self, execution: str) -> int:
        return partition_of(execution, self._network.memory.partitions)

    def _broken(self, rule: str, what: str, *about: object) -> InvariantBroken:
        return self._world.fail(InvariantBroken(rule, what, *about))

    def _applied(self, change: Change, who: str) -> None:
        """Check a change that the store has just applied."""
        name = change.execution
        if change.expected is not None:
            before = self._revisions.get(name, NEVER_RUN)
            if change.expected != before:
                what = f"{who} has replaced revision {before} of {name!r} by a run on an older one"
                raise self._broken("C7", what, name, who)
            self._revisions[name] = change.revision
            tables = self._network.memory.tables
            if change.status in ENDED and (name in tables.timers.of or name in tables.tasks.of):
                raise self._broken("clear", f"{name!r} has ended, and has timers or tasks", name)
        if change.epoch is not None:
            self._check_epoch(change, who)
        taken = {*change.consumed, *(letter.id for letter in change.dead)}
        if change.expected is not None:
            for message in sorted(taken & self._consumed):
                what = f"message {message} went into the state of {name!r} twice"
                raise self._broken("twice", what, name, who)
        self._consumed |= taken
        self._note_timers(change, who)
        if change.expected is not None:
            self._world.note(
                who, "commits", name, "revision", change.revision, "epoch", change.epoch,
                "consumes", list(change.consumed), change.status,
            )  # fmt: skip

    def _check_epoch(self, change: Change, who: str) -> None:
        partition, epoch = self._partition(change.execution), change.epoch or 0
        if epoch < self._epochs[partition]:
            what = (
                f"{who} commits {change.execution!r} in epoch {epoch} of partition {partition}, "
                f"after a commit in epoch {self._epochs[partition]}"
            )
            raise self._broken("C6", what, change.execution, partition, who)
        self._epochs[partition] = epoch
        other = self._committers.setdefault((partition, epoch), who)
        if other != who:
            what = f"{other} and {who} both commit in epoch {epoch} of partition {partition}"
            raise self._broken("C6", what, change.execution, partition, who, other)

    def _note_timers(self, change: Change, who: str) -> None:
        name, timers = change.execution, self._timers
        if change.clear:
            for key in [key for key in timers if key[0] == name]:
                del timers[key]
        for key in change.cancelled_timers:
            timers.pop(key, None)
        for row in (*change.rows, *change.resulting_messages):
            if not isinstance(row, DuplicateKey) and row.type == "timer":
                self._note_fired(row, who)
        for timer in change.timers:
            timers[timer.execution, timer.id] = timer.due

    def _note_fired(self, row: MessageRow, who: str) -> None:
        fired = unpack(row.id, row.at, row.type, row.body)
        assert isinstance(fired, TimerFired)  # noqa: S101 - a failed check
        key = row.execution, fired.timer
        if self._timers.get(key) != fired.due:
            what = f"{who} fires timer {fired.timer!r} of {row.execution!r}, which is not set"
            raise self._broken("C17", what, row.execution, who)
        network = self._network
        early = fired.due - network.memory.time()
        drift = abs(network.faults.skew_of(who[0]).rate - 1.0)
        # It was due when the engine looked: perhaps before the last answer.
        if early > drift * (self._world.now - network.heard[who][0]) + 1e-6:
            what = f"{who} fires timer {fired.timer!r} of {row.execution!r} {early:.3f} s early"
            raise self._broken("C19", what, row.execution, who)
        del self._timers[key]

    # When it has ended.

    def unsettled(self, ring: list[str], horizon: float) -> str | None:
        """Return a description of unfinished work, or `None`.

        Timers that are due after the horizon may stay.
        """
        store, memory = self._store, self._network.memory
        for row in store.pending(limit=_ALL).rows:
            return f"message {row.id} to {row.execution!r} waits"
        for task in store.open(limit=_ALL).rows:
            return f"task {task.id!r} of tasker {task.tasker!r} is open"
        for timer in store.due(1):
            if timer.due <= max(memory.time(), START + horizon):
                return f"timer {timer.id!r} of {timer.execution!r} is due at {timer.due}"
        wanted = dict(enumerate(desired_owners(tuple(sorted(ring)), memory.partitions)))
        owned = {number: each.owner for number, each in enumerate(memory.roll.holdings)}
        if owned != wanted:
            return f"partitions are owned by {owned}, and should be by {wanted}"
        return None

    def check_end(self) -> None:
        """Check the final state of the store against the record."""
        store = self._store
        dead = {letter.id for letter in store.dead(limit=_ALL).rows}
        for message, name in self.acked.items():
            if message not in self._consumed and message not in dead:
                what = f"message {message} to {name!r} was acknowledged and never processed"
                raise self._broken("lost", what, name)
        for name in self.cancelled:
            row = store.execution(name)
            if row is None or row.status not in ENDED:
                raise self._broken("C7", f"{name!r} was cancelled, and goes on", name)
        stored = {(row.execution, row.id): row.due for row in store.due(_ALL)}
        if stored != self._timers:
            odd = min(set(stored.items()) ^ set(self._timers.items()))
            raise self._broken(
                "C17", f"timer {odd} is stored without being set, or the reverse", odd[0][0]
            )
