"""W13 to W16: workers that stop by themselves, crash, or are idle for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Linger, Queue
from actorflow.runtime.exits import Normal
from actorflow.runtime.worker.pair.requests import retire
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, ended, until_accumulated

if TYPE_CHECKING:
    from actorflow.testing import ManualLane, VirtualClock


@pytest.mark.parametrize("how", ["return", "raise"])
def test_w13_stop_in_on_start_makes_the_start_fail_with_the_reason(how: str) -> None:
    class Refuses(af.Executor):
        def on_start(self) -> Any:
            stop = af.Stop("no licence")
            if how == "raise":
                raise stop
            return stop

        def handle(self, batch: Any) -> None:
            raise AssertionError("it never started")

    with pytest.raises(af.StartFailed, match="no licence"):
        af.spawn(Refuses, name="w13")
    assert af.whereis("w13") is None


@pytest.mark.parametrize("how", ["return", "raise"])
@pytest.mark.parametrize("lane", ["pool", "thread"])
def test_w13_stop_in_a_job_ends_the_worker_with_the_reason(how: str, lane: str) -> None:
    def job(batch: Any, state: Any) -> Any:
        stop = af.Stop("enough")
        if how == "raise":
            raise stop
        return stop

    worker = af.spawn(job, executor=lane)
    worker.push_block("last")  # its batch was processed
    assert ended(worker) == af.Shutdown("enough")
    with pytest.raises(af.WorkerStopped, match="enough"):
        worker.push("late")


def test_w13_stop_in_a_coroutine_job_and_without_a_reason() -> None:
    async def job(batch: Any, state: Any) -> Any:
        return af.Stop()

    worker = af.spawn(job)
    worker.push("last")
    assert ended(worker) == af.Normal()


def test_w13_stop_in_a_job_discards_what_is_accumulated(probe: Probe) -> None:
    probe.then(af.Stop("enough"))
    worker = probe.spawn()
    worker.push("last")
    probe.begun()
    caller = Caller(worker.push_block, "waits")
    until_accumulated(worker, 1)
    probe.let_end()
    assert ended(worker) == af.Shutdown("enough")
    assert isinstance(caller.wait().error, af.WorkerStopped)
    assert probe.batches == [["last"]]
    assert worker.statistics().dropped == 1


def test_w13_a_subclass_of_stop_stops_as_well() -> None:
    class Enough(af.Stop):
        pass

    def returns(batch: Any, state: Any) -> Any:
        return Enough("r")

    def raises(batch: Any, state: Any) -> Any:
        raise Enough("r")

    for job in (returns, raises):
        worker = af.spawn(job)
        worker.push(1)
        assert ended(worker) == af.Shutdown("r")


def test_w14_exception_in_a_job_ends_both_halves_with_it(probe: Probe) -> None:
    error = ValueError("broken")
    probe.then(error)
    probe.open()
    worker = probe.spawn()
    executor = worker.executor
    worker.push("bad")
    assert ended(worker) == af.Crash(error)
    assert executor.actor_stopped.wait(PATIENCE)
    assert executor.exit_reason == af.Crash(error)
    with pytest.raises(af.WorkerCrashed) as raised:
        worker.push("late")
    assert raised.value.__cause__ is error


class Idler(af.Executor):
    """Notes when it is idle; the state says what `on_idle` does."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def handle(self, batch: Any) -> None:
        self.seen.append(batch)

    def on_idle(self) -> Any:
        self.seen.append("idle")
        return self.state


def test_w15_idle_from_the_start(lane: ManualLane, clock: VirtualClock) -> None:
    worker = af.spawn(Idler, executor=lane, clock=clock, idle_timeout=1.0)
    executor: Any = worker.executor.actor
    clock.advance(0.999)
    lane.run()
    assert executor.seen == []
    clock.advance(0.001)
    lane.run()
    assert executor.seen == ["idle"]


def test_w15_idle_timeout_ends_the_worker_by_default(lane: ManualLane, clock: VirtualClock) -> None:
    worker = af.spawn(
        lambda batch, state: None, executor=lane, clock=clock, idle_timeout=1.0, name="w15"
    )
    clock.advance(1.0)
    lane.run()
    assert worker.exit_reason == af.Normal()
    assert af.whereis("w15") is None


def test_w16_idle_after_a_batch_counts_from_its_end(lane: ManualLane, clock: VirtualClock) -> None:
    worker = af.spawn(Idler, executor=lane, clock=clock, idle_timeout=1.0)
    executor: Any = worker.executor.actor
    clock.advance(0.9)
    worker.push(1)
    clock.advance(5.0)  # not idle: the batch is not even begun
    lane.run()
    assert executor.seen == [[1]]
    clock.advance(0.999)
    lane.run()
    assert executor.seen == [[1]]
    clock.advance(0.001)
    lane.run()
    assert executor.seen == [[1], "idle"]


def test_w16_on_idle_is_called_once_for_each_stretch(lane: ManualLane, clock: VirtualClock) -> None:
    worker = af.spawn(Idler, executor=lane, clock=clock, idle_timeout=1.0)
    executor: Any = worker.executor.actor
    for _ in range(5):
        clock.advance(10.0)
        lane.run()
    assert executor.seen == ["idle"]
    worker.push(1)
    for _ in range(5):
        lane.run()
        clock.advance(10.0)
    lane.run()
    assert executor.seen == ["idle", [1], "idle"]


def test_w16_stop_from_on_idle(lane: ManualLane, clock: VirtualClock) -> None:
    worker = af.spawn(Idler, state=af.Stop("bored"), executor=lane, clock=clock, idle_timeout=1.0)
    clock.advance(1.0)
    lane.run()
    assert worker.exit_reason == af.Shutdown("bored")


def test_an_idle_worker_can_retire_at_once(probe: Probe) -> None:
    worker = probe.spawn()
    assert worker.is_idle
    assert retire(worker.actor)
    assert not retire(worker.actor)
    assert isinstance(worker.exit_reason, Normal)
    assert isinstance(worker.actor.lifecycle.executor.exit_reason, Normal)
    with pytest.raises(af.WorkerStopped):
        worker.push(1)


def test_a_worker_with_something_to_do_does_not_retire(probe: Probe) -> None:
    worker = probe.spawn()
    worker.push(1)
    assert probe.begun() == [1]
    assert not worker.is_idle
    worker.push(2)
    assert not retire(worker.actor)
    probe.let_end()
    assert probe.begun() == [2]
    assert not retire(worker.actor)
    probe.let_end()
    worker.stop()
    assert worker.statistics().processed == 2


def test_a_worker_that_holds_messages_back_does_not_retire(clock: VirtualClock) -> None:
    done: list[Any] = []
    worker = af.spawn(
        lambda batch, _state: done.extend(batch), behaviour=Linger(Queue(), 1.0), clock=clock
    )
    worker.push(1)
    assert not retire(worker.actor)
    worker.stop()
    assert done == [1]
