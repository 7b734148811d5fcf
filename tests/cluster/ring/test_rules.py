"""The worker of the ring by its rules: R1-R16 and the resolutions B2-B13."""

from __future__ import annotations

from typing import Any

import pytest

from actorflow.cluster.ring import (
    AskMap,
    Bury,
    Committed,
    Cycle,
    Leave,
    Member,
    Post,
    Process,
    Processed,
    Received,
    Register,
    Send,
    SendFailed,
    Tracker,
    TrackerMap,
    Verdict,
    desired_owners,
)
from actorflow.cluster.ring.messages import Carried, Noted
from tests.cluster.ring.rig import STORE, Rig, processed

NAMES = ("a", "b", "c")


@pytest.fixture
def rig() -> Rig:
    """Return three members that have settled, and whose cycle goes round."""
    made = Rig(*NAMES, partitions=6)
    made.run(20.0)
    made.forget()
    return made


def partition_of(name: str, ring: tuple[str, ...] = NAMES) -> int:
    """Return a partition that a member owns."""
    return desired_owners(ring, 6).index(name)


def post_for(name: str, number: int = 1, **fields: Any) -> Post:
    return Post(f"p{number}", partition_of(name), f"x{number}", **fields)


def tracker_for(rig: Rig, name: str, due: float, timer: str = "t") -> Tracker:
    return Tracker("x", timer, rig.store_time + due, partition_of(name))


def cycles(rig: Rig, name: str) -> list[Cycle]:
    """Return the cycles that a member has sent."""
    sent = [each.payload for each in rig.actions[name] if isinstance(each, Send)]
    return [each for each in sent if isinstance(each, Cycle)]


def posts(rig: Rig, name: str) -> list[tuple[str, Post]]:
    """Return the wake-ups that a member has sent, each with its receiver."""
    return [
        (each.to, each.payload)
        for each in rig.actions[name]
        if isinstance(each, Send) and isinstance(each.payload, Post)
    ]


# Steps.


def test_r1_a_worker_is_idle_until_a_message_a_cycle_or_its_clock(rig: Rig) -> None:
    rig.run(0.001)
    assert rig.step("a") > 0
    rig.tell("a", Received(post_for("a")))
    assert rig.step("a") == 0, "a message"
    assert rig.step("a") > 0
    rig.tell("a", Committed(trackers=(tracker_for(rig, "a", 0.1),)))
    assert rig.step("a") <= 0.3 + 1e-9, "its clock"


def test_r2_clock_duty_comes_first(rig: Rig) -> None:
    rig.tell("a", Committed(trackers=(tracker_for(rig, "a", 0.0),)))
    rig.tell("a", Received(post_for("a")))
    rig.now += 0.31
    step = rig.members["a"].step(rig.now)
    assert [each for each in step.actions if isinstance(each, Process)] == [Process(post_for("a"))]
    assert rig.members["a"].status().queued == 1, "the timer's message is behind it"


def test_r2_clock_duty_is_not_done_twice_within_its_time() -> None:
    rig = Rig("a")
    rig.run(1.0)
    rig.step("a")
    rig.now += 0.31
    rig.step("a")
    rig.tell("a", Committed(trackers=(Tracker("x", "t", rig.store_time, 0),)))
    rig.forget()
    rig.now += 0.2
    rig.step("a")
    assert processed(rig, "a") == []
    rig.now += 0.11
    rig.step("a")
    assert [each.execution for each in processed(rig, "a")] == ["x"]


def test_r3_a_step_processes_one_piece_of_work(rig: Rig) -> None:
    for number in range(3):
        rig.tell("a", Received(post_for("a", number)))
    rig.step("a")
    assert [each.id for each in processed(rig, "a")] == ["p0"]
    rig.step("a")
    assert [each.id for each in processed(rig, "a")] == ["p1"]


def test_r4_after_work_there_is_no_sleep_and_else_21_ms_at_least(rig: Rig) -> None:
    rig.tell("a", Received(post_for("a")))
    assert rig.step("a") == 0.0
    assert rig.step("a") >= 0.021


