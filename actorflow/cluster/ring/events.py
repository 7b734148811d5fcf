"""What a member receives (events), and what it asks its shell to do (actions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.cluster.ring.register import CheckIn, View

__all__ = [
    "Action",
    "Drain",
    "Drained",
    "Event",
    "Fenced",
    "Hint",
    "Hinted",
    "Lose",
    "Own",
    "Register",
    "Registered",
    "RingStep",
    "Sweep",
]


# Events.


class Registered(NamedTuple):
    """The answer to a `Register` action."""

    number: int
    """The number of the action."""
    view: View | None
    """`None`: the store could not be reached, or did not answer in time."""


class Hinted(NamedTuple):
    """Another member has released a partition that this one should own."""


class Drained(NamedTuple):
    """Nothing of a partition runs any more, as `Drain` has requested."""

    partition: int


class Fenced(NamedTuple):
    """The store has refused a commit: another member has taken the partition."""

    partition: int


Event: TypeAlias = Registered | Hinted | Drained | Fenced


# Actions.


class Register(NamedTuple):
    """Pass a request to the store; answer with `Registered` of the same number, or with no view."""

    number: int
    request: CheckIn


class Hint(NamedTuple):
    """Send `Hinted` to another member. The hint may be lost: that member checks in anyway."""

    to: str


class Own(NamedTuple):
    """Own a partition from now on: read everything of it, then run (nothing earlier counts).

    Every commit in it names this epoch.
    """

    partition: int
    epoch: int


class Lose(NamedTuple):
    """Own a partition no longer: start nothing, and discard the runs that have begun."""

    partition: int


class Drain(NamedTuple):
    """Start nothing more in a partition, finish what runs, then answer with `Drained`."""

    partition: int


class Sweep(NamedTuple):
    """Look at everything that is stored in the partitions owned: messages, timers, open tasks."""


Action: TypeAlias = Register | Hint | Own | Lose | Drain | Sweep


class RingStep(NamedTuple):
    """The result of one step of a member."""

    actions: Sequence[Action]
    wait: float
    """Seconds until the next step, if nothing arrives before."""
