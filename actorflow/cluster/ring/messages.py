"""What members send each other. Each may be lost, late, doubled or overtaken: all are hints.

What has to be done is in the store; a message only says that somebody should look there.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = [
    "AskMap",
    "Carried",
    "Cycle",
    "HandedOver",
    "Noted",
    "Payload",
    "Post",
    "TaskNote",
    "Tracker",
    "TrackerKey",
    "TrackerMap",
    "Work",
]

TrackerKey: TypeAlias = tuple[str, str, float]


class Tracker(NamedTuple):
    """A time tracker: a timer of an execution, which several members watch."""

    execution: str
    timer: str
    due: float
    """By the store's clock."""
    partition: int

    @property
    def key(self) -> TrackerKey:
        """What it is known by: the same timer set for another moment is another tracker."""
        return self.execution, self.timer, self.due


class Post(NamedTuple):
    """A wake-up: the owner of the partition should look at an execution."""

    id: str
    """Unique; the same for the same wake-up, whoever sends it."""
    partition: int
    execution: str
    tracker: Tracker | None = None
    """The timer that is due."""
    creates: bool = False
    """The execution may not be there yet: this message makes it."""
    hops: int = 0
    """How often it was passed on."""


class Carried(NamedTuple):
    """A wake-up on board of the cycle, because its executor is missing or did not answer."""

    post: Post
    hops: int = 0


class Noted(NamedTuple):
    """A new tracker on board of the cycle, until it has come back to its origin."""

    tracker: Tracker
    origin: str
    hops: int = 0


class Cycle(NamedTuple):
    """The message that goes round. There is one; of two, the higher `(epoch, starter)` counts."""

    epoch: int
    starter: str
    hop: int
    """Grows with each member that it passes, so that a copy is recognised."""
    ring: tuple[str, ...]
    as_of: float
    """When the store said so, by its own clock."""
    sent: float
    """The moment for which `base` holds, by the store's clock."""
    base: str
    """A hash of the trackers that each member should know without this cycle."""
    sender: str
    posts: tuple[Carried, ...] = ()
    trackers: tuple[Noted, ...] = ()


class AskMap(NamedTuple):
    """A request for all trackers, because the cycle builds on others than those known here."""

    sender: str


class TrackerMap(NamedTuple):
    """All trackers that a member knows: the full cycle."""

    trackers: tuple[Tracker, ...]


class HandedOver(NamedTuple):
    """A partition has been released for the receiver to take."""

    partition: int


class TaskNote(NamedTuple):
    """A stored task, to be done by a member that has the tasker."""

    id: str
    tasker: str
    attempt: int = 0


class Work(NamedTuple):
    """A task for the receiver."""

    task: TaskNote


Payload: TypeAlias = Post | Cycle | AskMap | TrackerMap | HandedOver | Work
