"""The rules of the pair, M17 to M24: what callers, watchers and forked children see."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Coalesce, Queue, Unique
from actorflow.runtime.worker.pair.requests import kill
from actorflow.runtime.worker.pair.states import PairState
from actorflow.testing import ManualLane
from tests.runtime.test_fork import in_child
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, ended, is_locked


@pytest.fixture
def lane() -> ManualLane:
    return ManualLane()


def nothing(_batch: Any, state: Any) -> Any:
    return state


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
        while len(waiting.offers._blocked or ()) < len(callers):
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
        return lambda _ref, reason: seen.append((who, pair.state, is_locked(pair.lock), reason))

    worker.watch(notice("worker"))
    pair.lifecycle.executor.watch(notice("executor"))
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
            locked.append(is_locked(worker.actor.lock))
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


class Exiting(Unprintable):
    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


@pytest.mark.parametrize("kind", [Unprintable, Exiting])
def test_m22_an_error_that_cannot_be_printed_is_an_error_with_a_text(
    lane: ManualLane, kind: type[Unprintable]
) -> None:
    error = kind()

    def job(_batch: Any, _state: Any) -> None:
        raise error

    worker = af.spawn(job, executor=lane)
    asked = worker.ask(1, block=False)
    lane.run()
    with pytest.raises(kind):
        asked.get(timeout=0)
    with pytest.raises(af.WorkerCrashed, match=kind.__name__):
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
        life = worker.actor.lifecycle
        kill(worker.actor)
        caller = Caller(life.revive)
        assert caller.done.wait(PATIENCE)
        assert isinstance(caller.error, af.StartFailed)


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")


@forks
@pytest.mark.parametrize(
    "options", ["", "executor='thread'", "behaviour=af_unique", "concurrency=2"]
)
def test_m24_every_worker_of_the_parent_is_dead_in_a_child_and_says_so(options: str) -> None:
    in_child(
        f"""
        from actorflow.behaviours import Unique
        af_unique = Unique(key=str)
        busy, go_on = threading.Event(), threading.Event()

        def job(batch, state):
            busy.set()
            assert go_on.wait(30)

        worker = af.spawn(job, name="parent's", {options})
        worker.push(1)
        assert busy.wait(20)
        worker.push(2)
        inside, forked = threading.Event(), threading.Event()

        def hold():
            with worker.actor.lock:
                inside.set()
                forked.wait(20)

        threading.Thread(target=hold).start()
        assert inside.wait(20)  # so another thread holds the lock while this one forks

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
        forked.set()
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
