"""The records of the log: each is applied by every engine, in the order of the log."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from actorflow.cluster.ring import CheckIn
from actorflow.engine.stores.protocol import (
    Change,
    NewDead,
    NewExecution,
    NewMessage,
    TaskResult,
    TaskRow,
    TimerRow,
    WatchRow,
)

__all__ = ["Checked", "Commit", "Fill", "Purge", "Record", "decode", "encode", "frozen"]


class Commit(NamedTuple):
    """Changes of executions."""

    changes: list[Change]


class Checked(NamedTuple):
    """A member checks in."""

    request: CheckIn


class Purge(NamedTuple):
    """Executions that ended long ago are forgotten."""

    before: float
    keys_before: float
    limit: int
    only: list[str] | None = None


class Fill(NamedTuple):
    """An empty store gets the rows of another one."""

    rows: list[tuple[str, tuple[Any, ...]]]


Record = Commit | Checked | Purge | Fill

_TYPES: dict[str, type[Any]] = {"commit": Commit, "check-in": Checked, "purge": Purge, "fill": Fill}
_NAMES = {kind: name for name, kind in _TYPES.items()}


def _fired(row: Any) -> tuple[TimerRow, NewMessage]:
    return TimerRow(*row[0]), NewMessage(*row[1])


# The fields of a change, each with what its rows are; what the commit fills in is left out.
_ROWS: dict[str, Any] = {
    "creates": lambda row: NewExecution(*row),
    "messages": lambda row: NewMessage(*row),
    "timers": lambda row: TimerRow(*row),
    "cancelled_timers": tuple,
    "fired_timers": _fired,
    "tasks": lambda row: TaskRow(*row),
    "retried": lambda row: TaskRow(*row),
    "task_results": lambda row: TaskResult(row[0], NewMessage(*row[1])),
    "watches": lambda row: WatchRow(*row),
    "cancelled_watches": tuple,
    "dead": lambda row: NewDead(*row),
}
_FILLED_IN = ("committed", "refusal", "revision", "rows", "resulting_messages")
_FIELDS = tuple(field for field in Change.__struct_fields__ if field not in _FILLED_IN)
_DEFAULTS = {field: getattr(Change(), field) for field in _FIELDS}

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def _plain(change: Change) -> dict[str, Any]:
    given = ((field, getattr(change, field)) for field in _FIELDS)
    return {field: value for field, value in given if value != _DEFAULTS[field]}


def _change(plain: dict[str, Any]) -> Change:
    for field, make in _ROWS.items():
        if field in plain:
            plain[field] = [make(row) for row in plain[field]]
    return Change(**plain)


def frozen(value: Any) -> Any:
    """Return plain data with tuples for lists, at every depth: as it was before it was encoded."""
    return tuple(map(frozen, value)) if type(value) is list else value


def encode(id: str, record: Record) -> bytes:  # noqa: A002 - what it is
    """Return a record as bytes. The id makes it count once, however often it is published."""
    body: Any = list(record)
    if isinstance(record, Commit):
        body = [[_plain(change) for change in record.changes]]
    return _pack([id, _NAMES[type(record)], body])


def decode(data: bytes) -> tuple[str, Record]:
    """Return a record and its id.

    Raises:
        ValueError: it is not a record of a store.

    """
    try:
        id_, name, body = _unpack(data)
        if name == "commit":
            return id_, Commit([_change(plain) for plain in body[0]])
        if name == "check-in":
            return id_, Checked(CheckIn(*frozen(body[0])))
        if name == "fill":
            return id_, Fill([(table, tuple(row)) for table, row in body[0]])
        return id_, _TYPES[name](*body)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        msg = f"the log has a record that cannot be read: {error}"
        raise ValueError(msg) from error
