"""A cluster at one moment, as its store knows it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ClusterStatus", "MemberStatus", "WaitingTasks"]


class MemberStatus(NamedTuple):
    """A worker that is alive."""

    name: str
    lease: float
    """Seconds until it counts as dead, if it does not renew."""
    partitions: tuple[int, ...]
    executions: int
    """That are active in its partitions."""
    messages: int
    """That wait there."""
    lag: float
    """Seconds that the oldest of them has waited."""


class WaitingTasks(NamedTuple):
    """Tasks that have not ended."""

    tasker: str
    number: int


class ClusterStatus(NamedTuple):
    """What `actorflow cluster status` shows."""

    members: tuple[MemberStatus, ...]
    partitions: int
    epochs: tuple[int, ...]
    """Of each partition."""
    unowned: tuple[int, ...]
    tasks: tuple[WaitingTasks, ...]
    kinds: dict[str, int]
    """Active executions of each kind that have messages which nobody has taken yet."""
