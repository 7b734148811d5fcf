"""Which member should own which partitions: a pure function of the ring."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["desired_owners", "next_of", "share_of"]


def desired_owners(ring: Sequence[str], partitions: int) -> tuple[str, ...]:
    """Return the member that should own each partition; nothing if the ring is empty.

    Every member and every machine comes to the same answer. Shares differ by one at most, and when
    a member joins or leaves, about `partitions / len(ring)` change their owner: rendezvous hashing
    with bounded load. O(n log n) for n members times partitions, once for each ring.

    >>> desired_owners(["a", "b"], 6)
    ('a', 'b', 'b', 'b', 'a', 'a')
    >>> desired_owners(["a"], 3)
    ('a', 'a', 'a')
    """
    return _assigned(tuple(sorted(ring)), partitions)


def share_of(name: str, ring: Sequence[str], partitions: int) -> frozenset[int]:
    """Return the partitions that one member should own."""
    owners = desired_owners(ring, partitions)
    return frozenset(number for number, owner in enumerate(owners) if owner == name)


def next_of(name: str, ring: Sequence[str]) -> str | None:
    """Return the member after a name in alphabetical order; the last one passes to the first.

    The name itself need not be in the ring. `None` if nobody else is.

    >>> next_of("b", ["a", "b", "c"]), next_of("c", ["a", "b", "c"]), next_of("bb", ["a", "c"])
    ('c', 'a', 'c')
    """
    others = sorted(each for each in ring if each != name)
    return next((each for each in others if each > name), others[0] if others else None)


def _weight(name: str, partition: int) -> bytes:
    return blake2b(f"{partition}/{name}".encode(), digest_size=8).digest()


@lru_cache(maxsize=256)
def _assigned(ring: tuple[str, ...], partitions: int) -> tuple[str, ...]:
    if not ring:
        return ()
    floor, extra = divmod(partitions, len(ring))
    load = dict.fromkeys(ring, 0)
    owners: dict[int, str] = {}
    wishes = sorted(
        ((_weight(name, number), name, number) for name in ring for number in range(partitions)),
        reverse=True,
    )
    for _, name, number in wishes:
        if number in owners or load[name] > floor or (load[name] == floor and not extra):
            continue
        extra -= load[name] == floor
        load[name] += 1
        owners[number] = name
    return tuple(owners[number] for number in range(partitions))
