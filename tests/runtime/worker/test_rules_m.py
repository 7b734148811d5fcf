"""The rules of the pair, M1 to M24, one by one.

M1 to M4, M6, M8, M9 and M11 are checked for the table itself in test_machine.py, M13 (interrupts)
in test_interrupts.py, M14 (threads that cannot start) in tests/runtime/lanes, forks of lanes in
tests/runtime/test_fork.py. Here the rules are seen from outside.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorflow as af
from actorflow.runtime.worker.machine import PairState, StopMode
from actorflow.testing import ManualLane, VirtualClock
from behaviours import Bounded, Coalesce, Linger, Queue, Unique
from tests.runtime.test_fork import in_child
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, ended, until_accumulated


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
    worker.actor.offer(1)
    assert worker.actor.idle, "there is room for a second batch"
    for message in (2, 3):
        worker.actor.offer(message)
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


def test_m9_no_batch_begins_while_mail_is_served_though_there_are_seats(lane: ManualLane) -> None:
    seen: list[Any] = []
    worker = af.spawn(lambda batch, _state: seen.append(batch), executor=lane, concurrency=3)
    asked = worker.executor.ask("hello", block=False)
    pair = worker.actor
    executor = pair.life.executor
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
        worker.actor.life.request_stop(mode)
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
    assert not worker.actor.lock.locked()
    if worker.is_alive():
        worker.push_ack("good")
        lane.run()
        assert worker.statistics().processed == 1
    law(worker)
    worker.stop()


def test_m15_each_batch_knows_why_it_left(lane: ManualLane) -> None:
    clock, seen = VirtualClock(), []

    def job(_batch: Any, _state: Any) -> None:
        batch = af.current_batch()
        assert batch is not None
        seen.append(batch.reason.value)

    worker = af.spawn(job, executor=lane, clock=clock, behaviour=Linger(Queue(), 1.0, size=2))
    for step in ("push", "push", "run", "push", "wait", "run", "push", "stop"):
        {"push": lambda: worker.push(1), "run": lane.run, "wait": lambda: clock.advance(1.0),
         "stop": worker.stop}[step]()  # fmt: skip
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
def test_m16_the_statistics_add_up_after_every_step(
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


def test_m17_answers_go_to_their_own_callers_and_an_exception_fails_one(lane: ManualLane) -> None:
    def job(batch: list[int], state: Any) -> af.Answers:
        return af.Answers(state, [n * 2 if n % 2 else ValueError(n) for n in batch])

    worker = af.spawn(job, executor=lane)
    worker.push(1)
    futures = [worker.ask(n, block=False) for n in (1, 2, 3)]
    lane.run()
    assert [futures[0].get(timeout=0), futures[2].get(timeout=0)] == [2, 6]
    with pytest.raises(ValueError, match="2"):
        futures[1].get(timeout=0)
    assert (worker.statistics().processed, worker.statistics().failed) == (3, 1)
    worker.stop()


def test_m18_what_was_merged_shares_an_answer_and_what_was_replaced_has_none(
    lane: ManualLane,
) -> None:
    def job(batch: list[Any], state: Any) -> af.Answers:
        return af.Answers(state, batch)

    merging = af.spawn(
        job, executor=lane, behaviour=Coalesce(key=lambda _: 1, merge=lambda a, b: a + b)
    )
    replacing = af.spawn(job, executor=lane, behaviour=Unique(key=lambda _: 1))
    for worker in (merging, replacing):
        worker.push(0)
        asked = [worker.ask(n, block=False) for n in (1, 2)]
        lane.run()
        if worker is merging:
            assert [one.get(timeout=0) for one in asked] == [3, 3]
        else:
            with pytest.raises(af.Replaced):
                asked[0].get(timeout=0)
            assert asked[1].get(timeout=0) == 2
        worker.stop()


def test_m19_blocked_pushers_are_woken_in_order_as_many_as_there_is_room_for(
    pool_probe: Probe,
) -> None:
    worker = pool_probe.spawn(behaviour=Bounded(Queue(), 2, when_full="block"))
    worker.push("busy")
    pool_probe.begun()
    for message in (1, 2):
        worker.push(message)
    callers = []
    for message in range(3, 8):
        callers.append(Caller(worker.push, message))
        waiting = worker.actor
        pause = threading.Event()
        while len(waiting._blocked or ()) < len(callers):
            pause.wait(0.0005)
    for expected in ([1, 2], [3, 4], [5, 6], [7]):
        pool_probe.let_end()
        assert pool_probe.begun() == expected
    for caller in callers:
        caller.value()


def test_m20_watchers_hear_once_after_the_change_and_never_under_the_lock(lane: ManualLane) -> None:
    seen: list[Any] = []
    worker = af.spawn(nothing, executor=lane)
    pair = worker.actor

    def notice(who: str) -> Any:
        return lambda _ref, reason: seen.append((who, pair.state, pair.lock.locked(), reason))

    worker.watch(notice("worker"))
    pair.life.executor.watch(notice("executor"))
    worker.stop()
    worker.stop(now=True)
    assert sorted(seen, key=lambda one: str(one[0])) == [
        (who, PairState.DEAD, False, af.Normal()) for who in ("executor", "worker")
    ]


def test_m21_a_log_handler_may_push_to_the_worker_that_logs(lane: ManualLane) -> None:
    worker = af.spawn(nothing, executor=lane, behaviour=Bounded(Unique(key=len), 1))
    locked = []

    class Handler(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            locked.append(worker.actor.lock.locked())
            try:
                worker.push([1])
            except af.WorkerStopped:
                locked.append(False)

    handler = Handler()
    logging.getLogger("actorflow").addHandler(handler)
    try:
        worker.push([1])
        worker.push(7)  # has no length
        worker.push(8)
        lane.run()
        worker.push([1])
        worker.stop(now=True)
    finally:
        logging.getLogger("actorflow").removeHandler(handler)
    assert locked
    assert not any(locked)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def test_m22_an_error_that_cannot_be_printed_is_an_error_with_a_text(lane: ManualLane) -> None:
    error = Unprintable()

    def job(_batch: Any, _state: Any) -> None:
        raise error

    worker = af.spawn(job, executor=lane)
    asked = worker.ask(1, block=False)
    lane.run()
    with pytest.raises(Unprintable):
        asked.get(timeout=0)
    with pytest.raises(af.WorkerCrashed, match="Unprintable"):
        worker.push(2)


@pytest.mark.parametrize(
    "error", [af.WorkerStopped("mine"), af.Dropped("mine"), af.Rejected("mine"), af.Full(3)]
)
def test_m23_our_own_errors_raised_by_a_job_are_errors_of_the_job(
    pool_probe: Probe, error: Exception
) -> None:
    pool_probe.then(error)
    pool_probe.open()
    worker = pool_probe.spawn()
    with pytest.raises(type(error)) as caught:
        worker.push_block(1)
    assert caught.value is error
    assert ended(worker) == af.Crash(error)


def test_a_revival_of_a_pair_that_was_stopped_meanwhile_does_not_hang(lane: ManualLane) -> None:
    class Job(af.Executor):
        def on_start(self) -> None:
            pass

        def handle(self, batch: Any) -> None:
            raise ValueError(batch)

    with af.Supervisor([af.Child("a", af.Worker("a", Job))], max_restarts=0) as tree:
        worker = tree.which_children()[0].ref
        life = worker.actor.life
        life.kill()
        caller = Caller(life.revive)
        assert caller.done.wait(PATIENCE)
        assert isinstance(caller.error, af.StartFailed)


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@forks
@pytest.mark.parametrize(
    "options", ["", "executor='thread'", "behaviour=af_unique", "concurrency=2"]
)
def test_m24_every_worker_of_the_parent_is_dead_in_a_child_and_says_so(options: str) -> None:
    in_child(
        f"""
        from behaviours import Unique
        af_unique = Unique(key=str)
        busy, go_on = threading.Event(), threading.Event()

        def job(batch, state):
            busy.set()
            assert go_on.wait(30)

        worker = af.spawn(job, name="parent's", {options})
        worker.push(1)
        assert busy.wait(20)
        worker.push(2)
        holds = threading.Thread(target=worker.actor.lock.acquire)
        holds.start()
        holds.join()  # as if another thread were inside while this one forks

        def check():
            text = "it runs in the parent process, and this is a forked child"
            calls = [worker.push, worker.push_block, worker.push_ack, worker.ask, worker.tell,
                     worker.executor.ask, lambda message: worker.push_many([message])]
            for call in calls:
                try:
                    call(3)
                except af.WorkerStopped as error:
                    assert text in str(error), error
                else:
                    raise AssertionError(call)
            assert not worker.is_alive()
            assert not worker.stop(), worker.exit_reason
            assert not worker.stop(now=True)
            assert worker.statistics().accepted == 2
            assert af.whereis("parent's") is None
            with af.spawn(lambda batch, state: None, name="parent's") as other:
                other.push_block(1)

        fork(check)
        worker.actor.lock.release()
        go_on.set()
        worker.push_block(4)
        worker.stop()
        """
    )


@forks
def test_m24_every_actor_of_the_parent_is_dead_in_a_child_and_says_so() -> None:
    in_child(
        """
        import pykka

        class Greeter(af.Actor):
            def on_receive(self, message):
                return message

        def supervised():
            tree = af.Supervisor([af.Child("w", af.Worker("w", lambda batch, state: None))])
            return tree.start() if hasattr(tree, "start") else tree.__enter__()

        greeter, tree = Greeter.start(), supervised()
        assert greeter.ask("a") == "a"

        def check():
            text = "it runs in the parent process, and this is a forked child"
            assert not pykka.ActorRegistry.get_all()
            for call in (greeter.ask, greeter.tell):
                try:
                    call("b")
                except pykka.ActorDeadError as error:
                    assert text in str(error), error
                else:
                    raise AssertionError(call)
            assert not greeter.is_alive()
            greeter.stop()
            assert not tree.is_alive()
            tree.stop()
            other = Greeter.start()
            assert other.ask("c") == "c"
            other.stop()

        fork(check)
        assert greeter.ask("d") == "d"
        greeter.stop()
        tree.stop()
        """
    )
