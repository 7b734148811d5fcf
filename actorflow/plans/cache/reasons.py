"""Why a job runs, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.plans.cache.fingerprint.components import Component, ComponentKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from actorflow.plans.cache.fingerprint.components import Components

__all__ = [
    "DAMAGED", "FORCED", "GONE", "NEVER_RAN", "NOT_CACHED", "UP_TO_DATE",
    "describe_changes", "describe_pending", "describe_unstable",
]  # fmt: skip

UP_TO_DATE = "up to date"
NEVER_RAN = "never ran"
FORCED = "forced"
NOT_CACHED = "cache=False"
DAMAGED = "its stored result is damaged"
GONE = "its stored result is gone"

_SHOWN = 3
_ORDER = {part: at for at, part in enumerate(ComponentKind)}


def describe_changes(before: Components, after: Components) -> str:
    """Return what differs between the last run and now; an empty text if nothing does.

    New and missing components are listed only if no other has changed, because a change of code
    brings them along.
    """
    changed = [each for each in after if each in before and before[each] != after[each]]
    if changed:
        return f"{_listed(changed)} changed"
    told = []
    added, removed = after.keys() - before.keys(), before.keys() - after.keys()
    if added:
        told.append(f"{_listed(added)} {'is' if len(added) == 1 else 'are'} new")
    if removed:
        told.append(f"{_listed(removed)} {'is' if len(removed) == 1 else 'are'} gone")
    return ", ".join(told)


def describe_pending(inputs: Sequence[str]) -> str:
    """Return that nothing but these inputs of a job can make it run."""
    changed = (Component(ComponentKind.INPUT, name) for name in dict.fromkeys(inputs))
    return f"{_listed(changed)} may change"


def describe_unstable(unstable: Mapping[Component, str]) -> str:
    """Return why a job has no key, and so runs each time."""
    component, why = next(iter(unstable.items()))
    return f"runs every time: {component} has no stable hash ({why})"


def _listed(components: Iterable[Component]) -> str:
    names = [str(each) for each in sorted(components, key=lambda each: (_ORDER[each.part], each))]
    if len(names) > _SHOWN:
        names[_SHOWN - 1 :] = [f"{len(names) - _SHOWN + 1} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
