"""The agent protocol: branches and steps as JSON, and answers to decisions as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.engine.ids import check_id
from actorflow.workflows.errors import InvalidStep
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.decision import StepCall
from actorflow.workflows.instance.state import UNSET, Branch, StepType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "BRANCH_FIELDS",
    "branch_to_wire",
    "calls_from_wire",
    "fields_of",
    "read_answer",
    "task_hash",
    "write_broken",
    "write_completed",
]

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
    """Return some fields as plain data, without the unset ones."""
    values = ((name, getattr(record, name)) for name in names)
    return {
        name: msgspec.to_builtins(value, builtin_types=(bytes,))
        for name, value in values
        if value is not UNSET
    }


def calls_from_wire(steps: Sequence[Mapping[str, Any]]) -> list[StepCall]:
    """Return the steps of one call as a session wants them.

    Args:
        steps: objects with `name`, `input`, `position`, `timeout`, `sync`, `type` and `event`, and
            `raises` for those whose failure the code wants to know. The timeout of a wait is
            `{"duration": SECONDS}` or `{"timestamp": SECONDS}`.

    Raises:
        InvalidStep: two of them have the same position, or one makes no sense.
        ValueError: a name has characters that cannot be printed.

    """
    calls = [_call(each) for each in steps]
    positions = [each.position for each in calls]
    for position in positions:
        if positions.count(position) > 1:
            raise InvalidStep(
                f"two steps of one call have the position {position!r}: number the steps of a "
                "call, as in '0.0', '0.1'"
            )
    return calls


def _call(step: Mapping[str, Any]) -> StepCall:
    type_ = StepType(step.get("type", StepType.TASK))
    check_id(step["name"], f"a {type_}")
    limit, event = step.get("timeout"), step.get("event")
    if type_ is StepType.WAIT:
        return _wait(step, limit, event)
    if isinstance(limit, dict):
        raise InvalidStep(f"timeout={limit!r:.80} of a {type_}: write a number of seconds")
    if event is not None:
        raise InvalidStep(f"event={event!r:.80} of a {type_}: only a wait has one")
    return StepCall(
        position=step["position"],
        type=type_,
        name=step["name"],
        input=step.get("input"),
        sync=step.get("sync", True),
        timeout=None if limit is None else float(limit),
        raises=step.get("raises", False),
    )


def _wait(step: Mapping[str, Any], limit: Any, event: str | None) -> StepCall:
    if limit is not None and not (isinstance(limit, dict) and len(limit) == 1):
        raise InvalidStep(
            f"timeout={limit!r:.80} of a wait: write {{'duration': 60}}, or {{'timestamp': ...}} "
            "with seconds since the epoch"
        )
    if event is None and limit is None:
        raise InvalidStep("this wait would never end: give it an event or a timeout")
    given = {} if limit is None else {name: float(value) for name, value in limit.items()}
    shown = step.get("input")
    if shown is None:
        # What it waits for is part of its hash.
        shown = ({} if event is None else {"event": event}) | given
    return StepCall(
        position=step["position"],
        type=StepType.WAIT,
        name=step["name"],
        input=shown,
        sync=step.get("sync", True),
        event=event,
        duration=given.get("duration"),
        timestamp=given.get("timestamp"),
    )


def task_hash(name: str, step: str, given: Any, *, sync: bool) -> str:
    """Return the hash of a task, as its status in the instance has it."""
    key, _, position = step.partition("/")
    call = StepCall(position=position, type=StepType.TASK, name=name, input=given, sync=sync)
    return call.hash_in(int(key))


_NAMES: dict[type[Any], str] = {
    m.ScheduleStep: "schedule_step",
    m.UpdateProperties: "update_properties",
    m.SetOutput: "set_output",
}
"""The decisions that scripts can take, with the names that they are stored under."""
_TYPES = {name: cls for cls, name in _NAMES.items()}


def write_completed(decisions: list[m.Decision]) -> dict[str, Any]:
    """Return a decision that was taken."""
    return {
        "completed": [
            [_NAMES[type(each)], msgspec.to_builtins(each, builtin_types=(bytes,))]
            for each in decisions
        ]
    }


def write_broken(error: dict[str, Any], *, modified: bool) -> dict[str, Any]:
    """Return a decision that could not be taken."""
    return {"broken": error, "modified": modified}


def read_answer(answer: Any, uuid: str, at: float) -> m.Received:
    """Return what the instance receives.

    Args:
        answer: what one of the others has written.
        uuid: of the decision.
        at: when the answer was received.

    """
    if "broken" in answer:
        return m.DecisionBroken(at, uuid, answer["modified"], answer["broken"])
    decisions = [msgspec.convert(each, _TYPES[name]) for name, each in answer["completed"]]
    return m.Completed(at, uuid, decisions)
