"""pykka's registry at O(1), the names of workers and supervisors, and whose code runs here.

pykka keeps its running actors in a list, so ending one costs a search through all of them.
`ActorList` replaces that list with the same few operations at O(1). It holds the lifespans of our
actors, so that a ref is only made when somebody asks for it and a user's `__eq__` or `__hash__`
is never called.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pykka

from actorflow.runtime.errors import AlreadyStarted, refuse_unhashable

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

__all__ = ["ACTORS", "CURRENT", "ActorList", "forget_name", "show_name", "take_name", "whereis"]

CURRENT: ContextVar[Any] = ContextVar("actorflow_current", default=None)
"""Whose code runs in this thread or task: the lifespan of an actor, or the slot of a worker."""


class ActorList:
    """The running actors in order of their start: what pykka's registry does with a list."""

    def __init__(self) -> None:
        self._members: dict[Any, None] = {}

    def add(self, lifespan: Any) -> None:
        """Add one of our actors. O(1)."""
        self._members[lifespan] = None

    def discard(self, lifespan: Any) -> None:
        """Remove one of our actors, if it is there. O(1)."""
        self._members.pop(lifespan, None)

    def members(self) -> list[Any]:
        """Return the lifespans of our actors, and the refs of pykka's own."""
        return list(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[pykka.ActorRef[Any]]:
        for member in list(self._members):
            yield member if isinstance(member, pykka.ActorRef) else member.actor_ref

    def __getitem__(self, index: slice) -> list[pykka.ActorRef[Any]]:
        return list(self)[index]

    def __contains__(self, ref: object) -> bool:
        return _member(ref) in self._members

    def append(self, ref: pykka.ActorRef[Any]) -> None:
        """Add an actor by its ref, as pykka does. O(1)."""
        self._members[_member(ref)] = None

    def remove(self, ref: pykka.ActorRef[Any]) -> None:
        """Remove an actor by its ref, as pykka does. O(1).

        Harmless if it has gone: our actors leave without pykka's lock.
        """
        self._members.pop(_member(ref), None)


def _member(ref: object) -> object:
    """Return what the actors keeps for a ref: of our actors the lifespan, else the ref itself."""
    return getattr(ref, "lifespan", ref)


def _install() -> ActorList:
    actors = ActorList()
    registry: Any = pykka.ActorRegistry
    with registry._actor_refs_lock:  # noqa: SLF001 - pinned by tests/runtime/actor/test_pins.py
        for ref in registry._actor_refs:  # noqa: SLF001
            actors.append(ref)
        registry._actor_refs = actors  # noqa: SLF001
    return actors


ACTORS = _install()
"""Every running actor of the process, pykka's own included."""

_names: dict[Hashable, Any] = {}
_starting: set[Hashable] = set()  # names that nobody finds yet


def take_name(name: Hashable, ref: Any, *, starting: bool = False) -> None:
    """Register `ref` under the name; if it is `starting`, `whereis` finds it after `show_name`.

    Raises:
        AlreadyStarted: another one has the name.

    """
    holder = _names.setdefault(name, ref)
    if holder is not ref:
        raise AlreadyStarted(name, holder)
    if starting:
        _starting.add(name)


def show_name(name: Hashable) -> None:
    """Make the name visible to `whereis`: its holder has started."""
    _starting.discard(name)


def forget_name(name: Hashable, ref: Any) -> None:
    """Free the name if `ref` has it."""
    if _names.get(name) is ref:
        _starting.discard(name)
        del _names[name]


def whereis(name: Hashable) -> Any | None:
    """Return the running worker or supervisor of that name, or `None`. O(1).

    A supervisor is found once all its children have been started.

    Raises:
        BadOption: no name can be that: it cannot be hashed.

    """
    refuse_unhashable(name, "name")
    return None if name in _starting else _names.get(name)
