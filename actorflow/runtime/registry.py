"""pykka's registry at O(1), and the names of workers and supervisors.

pykka keeps its running actors in a list, so ending one costs a search through all of them.
`Roster` replaces that list with the same few operations at O(1). It holds the lifespans of our
actors, so that a ref is only made when somebody asks for it and a user's `__eq__` or `__hash__`
is never called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pykka

from actorflow.runtime.errors import AlreadyStarted, refuse_unhashable

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

__all__ = ["ROSTER", "Roster", "forget_name", "take_name", "whereis"]


class Roster:
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
    """Return what the roster keeps for a ref: of our actors the lifespan, else the ref itself."""
    return getattr(ref, "lifespan", ref)


def _install() -> Roster:
    roster = Roster()
    registry: Any = pykka.ActorRegistry
    with registry._actor_refs_lock:  # noqa: SLF001 - pinned by tests/runtime/actor/test_pins.py
        for ref in registry._actor_refs:  # noqa: SLF001
            roster.append(ref)
        registry._actor_refs = roster  # noqa: SLF001
    return roster


ROSTER = _install()
"""Every running actor of the process, pykka's own included."""

_names: dict[Hashable, Any] = {}


def take_name(name: Hashable, ref: Any) -> None:
    """Register `ref` under the name.

    Raises:
        AlreadyStarted: another one has the name.

    """
    holder = _names.setdefault(name, ref)
    if holder is not ref:
        raise AlreadyStarted(name, holder)


def forget_name(name: Hashable, ref: Any) -> None:
    """Free the name if `ref` has it."""
    if _names.get(name) is ref:
        del _names[name]


def whereis(name: Hashable) -> Any | None:
    """Return the running worker or supervisor of that name; `None` if there is none. O(1).

    Raises:
        BadOption: no name can be that: it cannot be hashed.

    """
    refuse_unhashable(name, "name")
    return _names.get(name)
