"""The registry: procedures by name.

The decorator registers a procedure under all its names::

    from actorflow.flows.procedures.registry import procedure
    from actorflow.flows.execution.procedure import Procedure


    @procedure("shout")
    class Shout(Procedure):
        def receive_last(self):
            return self.reply(ret=str(self.payload.get("ret")).upper())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, TypeVar

from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actorflow.flows.execution.procedure import Procedure

NAMES: dict[str, type[Procedure]] = {}
"""All registered procedures by name. Use ``procedure`` and ``unregister`` to change it."""

_MODULES = (
    "attributes",
    "control.cancels",
    "control.concurrences",
    "control.concurrent_iterators",
    "control.conditionals",
    "control.functions",
    "control.grafts",
    "control.iterators",
    "control.loops",
    "control.patterns",
    "control.sequences",
    "data.arithmetic",
    "data.assignments",
    "data.collections",
    "data.comparisons",
    "data.literals",
    "data.sort",
    "data.strings",
    "events.handlers",
    "events.schedules",
    "events.signals",
    "events.tasks",
    "events.traces",
)

_loaded: list[bool] = []
P = TypeVar("P", bound="type[Procedure]")


class NameTaken(ActorflowError):
    """There is a procedure of that name; unregister it first, or choose another name."""


def procedure(*names: str) -> Callable[[P], P]:
    """Register a Procedure class under ``names``.

    Raises NameTaken if one of them is in use.
    """

    def register(cls: P) -> P:
        for name in names:
            known = NAMES.get(name)
            if known is not None and known.__qualname__ != cls.__qualname__:
                place = f"{known.__module__}.{known.__qualname__}"
                raise NameTaken(
                    f"procedure {name!r} is already defined by {place}:"
                    f" unregister({name!r}) first, or choose another name"
                )
            NAMES[name] = cls
        return cls

    return register


def unregister(name: str) -> None:
    """Remove the procedure called ``name``, if there is one."""
    NAMES.pop(name, None)


def all_procedures() -> Mapping[str, type[Procedure]]:
    """Return all procedures by name; those registered later will be in the same mapping.

    The first call imports the built-in ones; later calls cost nothing.
    """
    if not _loaded:
        for module in _MODULES:
            importlib.import_module(f"actorflow.flows.procedures.{module}")
        _loaded.append(True)
    return NAMES
