"""Which member should own which partitions: a pure function."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.cluster.ring import RingOptions, desired_owners
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


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"lease": 0}, "lease=0: give a positive number"),
        ({"sweep": float("nan")}, "sweep=nan: give a positive number"),
        ({"idle": "often"}, "idle='often': give a positive number"),
        ({"margin": 0.7}, "margin=0.7: give less than 0.5"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, object], wrong: str) -> None:
    with pytest.raises(BadOption, match=wrong):
        RingOptions(**options)  # type: ignore[arg-type]
