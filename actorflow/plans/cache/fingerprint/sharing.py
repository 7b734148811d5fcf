"""Which objects occur in several places of the values that a job gets to see.

A job that changes one list of two sees the change in the other, if both are one list. Two values
that differ only in this have the same digests, so the places are noted aside.
"""

from __future__ import annotations

import enum
import types
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from actorflow.plans.cache.fingerprint.ownership import home_of, is_own

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Sharing"]

_PLAIN = {bool, bytes, complex, float, int, str, type(None)}
_CODE = (type, types.FunctionType, types.ModuleType, types.MethodType, types.BuiltinFunctionType)


class Sharing:
    """The objects that can change, in the order of visits. Not thread-safe."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, Any]] = {}
        self._changing: dict[type, bool] = {}
        self._visits = 0
        self._unordered = 0
        self.repeats: list[tuple[int, int]] = []
        """For each repeated visit, its number and that of the first visit."""

    def visit(self, value: Any) -> None:
        """Note a visit of a value that is part of another one. O(1)."""
        cls = type(value)
        if cls is tuple:
            changes = not _PLAIN.issuperset(map(type, value))  # its items may change
        else:
            known = self._changing.get(cls)
            changes = self._changing.setdefault(cls, _can_change(cls)) if known is None else known
        if self._unordered or not changes:
            return
        self._visits += 1
        first, _ = self._places.setdefault(id(value), (self._visits, value))
        if first != self._visits:
            self.repeats.append((self._visits, first))

    @contextmanager
    def unordered(self) -> Iterator[None]:
        """Leave out the items of a set, which come in another order in each process."""
        self._unordered += 1
        try:
            yield
        finally:
            self._unordered -= 1


def _can_change(cls: type) -> bool:
    """Return whether a job could see that a value of a class is the same object as another one.

    What hashes by its content, as dates and paths do, does not change, if its class is not the
    user's.
    """
    if issubclass(cls, _CODE) or cls is frozenset:
        return False
    if is_own(home_of(cls)):
        return not issubclass(cls, enum.Enum)
    own_hash: object = cls.__hash__
    return own_hash is None or own_hash is object.__hash__
