"""The end of one executor is never taken for the end of the next, whenever it is reported."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.worker.pair import runner
from actorflow.runtime.worker.pair.lifecycle import Lifecycle
from actorflow.runtime.worker.port import WorkerHandle
from tests.runtime.worker.probe import PATIENCE, Caller, until

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.interface import Effects

pytestmark = pytest.mark.timeout(60)


def crash(batch: Any, _state: Any) -> None:
    if "crash" in batch:
        raise ValueError(batch)


class Slow(af.Executor):
    """An executor whose second start waits, and ends as the test says."""

    def __init__(self) -> None:
        self.plan.starts += 1
        self.number = self.plan.starts

    plan: Any

    def on_start(self) -> None:
        if self.number == 2:
            self.plan.begun.set()
            assert self.plan.go_on.wait(PATIENCE)
            if self.plan.error is not None:
                raise self.plan.error

    def handle(self, batch: Any) -> None:
        crash(batch, None)


class Plan:
    """What a `Slow` executor does."""

    def __init__(self, error: Exception | None = None) -> None:
        self.starts = 0
        self.error = error
        self.begun, self.go_on = threading.Event(), threading.Event()

    def executor(self) -> Any:
        return type("Planned", (Slow,), {"plan": self})


@pytest.mark.parametrize("error", [None, OSError("sick")])
def test_start_of_an_executor_that_is_killed_meanwhile_is_over_at_once(error: Any) -> None:
    plan = Plan(error)
    supervisor = af.Supervisor([af.Worker("w", plan.executor())], max_restarts=9).start()
    worker = supervisor.worker("w")
    worker.push("crash")
    assert plan.begun.wait(PATIENCE)
    worker.executor.kill()
    worker.push_block("by the third", timeout=PATIENCE)
    plan.go_on.set()  # the second one goes on, and nobody listens
    worker.push_block("by the third", timeout=PATIENCE)
    assert plan.starts == 3
    assert supervisor.stop(timeout=PATIENCE)


def test_late_start_does_not_release_whoever_waits_for_the_next_one() -> None:
    plan = Plan()
    third, go_on = threading.Event(), threading.Event()

    class Slower(plan.executor()):  # type: ignore[misc]
        def on_start(self) -> None:
            super().on_start()
            if self.number == 3:
                third.set()
                assert go_on.wait(PATIENCE)

    supervisor = af.Supervisor([af.Worker("w", Slower)], max_restarts=9).start()
    worker = supervisor.worker("w")
    worker.push("crash")
    assert plan.begun.wait(PATIENCE)
    pair = worker.actor
    stale = pair.generation
    worker.executor.kill()
    assert third.wait(PATIENCE)
    pair.lifecycle.started(pair, stale)
    pair.lifecycle.start_failed(stale, af.Killed())
    assert pair.lifecycle._started is not None  # the supervisor waits for the third start
    plan.go_on.set()
    go_on.set()
    assert supervisor.stop(timeout=PATIENCE)


def test_first_start_of_an_executor_that_is_killed_has_failed_and_leaves_no_worker() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Stuck(af.Executor):
        def on_start(self) -> None:
            begun.set()
            go_on.wait(PATIENCE)

        def handle(self, batch: Any) -> None:
            pass

    tree = af.Supervisor([af.Worker("w", Stuck, name="stuck")])
    starting = Caller(tree.start)
    assert begun.wait(PATIENCE)
    worker = af.whereis("stuck")
    assert isinstance(worker, af.WorkerRef)
    worker.executor.kill()
    assert isinstance(starting.wait().error, af.StartFailed)
    assert not worker.is_alive()
    assert af.whereis("stuck") is None
    go_on.set()


def test_crash_that_is_told_after_its_worker_was_replaced_is_not_that_of_the_new_one() -> None:
    telling, go_on = threading.Event(), threading.Event()

    def hold(_ref: Any, _reason: Any) -> None:
        telling.set()
        assert go_on.wait(PATIENCE)

    with af.Supervisor([af.Worker("w", crash)], max_restarts=9) as supervisor:
        first = supervisor.worker("w")
        first.executor.watch(hold)  # it is called before the supervisor's own callback
        crashing = Caller(first.push_block, "crash", timeout=PATIENCE)
        assert telling.wait(PATIENCE)
        first.stop(now=True)
        until(lambda: supervisor.worker("w") is not first, "another worker should be there")
        supervisor.count_children()
        second = supervisor.worker("w")
        go_on.set()
        assert isinstance(crashing.wait().error, ValueError)
        assert supervisor.which_child("w").restarts == 1
        second.push_block("fine", timeout=PATIENCE)
        assert second.statistics().restarts == 0


def test_crash_that_is_told_after_a_restart_touches_neither_executor_nor_mail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An executor that crashes before it is watched is found, and replaced, by its watcher."""
    telling, go_on, watch = threading.Event(), threading.Event(), WorkerHandle.watch

    def hold(_ref: Any, _reason: Any) -> None:
        telling.set()
        assert go_on.wait(PATIENCE)

    callers: list[Caller] = []

    def late(handle: WorkerHandle, notice: Any) -> None:
        if not callers:
            handle.ref.executor.watch(hold)
            callers.append(Caller(handle.ref.push_block, "crash", timeout=PATIENCE))
            assert telling.wait(PATIENCE)
        watch(handle, notice)

    monkeypatch.setattr(WorkerHandle, "watch", late)
    with af.Supervisor([af.Worker("w", crash)], max_restarts=9) as supervisor:
        worker = supervisor.worker("w")
        until(lambda: worker.statistics().restarts == 1, "it should have been started again")
        supervisor.count_children()
        executor = worker.executor
        go_on.set()
        assert isinstance(callers[0].wait().error, ValueError)
        assert supervisor.which_child("w").restarts == 1
        assert executor.is_alive()
        worker.push_block("fine", timeout=PATIENCE)


