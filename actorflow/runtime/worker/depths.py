"""How many messages of each key a worker holds, counted when somebody looks."""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from actorflow.behaviours.errors import brief

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.accumulator import Accumulator

__all__ = ["KeyDepths", "key_depths"]


class KeyDepths(NamedTuple):
    """The messages of a worker by key."""

    keys: int
    """Keys with messages."""
    counted: int
    """Messages that were counted: all that are held, unless those are very many."""
    largest: list[tuple[str, int]]
    """The keys with the most messages, and how many they are."""


def key_depths(pair: Accumulator, most: int) -> KeyDepths | None:
    """Return the `most` keys with the most messages; `None` if the behaviour has no keys.

    O(keys), for the most part under the lock of the pair, and O(n) for messages that have not been
    sorted by key yet. Thread-safe; in the main thread, messages that arrived last may be missing.

    Raises:
        Exception: the method `depths` of a custom behaviour has raised it, or returned nonsense.

    """
    pair.refuse_own_functions()
    with pair.lock:
        found = pair.core.behaviour.depths()
    if found is None:
        return None
    if pair.core.raw_count():
        pair.offers.fold_early()
        with pair.lock:
            found = pair.core.behaviour.depths() or {}
    largest = nlargest(most, found.items(), key=itemgetter(1))
    return KeyDepths(
        len(found), sum(found.values()), [(brief(key), count) for key, count in largest]
    )
