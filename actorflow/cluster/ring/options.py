"""The options of a member: every length of time, in one place, checked once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite

from actorflow.runtime.errors import BadOption

__all__ = ["RingOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingOptions:
    """Times of a ring, in seconds. All members use the same.

    Raises:
        BadOption: a value cannot work; the message says which and why.

    """

    lease: float = 6.0
    """How long a member owns its partitions without renewing; others notice a crash within twice
    that."""
    margin: float = 0.1
    """The part of a lease that is given up before its end, because clocks run at different speed.
    """
    sweep: float = 30.0
    """How often a member looks at all its partitions."""
    idle: float = 0.021
    """The least time that a member waits between two steps."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, (int, float)) or not isfinite(value) or value <= 0:
                msg = f"{each.name}={value!r}: give a positive number"
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
