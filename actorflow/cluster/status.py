"""A cluster at one moment, as its store knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actorflow.cluster.ring import View

__all__ = ["ClusterStatus", "MemberStatus", "WaitingTasks", "status_of"]


class MemberStatus(NamedTuple):
    """A worker that is alive."""

    name: str
    lease: float
    """Seconds until it counts as dead, if it does not renew."""
    partitions: tuple[int, ...]
    executions: int
    """Active executions in its partitions."""
    messages: int
    """Messages that wait there."""
    lag: float
    """Seconds that the oldest of them has waited."""
    version: str
    """Of the library that it runs; empty if it does not say."""
    codes: tuple[str, ...]
    """The code that it has, of kinds whose code changes: `Order@2`."""


class WaitingTasks(NamedTuple):
    """Tasks that have not ended."""

    tasker: str
    open: int


class ClusterStatus(NamedTuple):
    """What `actorflow cluster status` shows."""

    members: tuple[MemberStatus, ...]
    partitions: int
    epochs: tuple[int, ...]
    """The epoch of each partition."""
    unowned: tuple[int, ...]
    tasks: tuple[WaitingTasks, ...]
    kinds: dict[str, int]
    """Active executions of each kind that have unprocessed messages."""


def status_of(
    view: View,
    active: Mapping[int, int],
    waiting: Mapping[int, tuple[int, float]],
    tasks: Mapping[str, int],
    kinds: Mapping[str, int],
) -> ClusterStatus:
    """Return the status of a cluster.

    Args:
        view: what its register says.
        active: executions that are active, in each partition.
        waiting: messages that wait in each partition, and for how long the oldest does.
        tasks: open tasks of each tasker.
        kinds: active executions with messages, of each kind.

    """
    owners = {
        number: holding.owner if holding.until > view.now else None
        for number, holding in enumerate(view.holdings)
    }
    members = []
    for member in view.members:
        mine = tuple(number for number, owner in owners.items() if owner == member.name)
        found = [waiting[number] for number in mine if number in waiting]
        members.append(
            MemberStatus(
                member.name,
                member.until - view.now,
                mine,
                sum(active.get(number, 0) for number in mine),
                sum(count for count, _ in found),
                max((lag for _, lag in found), default=0.0),
                member.version,
                member.codes,
            )
        )
    return ClusterStatus(
        tuple(members),
        len(view.holdings),
        tuple(holding.epoch for holding in view.holdings),
        tuple(number for number, owner in owners.items() if owner is None),
        tuple(WaitingTasks(*row) for row in sorted(tasks.items())),
        dict(sorted(kinds.items())),
    )
