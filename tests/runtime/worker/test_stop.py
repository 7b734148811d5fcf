"""How workers stop: drain, finish, now; from anywhere, as often as one likes; nobody hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Queue, Unique
from actorflow.runtime.worker.pair.states import StopMode
from tests.runtime.worker.probe import PATIENCE, Caller, FakeTicket, Probe, ended, until_accumulated

if TYPE_CHECKING:
    from actorflow.testing import ManualLane, VirtualClock


def collect(seen: list[Any], batch: Any, state: Any) -> None:
    seen.extend(batch)


def busy(probe: Probe, *, then: int = 1, **options: Any) -> tuple[af.WorkerRef, Caller, Caller]:
    """Return a worker that processes one message and has accumulated `then`, with their callers."""
    worker = probe.spawn(**options)
    first = Caller(worker.push_block, ("first", 0), timeout=None)
    assert probe.begun() == [("first", 0)]
    waiting = Caller(worker.push_block, ("waiting", 0), timeout=None)
    until_accumulated(worker, 1)
    worker.push_many([("more", number) for number in range(then - 1)])
    return worker, first, waiting


@pytest.mark.parametrize("behaviour", [Queue, Unique])
def test_drain_processes_what_is_accumulated(probe: Probe, behaviour: Any) -> None:
    worker, first, waiting = busy(probe, then=2, behaviour=behaviour)
    stop = Caller(worker.stop)
    probe.let_end()
    assert probe.begun() == [("waiting", 0), ("more", 0)]
    assert not stop.done.is_set()
    probe.let_end()
    assert stop.value() is True
    assert first.wait().error is None
    assert waiting.wait().error is None
    assert worker.exit_reason == af.Normal()
    assert worker.statistics().dropped == 0


def test_finish_discards_what_is_accumulated_and_says_so(probe: Probe) -> None:
    worker, first, waiting = busy(probe, then=3)
    stop = Caller(worker.stop, drain=False)
    assert not stop.done.is_set()
    probe.let_end()
    assert stop.value() is True
    assert first.wait().error is None
    assert type(waiting.wait().error) is af.WorkerStopped
    assert worker.statistics().dropped == 3
    assert len(probe.batches) == 1


def test_now_does_not_wait_for_the_job(probe: Probe) -> None:
    worker, first, waiting = busy(probe)
    assert worker.stop(now=True) is True
    assert worker.exit_reason == af.Normal()
    assert type(first.wait().error) is af.WorkerStopped
    assert type(waiting.wait().error) is af.WorkerStopped
    with pytest.raises(af.WorkerStopped):
        worker.push(1)
    probe.let_end()  # the job runs to its end, cut off
    assert worker.executor.actor_stopped.wait(PATIENCE)
    assert len(probe.batches) == 1


def test_now_ends_pending_asks_of_the_executor(pool_probe: Probe) -> None:
    worker, _, _ = busy(pool_probe)
    asked = worker.executor.ask("unanswered", block=False)
    worker.stop(now=True)
    with pytest.raises(af.WorkerStopped):
        asked.get(timeout=PATIENCE / 2)  # sooner than the job gives up
    with pytest.raises(af.WorkerStopped):
        worker.executor.ask("late", timeout=PATIENCE / 2)


def test_timeout_raises_and_cuts_the_worker_off(probe: Probe) -> None:
    worker, first, waiting = busy(probe)
    with pytest.raises(af.StopTimeout, match="1 messages"):
        worker.stop(timeout=0.001)
    assert worker.exit_reason is not None
    assert isinstance(first.wait().error, af.WorkerStopped)
    assert isinstance(waiting.wait().error, af.WorkerStopped)
    assert af.StopTimeout.__mro__.index(TimeoutError)


def test_not_blocking_returns_at_once(probe: Probe) -> None:
    worker, first, waiting = busy(probe)
    assert worker.stop(block=False) is True
    assert worker.exit_reason is None
    with pytest.raises(af.WorkerStopped, match="stopping"):
        worker.push(1)
    with pytest.raises(af.WorkerStopped, match="stopping"):
        worker.push_ack(1)
    with pytest.raises(af.WorkerStopped, match="stopping"):
        worker.push_block(1)
    with pytest.raises(af.WorkerStopped, match="stopping"):
        worker.push_many([1, 2])
    probe.open()
    assert ended(worker) == af.Normal()
    assert [first.wait().error, waiting.wait().error] == [None, None]
    assert probe.batches == [[("first", 0)], [("waiting", 0)]]


def test_drain_and_now_at_once_is_refused() -> None:
    with (
        af.spawn(lambda batch, state: None) as worker,
        pytest.raises(af.BadOption, match="choose one"),
    ):
        worker.stop(drain=True, now=True)


def test_stopping_twice_tells_that_it_was_gone(pool_probe: Probe) -> None:
    worker = pool_probe.spawn()
    assert worker.stop() is True
    assert worker.stop() is False
    assert worker.stop(now=True) is False
    assert worker.stop(block=False) is False


def test_two_threads_that_stop_at_once_are_both_answered(probe: Probe) -> None:
    worker, _, _ = busy(probe)
    stops = [Caller(worker.stop) for _ in range(5)]
    asked = worker.ask("late", block=False)
    probe.open()
    assert all(stop.value() in {True, False} for stop in stops)
    assert any(stop.result for stop in stops)
    try:  # before the stop it is accumulated, after it is refused; in any case it is answered
        asked.get(timeout=PATIENCE)
    except af.WorkerStopped:
        assert ["late"] not in probe.batches


def test_a_stop_can_be_made_harder_never_softer(probe: Probe) -> None:
    worker, _, waiting = busy(probe)
    worker.stop(block=False)
    worker.stop(drain=False, block=False)
    worker.stop(drain=True, block=False)  # too late
    probe.open()
    ended(worker)
    assert isinstance(waiting.wait().error, af.WorkerStopped)
    assert len(probe.batches) == 1


def test_the_modes_are_ordered() -> None:
    drain, finish, now = StopMode
    assert drain.stronger_than(None)
    assert finish.stronger_than(drain)
    assert now.stronger_than(finish)
    assert not drain.stronger_than(drain)
    assert not drain.stronger_than(now)


@pytest.mark.parametrize("options", [{}, {"drain": False}, {"now": True}, {"timeout": 0.0}])
def test_stop_from_within_the_job_returns_at_once(options: dict[str, Any]) -> None:
    answers: list[bool] = []

    def job(batch: Any, state: Any) -> None:
        answers.append(workers[0].stop(**options))

    workers = [af.spawn(job)]
    workers[0].push(1)
    assert ended(workers[0]) == af.Normal()
    assert answers == [True]


def test_stop_from_within_a_coroutine_job_returns_at_once() -> None:
    answers: list[bool] = []

    async def job(batch: Any, state: Any) -> None:
        answers.append(workers[0].stop())

    workers = [af.spawn(job)]
    workers[0].push(1)
    assert ended(workers[0]) == af.Normal()
    assert answers == [True]


def test_stop_from_on_start_and_on_idle(lane: ManualLane, clock: VirtualClock) -> None:
    class Quits(af.Executor):
        def on_start(self) -> None:
            found: Any = af.whereis("quits")
            assert found.stop() is True

        def handle(self, batch: Any) -> None:
            raise AssertionError("it stops before")

    for _ in range(20):
        worker = af.spawn(Quits, name="quits")
        assert ended(worker) == af.Normal()
        assert af.whereis("quits") is None

    class Bored(af.Executor):
        def handle(self, batch: Any) -> None: ...

        def on_idle(self) -> None:
            found: Any = af.whereis("bored")
            found.stop()

    worker = af.spawn(Bored, name="bored", executor=lane, clock=clock, idle_timeout=1.0)
    clock.advance(1.0)
    lane.run()
    assert worker.exit_reason == af.Normal()


def test_on_stop_runs_after_the_last_batch_and_its_failure_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log: list[Any] = []

    class Closes(af.Executor):
        def handle(self, batch: Any) -> None:
            log.extend(batch)

        def on_stop(self) -> None:
            log.append("closed")
            raise ValueError("cannot close")

    with af.spawn(Closes) as worker:
        worker.push_many([1, 2])
    assert log == [1, 2, "closed"]
    assert worker.exit_reason == af.Normal()
    assert "cannot close" in caplog.text


def test_drain_of_a_throttled_worker_keeps_the_throttle(
    lane: ManualLane, clock: VirtualClock
) -> None:
    calls: list[tuple[float, Any]] = []
    worker = af.spawn(
        lambda batch, state: calls.append((clock.now(), batch)),
        executor=lane, clock=clock, throttle=10.0,
    )  # fmt: skip
    for message in "abc":
        worker.push(message)
    lane.run()
    worker.stop(block=False)
    lane.run()
    assert worker.is_alive()
    clock.advance(10.0)
    lane.run()
    assert worker.exit_reason == af.Normal()
    assert calls == [(0.0, ["a"]), (10.0, ["b", "c"])]


def test_a_throttled_drain_can_be_cut_short(lane: ManualLane, clock: VirtualClock) -> None:
    worker = af.spawn(lambda batch, state: None, executor=lane, clock=clock, throttle=10.0)
    worker.push("a")
    lane.run()
    ticket = FakeTicket()
    worker.actor.offers.offer("b", ticket)
    worker.stop(block=False)
    lane.run()
    worker.stop(drain=False, block=False)
    lane.run()
    assert worker.exit_reason == af.Normal()
    assert isinstance(ticket.answer, af.WorkerStopped)
    clock.advance(100.0)
    assert len(lane) == 0


def test_no_timer_fires_after_the_end(lane: ManualLane, clock: VirtualClock) -> None:
    worker = af.spawn(
        lambda batch, state: None, executor=lane, clock=clock, throttle=10.0, idle_timeout=1.0
    )
    worker.push("a")
    lane.run()
    worker.push("b")
    worker.stop(now=True)
    lane.run()
    assert clock.next_time() is None
    assert len(lane) == 0


def test_a_push_that_races_with_the_stop_is_taken_or_refused_never_lost() -> None:
    for _ in range(200):
        seen: list[Any] = []
        worker = af.spawn(partial(collect, seen))
        accepted: list[int] = []
        barrier = threading.Barrier(2)

        def push(
            worker: af.WorkerRef = worker,
            accepted: list[int] = accepted,
            barrier: threading.Barrier = barrier,
        ) -> None:
            barrier.wait(PATIENCE)
            for number in range(50):
                try:
                    worker.push_ack(number)
                except af.WorkerStopped:
                    return
                accepted.append(number)

        pusher = Caller(push)
        barrier.wait(PATIENCE)
        worker.stop()
        pusher.value()
        assert seen == accepted


def test_the_very_same_object_pushed_late_by_two_is_refused_to_both(lane: ManualLane) -> None:
    worker = af.spawn(lambda batch, state: None, executor=lane)
    worker.push(1)
    worker.stop(block=False)
    for _ in range(2):
        with pytest.raises(af.WorkerStopped):
            worker.push(1)
    with pytest.raises(af.WorkerStopped):
        worker.push_many([1, 1])
    lane.run()
    assert worker.statistics().processed == 1
    assert worker.statistics().accepted == 1
    assert len(worker) == 0


def test_a_stop_between_a_push_and_its_wake_up_does_not_run_the_executor_twice(
    lane: ManualLane,
) -> None:
    seen: list[Any] = []
    worker = af.spawn(lambda batch, state: seen.append(batch), executor=lane)
    wake = worker.actor.wake

    def stopped_in_between(*arguments: Any) -> None:
        worker.stop(block=False)
        wake(*arguments)

    worker.actor.__dict__["wake"] = stopped_in_between
    try:
        worker.push(1)
    finally:
        del worker.actor.__dict__["wake"]
    assert len(lane) == 1
    lane.run()
    assert seen == [[1]]
    assert worker.exit_reason == af.Normal()


def test_stop_ends_pushers_that_wait_for_room(probe: Probe) -> None:
    worker = probe.spawn(behaviour=Bounded(Queue, 1, when_full="block"))
    worker.push(1)
    probe.begun()
    worker.push(2)
    pusher = Caller(worker.push, 3)
    stop = Caller(worker.stop)
    probe.open()
    stop.wait()
    error = pusher.wait().error
    assert error is None or isinstance(error, af.WorkerStopped)
    assert worker.statistics().processed == (3 if error is None else 2)


def test_a_behaviour_that_fails_when_taken_from_ends_the_worker_not_its_callers(
    probe: Probe,
) -> None:
    class Broken:
        def __init__(self) -> None:
            self.held: list[Any] = []

        def add(self, message: Any) -> None:
            self.held.append(message)

        def take(self) -> Any:
            raise ZeroDivisionError("take is broken")

        def __len__(self) -> int:
            return len(self.held)

    worker = probe.spawn(behaviour=Broken)
    caller = Caller(worker.push_block, 1, timeout=None)
    error = caller.wait().error
    assert isinstance(error, af.WorkerCrashed)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert isinstance(ended(worker), af.Crash)
    with pytest.raises(af.WorkerCrashed):
        worker.push(2)


def test_a_behaviour_that_fails_with_callers_inside_tells_them(lane: ManualLane) -> None:
    class Wearing(Queue):
        """Works once."""

        def take(self, limit: int | None = None, free: int = 1) -> Any:
            if worker.actor.core.batches:
                raise ZeroDivisionError("worn out")
            return super().take(limit)

    worker = af.spawn(lambda batch, state: None, behaviour=Wearing, executor=lane)
    worker.push("a")
    ticket = FakeTicket()
    worker.actor.offers.offer("b", ticket)
    lane.run()
    assert isinstance(ticket.answer, af.WorkerCrashed)
    assert isinstance(ticket.answer.__cause__, ZeroDivisionError)
    assert isinstance(worker.exit_reason, af.Crash)
    assert len(worker) == 0


def test_a_program_ends_although_a_thread_has_died_with_the_lock_of_a_worker() -> None:
    script = """
import threading
import actorflow as af

worker = af.spawn(lambda batch, state: None, name="locked")
worker.actor.core.raw += [1, 2]
dies = threading.Thread(target=worker.actor.lock.acquire)
dies.start()
dies.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0
    assert "count=2" in done.stderr


def test_a_program_that_ends_without_stopping_its_workers_says_what_is_lost() -> None:
    script = """
import threading
import actorflow as af

forever = threading.Event()
worker = af.spawn(lambda batch, state: forever.wait(), name="leaky")
for number in range(5):
    worker.push(number)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0
    assert "messages lost at exit" in done.stderr
    assert "worker 'leaky'" in done.stderr or 'worker "leaky"' in done.stderr
    assert "count=4" in done.stderr
