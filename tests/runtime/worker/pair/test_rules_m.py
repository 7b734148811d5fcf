"""The rules of the pair one by one: M1 to M16; the others are in test_rules_m17.py.

M1 to M4, M6, M8, M9 and M11 are checked for the table itself in test_machine.py, M13 (interrupts)
in test_interrupts.py, M14 (threads that cannot start) in tests/runtime/lanes, forks of lanes in
tests/runtime/test_fork.py. Here the rules are seen from outside.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorflow as af
from actorflow.behaviours import Bounded, Coalesce, Linger, Queue, Unique
from actorflow.runtime.worker.pair.requests import request_stop
from actorflow.runtime.worker.pair.states import PairState, StopMode, Unexpected
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.probe import Caller, Probe, is_locked, until_accumulated


@pytest.fixture
def lane() -> ManualLane:
    return ManualLane()


def nothing(_batch: Any, state: Any) -> Any:
    return state


def law(worker: af.WorkerRef) -> None:
    """Check that all accepted messages are accounted for."""
    s = worker.statistics()
    parts = (
        s.processed, s.failed, s.replaced, s.merged, s.dropped, s.expired, s.dead_lettered,
        s.held, s.in_flight,
    )  # fmt: skip
    assert s.accepted == sum(parts), s


def test_m3_a_push_takes_the_slow_path_exactly_when_it_must(lane: ManualLane) -> None:
    worker = af.spawn(nothing, executor=lane)
    assert worker.actor.idle
    worker.push(1)
    assert not worker.actor.idle, "the executor has been woken"
    lane.run()
    assert worker.actor.idle
    worker.stop()
    assert worker.actor.idle, "each later push must be refused"


def test_m3_the_token_is_out_while_all_seats_are_busy(lane: ManualLane) -> None:
    worker = af.spawn(lambda _batch, _state: None, executor=lane, concurrency=2)
    worker.actor.offers.offer(1)
    assert worker.actor.idle, "there is room for a second batch"
    for message in (2, 3):
        worker.actor.offers.offer(message)
    assert not worker.actor.idle
    lane.run()
    assert worker.actor.idle
    assert worker.statistics().processed == 3
    worker.stop()


def test_m5_each_ticket_is_resolved_once_whatever_becomes_of_its_message(lane: ManualLane) -> None:
    worker = af.spawn(
        nothing, executor=lane, behaviour=Bounded(Unique(key=str), 2, when_full="drop_oldest")
    )
    worker.push(0)
    lane.run()
    worker.push(1)
    futures = [worker.ask(message, block=False) for message in ("a", "a", "b", "c")]
    lane.run()
    outcomes = []
    for future in futures:
        try:
            outcomes.append(future.get(timeout=0))
        except af.Displaced as error:
            outcomes.append(type(error))
    assert outcomes == [af.Replaced, af.Dropped, None, None]
    law(worker)
    worker.stop()


@pytest.mark.parametrize("crash", [False, True])
def test_m6_after_the_end_every_call_returns_or_raises_at_once(
    lane: ManualLane,
    crash: bool,  # noqa: FBT001
) -> None:
    def job(_batch: Any, _state: Any) -> None:
        if crash:
            raise ValueError("bad")

    worker = af.spawn(job, executor=lane)
    worker.push(1)
    lane.run()
    worker.stop()
    assert worker.status is PairState.DEAD
    for call in (worker.push, worker.push_ack, worker.push_block, worker.ask, worker.tell):
        with pytest.raises(af.WorkerStopped):
            call(1)
    with pytest.raises(af.WorkerStopped):
        worker.executor.ask("hello")
    assert not worker.stop()
    law(worker)


def test_m7_a_batch_that_is_cut_off_changes_nothing_any_more(pool_probe: Probe) -> None:
    worker = pool_probe.spawn(state=0)
    caller = Caller(worker.push_block, "slow")
    pool_probe.then(7)
    pool_probe.begun()
    worker.stop(now=True)
    assert isinstance(caller.wait().error, af.WorkerStopped)
    seen = worker.statistics()
    pool_probe.let_end()
    assert worker.statistics() == dataclasses.replace(seen, busy=worker.statistics().busy)
    assert (seen.failed, seen.processed, worker.actor.value) == (1, 0, 0)
    law(worker)


def test_m8_batches_leave_in_order_and_at_most_n_are_in_flight(pool_probe: Probe) -> None:
    worker = pool_probe.spawn(concurrency=2)
    worker.push(1)
    assert pool_probe.begun() == [1]
    worker.push(2)
    assert pool_probe.begun() == [2]
    for message in (3, 4):
        worker.push(message)
    until_accumulated(worker, 2)
    assert worker.statistics().in_flight == 2
    pool_probe.let_end()
    assert pool_probe.begun() == [3, 4]


def test_m9_mail_is_served_between_batches_and_before_the_next(lane: ManualLane) -> None:
    seen: list[Any] = []

    class Job(af.Executor):
        def handle(self, batch: Any) -> None:
            seen.append(batch)
            if len(seen) == 1:
                worker.push(2)
                worker.executor.tell("mail")

        def handle_message(self, message: Any) -> None:
            seen.append(message)

    worker = af.spawn(Job, executor=lane)
    worker.push(1)
    lane.run()
    assert seen == [[1], "mail", [2]]
    worker.stop()


def test_m2_an_event_without_a_row_is_raised_and_not_taken_for_the_behaviours_error(
    lane: ManualLane,
) -> None:
    worker = af.spawn(lambda _batch, _state: None, executor=lane)
    with pytest.raises(Unexpected, match="REVIVED came in state IDLE"):
        worker.actor.lifecycle.revive()
    worker.stop(now=True)


def test_m9_no_batch_begins_while_mail_is_served_though_there_are_seats(lane: ManualLane) -> None:
    seen: list[Any] = []
    worker = af.spawn(lambda batch, _state: seen.append(batch), executor=lane, concurrency=3)
    asked = worker.executor.ask("hello", block=False)
    pair = worker.actor
    executor = pair.lifecycle.executor
    receive = executor.receive

    def serving(message: Any) -> Any:
        worker.push_ack(1)
        worker.push(2)
        seen.append((message, pair.active))
        return receive(message)

    executor.receive = serving  # type: ignore[method-assign]
    lane.run()
    asked.get(timeout=0)
    assert seen[0] == ("hello", 1)
    assert sorted(message for batch in seen[1:] for message in batch) == [1, 2]
    worker.stop()


def test_m10_a_stop_answers_or_refuses_all_mail(lane: ManualLane) -> None:
    for mode, answered in ((StopMode.DRAIN, True), (StopMode.FINISH, True), (StopMode.NOW, False)):
        worker = af.spawn(nothing, executor=lane, state=5)
        asked = worker.executor.proxy().state
        request_stop(worker.actor, mode)
        lane.run()
        if answered:
            assert asked.get(timeout=0) == 5
        else:
            with pytest.raises(af.WorkerStopped):
                asked.get(timeout=0)
        assert worker.status is PairState.DEAD


def test_m11_a_pair_has_one_timer_and_only_while_it_waits(lane: ManualLane) -> None:
    clock = VirtualClock()
    worker = af.spawn(nothing, executor=lane, clock=clock, behaviour=Linger(Queue(), 1.0, size=3))
    for message in range(2):
        worker.push(message)
        assert worker.status is PairState.WAITING
    assert clock.next_time() == 1.0
    worker.push(3)  # full: it need not wait any longer
    assert worker.status is PairState.RUNNING
    assert clock.next_time() is None
    lane.run()
    worker.push(4)
    worker.stop(now=True)
    assert clock.next_time() is None


def test_m11_mail_to_a_waiting_pair_with_batches_under_way_cancels_its_timer(
    lane: ManualLane,
) -> None:
    clock = VirtualClock()
    worker = af.spawn(
        lambda _batch, _state: None, executor=lane, clock=clock, concurrency=2, throttle=1.0
    )
    worker.push_ack(1)
    worker.push_ack(2)
    assert (worker.status, worker.actor.active) == (PairState.WAITING, 1)
    asked = worker.executor.ask("hello", block=False)
    assert clock.next_time() is None
    lane.run()
    assert asked.get(timeout=0) is None
    clock.advance(1.0)
    lane.run()
    assert worker.statistics().processed == 2
    worker.stop()


@pytest.mark.parametrize("error", [ValueError("bad key"), SystemExit(3)])
def test_m12_what_a_key_function_raises_is_an_event_and_leaves_the_lock_free(
    lane: ManualLane, error: BaseException
) -> None:
    def key(message: Any) -> Any:
        if message == "bad":
            raise error
        return message

    worker = af.spawn(nothing, executor=lane, behaviour=Unique(key=key))
    worker.push("bad")
    lane.run()
    assert not is_locked(worker.actor.lock)
    if worker.is_alive():
        worker.push_ack("good")
        lane.run()
        assert worker.statistics().processed == 1
    law(worker)
    worker.stop()


def test_m15_each_batch_knows_why_it_left(lane: ManualLane) -> None:
    clock = VirtualClock()
    seen: list[str] = []

    def job(_batch: Any, _state: Any) -> None:
        batch = af.current_batch()
        assert batch is not None
        seen.append(batch.reason.value)

    worker = af.spawn(job, executor=lane, clock=clock, behaviour=Linger(Queue(), 1.0, size=2))
    worker.push_many([1, 2])
    lane.run()
    worker.push(3)
    clock.advance(1.0)
    lane.run()
    worker.push(4)
    worker.stop()
    assert seen == ["size", "time", "drain"]
    assert worker.statistics().reasons == {"size": 1, "time": 1, "drain": 1}


@given(
    st.lists(
        st.sampled_from(["push", "ack", "step", "step", "fail", "tick", "stop", "now"]), max_size=12
    ),
    st.sampled_from(
        [
            Queue,
            lambda: Unique(key=lambda n: n % 3),
            lambda: Bounded(Queue(), 2),
            lambda: Bounded(Queue(), 2, when_full="drop_oldest"),
            lambda: Linger(Queue(), 1.5, size=3),
            lambda: Coalesce(key=lambda n: n % 2, merge=lambda a, b: a + b),
        ]
    ),
    st.sampled_from(["drop", "isolate", "retry"]),
)
def test_m16_the_statistics_add_up_after_every_step(  # noqa: C901 - a list of steps
    steps: list[str], behaviour: Any, on_failure: str
) -> None:
    lane, clock, failures = ManualLane(), VirtualClock(), [0]

    def job(_batch: Any, _state: Any) -> None:
        law(worker)
        if failures[0]:
            failures[0] -= 1
            raise ValueError("asked for")

    worker = af.spawn(job, executor=lane, clock=clock, behaviour=behaviour(), on_failure=on_failure)
    for number, step in enumerate(steps):
        try:
            if step == "push":
                worker.push(number)
            elif step == "ack":
                worker.push_ack(number)
        except (af.WorkerStopped, af.Rejected):
            pass
        if step == "step":
            lane.step()
        elif step == "fail":
            failures[0] += 1
        elif step == "tick":
            clock.advance(1.0)
        elif step in ("stop", "now"):
            worker.stop(block=False, now=step == "now")
        law(worker)
    worker.stop(now=True)
    law(worker)
