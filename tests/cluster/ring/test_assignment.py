"""Which member should own what, and who watches a timer: pure functions."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.cluster.ring import RingOptions, clock_offsets, clock_rank, desired_owners, share_of
from actorflow.cluster.ring.assignment import next_of
from actorflow.engine.stores.protocol import partition_of
from actorflow.runtime.errors import BadOption

NAMES = st.text("abcdefgh-0123456789", min_size=1, max_size=8)
RINGS = st.lists(NAMES, min_size=1, max_size=12, unique=True).map(sorted)
PARTITIONS = st.sampled_from([1, 2, 4, 16, 64, 100])


def test_c1_the_partition_of_an_execution_is_the_same_everywhere_for_ever() -> None:
    assert [partition_of(name, 64) for name in ("order-7", "é", "a" * 1_000)] == [26, 62, 3]


@given(RINGS, PARTITIONS)
def test_c8_every_partition_has_one_desired_owner_and_shares_are_even(
    ring: list[str], partitions: int
) -> None:
    owners = desired_owners(ring, partitions)
    assert len(owners) == partitions
    assert set(owners) <= set(ring)
    shares = Counter(dict.fromkeys(ring, 0))
    shares.update(owners)
    assert max(shares.values()) - min(shares.values()) <= 1
    assert owners == desired_owners(ring[::-1], partitions), "the order of the list is no matter"
    for name in ring:
        assert share_of(name, ring, partitions) == {
            number for number, owner in enumerate(owners) if owner == name
        }


@given(RINGS, st.data())
def test_c8_one_member_more_or_less_moves_about_its_share(
    ring: list[str], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(ring))
    rest = [name for name in ring if name != gone]
    if not rest:
        return
    before, after = desired_owners(ring, 64), desired_owners(rest, 64)
    moved = sum(old != new for old, new in zip(before, after, strict=True))
    share = 64 / len(ring)
    assert ceil(share) - 1 <= moved <= 2.5 * share + 3


def test_c9_a_worker_alone_should_own_all_and_nobody_owns_nothing() -> None:
    assert set(desired_owners(["a"], 64)) == {"a"}
    assert desired_owners([], 64) == ()


def test_the_ring_is_in_alphabetical_order_and_the_last_passes_to_the_first() -> None:
    ring = ["a", "b", "d"]
    assert [next_of(name, ring) for name in ("a", "b", "c", "d")] == ["b", "d", "d", "a"]
    assert next_of("a", ["a"]) is None


@given(st.integers(1, 50), st.integers(1, 50))
def test_r17_clock_offsets_are_unique_evenly_spaced_and_begin_with_the_executor(
    length: int, count: int
) -> None:
    offsets = clock_offsets(length, count)
    assert offsets[0] == 0
    assert offsets == sorted(set(offsets))
    assert len(offsets) == min(length, count)
    assert offsets[-1] < length
    gaps = [b - a for a, b in zip(offsets, [*offsets[1:], length], strict=True)]
    assert max(gaps) - min(gaps) <= 1


def test_b1_the_examples() -> None:
    assert clock_offsets(7, 3) == [0, 2, 4]
    assert clock_offsets(3, 5) == [0, 1, 2]


@given(RINGS, NAMES, st.integers(1, 6))
def test_b1_each_executor_has_as_many_clockworkers_as_asked_for(
    ring: list[str], executor: str, count: int
) -> None:
    ranks = [clock_rank(name, executor, ring, count) for name in ring]
    there = sorted(rank for rank in ranks if rank is not None)
    assert there == list(range(min(count, len(ring))))
    if executor in ring:
        assert clock_rank(executor, executor, ring, count) == 0


def test_b1_an_executor_that_is_not_in_the_ring_is_counted_from_where_it_would_be() -> None:
    ring = ["a", "c", "e"]
    assert clock_rank("c", "b", ring, 1) == 0
    assert clock_rank("a", "x", ring, 1) == 0
    assert clock_rank("b", "a", ring, 3) is None


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"lease": 0}, "lease=0: give a positive number"),
        ({"sweep": float("nan")}, "sweep=nan: give a positive number"),
        ({"cycle": "often"}, "cycle='often': give a positive number"),
        ({"clock_count": 1.5}, "clock_count=1.5: give a whole number"),
        ({"margin": 0.7}, "margin=0.7: give less than 0.5"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, object], wrong: str) -> None:
    with pytest.raises(BadOption, match=wrong):
        RingOptions(**options)  # type: ignore[arg-type]
