"""Ownership: how members take, keep, lose and hand over partitions (C2-C10), and poll (C13)."""

from __future__ import annotations

import pytest

from actorflow.cluster.ring import (
    CheckIn,
    Drain,
    Drained,
    Fenced,
    Hint,
    Lose,
    Member,
    Own,
    Register,
    Registered,
    Sweep,
    check_in,
    desired_owners,
)
from actorflow.runtime.errors import BadOption
from tests.cluster.ring.rig import Rig


def share_of(name: str, ring: list[str], partitions: int) -> set[int]:
    owners = desired_owners(ring, partitions)
    return {number for number, owner in enumerate(owners) if owner == name}


def test_c9_a_worker_alone_owns_all() -> None:
    rig = Rig("a", partitions=8)
    rig.run(1.0)
    assert rig.members["a"].owned == dict.fromkeys(range(8), 1)
    assert set(rig.owners.values()) == {"a"}


def test_c8_members_share_the_partitions_as_the_ring_says() -> None:
    rig = Rig("a", "b", "c", partitions=16)
    rig.run(20.0)
    assert list(rig.owners.values()) == list(desired_owners(["a", "b", "c"], 16))
    for name, member in rig.members.items():
        assert set(member.owned) == share_of(name, ["a", "b", "c"], 16)


def test_c3_leases_are_renewed_at_a_third_of_their_length_in_one_write() -> None:
    rig = Rig("a", lease=6.0)
    rig.run(1.0)
    rig.forget()
    rig.run(6.0)
    requests = [each.request for each in rig.taken("a", Register)]
    assert len(requests) == 3
    assert all(len(request.hold) == 4 for request in requests)


def test_c3_what_cannot_be_renewed_is_lost_before_the_lease_ends() -> None:
    rig = Rig("a", lease=6.0, margin=0.1)
    rig.run(1.0)
    rig.forget()
    rig.store_up = False
    until = rig.roll.holdings[0].until
    rig.run(2.0)
    assert rig.members["a"].owned
    while rig.members["a"].owned:
        rig.run(0.01)
    assert rig.store_time < until
    assert [each.partition for each in rig.taken("a", Lose)] == [0, 1, 2, 3]
    assert not rig.may_start("a", 0)


def test_c3_nothing_starts_after_the_end_even_if_no_step_was_made() -> None:
    rig = Rig("a", lease=6.0)
    rig.run(1.0)
    assert rig.may_start("a", 0)
    assert not rig.may_start("a", 0, later=6.0)


def test_c3_the_time_of_a_lease_counts_from_before_it_was_asked_for() -> None:
    rig = Rig("a", lease=6.0, margin=0.1)
    member = rig.members["a"]
    view = check_in(rig.roll, CheckIn("a", 6.0), 0.0)
    (first,) = (each for each in member.step(0.0).actions if isinstance(each, Register))
    member.receive(Registered(first.number, view), 0.1)
    (second,) = (each for each in member.step(0.2).actions if isinstance(each, Register))
    view = check_in(rig.roll, second.request, 3.0)
    member.receive(Registered(second.number, view), 5.0)
    assert 0 in member.usable(5.59)[0]
    assert 0 not in member.usable(5.61)[0]


def test_c3_an_answer_that_comes_after_the_end_gives_nothing() -> None:
    member = Member("a")
    rig = Rig()
    (first,) = (each for each in member.step(0.0).actions if isinstance(each, Register))
    member.receive(Registered(first.number, check_in(rig.roll, first.request, 0.0)), 0.0)
    (second,) = (each for each in member.step(1.0).actions if isinstance(each, Register))
    late = member.receive(Registered(second.number, check_in(rig.roll, second.request, 1.0)), 9.0)
    assert not [each for each in late if isinstance(each, Own)]


