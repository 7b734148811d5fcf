"""The shape of a behaviour: what its traits mean for the pushes of a worker."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from actorflow.behaviours import Chunk, Linger, Queue, Stack
from actorflow.behaviours.adapt import adapt
from actorflow.behaviours.behaviour import Behaviour, Traits

__all__ = [
    "FOLD_AT",
    "QUEUE",
    "STACK",
    "Pushes",
    "Shape",
    "fold_at",
    "pushes_of",
    "shape_of",
]

QUEUE, STACK = adapt(Queue), adapt(Stack)
"""Empty lines that all accumulations share until one puts something in, which most never do."""

FOLD_AT = 2_048
"""Raw messages at which a producer has them folded, for behaviours with a bound.

Raw messages can exceed a bound: by at most `4 * FOLD_AT`, and for each producer by the messages of
one push. Messages handed to the job, or accepted by `push_ack`, are within the bound.
Without a bound there is nothing to exceed, so behaviours that only shrink let four times as many
lie before they are folded: each fold on behalf of a main thread is handed to another thread.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How messages reach a behaviour: what its traits mean for pushes."""

    timed: bool
    stamped: bool
    """`raw` holds each message after the time of its arrival."""
    width: int
    """Entries of `raw` per message."""
    first_stamped: bool
    """`first_at` is the time of the first message in `raw`."""
    observed: bool
    explains: bool
    """It can say why a batch left."""
    spreads: bool
    """Its batch depends on how many executors are free."""
    paces: bool
    """It says when a message that has failed may run again."""
    tracks: bool
    """It takes messages wrapped in `Item`."""
    accepts_all: bool
    """Nothing is ever refused or displaced, so a caller need not wait for a verdict."""
    bounded: bool
    folds: bool
    """It holds fewer messages than arrive, so producers fold a long `raw`."""
    divides: bool
    """A batch may leave others behind that came with it."""
    leaves: bool
    """Messages may stay when a batch is taken, or vanish."""
    preempts: bool
    """A message may end the batches that run."""
    turns: bool | None
    """A plain line, of which a drain takes all: `False` for `Queue`, `True` for `Stack`."""


_DIVIDING: tuple[type[Behaviour], ...] = (Chunk, Linger)
_TURNS: dict[type[Behaviour], bool] = {Queue: False, Stack: True}
_SHAPES: dict[tuple[type[Behaviour], Any], Shape] = {}
_LATEST: dict[type[Behaviour], tuple[Any, Shape]] = {}
"""The traits last seen of each class and their shape: hashing traits is slow."""


def shape_of(behaviour: Behaviour) -> Shape:
    """Return the shape of a behaviour, the same one for all of a class with the same traits."""
    kind, traits = type(behaviour), behaviour.traits
    latest = _LATEST.get(kind)
    if latest is not None and latest[0] is traits:
        return latest[1]
    found = _SHAPES.get((kind, traits))
    if found is None:
        displaces = traits.blocks or traits.shrinks or traits.bounded or traits.expires
        found = _SHAPES[kind, traits] = Shape(
            timed=traits.timed,
            stamped=traits.stamped,
            width=2 if traits.stamped else 1,
            first_stamped=traits.first_stamped and not traits.stamped,
            observed=traits.observes,
            explains=kind.reason is not Behaviour.reason,
            spreads=traits.spreads,
            paces=traits.paces,
            tracks=traits.trackable,
            accepts_all=traits.accepts_all and traits.trackable and not displaces,
            bounded=traits.bounded,
            folds=traits.shrinks or traits.bounded,
            divides=kind in _DIVIDING,
            leaves=traits.limits or traits.expires or traits.may_be_empty,
            preempts=traits.preempts,
            turns=_TURNS.get(kind),
        )
    _LATEST[kind] = traits, found
    return found


class Pushes(Enum):
    """What a push has to do besides handing over its message."""

    PLAIN = "plain"
    FOLDING = "folding"
    """It looks now and then whether there is much to fold."""
    LINGERING = "lingering"
    """It notes when the first message came, and looks whether a batch is full."""
    STAMPING = "stamping"
    """It notes when each message came, and looks whether a batch is full."""
    PATIENT = "patient"
    """It notes when each message came."""
    BLOCKING = "blocking"
    """It may wait for room, or end the batches that run: the behaviour sees it at once."""


def pushes_of(traits: Traits) -> Pushes:
    """Return what pushes to a behaviour with these traits have to do."""
    if traits.blocks or traits.preempts:
        return Pushes.BLOCKING
    folds = traits.shrinks or traits.bounded
    if traits.stamped:
        return Pushes.PATIENT if traits.patient and not folds else Pushes.STAMPING
    if traits.first_stamped or traits.timed:
        return Pushes.LINGERING
    return Pushes.FOLDING if folds else Pushes.PLAIN


def fold_at(shape: Shape) -> int:
    """Return how many raw messages make a producer fold, for a shape that folds."""
    return FOLD_AT if shape.bounded else 4 * FOLD_AT
