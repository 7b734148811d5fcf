"""The properties of a workflow: the attributes of its object, as plain data."""

from __future__ import annotations

from typing import Any, TypeVar

from actorflow.engine.typed import freeze, hints_of, thaw
from actorflow.workflows.errors import InvalidWorkflow
from actorflow.workflows.instance.canonical import same

__all__ = ["RESERVED", "capture", "load", "make"]

W = TypeVar("W")

RESERVED = frozenset(
    (
        "aexecute",
        "afirst",
        "again",
        "auntil",
        "dispatch",
        "execute",
        "execute_all",
        "first",
        "handle",
        "now",
        "on_event",
        "on_failure",
        "on_start",
        "on_success",
        "on_timeout",
        "patched",
        "publish",
        "random",
        "receive",
        "send",
        "start",
        "tag",
        "until",
        "uuid",
        "wait",
    )
)
"""What a property cannot be called."""
_PROPERTY = "the property {!r} of {}"


def capture(workflow: Any) -> dict[str, Any]:
    """Return the properties as plain data.

    Raises:
        NotStorable: one of them is not plain data and has no declared type.
        InvalidWorkflow: one of them hides a method.

    """
    cls = type(workflow)
    hints = hints_of(cls)
    values = vars(workflow)
    if not RESERVED.isdisjoint(values):
        name = min(RESERVED.intersection(values))
        raise InvalidWorkflow(
            f"{cls.__name__}.{name} is a method of workflows: call the property something else"
        )
    return {
        name: freeze(value, hints.get(name, Any), _PROPERTY, name, cls.__name__)
        for name, value in values.items()
    }


def load(workflow: Any, values: dict[str, Any], held: dict[str, Any]) -> None:
    """Set the properties that differ from those held; the others stay the same objects."""
    cls = type(workflow)
    hints = hints_of(cls)
    for name in held:
        if name not in values:
            delattr(workflow, name)
    for name, value in values.items():
        if name not in held or not same(held[name], value):
            found = thaw(value, hints.get(name, Any), _PROPERTY, name, cls.__name__)
            object.__setattr__(workflow, name, found)


def make(cls: type[W], values: dict[str, Any]) -> W:
    """Return an object of a class with these properties. `__init__` is not called."""
    workflow = cls.__new__(cls)
    load(workflow, values, {})
    return workflow
