"""The options of a member: every length of time, in one place, checked once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite

from actorflow.runtime.errors import BadOption

__all__ = ["RingOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingOptions:
    """How long things take in a ring. Times are in seconds. All members use the same.

    Raises:
        BadOption: a value cannot work; the message says which and why.

    """

    lease: float = 6.0
    """How long a member owns its partitions without renewing; others notice a crash within twice
    that."""
    margin: float = 0.1
    """The part of a lease that is given up before its end, because clocks run at different speed.
    """
    sweep: float = 3.0
    """How often a member looks at all its partitions, for what a lost wake-up has missed."""
    cycle: float | None = 1.0
    """How often, at most, the cycle begins a round; `None`: there is no cycle."""
    patience: float = 3.0
    """The multiple of a round's expected length after which a cycle counts as lost."""
    clock: float = 0.3
    """How often timers are looked at."""
    idle: float = 0.021
    """The least time that a member without work waits."""
    clock_count: int = 3
    """How many members watch a timer, its owner included."""
    grace: float = 1.0
    """How long a timer is overdue before the next of those members wakes the owner."""
    hop_limit: int = 32
    """How often a wake-up is passed on before it is given up."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "cycle" and value is None:
                continue
            if not isinstance(value, (int, float)) or not isfinite(value) or value <= 0:
                msg = f"{each.name}={value!r}: give a positive number"
                raise BadOption(msg)
        for name in ("clock_count", "hop_limit"):
            if not isinstance(getattr(self, name), int):
                msg = f"{name}={getattr(self, name)!r}: give a whole number"
                raise BadOption(msg)
        if not self.margin < 0.5:  # noqa: PLR2004 - of the lease; renewals come at a third
            msg = f"margin={self.margin!r}: give less than 0.5, or no lease outlives its renewal"
            raise BadOption(msg)

    @property
    def renewal(self) -> float:
        """How often leases are renewed: at a third of their length."""
        return self.lease / 3

    @property
    def usable(self) -> float:
        """How long a member relies on a lease, counted from when it asked for it."""
        return self.lease * (1 - self.margin)
