"""The faults of a simulation: a plan, drawn from the seed before anything runs.

Because it is a plain list, a history that fails can be run again with less of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Fault", "FaultType", "Faults", "Skew"]

_LASTS = 12.0


class FaultType(StrEnum):
    """The faults that a simulation can inject into a cluster."""

    KILL = "kill"
    """A worker dies and is started again later, under another name."""
    PAUSE = "pause"
    """A worker is stopped for a time and goes on as if nothing had happened."""
    LEAVE = "leave"
    """A worker hands everything over, and is started again later."""
    DEPLOY = "deploy"
    """Workers hand everything over one after the other; each is started again with newer code."""
    SPLIT = "split"
    """Some workers cannot reach the others; the store is on one side."""
    STORE_DOWN = "store down"
    STORE_SLOW = "store slow"
    STORE_FULL = "store full"

    def __repr__(self) -> str:
        return f"FaultType.{self.name}"


class Fault(NamedTuple):
    """Something that goes wrong at a moment, for a time."""

    at: float
    type: FaultType
    lasts: float
    workers: tuple[str, ...] = ()
    """The affected workers; for a split, the ones cut off from the store."""

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
    lasts: float = _LASTS
    """Seconds after which nothing goes wrong any more."""
    loss: float = 0.0
    """The share of notices between engines that are lost."""
    duplication: float = 0.0
    """The share of notices between engines that arrive twice."""
    delay: tuple[float, float] = (0.001, 0.01)
    """Seconds that a notice takes; one overtakes another where they differ."""
    store_delay: tuple[float, float] = (0.001, 0.01)
    """Seconds that a request to the store takes, each way."""
    store_loss: float = 0.0
    """The share of requests to the store of which the answer never comes."""
    code: float = 0.0
    """The longest that a call of a tasker takes, in seconds."""
    unskilled: tuple[str, ...] = ()
    """Engines without taskers: others do their tasks."""
    skews: tuple[tuple[str, Skew], ...] = ()
    faults: tuple[Fault, ...] = field(default=())

    @classmethod
    def drawn(cls, seed: int) -> Faults:
        """Return a plan that is drawn: each kind of fault is in about half of them."""
        dice = Random(f"{seed} faults")  # noqa: S311 - no secret
        names = tuple("abcd"[: dice.choice((2, 3, 3, 4))])
        types = [each for each in dice.sample([*FaultType], len(FaultType)) if dice.random() < 0.6]  # noqa: PLR2004
        count, lengths = dice.randint(1, 7), [0.3, 1.0, 4.0, 5.0]
        if dice.random() < 0.25:  # noqa: PLR2004 - a storm: the same short fault again and again
            types, count, lengths = types[:2], 14, [0.3, 0.6, 0.9]
        faults = [
            _drawn_fault(dice, dice.choice(types), names, dice.choice(lengths))
            for _ in range(count)
            if types
        ]

        def sometimes(value: float) -> float:
            return value if dice.random() < 0.5 else 0.0  # noqa: PLR2004

        return cls(
            workers=names,
            partitions=dice.choice((2, 4, 8, 24)),
            loss=sometimes(dice.uniform(0.0, 0.4)),
            duplication=sometimes(dice.uniform(0.0, 0.3)),
            delay=(0.001, 0.01 + sometimes(dice.uniform(0.0, 1.5))),
            store_delay=(0.001, 0.01 + sometimes(dice.uniform(0.0, 0.3))),
            store_loss=sometimes(dice.uniform(0.0, dice.choice((0.1, 0.3)))),
            code=sometimes(dice.uniform(0.0, 1.5)),
            unskilled=tuple(name for name in names[1:] if dice.random() < 0.3),  # noqa: PLR2004
            skews=tuple(
                (name, Skew(dice.uniform(-1e4, 1e4), 1 + sometimes(dice.uniform(-0.04, 0.04))))
                for name in names
            ),
            faults=tuple(sorted(faults)),
        )

    def simpler(self) -> Iterator[Faults]:
        """Yield plans in which one thing less goes wrong."""
        for number in range(len(self.faults)):
            yield replace(self, faults=self.faults[:number] + self.faults[number + 1 :])
        for name in _RATES:
            if getattr(self, name) != getattr(_NONE, name):
                yield replace(self, **{name: getattr(_NONE, name)})

    def skew_of(self, worker: str) -> Skew:
        """Return how the clock of a worker differs."""
        return dict(self.skews).get(worker, Skew(0.0, 1.0))

    def describe(self) -> list[str]:
        """Return it in words."""
        first = (
            f"{len(self.workers)} workers, {self.partitions} partitions; notices: "
            f"{self.loss:.0%} lost, {self.duplication:.0%} doubled, up to {self.delay[1]:.2f} s; "
            f"store: up to {2 * self.store_delay[1]:.2f} s, {self.store_loss:.0%} unanswered; "
            f"tasks: up to {self.code:.1f} s, none at {', '.join(self.unskilled) or 'no place'}"
        )
        return [first, *map(str, self.faults)]


_NONE = Faults()
_RATES = ("skews", "loss", "duplication", "delay", "store_delay", "store_loss", "code", "unskilled")


def _drawn_fault(dice: Random, type_: FaultType, names: tuple[str, ...], length: float) -> Fault:
    at = dice.uniform(0.5, _LASTS - 1.0)
    length = min(length * dice.uniform(0.5, 1.5), _LASTS - at)
    if type_ in (FaultType.STORE_DOWN, FaultType.STORE_SLOW, FaultType.STORE_FULL):
        return Fault(at, type_, length)
    if type_ is FaultType.SPLIT:
        return Fault(at, type_, length, tuple(n for n in names if dice.random() < 0.5))  # noqa: PLR2004
    if type_ is FaultType.DEPLOY:
        return Fault(at, type_, length, names)
    return Fault(at, type_, length, (dice.choice(names),))