def test_b2_no_polling_an_idle_worker_sleeps_until_something_is_due() -> None:
    rig = Rig("a", lease=60.0, sweep=50.0)
    rig.run(1.0)
    steps = 0
    while rig.now < 19.0:
        rig.run(rig.step("a") + 1e-6)
        steps += 1
    assert steps <= 4


# Messages.


def test_r5_a_message_whose_execution_is_not_found_waits_for_the_next_cycle(rig: Rig) -> None:
    rig.verdict = Verdict.NOT_FOUND
    rig.tell("b", Received(post_for("b")))
    rig.step("b")
    rig.verdict = None
    rig.run(2.0)
    carried = [each.post.id for cycle in cycles(rig, "b") for each in cycle.posts]
    assert "p1" in carried


def test_b6_a_message_that_creates_its_execution_does_not_go_round(rig: Rig) -> None:
    rig.verdict = Verdict.NOT_FOUND
    rig.tell("b", Received(post_for("b", creates=True)))
    rig.step("b")
    rig.verdict = Verdict.DONE
    rig.run(2.0)
    assert not any(cycle.posts for name in NAMES for cycle in cycles(rig, name))
    assert [each.id for each in processed(rig, "b")] == ["p1", "p1"]


def test_b6_a_message_that_nobody_can_use_is_given_up(rig: Rig) -> None:
    rig.verdict = Verdict.NOT_FOUND
    rig.tell("a", Received(post_for("a")))
    rig.run(120.0)
    buried = [each.post for name in NAMES for each in rig.taken(name, Bury)]
    assert [each.execution for each in buried] == ["x1"]
    rig.run(20.0)
    assert not any(cycle.posts for name in NAMES for cycle in cycles(rig, name))


def test_r6_b4_what_is_left_after_500_ms_comes_first_again(rig: Rig) -> None:
    rig.verdict = None
    for number in (1, 2):
        rig.tell("a", Received(post_for("a", number)))
    rig.step("a")
    rig.tell("a", Processed(post_for("a", 1), Verdict.LEFT))
    rig.step("a")
    assert [each.id for each in processed(rig, "a")] == ["p1", "p1"]


def test_r7_b3_a_message_whose_put_failed_is_run_again_and_nothing_of_it_goes_out(
    rig: Rig,
) -> None:
    rig.verdict = None
    rig.tell("a", Received(post_for("a")))
    rig.step("a")
    assert rig.tell("a", Processed(post_for("a"), Verdict.LOST_RACE)) == []
    rig.step("a")
    assert [each.id for each in processed(rig, "a")] == ["p1", "p1"]


def test_r8_nothing_is_dispatched_before_the_put(rig: Rig) -> None:
    rig.verdict = None
    rig.tell("a", Received(post_for("a")))
    rig.step("a")
    rig.tell("a", Processed(post_for("a"), Verdict.DONE))
    assert posts(rig, "a") == []
    rig.tell("a", Committed(posts=(post_for("b", 2),)))
    assert posts(rig, "a") == [("b", post_for("b", 2))]


def test_r9_new_trackers_go_with_the_next_cycle(rig: Rig) -> None:
    tracker = tracker_for(rig, "b", 100.0)
    rig.tell("b", Committed(trackers=(tracker,)))
    rig.run(3.0)
    assert tracker in [each.tracker for cycle in cycles(rig, "b") for each in cycle.trackers]
    assert all(rig.members[name].status().trackers == 1 for name in NAMES)


# The cycle.


def caught_cycle(rig: Rig, name: str) -> Cycle:
    """Return the next cycle that a member is sent, without delivering it."""
    caught: list[Cycle] = []

    def carries(_source: str, send: Send) -> bool:
        if send.to == name and isinstance(send.payload, Cycle):
            caught.append(send.payload)
            return False
        return True

    rig.carries = carries
    while not caught:
        rig.run(0.1)
    rig.carries = lambda _source, _send: True
    return caught[0]


def read(rig: Rig, name: str, cycle: Cycle) -> None:
    rig.forget()
    rig.tell(name, Received(cycle))
    rig.step(name)


