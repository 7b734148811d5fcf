"""The children of one supervisor: in the order of their start, found by id and by ref."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from actorflow.runtime.supervision.actions import ChildInfo, ChildState, Counts, Ref
from actorflow.runtime.supervision.spec import ChildType

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.supervision.spec import Child

__all__ = ["Children", "Record"]

# Tuples: looking through two members is cheaper than hashing one, which enums do in Python.
_ALIVE = (ChildState.RUNNING, ChildState.STOPPING)
_HAS_REF = (*_ALIVE, ChildState.EXITED)


@dataclass(slots=True, eq=False)
class Record:
    """One child, whichever incarnation of it is running. Only `Children` changes its state."""

    key: Hashable
    """The id of the child; for dynamic children a number of their own."""
    child: Child
    state: ChildState = ChildState.STOPPED
    ref: Ref = None
    """The incarnation: alive, or the last one while a restart is being tried."""
    started_at: float | None = None
    last_exit: ExitReason | None = None
    restarts: int = 0
    failures: int = 0
    """Restarts in a row that did not last: what a back-off grows with."""
    ticket: int = 0
    """The number of the `Retry` that is waited for while RESTARTING."""

    @property
    def is_alive(self) -> bool:
        """Whether there is an incarnation that has not ended, as far as was reported."""
        return self.state in _ALIVE

    def info(self) -> ChildInfo:
        """Give what others may see."""
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

    A plain dict keeps the order: a child that is restarted stays where it is, a new one goes
    last, and one that is removed costs the others nothing.
    """

    __slots__ = ("_active", "_by_key", "_by_ref", "_supervisors", "significant")

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Record] = {}
        self._by_ref: dict[Ref, Record] = {}
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
        """Give the record with that key."""
        return self._by_key.get(key)

    def find_ref(self, ref: Ref) -> Record | None:
        """Give the record whose incarnation that is, also the last one of a RESTARTING child."""
        return self._by_ref.get(ref)

    def snapshot(self) -> list[Record]:
        """Give all of them, in order. In one step, so that any thread may look. O(n)."""
        return list(self._by_key.values())

    def refs(self) -> list[Ref]:
        """Give all incarnations that are known. In one step, as `snapshot`. O(n)."""
        return list(self._by_ref)

    def since(self, record: Record) -> list[Record]:
        """Give the record and those after it, in order. O(as many)."""
        later = list(takewhile(lambda other: other is not record, reversed(self)))
        return [record, *reversed(later)]

    def counts(self) -> Counts:
        """Count them; `specs` is their number."""
        return Counts(
            specs=len(self),
            active=self._active,
            supervisors=self._supervisors,
            workers=len(self) - self._supervisors,
        )

    def add(self, record: Record) -> None:
        """Put a new record, without a ref, at the end."""
        self._by_key[record.key] = record
        self._supervisors += record.child.type is ChildType.SUPERVISOR
        self._count(record, 1)

    def remove(self, record: Record) -> None:
        """Forget a record. The order of the others stays."""
        del self._by_key[record.key]
        self._supervisors -= record.child.type is ChildType.SUPERVISOR
        self._count(record, -1)
        self._unbind(record)

    def move(self, record: Record, state: ChildState) -> None:
        """Change the state. Who becomes STOPPED has no ref any more."""
        self._count(record, -1)
        record.state = state
        self._count(record, 1)
        if state is ChildState.STOPPED:
            self._unbind(record)

    def bind(self, record: Record, ref: Ref, now: float) -> None:
        """Note a new incarnation, which is now RUNNING."""
        self._unbind(record)
        record.ref = ref
        record.started_at = now
        self._by_ref[ref] = record
        self.move(record, ChildState.RUNNING)

    def _unbind(self, record: Record) -> None:
        if record.ref is not None:
            del self._by_ref[record.ref]
            record.ref = None

    def _count(self, record: Record, one: int) -> None:
        if record.state in _ALIVE:
            self._active += one
        if record.child.significant and record.state is not ChildState.STOPPED:
            self.significant += one

    def check(self) -> None:
        """Raise AssertionError if indexes or counts do not fit the records. O(n)."""
        records = list(self)
        bound = {record.ref: record for record in records if record.ref is not None}
        _hold(self._by_ref == bound, "the index by ref fits the records")
        _hold(all(key == record.key for key, record in self._by_key.items()), "keys fit")
        _hold(self._active == sum(record.is_alive for record in records), "the living are counted")
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
