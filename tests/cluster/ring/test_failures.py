"""The ways in which a bare ring fails (F1-F10), and what keeps this one from it."""

from __future__ import annotations

import pytest

from actorflow.cluster.ring import (
    Bury,
    Committed,
    Cycle,
    Fenced,
    Own,
    Post,
    Received,
    Send,
    SendFailed,
    Sweep,
    Tracker,
    desired_owners,
)
from actorflow.cluster.ring.messages import Carried
from actorflow.testing.simulation import Fault, Faults, FaultType, Sent, simulate
from tests.cluster.ring.rig import Rig, processed
from tests.cluster.simulation.kinds import Sum, total

NAMES = ("a", "b", "c")


@pytest.fixture
def rig() -> Rig:
    made = Rig(*NAMES, partitions=6)
    made.run(20.0)
    made.forget()
    return made


def partition_of(name: str) -> int:
    return desired_owners(NAMES, 6).index(name)


def cycles(rig: Rig) -> list[Cycle]:
    sent = [each for name in NAMES for each in rig.actions[name] if isinstance(each, Send)]
    return [each.payload for each in sent if isinstance(each.payload, Cycle)]


def test_f1_a_cycle_that_is_lost_with_its_holder_is_started_again(rig: Rig) -> None:
    epoch = rig.members["a"].status().cycle_epoch
    rig.carries = lambda _source, send: not isinstance(send.payload, Cycle)
    rig.run(2.0)
    rig.carries = lambda _source, _send: True
    rig.forget()
    rig.run(10.0)
    assert rig.members["b"].status().cycle_epoch > epoch
    assert cycles(rig)


def test_f2_what_vanishes_with_the_cycle_is_found_by_the_sweep(rig: Rig) -> None:
    rig.tell("a", SendFailed("b", Post("p", partition_of("b"), "x")))
    rig.carries = lambda _source, send: not isinstance(send.payload, Cycle)
    rig.run(4.0)
    (sweep, *_) = rig.taken("b", Sweep)
    assert partition_of("b") in sweep.partitions


def test_f2_own_trackers_are_put_on_board_again_until_they_have_come_back(rig: Rig) -> None:
    tracker = Tracker("x", "t", rig.store_time + 500.0, partition_of("b"))
    rig.tell("b", Committed(trackers=(tracker,)))
    rig.carries = lambda _source, send: not isinstance(send.payload, Cycle)
    rig.run(3.0)
    rig.carries = lambda _source, _send: True
    rig.run(20.0)
    assert all(rig.members[name].status().trackers == 1 for name in NAMES)


def test_f3_of_two_cycles_one_remains_and_no_tracker_rises_again(rig: Rig) -> None:
    tracker = Tracker("x", "t", rig.store_time + 1.0, partition_of("b"))
    rig.tell("b", Committed(trackers=(tracker,)))
    rig.run(2.0)
    old = cycles(rig)[-1]
    rig.tell("c", Received(old._replace(epoch=old.epoch + 5, starter="c", hop=0)))
    rig.tell("a", Received(old._replace(epoch=old.epoch + 5, starter="a", hop=0)))
    rig.run(6.0)
    rig.forget()
    rig.run(4.0)
    assert len({(cycle.epoch, cycle.starter) for cycle in cycles(rig)}) == 1
    assert len({cycle.hop for cycle in cycles(rig)}) == len(cycles(rig))
    assert processed(rig, "b") == []


def test_f4_a_split_leaves_the_side_without_the_store_idle_not_wrong() -> None:
    faults = Faults(faults=(Fault(2.0, FaultType.SPLIT, 9.0, ("a",)),))
    sent: list[Sent] = [Sent(f"s{number % 8}", 1, at=number / 4) for number in range(44)]
    history = simulate(Sum, seed=4, messages=sent, faults=faults)
    assert sum(total(history.executions, f"s{number}") for number in range(8)) == 44
    cut_off = [line for line in history.lines if line.who == "a1" and 2.1 < line.at < 11.0]
    assert any(line.what == "loses partition" for line in cut_off)
    assert not any(line.what == "commits" for line in cut_off)


def test_f5_a_post_that_arrives_twice_is_a_second_look_and_nothing_more(rig: Rig) -> None:
    post = Post("p", partition_of("b"), "x")
    rig.tell("b", Received(post))
    rig.tell("a", SendFailed("b", post))
    rig.run(5.0)
    assert [each.id for each in processed(rig, "b")] == ["p", "p"]
    rig.forget()
    rig.run(5.0)
    assert not any(cycle.posts for cycle in cycles(rig)), "and it does not go round for ever"


