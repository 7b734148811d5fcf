"""How an instance is stored: as a whole, and then what each run has added to it.

The bytes of an execution are entries, each after its length: a whole instance first, then one entry
for each run since. Once these are longer than the whole, the next run writes a whole again. So a
run costs the same however much has happened before, and reading costs little more than it must.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from actorflow.engine.errors import StateUnreadable
from actorflow.engine.kind import Addition
from actorflow.workflows.instance.growth import Growth, grown
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import InstanceState, WorkStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.stores.protocol import ExecutionRow

__all__ = ["SMALL", "CodeVersion", "StoredInstance", "WorkflowState", "read", "read_row"]

SMALL = 4_096
"""Bytes up to which an execution is always written as a whole."""

_LENGTH = 4  # bytes of the length of an entry


class CodeVersion(Struct, frozen=True):
    """Which code ran an instance from some moment on."""

    version: str
    at: float
    index: int
    """How many executions there were before."""


class StoredInstance(Struct, omit_defaults=True):
    """All that is stored of an execution."""

    instance: InstanceState
    tags: dict[str, Any] = {}
    inbox: bool = False
    """Whether it was started with a behaviour of its own in front of its events."""
    versions: list[CodeVersion] = []
    """Of the code that has run it, oldest first."""


class _Added(Struct, array_like=True):
    """What a run has added: the growth of the instance, and all else as it is now."""

    stored: StoredInstance
    statuses: list[WorkStatus]
    outputs: list[tuple[int, Any]]

    def growth(self) -> Growth:
        """Return what the instance has got."""
        return Growth(self.stored.instance, self.statuses, self.outputs)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredInstance).decode
_decode_added = msgspec.msgpack.Decoder(_Added).decode


def read(data: bytes) -> StoredInstance:
    """Return what the bytes of an execution stand for. O(all of them)."""
    entries = _entries(data)
    stored = _decode(next(entries))
    added = [_decode_added(entry) for entry in entries]
    if not added:
        return stored
    last = added[-1].stored
    last.instance = grown(stored.instance, [each.growth() for each in added])
    return last


def read_row(row: ExecutionRow) -> StoredInstance:
    """Return the instance that an execution is.

    Raises:
        StateUnreadable: its state is none of a workflow, or it has none yet.

    """
    try:
        return read(row.state or b"")
    except (msgspec.MsgspecError, ValueError, StopIteration) as error:
        raise StateUnreadable(row.id, row.kind, row.state, error) from error


def _entries(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    at = 0
    while at < len(view):
        begin = at + _LENGTH
        at = begin + int.from_bytes(view[at:begin], "big")
        yield view[begin:at]


def _entry(value: Any) -> bytes:
    body = _encode(value)
    return len(body).to_bytes(_LENGTH, "big") + body


def _added(stored: StoredInstance, instance: Instance) -> bytes:
    """Return an entry with what an instance has got; empty if it has lost something."""
    growth = instance.changes.take()
    if growth is None:
        return b""
    grows = msgspec.structs.replace(stored, instance=growth.state)
    return _entry(_Added(grows, growth.statuses, growth.outputs))


class _Bytes:
    """The bytes of an execution: what was there before, and the last entry."""

    __slots__ = ("before", "data", "size", "whole")

    def __init__(self, data: bytes, before: _Bytes | None = None) -> None:
        self.data = data
        self.before = before
        self.whole: int = before.whole if before else _LENGTH + _length_of(data)
        """Of these, how many are the whole instance that it began with."""
        self.size: int = len(data) + (before.size if before else 0)

    def joined(self) -> bytes:
        """Return all of them."""
        parts = []
        each: _Bytes | None = self
        while each is not None:
            parts.append(each.data)
            each = each.before
        return b"".join(reversed(parts))


def _length_of(data: bytes) -> int:
    return int.from_bytes(data[:_LENGTH], "big")


class WorkflowState:
    """An execution between two runs.

    Args:
        data: its bytes; `None` if it never ran.

    """

    __slots__ = ("_bytes", "_taken", "frames", "instance", "stored")

    def __init__(self, data: bytes | None = None) -> None:
        self._bytes: _Bytes | None = None if data is None else _Bytes(data)
        self.stored: StoredInstance | None = None
        self.instance: Instance | None = None
        self._taken: Instance | None = None
        self.frames: object = None
        """What the frames are kept under that have come exactly as far as this."""

    @property
    def data(self) -> bytes | None:
        """All of its bytes. O(their number)."""
        return None if self._bytes is None else self._bytes.joined()

    def take(self) -> tuple[StoredInstance | None, Instance | None]:
        """Hand over the instance, to be changed; later readers decode the bytes."""
        stored, instance = self.stored, self.instance
        self.stored = self.instance = None
        if stored is None and self._bytes is not None:
            stored = read(self._bytes.joined())
            instance = Instance(stored.instance)
        self._taken = instance
        return stored, instance

    def after(self, stored: StoredInstance, instance: Instance) -> WorkflowState:
        """Return the state that a run has led to."""
        made = WorkflowState()
        made.stored, made.instance = stored, instance
        before = self._bytes
        if before is not None and before.size > SMALL and self._goes_on(instance):
            entry = _added(stored, instance)
            if entry and before.size - before.whole + len(entry) <= before.whole:
                made._bytes = _Bytes(entry, before)
                return made
        instance.changes.forget()
        made._bytes = _Bytes(_entry(stored))
        return made

    def _goes_on(self, instance: Instance) -> bool:
        """Return whether it is the instance that was taken, and more will be added to it."""
        return instance is self._taken and not instance.state.ended

    def encoded(self) -> bytes | Addition:
        """Return what is to be written: all, or what the run has added. O(that)."""
        held = self._bytes
        if held is None:
            msg = "an execution that never ran has no bytes"
            raise ValueError(msg)
        return held.data if held.before is None else Addition(held.data)
