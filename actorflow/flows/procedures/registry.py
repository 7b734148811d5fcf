"""The one place where procedures are found by name.

A procedure registers itself with the decorator, under all the names it answers to::

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
"""Each name and its procedure. Read it freely; write through ``procedure``."""

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
    "control.match",
    "control.parts",
    "control.patterns",
    "control.sequences",
    "data.arithmetic",
    "data.assignments",
    "data.collections",
    "data.comparisons",
    "data.literals",
    "data.sorting",
    "data.strings",
    "data.timestamps",
    "events.handlers",
    "events.schedules",
    "events.signals",
    "events.tasks",
    "events.traces",
)

_loaded: list[bool] = []
P = TypeVar("P", bound="type[Procedure]")


class NameTaken(ActorflowError):
    """A procedure of that name is there already; unregister it first, or choose another name."""


def procedure(*names: str) -> Callable[[P], P]:
    """Register a Procedure class under ``names``.

    Raises NameTaken when one of them is used already.
    """

    def register(cls: P) -> P:
        for name in names:
            known = NAMES.get(name)
            if known is not None and known.__qualname__ != cls.__qualname__:
                raise NameTaken(
                    f"procedure {name!r} is {known.__module__}.{known.__qualname__} already:"
                    f" unregister({name!r}) first, or choose another name"
                )
            NAMES[name] = cls
        return cls

    return register


def unregister(name: str) -> None:
    """Forget the procedure called ``name``; forgetting one that is not there does nothing."""
    NAMES.pop(name, None)


def all_procedures() -> Mapping[str, type[Procedure]]:
    """Return every procedure by name: the built-in ones, and those registered so far and later.

    The first call imports the built-in ones; later calls cost nothing.
    """
    if not _loaded:
        for module in _MODULES:
            importlib.import_module(f"actorflow.flows.procedures.{module}")
        _loaded.append(True)
    return NAMES