def test_f6_a_task_whose_dispatch_was_lost_in_a_crash_is_handed_out_by_the_adopter() -> None:
    faults = Faults(
        workers=("a", "b"), faults=tuple(Fault(at, FaultType.KILL, 3.0, ("a",)) for at in (1, 5, 9))
    )
    for seed in range(12):
        simulate(seed=seed, faults=faults)


def test_f7_copies_count_once_and_a_timer_nobody_watches_is_found_at_adoption(rig: Rig) -> None:
    rig.dead.update(NAMES)
    rig.run(30.0)
    rig.join("d")
    rig.forget()
    rig.run(1.0)
    assert [each.partition for each in rig.taken("d", Own)] == list(range(6)), "each is read first"


def test_f8_a_timer_is_late_by_the_clock_duty_and_not_by_the_cycle(rig: Rig) -> None:
    rig.carries = lambda _source, send: not isinstance(send.payload, Cycle)
    tracker = Tracker("x", "t", rig.store_time + 1.0, partition_of("b"))
    rig.tell("b", Committed(trackers=(tracker,)))
    rig.run(1.31)
    assert [each.tracker for each in processed(rig, "b")] == [tracker]


def test_f9_a_joining_worker_takes_its_alphabetical_place_in_the_next_round(rig: Rig) -> None:
    rig.join("bb")
    rig.run(5.0)
    rig.forget()
    rig.run(3.0)
    sent = [each for each in rig.actions["b"] if isinstance(each, Send)]
    assert {each.to for each in sent if isinstance(each.payload, Cycle)} == {"bb"}


def test_f10_a_cycle_carries_what_is_new_and_not_all_trackers(rig: Rig) -> None:
    many = tuple(
        Tracker("x", f"t{number}", rig.store_time + 900.0, partition_of("b"))
        for number in range(1_200)
    )
    rig.tell("b", Committed(trackers=many))
    rig.run(20.0)
    assert max(len(cycle.trackers) for cycle in cycles(rig)) <= 500
    assert all(rig.members[name].status().trackers == 1_200 for name in NAMES)
    rig.forget()
    rig.run(5.0)
    assert cycles(rig)
    assert not any(cycle.trackers for cycle in cycles(rig))


def test_c12_a_wake_up_for_a_partition_that_has_moved_is_passed_on(rig: Rig) -> None:
    number = partition_of("b")
    rig.tell("a", Received(Post("p", number, "x")))
    rig.run(0.1)
    assert [each.id for each in processed(rig, "b")] == ["p"]


def test_c12_a_wake_up_for_what_is_about_to_be_owned_waits(rig: Rig) -> None:
    number = partition_of("b")
    rig.tell("b", Fenced(number))
    rig.tell("b", Received(Post("p", number, "x")))
    rig.forget()
    rig.run(5.0)
    assert "p" in [each.id for each in processed(rig, "b")]


def test_a_wake_up_on_board_for_nobody_is_buried_by_whoever_sees_it_last(rig: Rig) -> None:
    rig.run(2.0)
    cycle = cycles(rig)[-1]
    old = Carried(Post("p", partition_of("c"), "x"), 40)
    rig.forget()
    rig.tell("b", Received(cycle._replace(epoch=cycle.epoch + 9, posts=(old,))))
    rig.step("b")
    assert not any(each.posts for each in cycles(rig))


def test_a_wake_up_for_a_partition_that_is_not_there_is_buried_in_the_end(rig: Rig) -> None:
    rig.tell("b", Received(Post("p", 64, "x")))
    rig.run(60.0)
    buried = [each.post.id for name in NAMES for each in rig.taken(name, Bury)]
    assert buried == ["p"]


def test_without_cycles_nothing_piles_up_and_the_sweep_finds_all() -> None:
    rig = Rig("a", "b", partitions=6, cycle=None)
    rig.run(20.0)
    rig.forget()
    number = desired_owners(("a", "b"), 6).index("b")
    tracker = Tracker("x", "t", rig.store_time + 500.0, number)
    rig.tell("a", SendFailed("b", Post("p", number, "x")))
    rig.tell("a", Committed(trackers=(tracker,)))
    rig.run(10.0)
    assert rig.members["a"]._rounds.queued == 0
    assert not any(isinstance(each, Send) for each in rig.actions["a"])
    assert rig.taken("b", Sweep)


def test_one_long_pause_does_not_spoil_the_watchdog(rig: Rig) -> None:
    rig.dead.update(NAMES)
    rig.run(600.0)
    rig.dead.clear()
    rig.run(20.0)
    rig.forget()
    rig.carries = lambda _source, send: not isinstance(send.payload, Cycle)
    rig.run(2.0)
    rig.carries = lambda _source, _send: True
    rig.forget()
    rig.run(20.0)
    assert len(cycles(rig)) > 10
