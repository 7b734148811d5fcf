"""Branches and works as scripts see them: the JSON of the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.engine.identifiers import check_id
from actorflow.workflows.errors import InvalidWork
from actorflow.workflows.instance.decision import WorkCall
from actorflow.workflows.instance.state import UNSET, Branch, WorkType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["BRANCH_FIELDS", "branch_to_wire", "calls_from_wire", "fields_of", "task_hash"]

BRANCH_FIELDS = (
    "type",
    "event_name",
    "event_input",
    "task_name",
    "task_input",
    "task_output",
    "error_name",
    "error_input",
    "output",
)


def branch_to_wire(key: int, branch: Branch) -> dict[str, Any]:
    """Return a branch with its key; fields that it does not have are left out."""
    return {"key": key, **fields_of(branch, BRANCH_FIELDS)}


def fields_of(record: msgspec.Struct, names: Sequence[str]) -> dict[str, Any]:
    """Return some fields as plain data; those that are not set are left out."""
    values = ((name, getattr(record, name)) for name in names)
    return {
        name: msgspec.to_builtins(value, builtin_types=(bytes,))
        for name, value in values
        if value is not UNSET
    }


def calls_from_wire(works: Sequence[Mapping[str, Any]]) -> list[WorkCall]:
    """Return the works of one call as a session wants them.

    Args:
        works: objects with `name`, `input`, `position`, `timeout`, `sync`, `type` and `event`, and
            `raises` for those whose failure the code wants to know. The timeout of a wait is
            `{"duration": SECONDS}` or `{"timestamp": SECONDS}`.

    Raises:
        InvalidWork: two of them have the same position, or one makes no sense.
        ValueError: a name has characters that cannot be printed.

    """
    calls = [_call(each) for each in works]
    positions = [each.position for each in calls]
    for position in positions:
        if positions.count(position) > 1:
            raise InvalidWork(
                f"two works of one call have the position {position!r}: number the works of a "
                "call, as in '0.0', '0.1'"
            )
    return calls


def _call(work: Mapping[str, Any]) -> WorkCall:
    type_ = WorkType(work.get("type", WorkType.TASK))
    check_id(work["name"], f"a {type_}")
    limit, event = work.get("timeout"), work.get("event")
    if type_ is WorkType.WAIT:
        return _wait(work, limit, event)
    if isinstance(limit, dict):
        raise InvalidWork(f"timeout={limit!r:.80} of a {type_}: write a number of seconds")
    if event is not None:
        raise InvalidWork(f"event={event!r:.80} of a {type_}: only a wait has one")
    return WorkCall(
        position=work["position"],
        type=type_,
        name=work["name"],
        input=work.get("input"),
        sync=work.get("sync", True),
        timeout=None if limit is None else float(limit),
        raises=work.get("raises", False),
    )


def _wait(work: Mapping[str, Any], limit: Any, event: str | None) -> WorkCall:
    if limit is not None and not (isinstance(limit, dict) and len(limit) == 1):
        raise InvalidWork(
            f"timeout={limit!r:.80} of a wait: write {{'duration': 60}}, or {{'timestamp': ...}} "
            "with seconds since the epoch"
        )
    if event is None and limit is None:
        raise InvalidWork("this wait would never end: give it an event or a timeout")
    given = {} if limit is None else {name: float(value) for name, value in limit.items()}
    shown = work.get("input")
    if shown is None:
        # What it waits for is part of its hash.
        shown = ({} if event is None else {"event": event}) | given
    return WorkCall(
        position=work["position"],
        type=WorkType.WAIT,
        name=work["name"],
        input=shown,
        sync=work.get("sync", True),
        event=event,
        duration=given.get("duration"),
        timestamp=given.get("timestamp"),
    )


def task_hash(name: str, work: str, given: Any, *, sync: bool) -> str:
    """Return the hash of a task, as its status in the instance has it."""
    key, _, position = work.partition("/")
    call = WorkCall(position=position, type=WorkType.TASK, name=name, input=given, sync=sync)
    return call.hash_in(int(key))
