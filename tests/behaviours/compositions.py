"""Compositions drawn at random: the real behaviour and its model from one description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from actorflow.behaviours import (
    Behaviour,
    Bounded,
    Chunk,
    Coalesce,
    Debounce,
    Expire,
    Fair,
    Linger,
    Priority,
    Queue,
    Stack,
    TableUnique,
    Throttle,
    Unique,
)
from tests.behaviours import models
from tests.behaviours.models import Model, World, merge, weight

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Part:
    """One layer of a composition."""

    name: str
    real: Callable[..., Behaviour]
    model: Callable[..., Model]

    def __repr__(self) -> str:
        return self.name


LEAVES = {
    "Queue": Part("Queue", Queue, models.QueueModel),
    "Stack": Part("Stack", Stack, models.StackModel),
    "Unique": Part("Unique", Unique, models.UniqueModel),
    "TableUnique": Part("TableUnique", TableUnique, models.UniqueModel),
    "Coalesce": Part("Coalesce", lambda: Coalesce(0, merge), models.CoalesceModel),
    "Priority": Part("Priority", Priority, models.PriorityModel),
    "Fair": Part("Fair", Fair, models.FairModel),
}


def throttle(every: float) -> Part:
    return Part(
        f"Throttle {every}",
        lambda inner: Throttle(inner, every),
        lambda world, inner: models.ThrottleModel(world, inner, every),
    )


def bounded(size: int, when_full: str) -> Part:
    return Part(
        f"Bounded {size} {when_full}",
        lambda inner: Bounded(inner, size, when_full=when_full),
        lambda world, inner: models.BoundedModel(world, inner, size, when_full),
    )


def chunk(size: int, weighed: bool) -> Part:  # noqa: FBT001 - drawn
    return Part(
        f"Chunk {size} {weighed}",
        lambda inner: Chunk(inner, size, weight=weight if weighed else None),
        lambda world, inner: models.ChunkModel(world, inner, size, weighed=weighed),
    )


def linger(wait: float, size: int | None) -> Part:
    return Part(
        f"Linger {wait} {size}",
        lambda inner: Linger(inner, wait, size),
        lambda world, inner: models.LingerModel(world, inner, wait, size),
    )


def debounce(quiet: float, more: float | None) -> Part:
    at_most = None if more is None else quiet + more
    return Part(
        f"Debounce {quiet} {at_most}",
        lambda inner: Debounce(inner, quiet, at_most),
        lambda world, inner: models.DebounceModel(world, inner, quiet, at_most),
    )


def expire(ttl: float) -> Part:
    return Part(
        f"Expire {ttl}",
        lambda inner: Expire(inner, ttl),
        lambda world, inner: models.ExpireModel(world, inner, ttl),
    )


_SPANS = st.sampled_from([0.0, 1.0, 2.0, 4.0])
_SIZES = st.sampled_from([1, 2, 3, 5])

WRAPPERS: dict[str, st.SearchStrategy[Part]] = {
    "Throttle": st.builds(throttle, _SPANS),
    "Bounded": st.builds(
        bounded, _SIZES, st.sampled_from(["reject", "drop_oldest", "drop_newest", "block"])
    ),
    "Chunk": st.builds(chunk, _SIZES, st.booleans()),
    "Linger": st.builds(linger, _SPANS, st.none() | _SIZES),
    "Debounce": st.builds(debounce, _SPANS, st.none() | _SPANS),
    "Expire": st.builds(expire, st.sampled_from([1.0, 2.0, 4.0])),
}

leaves = st.sampled_from([part for part in LEAVES.values() if part.name != "TableUnique"])
wrappers = st.one_of(*WRAPPERS.values())


def parts(name: str) -> st.SearchStrategy[tuple[Part, ...]]:
    """Return compositions that are about one behaviour: it alone, or around any leaf."""
    if name in LEAVES:
        return st.just((LEAVES[name],))
    return st.tuples(st.sampled_from(list(LEAVES.values())), WRAPPERS[name])


compositions = st.builds(
    lambda leaf, around: (leaf, *around), leaves, st.lists(wrappers, min_size=1, max_size=3)
)
"""A leaf and up to three wrappers around it, the innermost first."""


def possible(layers: tuple[Part, ...]) -> bool:
    """Return whether the composition is allowed, rather than refused."""
    model = modelled(layers[:1], World())
    for layer in layers[1:]:
        inner = model
        if layer.name.startswith("Expire") and inner.expires:
            return False
        if layer.name.startswith("Bounded") and "drop_oldest" in layer.name and not inner.ordered:
            return False
        if layer.name.startswith("Chunk") and not inner.divisible:
            return False
        model = layer.model(World(), inner)
    return True


def built(layers: tuple[Part, ...]) -> Behaviour:
    """Build the real one."""
    behaviour = layers[0].real()
    for layer in layers[1:]:
        behaviour = layer.real(behaviour)
    return behaviour


def modelled(layers: tuple[Part, ...], world: World) -> Any:
    """Build the model."""
    model = layers[0].model(world)
    for layer in layers[1:]:
        model = layer.model(world, model)
    return model
