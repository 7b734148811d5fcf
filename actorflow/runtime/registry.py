"""pykka's registry, made fit for many actors, and the names of workers.

pykka keeps its running actors in a list, so that ending one costs a search through all of them.
`Roster` stands in for that list with the same few operations at O(1). Our actors enter it as
themselves; their refs are only made when somebody asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pykka

from actorflow.runtime.errors import AlreadyStarted

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

__all__ = ["ROSTER", "Roster", "forget_name", "take_name", "whereis"]


class Roster:
    """The running actors, in the order of their start: what pykka's registry does with a list."""

    def __init__(self) -> None:
        self._members: dict[Any, None] = {}

    def add(self, actor: Any) -> None:
        """Enter an actor of ours. O(1)."""
        self._members[actor] = None

    def discard(self, actor: Any) -> None:
        """Strike an actor of ours off. O(1)."""
        self._members.pop(actor, None)

    def members(self) -> list[Any]:
        """Give our actors as themselves, and pykka's own by their refs."""
        return list(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[pykka.ActorRef[Any]]:
        for member in list(self._members):
            yield member if isinstance(member, pykka.ActorRef) else member.actor_ref

    def __getitem__(self, index: slice) -> list[pykka.ActorRef[Any]]:
        return list(self)[index]

    def __contains__(self, ref: object) -> bool:
        return ref in self._members or getattr(ref, "actor", None) in self._members

    def append(self, ref: pykka.ActorRef[Any]) -> None:
        """Enter an actor by its ref: what pykka does. O(1)."""
        self._members[getattr(ref, "actor", ref)] = None

    def remove(self, ref: pykka.ActorRef[Any]) -> None:
        """Strike an actor off by its ref: what pykka does. O(1)."""
        self._members.pop(ref if ref in self._members else getattr(ref, "actor", ref), None)


def _install() -> Roster:
    roster = Roster()
    registry: Any = pykka.ActorRegistry
    with registry._actor_refs_lock:  # noqa: SLF001 - pinned by tests/runtime/test_pykka.py
        for ref in registry._actor_refs:  # noqa: SLF001
            roster.append(ref)
        registry._actor_refs = roster  # noqa: SLF001
    return roster


ROSTER = _install()
"""Every running actor of the process, pykka's own included."""

_names: dict[Hashable, Any] = {}


def take_name(name: Hashable, ref: Any) -> None:
    """Give `ref` the name.

    Raises:
        AlreadyStarted: somebody bears it.

    """
    holder = _names.setdefault(name, ref)
    if holder is not ref:
        raise AlreadyStarted(name, holder)


def forget_name(name: Hashable, ref: Any) -> None:
    """Free the name if `ref` bears it."""
    if _names.get(name) is ref:
        del _names[name]


def whereis(name: Hashable) -> Any | None:
    """Find a running worker by its name; `None` if there is none. O(1)."""
    return _names.get(name)