def test_r10_b8_a_cycle_that_builds_on_other_trackers_makes_a_worker_ask_for_all(rig: Rig) -> None:
    cycle = caught_cycle(rig, "b")
    read(rig, "b", cycle._replace(base="0123"))
    assert Send("a", AskMap("b")) in rig.actions["b"]


def test_r10_a_full_map_is_the_answer(rig: Rig) -> None:
    tracker = tracker_for(rig, "a", 100.0)
    rig.tell("a", Committed(trackers=(tracker,)))
    rig.tell("a", Received(AskMap("b")))
    assert Send("b", TrackerMap((tracker,))) in rig.actions["a"]
    assert rig.members["b"].status().trackers == 1


def test_b8_a_joining_worker_learns_all_trackers(rig: Rig) -> None:
    many = tuple(tracker_for(rig, "a", 500.0 + number, f"t{number}") for number in range(20))
    rig.tell("a", Committed(trackers=many))
    rig.run(10.0)
    rig.join("bb")
    rig.run(20.0)
    assert rig.members["bb"].status().trackers == 20


def test_b8_a_settled_ring_asks_for_nothing(rig: Rig) -> None:
    many = tuple(tracker_for(rig, "a", 500.0 + number, f"t{number}") for number in range(20))
    rig.tell("a", Committed(trackers=many[:10]))
    rig.tell("c", Committed(trackers=many[10:]))
    rig.run(30.0)
    assert not any(
        isinstance(each, Send) and isinstance(each.payload, AskMap)
        for name in NAMES
        for each in rig.actions[name]
    )


def test_r11_the_worker_list_of_a_newer_cycle_makes_a_worker_ask_the_store(rig: Rig) -> None:
    cycle = caught_cycle(rig, "b")
    ring = ("a", "b", "c", "d")
    read(rig, "b", cycle._replace(ring=ring, as_of=rig.store_time + 1.0))
    (sent,) = cycles(rig, "b")
    assert sent.ring == ring
    rig.step("b")
    assert any(isinstance(each, Register) for each in rig.actions["b"])


def test_r11_new_trackers_and_messages_for_own_executions_are_copied(rig: Rig) -> None:
    tracker = tracker_for(rig, "c", 100.0)
    cycle = caught_cycle(rig, "b")
    given = cycle._replace(
        posts=(Carried(post_for("b", 1)), Carried(post_for("c", 2))),
        trackers=(Noted(tracker, "a"),),
    )
    read(rig, "b", given)
    rig.step("b")
    assert rig.members["b"].status().trackers == 1
    assert [each.id for each in processed(rig, "b")] == ["p1"]


def test_r12_queued_messages_and_trackers_are_put_on_board(rig: Rig) -> None:
    cycle = caught_cycle(rig, "b")
    tracker = tracker_for(rig, "b", 100.0)
    rig.tell("b", SendFailed("c", post_for("c", 7)))
    rig.tell("b", Committed(trackers=(tracker,)))
    read(rig, "b", cycle)
    (sent,) = cycles(rig, "b")
    assert [each.post.id for each in sent.posts] == ["p7"]
    assert [(each.tracker, each.origin) for each in sent.trackers] == [(tracker, "b")]


def test_r13_b9_a_tracker_goes_all_the_way_round_and_is_removed_at_its_origin(rig: Rig) -> None:
    tracker = tracker_for(rig, "b", 100.0)
    rig.tell("b", Committed(trackers=(tracker,)))
    rig.run(10.0)
    carried = [
        (cycle.sender, each.hops)
        for name in NAMES
        for cycle in cycles(rig, name)
        for each in cycle.trackers
    ]
    assert sorted(carried) == [("a", 2), ("b", 0), ("c", 1)]


def test_b9_a_tracker_whose_origin_has_left_is_removed_after_a_round(rig: Rig) -> None:
    tracker = tracker_for(rig, "b", 100.0)
    cycle = caught_cycle(rig, "b")
    read(rig, "b", cycle._replace(trackers=(Noted(tracker, "gone", 2), Noted(tracker, "gone", 1))))
    (sent,) = cycles(rig, "b")
    assert [each.hops for each in sent.trackers] == [2]


