"""Versions of the properties of an instance, as changes: a list that grows is stored once.

Each branch that changes a property leaves a version of all of them, which rewinds, forks and
replays may need. In memory versions share equal values; as bytes each would be complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from actorflow.workflows.instance.canonical import same
from actorflow.workflows.instance.state import PropertiesAt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["PropertyChange", "as_changes", "as_versions"]


class PropertyChange(Struct, array_like=True):
    """How the version from the execution index `key` on differs from the one before."""

    key: int
    values: dict[str, Any] = {}
    """Properties with a new value."""
    added: dict[str, list[Any]] = {}
    """Items appended to lists."""
    gone: list[str] = []
    """Properties that were deleted."""


def as_changes(versions: Sequence[PropertiesAt], begin: int) -> list[PropertyChange]:
    """Return the versions from a place on, each as its difference from the one before.

    Args:
        versions: all of them.
        begin: a place behind the first.

    """
    return [_change(versions[at - 1].values, versions[at]) for at in range(begin, len(versions))]


def _change(before: dict[str, Any], version: PropertiesAt) -> PropertyChange:
    change = PropertyChange(
        version.key, {}, {}, [name for name in before if name not in version.values]
    )
    for name, value in version.values.items():
        if name not in before:
            change.values[name] = value
            continue
        old = before[name]
        if value is old:
            continue
        if type(value) is type(old) is list and same(old, value[: len(old)]):
            if len(value) > len(old):
                change.added[name] = value[len(old) :]
        elif not same(old, value):
            change.values[name] = value
    return change


def as_versions(before: PropertiesAt, changes: Iterable[PropertyChange]) -> Iterator[PropertiesAt]:
    """Yield the versions that changes lead to.

    Args:
        before: the version to which the first change belongs.
        changes: in order.

    """
    values = before.values
    for change in changes:
        values = {name: value for name, value in values.items() if name not in change.gone}
        values |= change.values
        for name, items in change.added.items():
            values[name] = [*values[name], *items]
        yield PropertiesAt(change.key, values)
