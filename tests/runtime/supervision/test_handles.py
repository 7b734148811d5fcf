"""Handles: actors and workers behind one interface, and what a worker keeps between two starts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.supervision.handles import handle_for
from tests.runtime.supervision.kit import BOOM, FAIL, ref
from tests.runtime.worker.probe import PATIENCE, Caller, until

if TYPE_CHECKING:
    from actorflow.runtime.supervision.handles import ChildHandle
    from tests.runtime.supervision.kit import Stage


def owner(stage: Stage) -> Any:
    return stage.up().actor


def handle_of(stage: Stage, kind: str) -> tuple[ChildHandle, af.Child]:
    child = stage.child("a")
    if kind == "worker":
        child = af.Child("w", stage.worker("w", lambda batch, state: None))
    return handle_for(child, owner(stage)), child


@pytest.mark.parametrize("kind", ["actor", "worker"])
@pytest.mark.parametrize("how", ["stop", "suspend", "kill"])
def test_each_handle_starts_stops_kills_and_reports(stage: Stage, kind: str, how: str) -> None:
    handle, child = handle_of(stage, kind)
    ends: list[Any] = []
    for start in range(3):
        assert handle.start(child) is None
        handle.watch(lambda _actor, reason: ends.append(reason))
        assert handle.ref.is_alive()
        if how == "kill":
            handle.kill()
            assert isinstance(ends[-1], af.Killed)
        else:
            handle.stop(af.Shutdown("so"), final=how == "stop")
            stage.run()
            assert isinstance(ends[-1], af.Shutdown)
            assert how == "suspend" or ends[-1] == af.Shutdown("so")
        stays = kind == "worker" and how != "stop"
        assert handle.ref.is_alive() is stays, "only a worker outlives its incarnation"
        del ends[start + 1 :]  # the end of a pair is reported with that of its executor
    handle.stop(af.Shutdown("for good"), final=True)
    stage.run()
    assert not handle.ref.is_alive()


def test_worker_keeps_its_ref_and_its_messages_over_a_restart(stage: Stage) -> None:
    handle, child = handle_of(stage, "worker")
    handle.start(child)
    worker = handle.ref
    handle.stop(af.Shutdown(), final=False)
    stage.run()
    worker.push(1)
    assert len(worker) == 1
    handle.start(child)
    assert handle.ref is worker
    stage.run()
    assert worker.statistics().processed == 1
    handle.stop(af.Shutdown(), final=True)
    stage.run()


def test_worker_that_is_killed_while_its_job_hangs_is_reported() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def job(_batch: Any, _state: Any) -> None:
        begun.set()
        go_on.wait(20)

    with af.Supervisor([af.Worker("w", job)], max_restarts=5) as supervisor:
        worker = supervisor.worker("w")
        worker.push(1)
        begun.wait(20)
        again = threading.Event()
        worker.watch(lambda _actor, _reason: again.set())
        worker.stop(now=True)  # its executor's end does not come while the job hangs
        again.wait(20)
        supervisor.count_children()
        assert supervisor.worker("w") is not worker
        assert supervisor.worker("w").is_alive()
        go_on.set()


def test_late_end_of_an_executor_that_was_given_up_does_not_touch_the_next_one() -> None:
    """A hook that hangs after a crash returns when another executor is long at work."""
    hooked, go_on = threading.Event(), threading.Event()

    class Hangs(af.Executor):
        def handle(self, batch: Any) -> Any:
            if batch == ["crash"]:
                raise ValueError(batch)

        def on_failure(self, *_error: Any) -> None:
            hooked.set()
            go_on.wait(PATIENCE)

    def crash(_batch: Any, _state: Any) -> None:
        raise OSError

    hangs = af.Child("hangs", af.Worker("hangs", Hangs), shutdown="brutal_kill")
    children: list[Any] = [hangs, af.Worker("sibling", crash)]
    with af.Supervisor(children, strategy="one_for_all", max_restarts=9) as supervisor:
        worker = supervisor.worker("hangs")
        caller = Caller(worker.push_block, "crash", timeout=PATIENCE)
        assert hooked.wait(PATIENCE)
        supervisor.worker("sibling").push("crash")  # ends the one that hangs, too
        until(lambda: worker.statistics().restarts == 1, "another executor should be at work")
        worker.push_block("fine")
        watched: list[Any] = []
        worker.executor.watch(lambda _ref, reason: watched.append(reason))
        go_on.set()
        assert isinstance(caller.wait().error, ValueError)
        assert supervisor.which_child("hangs").restarts == 1
        assert not watched
        assert worker.executor.is_alive()
        worker.push_block("fine")


def test_executor_of_a_worker_that_waits_for_its_restart_has_ended(stage: Stage) -> None:
    handle, child = handle_of(stage, "worker")
    handle.start(child)
    handle.stop(af.Shutdown(), final=False)
    stage.run()
    executor = handle.ref.executor
    assert executor.exit_reason == af.Shutdown()
    handle.start(child)
    assert handle.ref.executor is not executor
    assert handle.ref.executor.is_alive()
    handle.stop(af.Shutdown(), final=True)
    stage.run()


def test_executor_is_the_same_object_for_all_who_ask_at_once() -> None:
    with af.Supervisor([af.Worker("w", lambda batch, state: None)]) as supervisor:
        worker = supervisor.worker("w")
        start = threading.Barrier(4)

        def look() -> Any:
            start.wait(PATIENCE)
            return worker.executor

        callers = [Caller(look) for _ in range(4)]
        assert len({id(caller.value()) for caller in callers}) == 1


@pytest.mark.parametrize("backoff", [None, af.Backoff(initial=1.0)])
@pytest.mark.parametrize("strategy", ["rest_for_one", "one_for_all"])
def test_dependent_worker_keeps_its_messages_while_a_restart_is_pending(
    stage: Stage, strategy: Any, backoff: Any
) -> None:
    seen: list[Any] = []
    supervisor = stage.up(
        stage.child("db"),
        stage.worker("w", lambda batch, state: seen.extend(batch)),
        strategy=strategy, backoff=backoff, max_restarts=9,
    )  # fmt: skip
    worker = supervisor.worker("w")
    stage.outcomes["db"].append(FAIL)
    ref(supervisor, "db").tell(BOOM)
    while worker.status is not af.PairState.ALONE:
        assert stage.lane.step()
    worker.push("kept")
    stage.run(10.0)
    stage.run(10.0)
    assert supervisor.worker("w") is worker
    assert seen == ["kept"]


def test_dependent_worker_ends_when_the_pending_restart_is_cancelled(stage: Stage) -> None:
    supervisor = stage.up(
        stage.child("db"),
        stage.worker("w", lambda batch, state: None),
        strategy="rest_for_one", backoff=af.Backoff(initial=1.0), max_restarts=9,
    )  # fmt: skip
    worker = supervisor.worker("w")
    stage.crash(supervisor, "db")
    assert worker.is_alive()
    supervisor.terminate_child("db")
    with pytest.raises(af.WorkerStopped):
        worker.push(1)


def test_new_child_of_the_same_id_gets_a_worker_of_its_own(stage: Stage) -> None:
    """Also if it is asked for while the end of the former one is still to be handled."""
    seen: list[Any] = []
    supervisor = stage.up(stage.stubborn("slow"))
    former = stage.worker("w", lambda batch, state: seen.append("former"))
    latter = stage.worker("w", lambda batch, state: seen.append("latter"))
    first = supervisor.start_child(af.Child("w", former, restart="temporary")).ref
    actor = supervisor.actor
    actor._post(lambda: actor._perform(actor.family.requests.terminate_child("slow")))
    stage.run()
    first.kill()
    stage.run()
    actor._post(lambda: actor._perform(actor.family.requests.start_child(af.Child("w", latter))))
    stage.run()
    stage.slow.run()
    stage.run()
    second = supervisor.worker("w")
    assert second is not first
    second.push(1)
    stage.run()
    assert seen == ["latter"]


def test_start_that_returns_the_same_ref_again_has_failed(stage: Stage) -> None:
    only = stage.start("a")
    supervisor = stage.up(af.Child("a", lambda: only), max_restarts=0)
    stage.crash(supervisor, "a")
    assert not supervisor.is_alive()
    again = stage.up(af.Child("b", lambda: only), max_restarts=1)
    stage.run()
    assert "again; each start must return a new one" in again.exit_reason.describe()  # type: ignore[union-attr]