def test_r13_b5_a_message_is_removed_only_after_it_was_processed(rig: Rig) -> None:
    rig.verdict = None
    cycle = caught_cycle(rig, "b")
    read(rig, "b", cycle._replace(posts=(Carried(post_for("b")),)))
    (sent,) = cycles(rig, "b")
    assert [each.post.id for each in sent.posts] == ["p1"], "not yet"
    rig.run(2.5)
    assert [each.id for each in processed(rig, "b")] == ["p1"], "copied once"
    rig.tell("b", Processed(post_for("b"), Verdict.DONE))
    rig.run(3.0)
    rig.forget()
    rig.run(3.0)
    assert cycles(rig, "a")
    assert not any(cycle.posts for name in NAMES for cycle in cycles(rig, name))


def test_r14_the_cycle_goes_to_the_next_in_alphabetical_order(rig: Rig) -> None:
    rig.run(5.0)
    for name, follower in (("a", "b"), ("b", "c"), ("c", "a")):
        receivers = {
            each.to
            for each in rig.actions[name]
            if isinstance(each, Send) and isinstance(each.payload, Cycle)
        }
        assert receivers == {follower}


def test_r14_a_worker_that_cannot_be_reached_is_skipped(rig: Rig) -> None:
    rig.dead.add("b")
    cycle = caught_cycle(rig, "a")
    read(rig, "a", cycle)
    rig.run(1.5)
    assert [each.to for each in rig.actions["a"] if isinstance(each, Send)][:2] == ["b", "c"]


# Emission.


def test_r15_a_message_for_oneself_goes_into_the_own_queue(rig: Rig) -> None:
    rig.tell("a", Committed(posts=(post_for("a"),)))
    assert posts(rig, "a") == []
    rig.step("a")
    assert [each.id for each in processed(rig, "a")] == ["p1"]


def test_r15_a_message_for_another_is_posted_to_it(rig: Rig) -> None:
    rig.tell("a", Committed(posts=(post_for("c"),)))
    assert posts(rig, "a") == [("c", post_for("c"))]
    rig.run(0.001)
    assert [each.id for each in processed(rig, "c")] == ["p1"]


def test_r15_a_post_that_fails_goes_with_the_next_cycle(rig: Rig) -> None:
    rig.carries = lambda _source, send: None if isinstance(send.payload, Post) else True
    rig.tell("a", Committed(posts=(post_for("c"),)))
    rig.run(3.0)
    assert "p1" in [each.post.id for cycle in cycles(rig, "a") for each in cycle.posts]
    assert "p1" in [each.id for each in processed(rig, "c")]


def test_r15_before_anybody_is_known_a_message_waits_for_the_cycle() -> None:
    member = Member("a")
    assert member.receive(Committed(posts=(Post("p", 0, "x"),)), 0.0) == []
    assert member.executor_of(0) is None


# Timers.


def test_r16_the_executor_acts_on_a_timer_that_is_due_and_the_others_discard_it(rig: Rig) -> None:
    tracker = tracker_for(rig, "b", 3.0)
    rig.tell("b", Committed(trackers=(tracker,)))
    rig.run(2.9)
    assert processed(rig, "b") == []
    rig.run(0.5)
    assert [each.tracker for each in processed(rig, "b")] == [tracker]
    rig.run(5.0)
    assert all(rig.members[name].status().trackers == 0 for name in NAMES)
    assert processed(rig, "b") == [], "once, though others have woken it, too"


def test_c18_other_clockworkers_wake_the_owner_after_a_grace_and_never_act(rig: Rig) -> None:
    tracker = tracker_for(rig, "b", 3.0)
    rig.tell("a", Received(TrackerMap((tracker,))))
    rig.tell("c", Received(TrackerMap((tracker,))))
    rig.run(3.9)
    assert processed(rig, "b") == [], "the owner does not know of it"
    rig.run(2.0)
    assert [each.tracker for each in processed(rig, "b")] == [tracker]
    assert processed(rig, "a") == processed(rig, "c") == []


