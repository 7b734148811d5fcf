"""What storms and duels have found, one by one."""

from __future__ import annotations

import queue
import threading
import time
from functools import partial
from typing import Any

import pykka
import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Queue
from actorflow.runtime.lanes.pool import PoolThread, ThreadPool
from actorflow.runtime.worker.shape import FOLD_AT
from actorflow.testing import ManualLane
from tests.runtime.worker.probe import is_locked
from tests.runtime.worker.storms.interleave import PATIENCE, Paused
from tests.runtime.worker.storms.storm import hasty_switches


def test_a_bound_holds_for_what_is_raw_too() -> None:
    gate, begun = threading.Event(), threading.Event()
    batches: list[int] = []

    def job(batch: list[int], _state: Any) -> None:
        batches.append(len(batch))
        begun.set()
        assert gate.wait(PATIENCE)

    producers, deepest = 4, 0
    worker = af.spawn(job, behaviour=Bounded(Queue(), 10, when_full="drop_oldest"))
    worker.push(0)
    assert begun.wait(PATIENCE)

    def produce() -> None:
        nonlocal deepest
        for number in range(5_000):
            worker.push(number)
            deepest = max(deepest, len(worker))

    threads = [threading.Thread(target=produce) for _ in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gate.set()
    worker.stop()
    assert deepest <= 10 + 4 * FOLD_AT + producers
    assert max(batches) <= 10


def test_a_message_that_comes_by_name_while_the_worker_starts_is_not_forgotten() -> None:
    for place in range(1_000):
        lane = ManualLane()
        seen: list[str] = []
        name = f"storm-{place}"

        def start(lane: ManualLane = lane, seen: list[str] = seen, name: str = name) -> None:
            af.spawn(lambda batch, _: seen.extend(batch), executor=lane, name=name)

        paused = Paused(start, place)
        worker = af.whereis(name)
        pusher = threading.Thread(target=getattr(worker, "push", len), args=("early",))
        pusher.start()
        if worker is not None and not is_locked(worker.actor.lock):
            pusher.join(PATIENCE)
        paused.finish()
        pusher.join(PATIENCE)
        lane.run()
        assert seen == ([] if worker is None else ["early"]), paused.where
        af.whereis(name).stop()  # type: ignore[union-attr]
        if paused.where is None:
            return


def test_the_name_is_free_when_stop_returns_although_another_thread_ends_the_worker() -> None:
    def find() -> Any:
        return af.whereis("storm-name")

    for place in range(1_000):
        worker = af.spawn(lambda batch, _: None, executor=ManualLane(), name="storm-name")
        names: list[Any] = []
        paused = Paused(worker.kill, place)
        worker.watch(lambda _worker, _reason, names=names: names.append(find()))
        paused.finish()
        assert names == [None], paused.where
        if paused.where is None:
            return


class Broken:
    """A custom behaviour that cannot return its messages."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def add(self, message: Any) -> None:
        self.held.append(message)

    def take(self) -> Any:
        raise KeyError("lost it")

    def __len__(self) -> int:
        return len(self.held)


def test_a_behaviour_that_fails_ends_the_worker_and_nobody_hangs() -> None:
    worker = af.spawn(lambda batch, _: None, behaviour=Broken)
    with pytest.raises(af.WorkerCrashed) as caught:
        worker.push_block("message", PATIENCE)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(af.WorkerCrashed):
        worker.push("another")


def test_helpers_that_wait_for_room_do_not_wait_for_each_other() -> None:
    pool = ThreadPool(core=2, name="storm-help")
    worker = af.spawn(
        lambda batch, _: None,
        behaviour=Bounded(Queue(), 1, when_full="block"),
        executor=pool,
        help=True,
    )

    def produce() -> None:
        for number in range(200):
            worker.push_block(number)

    threads = [threading.Thread(target=produce, daemon=True) for _ in range(4)]
    with hasty_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    worker.stop()
    pool.close()


class Echo(af.Actor):
    """An actor that remembers its messages."""

    def __init__(self, lane: ManualLane) -> None:
        super().__init__(lane=lane)
        self.heard: list[Any] = []

    def on_receive(self, message: Any) -> None:
        self.heard.append(message)


def test_an_actor_that_is_told_something_while_it_starts_is_not_stuck() -> None:
    for place in range(1_000):
        lane = ManualLane()
        paused = Paused(partial(Echo.start, lane), place)
        early = pykka.ActorRegistry.get_by_class(Echo)
        for ref in early:
            ref.tell("early")
        paused.finish()
        (ref,) = pykka.ActorRegistry.get_by_class(Echo)
        ref.tell("late")
        lane.run()
        actor = ref._actor_weakref()
        assert actor is not None
        assert actor.heard == ["early"] * len(early) + ["late"], paused.where
        ref.stop(block=False)
        lane.run()
        if paused.where is None:
            return


class LateQueue:
    """A pool's queue in which something arrives in the moment in which a thread gives up."""

    def __init__(self, late: Any) -> None:
        self._late = [late]
        self._here: list[Any] = []

    def get(self, timeout: float | None = None) -> Any:
        if self._here:
            return self._here.pop()
        self._here, self._late = self._late, []
        raise queue.Empty

    def empty(self) -> bool:
        return not self._here


class Note:
    """Something that a pool runs."""

    def __init__(self) -> None:
        self.ran = False

    def run(self) -> None:
        self.ran = True


def test_a_pool_thread_that_gives_up_takes_what_came_in_that_moment() -> None:
    pool, note = ThreadPool(core=1, name="storm-linger"), Note()
    pool._ready = LateQueue(note)  # type: ignore[assignment]
    pool._work(2, PoolThread())
    assert note.ran


@pytest.mark.skipif(
    not hasattr(time, "pthread_getcpuclockid"), reason="this system has no pthread_getcpuclockid"
)
def test_the_watcher_of_a_pool_survives_a_thread_that_ends() -> None:
    pool_thread = PoolThread()

    def sit() -> None:
        pool_thread.clock = time.pthread_getcpuclockid(threading.get_ident())

    thread = threading.Thread(target=sit)
    thread.start()
    thread.join()
    assert not pool_thread.look(now=1.0)
