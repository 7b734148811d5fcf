"""What a member wants done."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.cluster.ring.messages import Payload, Post, TaskNote
    from actorflow.cluster.ring.register import CheckIn

__all__ = [
    "Action",
    "Bury",
    "Drain",
    "Left",
    "Lose",
    "Own",
    "Perform",
    "Process",
    "Register",
    "Send",
    "Step",
    "Sweep",
]


class Register(NamedTuple):
    """Pass a request to the store; answer with `Registered` of the same number, or with no view."""

    number: int
    request: CheckIn


class Send(NamedTuple):
    """Send something to another member, as well as that can be done."""

    to: str
    payload: Payload


class Own(NamedTuple):
    """A partition is owned from now on: read everything of it, then run (nothing earlier counts).

    Every commit in it names this epoch.
    """

    partition: int
    epoch: int


class Lose(NamedTuple):
    """A partition is not owned any more: start nothing, and discard what is under way."""

    partition: int


class Drain(NamedTuple):
    """Start nothing more in a partition, finish what runs, then answer with `Drained`."""

    partition: int


class Process(NamedTuple):
    """Fetch an execution, run its messages, commit; answer with `Processed`.

    If the post has a tracker, fire that timer if it is due and still set.
    """

    post: Post


class Sweep(NamedTuple):
    """Look at everything that is stored in some partitions: messages, due timers, open tasks."""

    partitions: tuple[int, ...]


class Perform(NamedTuple):
    """Do a task with a tasker of this worker."""

    task: TaskNote


class Bury(NamedTuple):
    """Drop a wake-up that nobody could use: log it. What it was for is in the store."""

    post: Post


class Left(NamedTuple):
    """Everything is handed over: the process may end."""


Action: TypeAlias = Register | Send | Own | Lose | Drain | Process | Sweep | Perform | Bury | Left


class Step(NamedTuple):
    """The result of one step of a member."""

    actions: Sequence[Action]
    wait: float
    """Seconds until the next step, if nothing arrives before; 0: there is more to do."""