def test_c4_the_new_owner_has_a_higher_epoch_and_is_told_to_read_first() -> None:
    rig = Rig("a", partitions=2)
    rig.run(1.0)
    rig.dead.add("a")
    rig.join("b")
    rig.run(20.0)
    assert sorted(rig.taken("b", Own)) == [Own(0, 2), Own(1, 2)]


def test_c8_a_worker_over_its_share_releases_one_at_a_time_after_its_runs() -> None:
    rig = Rig("a", partitions=8)
    rig.run(1.0)
    rig.forget()
    rig.drains = False
    rig.join("b")
    rig.run(10.0)
    (drain,) = rig.taken("a", Drain)
    assert drain.partition in share_of("b", ["a", "b"], 8)
    assert rig.owners[drain.partition] == "a", "its runs have not ended"
    assert not rig.may_start("a", drain.partition)
    rig.tell("a", Drained(drain.partition))
    rig.run(1.0)
    assert rig.owners[drain.partition] == "b"
    assert len(rig.taken("a", Drain)) == 1, "then the next one"


def test_c8_of_many_partitions_an_eighth_is_on_its_way_at_the_same_time() -> None:
    rig = Rig("a", partitions=64)
    rig.run(1.0)
    rig.forget()
    rig.drains = False
    rig.join("b")
    rig.run(10.0)
    first = [each.partition for each in rig.taken("a", Drain)]
    assert len(first) == 8
    rig.tell("a", Drained(first[0]))
    rig.run(1.0)
    assert len(rig.taken("a", Drain)) == 0, "fewer are held now: 7 of 63 may be on their way"
    for number in first[1:3]:
        rig.tell("a", Drained(number))
    rig.run(1.0)
    assert len(rig.taken("a", Drain)) == 2, "a slow one does not hold the others up"


def test_c8_a_worker_that_joins_has_its_share_soon() -> None:
    rig = Rig("a", partitions=64, lease=6.0)
    rig.run(1.0)
    rig.join("b")
    rig.run(3.0)
    assert len(rig.members["b"].owned) == 32


def test_c8_who_gets_a_partition_is_told_at_once() -> None:
    rig = Rig("a", partitions=8)
    rig.run(1.0)
    rig.join("b")
    rig.run(3.0)
    rig.forget()
    rig.run(0.5)
    assert {hint.to for hint in rig.taken("a", Hint)} <= {"b"}
    assert set(rig.members["b"].owned) == share_of("b", ["a", "b"], 8)


def test_c8_each_heir_gets_one_hint_for_all_that_is_released_together() -> None:
    rig = Rig("a", partitions=64)
    rig.run(1.0)
    rig.drains = False
    rig.join("b")
    rig.run(10.0)
    draining = [each.partition for each in rig.taken("a", Drain)]
    assert len(draining) == 8
    for number in draining:
        rig.tell("a", Drained(number))
    rig.run(0.1)
    assert rig.taken("a", Hint) == [Hint("b")]


def test_c8_partitions_are_taken_without_a_hint_at_the_next_check_in() -> None:
    rig = Rig("a", partitions=8)
    rig.hints = False
    rig.run(1.0)
    rig.join("b")
    rig.run(12.0)
    assert set(rig.members["b"].owned) == share_of("b", ["a", "b"], 8)


def test_c8_a_graceful_leave_hands_everything_over_at_once() -> None:
    rig = Rig("a", "b", partitions=8)
    rig.run(20.0)
    rig.leave("a")
    rig.run(0.5)
    assert set(rig.owners.values()) == {"b"}
    assert rig.members["b"].ring == ("b",)


def test_b12_join_and_death_are_found_out() -> None:
    rig = Rig("a", "b", partitions=8)
    rig.run(20.0)
    rig.join("c")
    member = rig.members["a"]
    rig.run(3.0)
    assert list(member.ring) == ["a", "b", "c"]
    rig.dead.add("b")
    rig.run(12.0)
    assert list(member.ring) == ["a", "c"]


