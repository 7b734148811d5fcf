"""The children of one supervisor, in start order, indexed by key and by incarnation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.runtime.supervision.spec import ChildType

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.spec import Child, RestartType

__all__ = ["ChildInfo", "ChildState", "Children", "Counts", "Incarnation", "Record"]

Incarnation: TypeAlias = Any
"""One start of a child: opaque to the family, hashable, never used for two starts."""


class ChildState(Enum):
    """The state of a child. OTP shows three of these; the others last for one step."""

    STARTING = auto()
    """Its start was requested and has not been reported yet."""
    RUNNING = auto()
    STOPPING = auto()
    """It was asked to stop and its exit has not been reported yet."""
    EXITED = auto()
    """It ended by itself during another plan; its exit is handled after that plan."""
    RESTARTING = auto()
    """It failed to start again; a retry is scheduled."""
    STOPPED = auto()
    """It is known but not running (OTP: undefined)."""


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """One child as seen from outside."""

    id: Hashable
    state: ChildState
    ref: Incarnation
    """None unless the child is alive."""
    type: ChildType
    restart: RestartType
    restarts: int
    """How often the supervisor has restarted it, for its own sake or a sibling's."""
    started_at: float | None
    last_exit: ExitReason | None


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of children by kind. A dynamic supervisor with a template has one spec."""

    specs: int
    active: int
    """Alive: running or stopping."""
    supervisors: int
    workers: int


# Tuples: comparing with two members is cheaper than hashing one, which enums do in Python.
_ALIVE = (ChildState.RUNNING, ChildState.STOPPING)
_HAS_REF = (*_ALIVE, ChildState.EXITED)


@dataclass(slots=True, eq=False)
class Record:
    """One child over all its incarnations. Only `Children` changes its state."""

    key: Hashable
    """The id of the child; for a dynamic child a unique number."""
    child: Child
    state: ChildState = ChildState.STOPPED
    ref: Incarnation = None
    """The incarnation: alive, or the last one while a restart is under way."""
    started_at: float | None = None
    last_exit: ExitReason | None = None
    failure: ExitReason | None = None
    """Why it needs a restart: how it ended, or why its last start failed."""
    restarts: int = 0
    failures: int = 0
    """Restarts in a row that did not last: the back-off grows with it."""
    ticket: int = 0
    """The number of the retry that is scheduled while RESTARTING."""
    suspended: bool = False
    """Stopped to make way for a restart, which includes its own."""

    @property
    def is_alive(self) -> bool:
        """Whether there is an incarnation whose end has not been reported."""
        return self.state in _ALIVE

    def info(self) -> ChildInfo:
        """Return what callers may see of it."""
        return ChildInfo(
            id=self.child.id,
            state=self.state,
            ref=self.ref if self.is_alive else None,
            type=self.child.type,
            restart=self.child.restart,
            restarts=self.restarts,
            started_at=self.started_at,
            last_exit=self.last_exit,
        )


class Children:
    """An ordered collection of records that keeps count. All methods O(1), unless they say so.

    A plain dict keeps the order: a restarted child keeps its place, a new one goes last, and
    removing one costs the others nothing.
    """

    __slots__ = (
        "_active",
        "_by_key",
        "_by_ref",
        "_ended",
        "_restarting",
        "_supervisors",
        "significant",
    )

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Record] = {}
        self._by_ref: dict[Incarnation, Record] = {}
        self._ended: dict[Record, Incarnation] = {}  # by child, the last one, until released
        self._restarting = 0
        self._active = 0
        self._supervisors = 0
        self.significant = 0
        """Significant children that are not STOPPED: one being restarted still counts."""

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._by_key.values())

    def __reversed__(self) -> Iterator[Record]:
        return reversed(self._by_key.values())

    def __contains__(self, record: Record) -> bool:
        return self._by_key.get(record.key) is record

    def find(self, key: Hashable) -> Record | None:
        """Return the record with that key."""
        return self._by_key.get(key)

    def find_ref(self, ref: Incarnation) -> Record | None:
        """Return the record of an incarnation, also of the last one of a RESTARTING child."""
        return self._by_ref.get(ref)

    def snapshot(self) -> list[Record]:
        """Return all records, in order. Thread-safe: one C call. O(n)."""
        return list(self._by_key.values())

    def since(self, record: Record) -> list[Record]:
        """Return the record and those after it, in order. O(as many)."""
        later = list(takewhile(lambda other: other is not record, reversed(self)))
        return [record, *reversed(later)]

    def counts(self) -> Counts:
        """Return the counts; `specs` is the number of records."""
        return Counts(
            specs=len(self),
            active=self._active,
            supervisors=self._supervisors,
            workers=len(self) - self._supervisors,
        )

    def add(self, record: Record) -> None:
        """Append a new record, which has no ref yet."""
        self._by_key[record.key] = record
        self._supervisors += record.child.type is ChildType.SUPERVISOR
        self._count(record, 1)

    def remove(self, record: Record) -> None:
        """Forget a record. The others keep their order."""
        del self._by_key[record.key]
        self._supervisors -= record.child.type is ChildType.SUPERVISOR
        self._count(record, -1)
        self._unbind(record)

    def move(self, record: Record, state: ChildState) -> None:
        """Change the state. A record that becomes STOPPED loses its ref."""
        self._count(record, -1)
        record.state = state
        self._count(record, 1)
        if state is ChildState.STOPPED:
            self._unbind(record)

    def bind(self, record: Record, ref: Incarnation, now: float) -> None:
        """Set a new incarnation, which is now RUNNING."""
        self._unbind(record)
        self._ended.pop(record, None)
        record.suspended = False
        record.ref = ref
        record.started_at = now
        self._by_ref[ref] = record
        self.move(record, ChildState.RUNNING)

    def take_released(self, *, leaving: bool) -> Sequence[tuple[Record, Incarnation]]:
        """Return the children that ended and will not be restarted, with their incarnations.

        Each is returned once. A child that was suspended for a restart which is still pending is
        kept, unless the family is leaving. O(those that ended).
        """
        if not self._ended:
            return ()
        released = [
            (record, ref)
            for record, ref in self._ended.items()
            if record not in self
            or (
                record.state is ChildState.STOPPED
                and (leaving or not (record.suspended and self._restarting))
            )
        ]
        for record, _ in released:
            del self._ended[record]
        return released

    def _unbind(self, record: Record) -> None:
        if record.ref is not None:
            self._ended[record] = record.ref
            del self._by_ref[record.ref]
            record.ref = None

    def _count(self, record: Record, one: int) -> None:
        if record.state in _ALIVE:
            self._active += one
        elif record.state is ChildState.RESTARTING:
            self._restarting += one
        if record.child.significant and record.state is not ChildState.STOPPED:
            self.significant += one

    def check(self) -> None:
        """Raise AssertionError if indexes or counts do not match the records. O(n)."""
        records = list(self)
        bound = {record.ref: record for record in records if record.ref is not None}
        _hold(self._by_ref == bound, "the index by ref matches the records")
        _hold(all(key == record.key for key, record in self._by_key.items()), "keys match")
        _hold(
            self._active == sum(record.is_alive for record in records), "live children are counted"
        )
        restarting = sum(record.state is ChildState.RESTARTING for record in records)
        _hold(self._restarting == restarting, "children that wait for a retry are counted")
        _hold(
            not any(record in self and record.is_alive for record in self._ended),
            "children whose incarnation has ended are not alive",
        )
        _hold(
            self._supervisors == sum(r.child.type is ChildType.SUPERVISOR for r in records),
            "supervisors are counted",
        )
        _hold(
            self.significant
            == sum(r.child.significant and r.state is not ChildState.STOPPED for r in records),
            "significant children are counted",
        )
        for record in records:
            if record.state in _HAS_REF:
                _hold(record.ref is not None, f"{record.key!r} has a ref: {record.state}")
            if record.state is ChildState.STOPPED:
                _hold(record.ref is None, f"{record.key!r} is stopped and has no ref")


def _hold(condition: bool, what: str) -> None:  # noqa: FBT001
    if not condition:
        raise AssertionError(f"not true of these children: {what}")
