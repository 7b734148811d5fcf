"""The answer to a decision as plain data, on its way from a worker elsewhere to the instance."""

from __future__ import annotations

from typing import Any

import msgspec

from actorflow.workflows.instance import messages as m

__all__ = ["read_answer", "write_broken", "write_completed"]

_NAMES: dict[type[Any], str] = {
    m.ScheduleWork: "schedule_work",
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
