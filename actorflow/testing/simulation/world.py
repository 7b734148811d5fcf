"""The world of a simulation: virtual time, dice by purpose, and a record of what happens."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from actorflow.testing.clock import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.clock import Timer

__all__ = ["START", "Line", "World"]

START = 1_700_000_000.0
"""What the store's clock says at the beginning."""


class Line(NamedTuple):
    """Something that has happened."""

    at: float
    who: str
    what: str
    about: tuple[object, ...]

    def __str__(self) -> str:
        return f"{self.at:8.3f} {self.who:8} {self.what} {' '.join(map(str, self.about))}".rstrip()


class World:
    """Everything that parts of one simulation share.

    Args:
        seed: the same seed leads to the same history.

    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.lines: list[Line] = []
        self._clock = VirtualClock()

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self._clock.now()

    def dice(self, purpose: str) -> Random:
        """Return random numbers of their own, so that one part does not disturb another."""
        return Random(f"{self.seed} {purpose}")

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Schedule a call."""
        return self._clock.call_at(self._clock.now() + max(seconds, 0.0), call)

    def run(self, seconds: float) -> None:
        """Advance the time."""
        self._clock.advance(seconds)

    def note(self, who: str, what: str, *about: object) -> None:
        """Record something. Texts are only made when somebody reads them."""
        self.lines.append(Line(self._clock.now(), who, what, about))
