"""The register of members and partitions: what a store does with a check-in."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from actorflow.cluster.ring import CheckIn, Holding, Member, Register, Roll, View, check_in
from actorflow.cluster.status import status_of

LEASE = 6.0


def test_a_member_says_which_version_and_code_it_runs() -> None:
    member = Member("a", version="1.2")
    member.serve((), ("Order@2",))
    roll = Roll.of(1)
    [register] = [each for each in member.step(0.0).actions if isinstance(each, Register)]
    [entry] = check_in(roll, register.request, now=0.0).members
    assert (entry.version, entry.codes) == ("1.2", ("Order@2",))
    [shown] = status_of(roll.view(0.0), {}, {}, {}, {}).members
    assert (shown.version, shown.codes) == ("1.2", ("Order@2",))


def test_c2_a_lease_ends_by_the_clock_of_the_store() -> None:
    roll = Roll.of(1)
    view = check_in(roll, CheckIn("a", LEASE, take=(0,)), now=5_000.0)
    assert view.holdings == (Holding("a", 1, 5_006.0),)
    assert view.members[0].until == 5_006.0
    assert view.now == 5_000.0


def test_c3_one_write_renews_all_leases() -> None:
    roll = Roll.of(3)
    check_in(roll, CheckIn("a", LEASE, take=(0, 1, 2)), now=0.0)
    view = check_in(roll, CheckIn("a", LEASE, hold=((0, 1), (1, 1), (2, 1))), now=2.0)
    assert [each.until for each in view.holdings] == [8.0, 8.0, 8.0]


def test_c4_a_partition_is_taken_when_nobody_owns_it_or_its_lease_has_ended() -> None:
    roll = Roll.of(2)
    check_in(roll, CheckIn("a", LEASE, take=(0, 1)), now=0.0)
    refused = check_in(roll, CheckIn("b", LEASE, take=(0, 1)), now=5.9)
    assert [each.owner for each in refused.holdings] == ["a", "a"]
    check_in(roll, CheckIn("a", LEASE, release=((1, 1),)), now=5.9)
    taken = check_in(roll, CheckIn("b", LEASE, take=(0, 1)), now=6.0)
    assert [(each.owner, each.epoch) for each in taken.holdings] == [("b", 2), ("b", 2)]


def test_c4_a_member_takes_anew_what_it_owns_without_knowing() -> None:
    roll = Roll.of(1)
    check_in(roll, CheckIn("a", LEASE, take=(0,)), now=0.0)
    assert check_in(roll, CheckIn("a", LEASE, take=(0,)), now=1.0).holdings[0].epoch == 2


def test_c10_a_lease_that_has_ended_is_not_renewed() -> None:
    roll = Roll.of(1)
    check_in(roll, CheckIn("a", LEASE, take=(0,)), now=0.0)
    view = check_in(roll, CheckIn("a", LEASE, hold=((0, 1),)), now=6.0)
    assert view.holdings[0].until == 6.0
    assert view.ring == ("a",)


def test_a_release_of_an_epoch_that_is_over_does_nothing() -> None:
    roll = Roll.of(1)
    check_in(roll, CheckIn("a", LEASE, take=(0,)), now=0.0)
    check_in(roll, CheckIn("b", LEASE, take=(0,)), now=6.0)
    check_in(roll, CheckIn("b", LEASE, release=((0, 1),)), now=6.1)
    assert roll.holdings[0].owner == "b"


def test_c8_who_leaves_owns_nothing_and_is_no_member() -> None:
    roll = Roll.of(2)
    check_in(roll, CheckIn("a", LEASE, take=(0, 1)), now=0.0)
    view = check_in(roll, CheckIn("a", LEASE, leave=True), now=1.0)
    assert view.ring == ()
    assert [each.owner for each in view.holdings] == [None, None]


def test_a_request_that_was_overtaken_by_a_later_one_does_nothing() -> None:
    roll = Roll.of(1)
    check_in(roll, CheckIn("a", LEASE, take=(0,), number=2), now=0.0)
    check_in(roll, CheckIn("a", LEASE, take=(0,), number=1), now=0.1)
    assert roll.holdings[0] == Holding("a", 1, 6.0)


class Registers(RuleBasedStateMachine):
    """Any requests in any order: epochs only grow, and a lease that lasts keeps its owner."""

    def __init__(self) -> None:
        super().__init__()
        self.roll = Roll.of(3)
        self.now = 0.0
        self.before: tuple[Holding, ...] = tuple(self.roll.holdings)
        self.asked: tuple[str, CheckIn] | None = None

    @rule(seconds=st.floats(0.0, 10.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        name=st.sampled_from("abc"),
        take=st.sets(st.integers(0, 2)),
        hold=st.dictionaries(st.integers(0, 2), st.integers(0, 4)),
        release=st.dictionaries(st.integers(0, 2), st.integers(0, 4)),
        leave=st.booleans(),
    )
    def ask(self, name: str, take: set[int], hold: Any, release: Any, leave: Any) -> None:
        before = tuple(self.roll.holdings)
        request = CheckIn(
            name, LEASE, tuple(hold.items()), tuple(take), tuple(release.items()), leave=leave
        )
        view = check_in(self.roll, request, self.now)
        assert isinstance(view, View)
        for old, new in zip(before, view.holdings, strict=True):
            assert new.epoch >= old.epoch
            if new.owner != old.owner and old.owner is not None:
                assert old.owner == name or old.until <= self.now
            if new.owner is not None and new.owner != old.owner:
                assert new.epoch == old.epoch + 1
                assert new.owner == name
        assert (name in view.ring) is not leave

    @invariant()
    def members_are_in_alphabetical_order_and_alive(self) -> None:
        view = self.roll.view(self.now)
        assert list(view.ring) == sorted(view.ring)
        assert all(member.until > self.now for member in view.members)


TestRegisters = Registers.TestCase
