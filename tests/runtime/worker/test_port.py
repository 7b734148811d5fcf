"""What the system that owns a worker does with it, and how a worker without work ends."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Queue
from actorflow.behaviours.behaviour import Behaviour
from actorflow.runtime.lanes.uninterruptible import in_main_thread
from actorflow.runtime.worker.pair.states import PairState
from actorflow.runtime.worker.port import Port
from tests.runtime.worker.probe import PATIENCE, Caller, FakeTicket

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.testing import ManualLane


class Work:
    """A job that waits for the test in each batch."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.entered, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, batch: Any, state: Any) -> None:
        self.batches.append(batch)
        self.entered.release()
        assert self.go.acquire(timeout=PATIENCE)


def test_m5_what_is_offered_while_a_plain_queue_runs_is_the_next_batch() -> None:
    work = Work()
    with af.spawn(work) as worker:
        worker.push(1)
        assert work.entered.acquire(timeout=PATIENCE)
        tickets = [FakeTicket(), FakeTicket()]
        assert Port(worker).offer([(2, tickets[0]), (3, tickets[1])]) == []
        worker.push(4)
        work.go.release(2)
    assert work.batches == [[1], [2, 3, 4]]
    assert [ticket.answer for ticket in tickets] == [None, None]


def test_an_offer_returns_what_is_refused_and_never_waits(lane: ManualLane) -> None:
    worker = af.spawn(lambda _batch, state: state, behaviour=Bounded(Queue(), 1), executor=lane)
    worker.push("running")
    port, tickets = Port(worker), [FakeTicket(), FakeTicket()]
    [(ticket, error)] = port.offer([("held", tickets[0]), ("refused", tickets[1])])
    assert ticket is tickets[1]
    assert isinstance(error, af.Full)
    worker.stop(now=True)
    with pytest.raises(af.WorkerStopped):
        port.offer([("late", FakeTicket())])


def test_m13_the_main_thread_offers_where_no_signal_interrupts_it() -> None:
    keyed_in_main: list[bool] = []

    class Noting(Queue):
        def add(self, message: Any) -> None:
            keyed_in_main.append(in_main_thread())
            super().add(message)

    with af.spawn(lambda _batch, state: state, behaviour=Noting()) as worker:
        assert in_main_thread()
        assert Port(worker).offer([(1, FakeTicket())]) == []
    assert keyed_in_main == [False]


def launched(job: Callable[..., Any]) -> tuple[Port, threading.Semaphore]:
    crashed = threading.Semaphore(0)
    return Port.launch(job, {}, lambda _reason: crashed.release()), crashed


def test_a_launched_worker_outlives_a_crash_and_is_revived() -> None:
    seen: list[Any] = []

    def job(batch: list[Any], _state: Any) -> None:
        if "poison" in batch:
            raise ValueError(batch)
        seen.extend(batch)

    port, crashed = launched(job)
    port.worker.push("poison")
    assert crashed.acquire(timeout=PATIENCE)
    assert not port.has_ended
    port.worker.push("kept")
    port.revive()
    port.worker.push_block("next")
    assert seen == ["kept", "next"]
    port.worker.push("poison")
    assert crashed.acquire(timeout=PATIENCE), "of each executor"
    port.revive()
    port.finish()
    port.worker.stop(timeout=PATIENCE)
    assert not crashed.acquire(blocking=False), "only of executors that the worker outlives"
    assert port.has_ended


def test_only_a_worker_without_anything_to_do_retires() -> None:
    work = Work()
    port, _crashed = launched(work)
    port.worker.push(1)
    assert work.entered.acquire(timeout=PATIENCE)
    port.offer([(2, FakeTicket())])
    assert (port.depth, port.is_idle, port.retire()) == (1, False, False)
    work.go.release(2)
    while not port.retire():  # the lane comes to rest soon
        pass
    assert port.has_ended
    with pytest.raises(af.WorkerStopped):
        port.worker.push(4)


def test_a_worker_that_has_retired_goes_without_the_garbage_collector() -> None:
    port, _crashed = launched(lambda _batch, state: state)
    port.offer([(1, FakeTicket())])  # in the main thread, which needs the helper thread
    while not port.retire():
        pass
    gone = weakref.ref(port.worker.actor)
    gc.disable()
    try:
        del port, _crashed
        while gone() is not None:  # its lane lets go of it soon
            pass
    finally:
        gc.enable()


def test_m6_stopping_a_worker_that_has_retired_returns_at_once() -> None:
    worker = af.spawn(lambda _batch, state: state)
    assert worker.stop()
    told: list[Any] = []
    worker.watch(lambda _ref, reason: told.append(reason))
    assert [type(reason) for reason in told] == [af.Normal]
    assert not worker.stop(timeout=PATIENCE)


def test_m5_a_push_while_an_idle_worker_is_stopped_is_processed_or_refused() -> None:
    seen: list[Any] = []
    pushes = iter(["between"])

    class Racing(Queue):
        """Lets another thread push after the stop has looked at the inbox."""

        def __len__(self) -> int:
            for message in pushes:
                Caller(worker.push, message).value()
            return super().__len__()

    worker: Any = None
    behaviour = Racing()
    worker = af.spawn(lambda batch, _state: seen.extend(batch), behaviour=behaviour)
    worker.stop()
    assert seen == ["between"]


class Broken:
    """A custom failure policy that fails itself."""

    buries = False

    def parts(self, batch: Any) -> Any:
        raise LookupError(batch)


@pytest.mark.parametrize("late", [True, False])
def test_m12_a_policy_that_raises_after_a_deferred_is_a_crash_for_the_pair(late: bool) -> None:  # noqa: FBT001
    deferred = af.Deferred()
    started = threading.Event()

    def job(_batch: Any, _state: Any) -> af.Deferred:
        if not late:
            deferred.resolve(ValueError())
        started.set()
        return deferred

    worker = af.spawn(job, on_failure=Broken())
    answer = worker.ask("message", block=False)
    assert started.wait(PATIENCE)
    deferred.resolve(ValueError())
    with pytest.raises(LookupError):
        answer.get(timeout=PATIENCE)
    worker.stop(timeout=PATIENCE)
    assert isinstance(worker.exit_reason, af.Crash)


def test_a_behaviour_that_fails_while_there_is_no_executor_ends_none(lane: ManualLane) -> None:
    class Moody(Behaviour):
        traits = Queue.traits
        held = 0

        def add(self, message: Any) -> None:
            self.held += 1

        def extend(self, messages: list[Any]) -> Any:
            if "bad" in messages:
                raise ValueError("moody")
            self.held += len(messages)
            return ()

        def take(self, limit: int | None = None, free: int = 1) -> list[Any]:
            self.held = 0
            raise OSError("crash")

        def __len__(self) -> int:
            return self.held

    ended: list[Any] = []
    port = Port.launch(lambda _b, s: s, {"executor": lane, "behaviour": Moody()}, ended.append)
    pair = port.worker.actor
    port.worker.push("first")
    lane.run()
    assert (pair.state, len(ended)) == (PairState.ALONE, 1)
    port.worker.push("bad")
    with pytest.raises(af.WorkerCrashed, match="its behaviour failed"):
        pair.offers.offer("second")
    lane.run()
    assert (pair.state, len(ended)) == (PairState.ALONE, 1)
    port.worker.stop(now=True)
