"""The stored form of an instance, a snapshot and the additions of each run; and its export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from actorflow.engine.errors import StateUnreadable
from actorflow.engine.growing_bytes import GrowingBytes, entries, entry
from actorflow.engine.kind import Addition
from actorflow.engine.operations.export import readable, unreadable
from actorflow.runtime.errors import BadOption, kind_and_text
from actorflow.workflows.instance import state as instances
from actorflow.workflows.instance.growth import Growth, grown
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.property_changes import (
    PropertyChange,
    as_changes,
    as_versions,
)
from actorflow.workflows.instance.state import InstanceState, StepStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actorflow.engine.stores.protocol import ExecutionRow

__all__ = [
    "CodeVersion",
    "StoredInstance",
    "WorkflowState",
    "read",
    "read_row",
    "record_of",
    "recorded_state",
]


class CodeVersion(Struct, frozen=True):
    """Which code ran an instance from some moment on."""

    version: str
    at: float
    index: int
    """How many executions there were before."""


class StoredInstance(Struct, omit_defaults=True):
    """The stored data of an execution."""

    instance: InstanceState
    tags: dict[str, Any] = {}
    inbox: bool = False
    """Whether it was started with a behaviour of its own in front of its events."""
    lane: dict[str, Any] | None = None
    """The lane that it enters when its time has come: `to` whom, which `body` is sent."""
    versions: list[CodeVersion] = []
    """The versions of the code that has run it, oldest first."""
    changes: list[PropertyChange] = []
    """Later versions of the properties than the instance has, as changes. Only as bytes."""


class _Added(Struct, array_like=True):
    """What a run has added: the growth of the instance, and all else as it is now."""

    stored: StoredInstance
    statuses: list[StepStatus]
    outputs: list[tuple[int, Any]]

    def growth(self) -> Growth:
        """Return what the instance has got."""
        return Growth(self.stored.instance, self.statuses, self.outputs)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredInstance).decode
_decode_added = msgspec.msgpack.Decoder(_Added).decode


def read(data: bytes) -> StoredInstance:
    """Return what the bytes of an execution stand for. O(all of them)."""
    whole, *more = entries(data)
    stored = _decode(whole)
    added = [_decode_added(each) for each in more]
    last = stored
    if added:
        last = added[-1].stored
        last.instance = grown(stored.instance, [each.growth() for each in added])
    properties = last.instance.properties
    for each in (stored, *(each.stored for each in added)):
        properties.extend(as_versions(properties[-1], each.changes))
        each.changes = []
    return last


def read_row(row: ExecutionRow) -> StoredInstance:
    """Return the instance that an execution is.

    Raises:
        StateUnreadable: its state does not belong to a workflow, or is missing.

    """
    try:
        return read(row.state or b"")
    except (msgspec.MsgspecError, ValueError) as error:
        raise StateUnreadable(row.id, row.kind, row.state, error) from error


def _added(stored: StoredInstance, instance: Instance) -> bytes:
    """Return an entry with what an instance has got; empty if it has lost something."""
    growth = instance.changes.take()
    if growth is None:
        return b""
    versions = instance.state.properties
    changes = as_changes(versions, len(versions) - len(growth.state.properties))
    growth.state.properties = []
    grows = msgspec.structs.replace(stored, instance=growth.state, changes=changes)
    return entry(_encode(_Added(grows, growth.statuses, growth.outputs)))


def _whole(stored: StoredInstance) -> bytes:
    """Return an entry with all of an instance."""
    state = stored.instance
    first = msgspec.structs.replace(state, properties=state.properties[:1])
    changes = as_changes(state.properties, 1)
    return entry(_encode(msgspec.structs.replace(stored, instance=first, changes=changes)))


_EVENT = 16  # bytes that each event takes at least


class WorkflowState:
    """An execution between two runs.

    Args:
        data: its bytes; `None` if it never ran.

    """

    __slots__ = ("_bytes", "_taken", "frames", "instance", "kept", "stored")

    def __init__(self, data: bytes | None = None) -> None:
        self._bytes: GrowingBytes | None = None if data is None else GrowingBytes(data)
        self.stored: StoredInstance | None = None
        self.instance: Instance | None = None
        self._taken: Instance | None = None
        self.kept: int | None = None
        """How many events the instance keeps, if that is known."""
        self.frames: object = None
        """What the frames are kept under that have come exactly as far as this."""

    @property
    def data(self) -> bytes | None:
        """All of its bytes. O(their number)."""
        return None if self._bytes is None else self._bytes.joined()

    @property
    def most_kept(self) -> int:
        """How many events the instance keeps; not fewer, as long as nobody has read its bytes."""
        if self.kept is not None:
            return self.kept
        return 0 if self._bytes is None else self._bytes.size // _EVENT

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
        if before is not None and before.grows and self._goes_on(instance):
            more = _added(stored, instance)
            if more and before.has_room(more):
                made._bytes = GrowingBytes(more, before)
                return made
        instance.changes.forget()
        made._bytes = GrowingBytes(_whole(stored))
        return made

    def _goes_on(self, instance: Instance) -> bool:
        """Return whether it is the instance that was taken, and more will be added to it."""
        return instance is self._taken and not instance.state.ended

    def encoded(self) -> bytes | Addition:
        """Return the bytes to write: the whole, or the addition of the run. O(length)."""
        held = self._bytes
        if held is None:
            msg = "an execution that never ran has no bytes"
            raise ValueError(msg)
        return held.data if held.before is None else Addition(held.data)


_FORMAT = 1


def record_of(stored: StoredInstance) -> dict[str, Any]:
    """Return the recorded state of an instance, as data that JSON can hold."""
    state = stored.instance
    return {
        "actorflow": "workflow",
        "format": _FORMAT,
        "id": state.id,
        "workflow": state.workflow_name,
        "versions": [each.version for each in stored.versions],
        "state": readable(instances.encode(state)),
    }


def recorded_state(record: Mapping[str, Any]) -> InstanceState:
    """Return the state that `record_of` has recorded.

    Raises:
        BadOption: it is not what `record_of` returns.

    """
    try:
        if record["actorflow"] != "workflow" or record["format"] != _FORMAT:
            raise ValueError(f"its format is {record['format']!r:.40}, not {_FORMAT}")  # noqa: TRY301
        return instances.decode(unreadable(record["state"]) or b"")
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        msg = (
            f"{record!r:.80} is not a recorded workflow ({kind_and_text(error)}): take "
            "what handle.export() or `actorflow workflows export` returned"
        )
        raise BadOption(msg) from error