def test_b2_an_idle_member_makes_a_step_for_each_renewal_and_no_other() -> None:
    rig = Rig("a", lease=60.0, sweep=600.0)
    rig.run(1.0)
    steps = 0
    while rig.now < 100.0:
        rig.run(rig.step("a") + 1e-6)
        steps += 1
    assert steps <= 6


def test_r4_a_member_sleeps_21_ms_at_least() -> None:
    assert Member("a").step(0.0).wait >= 0.021


@pytest.mark.parametrize("at", [0.1, 1.0, 1.9, 3.3])
def test_c9_a_dead_workers_partitions_are_adopted_within_two_leases(at: float) -> None:
    rig = Rig("a", "b", "c", partitions=16, lease=6.0)
    rig.run(20.0 + at)
    rig.dead.add("b")
    rig.run(2 * 6.0)
    assert list(rig.owners.values()) == list(desired_owners(["a", "c"], 16))


def test_c10_a_stopped_worker_finds_out_at_its_first_step() -> None:
    rig = Rig("a", "b", partitions=4)
    rig.run(20.0)
    member = rig.members["a"]
    held = sorted(member.owned)
    rig.dead.add("a")
    rig.run(30.0)
    rig.dead.clear()
    rig.forget()
    rig.step("a")
    assert [each.partition for each in rig.taken("a", Lose)][: len(held)] == held


def test_c10_or_at_its_first_commit_and_reads_all_that_it_adopts_again() -> None:
    rig = Rig("a", partitions=2)
    rig.run(1.0)
    rig.forget()
    assert rig.tell("a", Fenced(1)) == [Lose(1)]
    assert rig.members["a"].owned == {0: 1}
    rig.run(0.2)
    assert rig.taken("a", Own) == [Own(1, 2)]


def test_c6_a_member_loses_what_the_register_says_is_anothers() -> None:
    rig = Rig("a", partitions=1, lease=6.0)
    rig.run(1.0)
    rig.forget()
    check_in(rig.roll, CheckIn("b", 600.0, take=(0,)), rig.store_time + 7.0)
    rig.run(2.5)
    assert rig.taken("a", Lose) == [Lose(0)]
    assert rig.members["a"].owned == {}


def test_c13_the_owner_looks_at_everything_every_few_seconds() -> None:
    rig = Rig("a", partitions=4, sweep=3.0)
    rig.run(1.0)
    rig.forget()
    rig.run(9.5)
    assert rig.taken("a", Sweep) == [Sweep()] * 3


def test_c13_a_member_without_partitions_looks_for_tasks_that_others_have_handed_to_it() -> None:
    rig = Rig("a", "b", partitions=1, sweep=3.0)
    rig.run(1.0)
    (idle,) = {"a", "b"} - set(rig.owners.values())
    rig.forget()
    rig.run(9.5)
    assert rig.taken(idle, Sweep) == [Sweep()] * 3


def test_c13_who_has_never_reached_the_store_looks_at_nothing() -> None:
    rig = Rig("a", partitions=4)
    rig.store_up = False
    rig.run(20.0)
    assert rig.taken("a", Sweep) == []


def test_c27_a_store_that_is_down_is_asked_again_and_work_resumes() -> None:
    rig = Rig("a", partitions=2)
    rig.run(1.0)
    rig.store_up = False
    rig.run(20.0)
    assert rig.members["a"].owned == {}
    rig.store_up = True
    rig.run(1.0)
    assert rig.members["a"].owned == {0: 2, 1: 2}


def test_an_answer_to_an_older_question_does_not_count() -> None:
    rig = Rig("a")
    member = rig.members["a"]
    (first,) = (each for each in member.step(0.0).actions if isinstance(each, Register))
    assert [each for each in member.step(2.0).actions if isinstance(each, Register)]
    view = check_in(rig.roll, first.request, 0.0)
    assert member.receive(Registered(first.number, view), 2.1) == []
    assert member.ring == ()


def test_a_member_needs_a_name() -> None:
    with pytest.raises(BadOption, match="give a member a name"):
        Member("")
