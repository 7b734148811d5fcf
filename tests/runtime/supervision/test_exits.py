"""Exit notices: one for each death, with its reason, whichever way the actor ends (P2-P6)."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.worker.pair.requests import abandon_executor
from tests.runtime.supervision.kit import BOOM, names
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.runtime.supervision.kit import Stage


class Target(af.Actor):
    """Do or raise what a message says."""

    def __init__(self, fails: BaseException | None = None, lane: Any = None) -> None:
        super().__init__(lane=lane)
        self.fails = fails
        self.gate = threading.Event()
        self.entered = threading.Event()

    def on_start(self) -> None:
        if self.fails is not None:
            raise self.fails

    def on_receive(self, message: Any) -> Any:
        if message == "block":
            self.entered.set()
            assert self.gate.wait(PATIENCE)
            return "late"
        if isinstance(message, BaseException) and not isinstance(message, af.Stop):
            raise message
        return message


def watched(ref: Any) -> list[Any]:
    notices: list[Any] = []
    ref.watch(lambda actor, reason: notices.append((actor, reason)))
    return notices


WAYS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "stop": (lambda ref: ref.stop(block=False), af.Normal()),
    "stop from within": (lambda ref: ref.actor.stop(), af.Normal()),
    "Stop": (lambda ref: ref.tell(af.Stop()), af.Normal()),
    "Stop reason": (lambda ref: ref.tell(af.Stop("enough")), af.Shutdown("enough")),
    "shutdown": (lambda ref: ref.lifespan.shut_down(af.Shutdown()), af.Shutdown()),
    "kill": (lambda ref: ref.kill(), af.Killed()),
    "crash": (lambda ref: ref.tell(BOOM), af.Crash(BOOM)),
}


@pytest.mark.parametrize("way", WAYS)
def test_p2_one_notice_with_the_reason(stage: Stage, way: str) -> None:
    end, reason = WAYS[way]
    ref = Target.start(lane=stage.lane)
    notices = watched(ref)
    end(ref)
    stage.run()
    ref.kill()
    ref.lifespan.die(af.Normal())
    assert notices == [(ref, reason)]
    assert ref.exit_reason == reason
    assert watched(ref) == [(ref, reason)]  # a late watcher is called at once
    assert ref.actor_stopped.is_set()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_p2_p3_failure_in_on_start_reaches_the_starter(stage: Stage, error: BaseException) -> None:
    with pytest.raises(af.StartFailed) as raised:
        Target.start(error, lane=stage.lane)
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("how", ["tell", "ask"])
def test_p5_base_exception_ends_that_actor_alone(
    stage: Stage, error: BaseException, how: str
) -> None:
    bystander = Target.start(lane=stage.lane)
    ref = Target.start(lane=stage.lane)
    notices = watched(ref)
    future = ref.ask(error, block=False) if how == "ask" else ref.tell(error)
    stage.run()
    assert notices == [(ref, af.Crash(error))]
    if future is not None:
        with pytest.raises(type(error)):
            future.get(timeout=PATIENCE)
    assert bystander.is_alive()
    bystander.kill()


def test_p5_system_exit_in_a_job_restarts_that_worker_alone(stage: Stage) -> None:
    def job(batch: Any, state: Any) -> None:
        raise SystemExit(batch[0])

    supervisor = stage.up(stage.worker("w", job), stage.child("a"))
    supervisor.worker("w").push(3)
    stage.run()
    assert supervisor.which_child("w").restarts == 1
    assert supervisor.which_child("a").restarts == 0


def test_p4_ask_that_raises_is_the_callers_tell_that_raises_is_a_crash(stage: Stage) -> None:
    supervisor = stage.up(af.Child("t", Target, kwargs={"lane": stage.lane}))
    ref = supervisor.which_child("t").ref
    future = ref.ask(BOOM, block=False)
    stage.run()
    with pytest.raises(ValueError, match="boom"):
        future.get(timeout=PATIENCE)
    assert ref.is_alive()
    ref.tell(BOOM)
    stage.run()
    assert not ref.is_alive()
    assert supervisor.which_child("t").restarts == 1


def test_p4_class_can_say_that_an_ask_crashes_too(stage: Stage) -> None:
    class Strict(Target):
        ask_failures = "crash"

    ref = Strict.start(lane=stage.lane)
    future = ref.ask(BOOM, block=False)
    stage.run()
    with pytest.raises(ValueError, match="boom"):
        future.get(timeout=PATIENCE)
    assert ref.exit_reason == af.Crash(BOOM)


@pytest.mark.parametrize("way", ["kill", "stop"])
def test_p6_ask_never_hangs(stage: Stage, way: str) -> None:
    ref = Target.start(lane=stage.lane)
    before = ref.ask("x", block=False)
    WAYS[way][0](ref)
    after = ref.ask("y", block=False)
    stage.run()
    answers = []
    for future in (before, after):
        try:
            answers.append(future.get(timeout=PATIENCE))
        except af.WorkerStopped:
            answers.append("refused")
    assert answers == (["refused", "refused"] if way == "kill" else ["x", "refused"])


@pytest.mark.parametrize("kind", ["actor", "executor"])
def test_p6_ask_that_is_being_answered_ends_with_the_kill(kind: str) -> None:
    gate, entered = threading.Event(), threading.Event()

    class Slow(af.Executor):
        def handle(self, batch: Any) -> None:
            """Do nothing."""

        def handle_message(self, message: Any) -> str:
            entered.set()
            assert gate.wait(PATIENCE)
            return "late"

    if kind == "actor":
        ref: Any = Target.start()
        gate, entered = ref.actor.gate, ref.actor.entered
        kill = ref.kill
    else:
        worker = af.spawn(Slow)
        ref = worker.executor
        kill = ref.kill
    caller = Caller(ref.ask, "block")
    assert entered.wait(PATIENCE)
    kill()
    with pytest.raises(af.WorkerStopped):
        caller.value()
    gate.set()  # its answer comes too late, and is dropped
    if kind == "executor":
        worker.stop(now=True)


def test_p2_two_threads_end_it_at_once() -> None:
    for _ in range(50):
        ref = Target.start()
        notices = watched(ref)
        barrier = threading.Barrier(3)

        def end(how: Any, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(PATIENCE)
            how()

        callers = [
            Caller(end, ref.kill),
            Caller(end, partial(ref.lifespan.die, af.Crash(BOOM))),
        ]
        barrier.wait(PATIENCE)
        for caller in callers:
            caller.value()
        until(partial(bool, notices), "one notice")
        assert len(notices) == 1


def test_p2_watching_while_it_dies_is_notified_once() -> None:
    for _ in range(50):
        ref = Target.start()
        barrier = threading.Barrier(2)

        def watch(ref: Any = ref, barrier: threading.Barrier = barrier) -> list[Any]:
            barrier.wait(PATIENCE)
            return watched(ref)

        caller = Caller(watch)
        barrier.wait(PATIENCE)
        ref.kill()
        notices = caller.value()
        until(partial(bool, notices), "a notice")
        assert len(notices) == 1


def test_notice_that_raises_does_not_keep_the_others_from_theirs(stage: Stage) -> None:
    ref = Target.start(lane=stage.lane)

    def bad(_actor: Any, _reason: Any) -> None:
        raise RuntimeError("bad notice")

    ref.watch(bad)
    notices = watched(ref)
    ref.kill()
    assert len(notices) == 1


def test_unwatch(stage: Stage) -> None:
    ref = Target.start(lane=stage.lane)
    notices: list[Any] = []

    def notice(_actor: Any, reason: Any) -> None:
        notices.append(reason)

    ref.watch(notice)
    ref.unwatch(notice)
    ref.unwatch(notice)
    ref.kill()
    assert notices == []


def test_actor_whose_exception_cannot_be_printed_dies_all_the_same(stage: Stage) -> None:
    class Rude(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("no")

        __str__ = __repr__

    supervisor = stage.up(af.Child("t", Target, kwargs={"lane": stage.lane}))
    ref = supervisor.which_child("t").ref
    ref.tell(Rude())
    stage.run()
    assert isinstance(ref.exit_reason, af.Crash)
    assert supervisor.which_child("t").restarts == 1


def test_killed_while_starting_is_seen_by_the_supervisor(stage: Stage) -> None:
    class Suicidal(af.Actor):
        starts = 0

        def on_start(self) -> None:
            Suicidal.starts += 1
            if Suicidal.starts == 1:
                self.actor_ref.kill()

    supervisor = stage.up(af.Child("t", Suicidal, kwargs={"lane": stage.lane}))
    stage.run()
    assert Suicidal.starts == 2
    assert supervisor.which_child("t").ref.is_alive()


def test_executor_that_was_left_behind_does_not_end_its_successor(pool_probe: Probe) -> None:
    entered, gate = threading.Event(), threading.Event()

    class Slow(af.Executor):
        def handle(self, batch: Any) -> Any:
            if batch == ["hang"]:
                return af.Stop()
            pool_probe.batches.append(batch)
            return None

        def on_stop(self) -> None:
            if not entered.is_set():
                entered.set()
                assert gate.wait(PATIENCE)

    supervisor = af.Supervisor([af.Worker("w", Slow)]).start()
    worker = supervisor.worker("w")
    worker.push("hang")
    assert entered.wait(PATIENCE)  # in on_stop of the first one
    first = worker.executor
    abandon_executor(worker.actor)
    until(lambda: worker.executor is not first, "a second executor")
    gate.set()  # the first one comes to its end, long after it was left behind
    worker.push_block("a", timeout=PATIENCE)
    assert pool_probe.batches == [["a"]]
    assert worker.is_alive()
    assert supervisor.statistics().restarts == 1
    supervisor.stop()


def test_names_of_the_stage(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"))
    assert names(supervisor) == "a1"
