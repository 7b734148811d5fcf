"""A store that several simulated workers share: partitions with owners, epochs and leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.cluster.ring import CheckIn, Roll, View, check_in
from actorflow.engine.bodies import decode
from actorflow.engine.kind import Watch
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    ExecutionRow,
    MessageRow,
    Page,
    Refusal,
    TaskRow,
    TimerRow,
    Traits,
    partition_of,
)
from actorflow.testing.simulation.world import START

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actorflow.testing.simulation.world import World

__all__ = ["Fetched", "SharedStore", "Survey"]

_ALL = 1_000_000


class Survey(NamedTuple):
    """What is stored in a partition."""

    now: float
    """By the store's clock."""
    messages: list[MessageRow]
    timers: list[TimerRow]
    tasks: list[TaskRow]


class Fetched(NamedTuple):
    """One execution, with all that a run of it may need."""

    now: float
    """By the store's clock."""
    row: ExecutionRow | None
    messages: list[MessageRow]
    timers: list[TimerRow]
    watches: list[Watch]


class SharedStore(MemoryStore):
    """A store in memory whose partitions have owners. Its clock is the world's.

    Args:
        world: whose time it has.
        partitions: how many there are.
        viewer: whose partitions `owned`, `pending`, `due` and `open` are about; `None`: all.

    """

    def __init__(self, world: World, partitions: int, viewer: str | None = None) -> None:
        super().__init__()
        self.traits = Traits(shared=True, partitions=partitions)
        self.roll = Roll.of(partitions)
        self.positions: dict[Any, int] = {}
        """The number of the transaction that each message came with: not the order of commits."""
        self.observers: list[Callable[[Change, str], None]] = []
        """Called with each change that was applied, and who had asked for it."""
        self._world = world
        self._viewer = viewer
        self._transactions = 0

    @property
    def now(self) -> float:
        """The time of the store's clock."""
        return START + self._world.now

    def begin(self) -> int:
        """Begin a transaction; return its number."""
        self._transactions += 1
        return self._transactions

    # Ownership.

    def check_in(self, request: CheckIn) -> View:
        """Renew, take and release partitions."""
        return check_in(self.roll, request, self.now)

    def owned(self) -> Mapping[int, int]:
        """Return the partitions of the viewer, each with its epoch."""
        return {
            number: holding.epoch
            for number, holding in enumerate(self.roll.holdings)
            if self._viewer is None or holding.owner == self._viewer
        }

    def partition(self, execution: str) -> int:
        """Return the partition of an execution."""
        return partition_of(execution, self.traits.partitions)

    def is_fenced(self, change: Change) -> bool:
        """Return whether the epoch of a change is over."""
        if change.epoch is None:
            return False
        return change.epoch != self.roll.holdings[self.partition(change.execution)].epoch

    # Commits.

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply the changes that are not refused."""
        self.commit_as("", 0, changes)

    def commit_as(self, who: str, number: int, changes: Sequence[Change]) -> None:
        """Commit the transaction of that number."""
        open_: list[Change] = []
        for change in changes:
            if self.is_fenced(change):
                change.committed, change.revision = False, NEVER_RUN
                change.rows = change.extra = ()
                change.refusal = Refusal("fenced", change.execution)
            else:
                open_.append(change)
        epochs = [change.epoch for change in open_]
        for change in open_:
            change.epoch = None  # it has been checked
        try:
            super().commit(open_)
        finally:
            for change, epoch in zip(open_, epochs, strict=True):
                change.epoch = epoch
        for change in open_:
            if change.committed:
                for row in (*change.rows, *change.extra):
                    self.positions[row.id] = number
                for observe in self.observers:
                    observe(change, who)

    # Reading.

    def _owns(self, execution: str) -> bool:
        return self._viewer is None or self.partition(execution) in self.owned()

    def pending(self, **options: Any) -> Page[MessageRow]:
        """Return messages of the viewer's partitions."""
        page = super().pending(**options)
        return page._replace(rows=[row for row in page.rows if self._owns(row.execution)])

    def due(self, limit: int = 1_000, *, execution: str | None = None) -> list[TimerRow]:
        """Return timers of the viewer's partitions."""
        rows = super().due(_ALL, execution=execution)
        return [row for row in rows if self._owns(row.execution)][:limit]

    def open(self, **options: Any) -> Page[TaskRow]:
        """Return tasks of the viewer's partitions."""
        page = super().open(**options)
        return page._replace(rows=[row for row in page.rows if self._owns(row.execution)])

    def survey(self, partition: int) -> Survey:
        """Return what waits in a partition."""

        def inside(row: Any) -> bool:
            return self.partition(row.execution) == partition

        return Survey(
            self.now,
            list(filter(inside, super().pending(limit=_ALL).rows)),
            list(filter(inside, super().due(_ALL))),
            list(filter(inside, super().open(limit=_ALL).rows)),
        )

    def fetch(self, execution: str) -> Fetched:
        """Return an execution with what waits for it."""
        row = self.execution(execution)
        watches = [
            Watch(each.execution, each.id, decode(each.body))
            for each in self.watches(limit=_ALL).rows
            if row is not None and each.kind == row.kind
        ]
        timers = [each for each in super().due(_ALL, execution=execution) if each.due <= self.now]
        messages = super().pending(execution=execution, limit=_ALL).rows
        return Fetched(self.now, row, messages, timers, watches)
