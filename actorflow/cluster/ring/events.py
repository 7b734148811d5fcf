"""What can happen to a member."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from actorflow.cluster.ring.messages import Payload, Post, TaskNote, Tracker
    from actorflow.cluster.ring.register import View

__all__ = [
    "Committed",
    "Drained",
    "Event",
    "Fenced",
    "Leave",
    "Processed",
    "Received",
    "Registered",
    "SendFailed",
    "Verdict",
]


class Registered(NamedTuple):
    """The answer to a `Register` action, or that there was none."""

    number: int
    """Of the action."""
    view: View | None
    """`None`: the store could not be reached, or did not answer in time."""


class Received(NamedTuple):
    """Another member has sent something."""

    payload: Payload


class SendFailed(NamedTuple):
    """A `Send` action is known to have failed."""

    to: str
    payload: Payload


class Verdict(Enum):
    """What became of a wake-up."""

    DONE = auto()
    """Everything that was found has run and is committed."""
    NOT_FOUND = auto()
    """There is no such execution, as far as the store says."""
    LOST_RACE = auto()
    """The commit was refused: somebody has written meanwhile. Nothing of it happened."""
    LEFT = auto()
    """The time was up before all messages had run."""


class Processed(NamedTuple):
    """The end of a `Process` action."""

    post: Post
    verdict: Verdict


class Committed(NamedTuple):
    """A run was committed. What it leads to may be passed on now, and not earlier."""

    posts: tuple[Post, ...] = ()
    """Wake-ups for the executions that it has sent messages to."""
    trackers: tuple[Tracker, ...] = ()
    """The timers that it has set."""
    tasks: tuple[TaskNote, ...] = ()
    """The tasks that it has handed out."""


class Drained(NamedTuple):
    """Nothing of a partition runs any more, as `Drain` has asked for."""

    partition: int


class Fenced(NamedTuple):
    """The store has refused a commit: another member has taken the partition."""

    partition: int


class Leave(NamedTuple):
    """The process is to stop: hand everything over."""


Event: TypeAlias = (
    Registered | Received | SendFailed | Processed | Committed | Drained | Fenced | Leave
)