def test_b10_the_copies_of_several_clockworkers_count_once(rig: Rig) -> None:
    tracker = tracker_for(rig, "b", 3.0)
    rig.tell("b", Committed(trackers=(tracker,)))
    rig.run(8.0)
    woken = [to for name in ("a", "c") for to, _ in posts(rig, name)]
    assert woken == ["b", "b"]
    assert len(processed(rig, "b")) == 1


def test_b10_a_tracker_that_comes_back_after_it_was_discarded_is_refused(rig: Rig) -> None:
    tracker = tracker_for(rig, "b", 1.0)
    rig.tell("b", Committed(trackers=(tracker,)))
    rig.run(5.0)
    rig.forget()
    rig.tell("b", Received(TrackerMap((tracker,))))
    rig.run(30.0)
    rig.tell("b", Received(TrackerMap((tracker,))))
    rig.run(5.0)
    assert processed(rig, "b") == []


def test_b10_the_same_timer_set_for_another_moment_is_another(rig: Rig) -> None:
    first = tracker_for(rig, "b", 1.0)
    rig.tell("b", Committed(trackers=(first, first._replace(due=first.due + 1.0))))
    rig.run(5.0)
    assert len(processed(rig, "b")) == 2


@pytest.mark.parametrize("skew", [-5_000.0, 5_000.0])
def test_b11_due_is_judged_by_the_clock_of_the_store(skew: float) -> None:
    rig = Rig("a")
    rig.now = STORE + skew
    rig.join("a")
    rig.run(1.0)
    tracker = Tracker("x", "t", rig.store_time + 2.0, 0)
    rig.tell("a", Committed(trackers=(tracker,)))
    rig.run(1.99)
    assert processed(rig, "a") == []
    rig.run(0.4)
    assert len(processed(rig, "a")) == 1


# Membership.


def test_b7_the_first_in_the_alphabet_starts_the_cycle() -> None:
    rig = Rig(*NAMES)
    rig.run(8.0)
    assert {cycle.starter for name in NAMES for cycle in cycles(rig, name)} == {"a"}
    assert {cycle.epoch for name in NAMES for cycle in cycles(rig, name)} == {1}


def test_b7_the_higher_epoch_counts_and_a_copy_does_not(rig: Rig) -> None:
    cycle = caught_cycle(rig, "b")
    read(rig, "b", cycle)
    assert len(cycles(rig, "b")) == 1
    read(rig, "b", cycle)
    assert cycles(rig, "b") == [], "a copy"
    read(rig, "b", cycle._replace(epoch=cycle.epoch + 1, hop=0))
    assert len(cycles(rig, "b")) == 1
    read(rig, "b", cycle._replace(hop=cycle.hop + 50))
    assert cycles(rig, "b") == [], "outdated"


def test_b12_a_change_of_the_ring_is_another_epoch(rig: Rig) -> None:
    before = rig.members["a"].status().cycle_epoch
    rig.join("d")
    rig.run(10.0)
    assert rig.members["a"].status().cycle_epoch > before
    assert rig.members["a"].ring == ("a", "b", "c", "d")


def test_b12_join_leave_and_death_are_found_out(rig: Rig) -> None:
    def seen() -> tuple[str, ...]:
        return rig.members["a"].ring

    rig.tell("c", Leave())
    rig.run(3.0)
    assert seen() == ("a", "b")
    rig.dead.add("b")
    rig.run(12.0)
    assert seen() == ("a",)


def test_b13_the_executions_of_a_dead_executor_are_adopted(rig: Rig) -> None:
    number = partition_of("b")
    rig.dead.add("b")
    rig.run(12.0)
    heir = rig.owners[number]
    assert heir in ("a", "c")
    assert rig.members["a"].executor_of(number) == heir
    rig.forget()
    rig.tell("a", Committed(posts=(Post("p", number, "x"),)))
    rig.run(0.1)
    assert [each.id for each in processed(rig, str(heir))] == ["p"]
