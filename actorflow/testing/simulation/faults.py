"""What goes wrong in a simulation: a plan, drawn from the seed before anything runs.

Because it is a plain list, a history that fails can be run again with less of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import NamedTuple

__all__ = ["Fault", "FaultType", "Faults", "Skew"]


class FaultType(StrEnum):
    """What can be done to a cluster."""

    KILL = "kill"
    """A worker dies and is started again later, under another name."""
    PAUSE = "pause"
    """A worker is stopped for a time and goes on as if nothing had happened."""
    LEAVE = "leave"
    """A worker hands everything over, and is started again later."""
    SPLIT = "split"
    """Some workers cannot reach the others; the store is on one side."""
    STORE_DOWN = "store down"
    STORE_SLOW = "store slow"


class Fault(NamedTuple):
    """Something that goes wrong at a moment, for a time."""

    at: float
    type: FaultType
    lasts: float
    workers: tuple[str, ...] = ()
    """Whom it concerns; of a split, those who are cut off from the store."""

    def __str__(self) -> str:
        names = f" {', '.join(self.workers)}" if self.workers else ""
        return f"at {self.at:.2f} s: {self.type}{names}, for {self.lasts:.2f} s"


class Skew(NamedTuple):
    """How the clock of a worker differs from the store's."""

    offset: float
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """A plan of faults: `Faults.drawn(seed)` draws one; `Faults()` has three workers and none."""

    workers: tuple[str, ...] = ("a", "b", "c")
    partitions: int = 4
    lasts: float = 12.0
    """Seconds after which nothing goes wrong any more."""
    loss: float = 0.0
    """The share of messages between workers that are lost."""
    duplication: float = 0.0
    """The share of messages between workers that arrive twice."""
    delay: tuple[float, float] = (0.001, 0.01)
    """Seconds that a message takes; one overtakes another where they differ."""
    store_delay: tuple[float, float] = (0.001, 0.01)
    """Seconds that a request to the store takes, each way and inside it."""
    store_loss: float = 0.0
    """The share of requests to the store of which the answer never comes."""
    unheard: float = 0.0
    """The share of wake-ups from the store that are lost."""
    skews: tuple[tuple[str, Skew], ...] = ()
    faults: tuple[Fault, ...] = field(default=())

    @classmethod
    def drawn(cls, seed: int) -> Faults:
        """Return a plan that is drawn: each kind of fault is in about half of them."""
        dice = Random(f"{seed} faults")
        names = tuple("abcd"[: dice.choice((2, 3, 3, 4))])
        lasts = 12.0
        types = [each for each in FaultType if dice.random() < 0.6]  # noqa: PLR2004
        faults = [
            _drawn_fault(dice, dice.choice(types), names, lasts)
            for _ in range(dice.randint(1, 7))
            if types
        ]

        def sometimes(value: float) -> float:
            return value if dice.random() < 0.5 else 0.0  # noqa: PLR2004

        return cls(
            workers=names,
            partitions=dice.choice((2, 4, 8, 24)),
            lasts=lasts,
            loss=sometimes(dice.uniform(0.0, 0.4)),
            duplication=sometimes(dice.uniform(0.0, 0.3)),
            delay=(0.001, 0.01 + sometimes(dice.uniform(0.0, 1.5))),
            store_delay=(0.001, 0.01 + sometimes(dice.uniform(0.0, 0.3))),
            store_loss=sometimes(dice.uniform(0.0, 0.1)),
            unheard=sometimes(dice.uniform(0.0, 1.0)),
            skews=tuple(
                (name, Skew(dice.uniform(-1e4, 1e4), 1 + sometimes(dice.uniform(-0.04, 0.04))))
                for name in names
            ),
            faults=tuple(sorted(faults)),
        )

    def without(self, number: int) -> Faults:
        """Return the plan without one of its faults."""
        return replace(self, faults=self.faults[:number] + self.faults[number + 1 :])

    def skew_of(self, worker: str) -> Skew:
        """Return how the clock of a worker differs."""
        return dict(self.skews).get(worker, Skew(0.0, 1.0))

    def describe(self) -> list[str]:
        """Return it in words."""
        first = (
            f"{len(self.workers)} workers, {self.partitions} partitions; messages: "
            f"{self.loss:.0%} lost, {self.duplication:.0%} doubled, up to {self.delay[1]:.2f} s; "
            f"store: up to {3 * self.store_delay[1]:.2f} s, {self.store_loss:.0%} unanswered, "
            f"{self.unheard:.0%} unheard"
        )
        return [first, *map(str, self.faults)]


def _drawn_fault(dice: Random, type_: FaultType, names: tuple[str, ...], lasts: float) -> Fault:
    at = dice.uniform(0.5, lasts - 1.0)
    length = min(dice.choice((0.3, 1.0, 4.0, 5.0)) * dice.uniform(0.5, 1.5), lasts - at)
    if type_ in (FaultType.STORE_DOWN, FaultType.STORE_SLOW):
        return Fault(at, type_, length)
    if type_ is FaultType.SPLIT:
        return Fault(at, type_, length, tuple(n for n in names if dice.random() < 0.5))  # noqa: PLR2004
    return Fault(at, type_, length, (dice.choice(names),))
