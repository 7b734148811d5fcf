"""Behaviours that need more from a worker: keys in flight, padding, learning from failures."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import (
    Adaptive,
    Bounded,
    Bucket,
    Chunk,
    CoDel,
    Deadline,
    Dedup,
    Fair,
    Lanes,
    Lifo,
    Linger,
    MessageOutcome,
    PadTo,
    PerKey,
    Queue,
    Rate,
    Sample,
    Shortest,
    Window,
)
from tests.runtime.worker.probe import PATIENCE


def test_batches_of_a_key_are_never_processed_at_the_same_time() -> None:
    busy: set[str] = set()
    together: list[str] = []
    seen: dict[str, list[int]] = {}

    def job(batch: list[tuple[str, int]], _: Any) -> None:
        for key, number in batch:
            if key in busy:
                together.append(key)
            busy.add(key)
            seen.setdefault(key, []).append(number)
            threading.Event().wait(0.0001)
            busy.discard(key)

    behaviour = PerKey(Chunk(Queue(), 1), key=0)
    with af.spawn(job, behaviour=behaviour, concurrency=4) as worker:
        for number in range(200):
            worker.push(("abc"[number % 3], number))
        worker.stop(drain=True, timeout=PATIENCE)
    assert not together
    assert sum(map(len, seen.values())) == 200
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_a_key_whose_batch_failed_may_have_another() -> None:
    def job(batch: list[tuple[str, int]], _: Any) -> None:
        if any(number == 1 for _, number in batch):
            raise ValueError("one")

    with af.spawn(job, behaviour=PerKey(Queue(), key=0), on_failure="isolate") as worker:
        with pytest.raises(ValueError, match="one"):
            worker.push_block(("a", 1), timeout=PATIENCE)
        worker.push_block(("a", 2), timeout=PATIENCE)


def test_answers_to_items_that_fill_up_a_batch_are_discarded() -> None:
    sizes = []

    @af.batched(PadTo(Queue(), sizes=[4], fill=0))
    def double(numbers: list[int]) -> list[int]:
        sizes.append(len(numbers))
        return [2 * number for number in numbers]

    assert [double(number) for number in (1, 2, 3)] == [2, 4, 6]
    assert set(sizes) == {4}


def test_items_that_fill_up_a_batch_are_not_counted() -> None:
    with af.spawn(lambda _batch, _: None, behaviour=PadTo(Queue(), [8])) as worker:
        worker.push_block("a", timeout=PATIENCE)
        counts = worker.statistics()
    assert (counts.accepted, counts.processed, counts.held) == (1, 1, 0)


@pytest.mark.parametrize(
    "behaviour", [Bucket(0), Deadline(Queue(), within=60.0), Rate(Queue(), 1e6, burst=1e6, key=0)]
)
def test_each_processes_all_that_is_pushed(behaviour: Any) -> None:
    done: list[Any] = []
    with af.spawn(lambda batch, _: done.extend(batch), behaviour=behaviour) as worker:
        for number in range(100):
            worker.push((number % 3, number))
        worker.stop(drain=True, timeout=PATIENCE)
    assert sorted(number for _, number in done) == list(range(100))


def test_a_behaviour_hears_what_became_of_each_message() -> None:
    heard: list[list[MessageOutcome]] = []

    class Hears(Rate):
        def done(self, batch: Any, took: float, outcomes: Any) -> None:
            heard.append(list(outcomes))

    def job(batch: list[int], _: Any) -> None:
        if 3 in batch:
            raise ValueError("three")

    behaviour = Hears(Queue(), 1e6, burst=1e6, refund=True)
    with af.spawn(job, behaviour=behaviour, on_failure="isolate") as worker:
        worker.push_block(1, timeout=PATIENCE)
        with pytest.raises(ValueError, match="three"):
            worker.push_block(3, timeout=PATIENCE)
    assert heard[0] == [MessageOutcome.PROCESSED]
    assert heard[-1] == [MessageOutcome.FAILED]


class Spreads:
    """Leaves something for each executor that is free."""

    def __init__(self) -> None:
        self.held: list[int] = []
        self.seen: list[int] = []

    def add(self, message: int) -> None:
        self.held.append(message)

    def take(self, free: int = 1) -> list[int]:
        self.seen.append(free)
        size = -(-len(self.held) // free)
        batch, self.held = self.held[:size], self.held[size:]
        return batch

    def __len__(self) -> int:
        return len(self.held)


def test_a_behaviour_may_ask_how_many_executors_are_free() -> None:
    sizes: list[int] = []
    gate = threading.Event()

    def job(batch: list[int], _: Any) -> None:
        sizes.append(len(batch))
        gate.wait(PATIENCE)

    behaviour = Spreads()
    with af.spawn(job, behaviour=behaviour, concurrency=4) as worker:
        worker.push_many(range(8))
        gate.set()
        worker.stop(drain=True, timeout=PATIENCE)
    assert sum(sizes) == 8
    assert behaviour.seen[0] == 4
    assert max(sizes) <= 2


@pytest.mark.parametrize(
    "behaviour",
    [
        Shortest(weight=float, ageing=1.0),
        Lifo(Queue(), beyond=5),
        Chunk(Lifo(Queue(), beyond=5), 3),
        CoDel(Queue(), 60.0, 60.0),
        Window(0.01),
        Dedup(Queue(), within=60.0),
        Lanes(even=Queue(), odd=Chunk(Queue(), 2), by=lambda number: ("even", "odd")[number % 2]),
        Bounded(Queue(), 1e9, weight=float),
        Fair(key=lambda number: number % 3, weight=float),
        Linger(Queue(), 0.01, size=50, weight=float),
        Adaptive(Queue(), overhead=0.5),
        Sample(1_000),
    ],
    ids=repr,
)
def test_each_new_one_processes_all_that_is_pushed(behaviour: Any) -> None:
    seen: list[int] = []
    with af.spawn(lambda batch, _: seen.extend(batch), behaviour=behaviour) as worker:
        for number in range(200):
            worker.push(number)
        worker.stop(drain=True, timeout=PATIENCE)
    assert sorted(seen) == list(range(200))
