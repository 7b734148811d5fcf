"""A worker is paused, resumed and given another behaviour while it runs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Chunk, Fair, Linger, Priority, Queue, Stack, Unique
from actorflow.behaviours.errors import AlreadyUsed
from tests.runtime.worker.probe import PATIENCE


class Noting:
    """A job that notes its batches, and stops at the first one until the test lets it go on."""

    def __init__(self, *, waits: bool = False) -> None:
        self.batches: list[list[Any]] = []
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.processed = threading.Semaphore(0)
        if not waits:
            self.go_on.set()

    def __call__(self, batch: list[Any], _: Any) -> None:
        self.batches.append(list(batch))
        self.entered.set()
        assert self.go_on.wait(PATIENCE)
        for _each in batch:
            self.processed.release()

    @property
    def seen(self) -> list[Any]:
        return [message for batch in self.batches for message in batch]


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize(
    "behaviour", [Queue, Stack, Priority, lambda: Chunk(Queue(), 2), lambda: Linger(Queue(), 0.001)]
)
def test_a_paused_worker_accumulates_and_goes_on(behaviour: Any, concurrency: int) -> None:
    job = Noting()
    with af.spawn(job, behaviour=behaviour(), concurrency=concurrency) as worker:
        worker.push_block((0, 0), timeout=PATIENCE)
        worker.pause()
        worker.pause()
        for number in range(1, 6):
            worker.push((number, number))
        with pytest.raises(af.PushTimeout):
            worker.push_block((6, 6), timeout=0.05)
        assert job.seen == [(0, 0)]
        assert worker.statistics().held == 6
        worker.resume()
        worker.push_block((7, 7), timeout=PATIENCE)
        worker.stop(drain=True, timeout=PATIENCE)
    assert sorted(job.seen) == [(number, number) for number in range(8)]


def test_a_paused_worker_drains_when_it_is_stopped() -> None:
    job = Noting()
    worker = af.spawn(job)
    worker.pause()
    worker.push("a")
    worker.stop(drain=True, timeout=PATIENCE)
    assert job.seen == ["a"]
    with pytest.raises(af.WorkerStopped):
        worker.pause()


def test_only_a_paused_or_parked_worker_is_resumed() -> None:
    with af.spawn(Noting()) as worker:
        with pytest.raises(af.NotParked):
            worker.resume()
        worker.pause()
        worker.resume()
        with pytest.raises(af.NotParked):
            worker.resume()


def test_another_behaviour_gets_what_is_held_with_the_callers() -> None:
    job = Noting(waits=True)
    with af.spawn(job) as worker:
        worker.push((0, "first"))
        assert job.entered.wait(PATIENCE)
        worker.push((1, "low"))
        future = worker.ask((9, "high"), block=False)
        worker.change(Chunk(Priority(), 1))
        worker.push((5, "middle"))
        job.go_on.set()
        assert future.get(timeout=PATIENCE) is None
        worker.stop(drain=True, timeout=PATIENCE)
        counts = worker.statistics()
    assert job.seen == [(0, "first"), (9, "high"), (5, "middle"), (1, "low")]
    assert counts.accepted == counts.processed == 4


def test_a_behaviour_that_cannot_hold_the_messages_is_refused_and_nothing_has_changed() -> None:
    job = Noting()
    with af.spawn(job) as worker:
        worker.pause()
        worker.push_many([("a", 1), ("b", 2), ("a", 3)])
        small = Bounded(Queue(), 2)
        for behaviour, words in [
            (small, "cannot hold the 3 messages that wait: 1 would be lost"),
            (Unique(key=0), "1 would be lost"),
            (Priority(key=0), "3 would be lost"),
            (Linger(Queue(), 1.0), "spawn another worker"),
        ]:
            with pytest.raises(af.BadOption, match=words):
                worker.change(behaviour)
        used = Queue()
        worker.change(used)
        with pytest.raises(AlreadyUsed):
            worker.change(used)
        worker.change(Bounded(Queue(), 3))
        with pytest.raises(af.Full):
            worker.push_ack(("c", 4))
        worker.resume()
        worker.stop(drain=True, timeout=PATIENCE)
    assert job.seen == [("a", 1), ("b", 2), ("a", 3)]


def test_nothing_is_lost_or_reordered_within_a_key_while_the_behaviour_changes() -> None:
    job = Noting()
    total = 3_000
    with af.spawn(job) as worker:

        def push(name: str) -> None:
            for number in range(total):
                worker.push((name, number))

        pushers = [threading.Thread(target=push, args=(name,)) for name in "ab"]
        for each in pushers:
            each.start()
        makers: list[Any] = [lambda: Chunk(Queue(), 7), lambda: Fair(key=0), Queue]
        for turn in range(60):
            worker.change(makers[turn % 3]())
        for each in pushers:
            each.join()
        worker.stop(drain=True, timeout=PATIENCE)
    for name in "ab":
        assert [number for key, number in job.seen if key == name] == list(range(total))


class Pile:
    """A behaviour that takes bare messages only."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def add(self, message: Any) -> None:
        self.held.append(message)

    def take(self) -> list[Any]:
        held, self.held = self.held, []
        return held

    def __len__(self) -> int:
        return len(self.held)

    def __iter__(self) -> Any:
        return iter(self.held)


def test_messages_that_are_sampled_for_statistics_are_no_obstacle() -> None:
    job = Noting(waits=True)
    with af.spawn(job, behaviour=Chunk(Stack(), 2)) as worker:  # times a sample of its messages
        worker.push(0)
        assert job.entered.wait(PATIENCE)
        worker.push_many([1, 2, 3])
        assert worker.statistics().held == 3
        worker.pause()
        worker.change(Bounded(Queue(), 10))
        worker.change(Chunk(Stack(), 2))
        worker.push(4)
        worker.change(Pile())
        worker.resume()
        job.go_on.set()
        worker.stop(drain=True, timeout=PATIENCE)
    assert sorted(job.seen) == [0, 1, 2, 3, 4]