def test_end_that_is_concluded_after_a_restart_is_not_that_of_the_next_executor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    concluding, go_on, conclude = threading.Event(), threading.Event(), Lifecycle.conclude

    def late(life: Lifecycle, effects: Effects) -> None:
        if effects.executor_gone and not concluding.is_set() and life.child_id == "slow":
            concluding.set()
            assert go_on.wait(PATIENCE)
        conclude(life, effects)

    monkeypatch.setattr(Lifecycle, "conclude", late)
    slow = af.Child("slow", af.Worker("slow", crash), shutdown=0.01)
    children: list[Any] = [slow, af.Worker("sibling", crash)]
    with af.Supervisor(children, strategy="one_for_all", max_restarts=9) as supervisor:
        supervisor.worker("sibling").push("crash")  # ends `slow`, too
        assert concluding.wait(PATIENCE)
        worker = supervisor.worker("slow")
        until(lambda: worker.statistics().restarts == 1, "it should be killed, and started again")
        supervisor.count_children()
        go_on.set()
        worker.push_block("fine", timeout=PATIENCE)
        assert worker.executor.is_alive()
        assert supervisor.which_child("slow").restarts == 1


def test_kill_of_the_last_executor_while_the_next_one_is_made_does_not_end_the_next() -> None:
    making, go_on = threading.Event(), threading.Event()

    class Made(af.Executor):
        made = 0

        def __init__(self) -> None:
            Made.made += 1
            if Made.made == 2:
                making.set()
                assert go_on.wait(PATIENCE)

        def handle(self, batch: Any) -> None:
            crash(batch, None)

    with af.Supervisor([af.Worker("w", Made)], max_restarts=9) as supervisor:
        worker = supervisor.worker("w")
        worker.push("crash")
        assert making.wait(PATIENCE)
        worker.executor.kill()
        go_on.set()
        worker.push_block("fine", timeout=PATIENCE)
        assert supervisor.which_child("w").restarts == 1
        assert worker.executor.is_alive()


def _executor(worker: af.WorkerRef) -> Any:
    until(lambda: worker.executor.exit_reason is None, "there should be an executor")
    return worker.executor


@pytest.mark.parametrize("late", ["answer", "stop"])
def test_late_answer_of_a_killed_executor_does_not_touch_the_next_one(
    monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    asked = {"first": threading.Event(), "second": threading.Event()}
    go_on = {"first": threading.Event(), "second": threading.Event()}
    answered, served = threading.Event(), runner._served

    class Slow(af.Executor):
        def handle(self, batch: Any) -> None:
            pass

        def handle_message(self, message: Any) -> Any:
            asked[message].set()
            assert go_on[message].wait(PATIENCE)
            return af.Stop() if late == "stop" else message

    def tell(*arguments: Any) -> Any:
        after = served(*arguments)
        answered.set()
        return after

    monkeypatch.setattr(runner, "_served", tell)
    with af.Supervisor([af.Worker("w", Slow)], max_restarts=9) as supervisor:
        worker = supervisor.worker("w")
        for message, begun in asked.items():
            caller = Caller(_executor(worker).ask, message, timeout=PATIENCE)
            assert begun.wait(PATIENCE)
            if message == "second":
                go_on["first"].set()
                assert answered.wait(PATIENCE)
                assert worker.is_alive()
            worker.executor.kill()
            assert isinstance(caller.wait().error, af.WorkerStopped)
        go_on["second"].set()


def test_executor_that_is_killed_as_its_worker_is_parked_is_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hooked, fail_on = threading.Event(), threading.Event()
    killing, kill_on, conclude = threading.Event(), threading.Event(), Lifecycle.conclude

    class Hangs(af.Executor):
        def handle(self, batch: Any) -> None:
            crash(batch, None)

        def on_failure(self, *_error: Any) -> None:
            hooked.set()
            assert fail_on.wait(PATIENCE)

    def late(life: Lifecycle, effects: Effects) -> None:
        if effects.executor_gone and hooked.is_set() and not fail_on.is_set():
            killing.set()
            assert kill_on.wait(PATIENCE)
        conclude(life, effects)

    monkeypatch.setattr(Lifecycle, "conclude", late)
    breaker = af.Breaker(failures=1)
    with af.Supervisor([af.Worker("w", Hangs, breaker=breaker)]) as supervisor:
        worker = supervisor.worker("w")
        worker.push("crash")
        assert hooked.wait(PATIENCE)
        kill = Caller(worker.executor.kill)
        assert killing.wait(PATIENCE)
        fail_on.set()
        until(lambda: worker.status is af.PairState.PARKED, "it should be parked")
        kill_on.set()
        kill.wait()
        worker.push_block("fine", timeout=PATIENCE)
        assert supervisor.which_child("w").restarts == 1
