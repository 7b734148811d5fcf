"""Messages by key, counted while a worker goes on."""

from __future__ import annotations

import threading
from typing import Any, Self

import pytest

import actorflow as af
from actorflow.behaviours import (
    Bounded,
    Bucket,
    Chunk,
    Coalesce,
    Fair,
    Lanes,
    PerKey,
    Queue,
    Unique,
)
from actorflow.runtime.worker.depths import key_depths

PATIENCE = 20.0
MESSAGES = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("a", 5), ("b", 6)]


class Busy:
    """A worker whose executor is in the middle of a batch."""

    def __init__(self, behaviour: Any) -> None:
        self.begun, self.end = threading.Event(), threading.Event()
        self.worker = af.spawn(self.job, behaviour=behaviour)
        self.worker.push(("first", 0))
        assert self.begun.wait(PATIENCE)

    def job(self, _batch: Any, _state: None) -> None:
        self.begun.set()
        assert self.end.wait(PATIENCE)

    def depths(self, most: int = 10) -> Any:
        """Look from another thread, as the dashboard does."""
        found: list[Any] = []

        def look() -> None:
            try:
                found.append(key_depths(self.worker.actor, most))
            except Exception as error:  # noqa: BLE001 - compared by the test
                found.append(error)

        thread = threading.Thread(target=look)
        thread.start()
        thread.join(PATIENCE)
        return found[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        self.worker.stop()


@pytest.mark.parametrize(
    ("behaviour", "largest"),
    [
        (Fair(key=0), [("'a'", 3), ("'b'", 2), ("'c'", 1)]),
        (Fair(key=0, weight=lambda _: 1.0), [("'a'", 3), ("'b'", 2), ("'c'", 1)]),
        (Bucket(key=0), [("'a'", 3), ("'b'", 2), ("'c'", 1)]),
        (PerKey(Queue(), key=0), [("'a'", 3), ("'b'", 2), ("'c'", 1)]),
        (Bounded(Chunk(Fair(key=0), 2), 100), [("'a'", 3), ("'b'", 2), ("'c'", 1)]),
        (Unique(key=0), [("'a'", 1), ("'b'", 1), ("'c'", 1)]),
        (Coalesce(key=0, merge=lambda _, new: new), [("'a'", 1), ("'b'", 1), ("'c'", 1)]),
        (Lanes(odd=Queue(), even=Queue(), by=lambda each: "odd" if each[1] % 2 else "even"),
         [("'odd'", 3), ("'even'", 3)]),
    ],
)  # fmt: skip
def test_messages_that_wait_are_counted_by_key(behaviour: Any, largest: list[Any]) -> None:
    with Busy(behaviour) as busy:
        busy.worker.push_many(MESSAGES)
        found = busy.depths()
        assert found.largest == largest
        assert found.keys == len(largest)
        assert found.counted == sum(count for _, count in largest) == len(busy.worker)
        assert busy.depths(most=1).largest == largest[:1]


def test_a_behaviour_without_keys_has_no_depths() -> None:
    with Busy(Chunk(Queue(), 2)) as busy:
        busy.worker.push_many(MESSAGES)
        assert busy.depths() is None
        assert busy.worker.statistics().held == 6


def test_a_long_line_is_not_counted_to_its_end() -> None:
    with Busy(PerKey(Queue(), key=0)) as busy:
        busy.worker.push_many([("a", number) for number in range(10_100)])
        found = busy.depths()
        assert found.counted == 10_000
        assert len(busy.worker) == 10_100


class Topics:
    """A custom behaviour that counts its keys."""

    def __init__(self, *, broken: bool = False) -> None:
        self.held: list[Any] = []
        self.broken = broken

    def add(self, message: Any) -> None:
        self.held.append(message)

    def take(self) -> list[Any]:
        batch, self.held = self.held, []
        return batch

    def __len__(self) -> int:
        return len(self.held)

    def depths(self) -> dict[str, int]:
        if self.broken:
            raise ZeroDivisionError
        return {"topic": len(self.held)}


def test_a_behaviour_of_ones_own_may_count_its_keys() -> None:
    with Busy(Topics()) as busy:
        busy.worker.push_many(MESSAGES)
        assert busy.depths().largest == [("'topic'", 6)]


def test_what_raises_while_it_counts_leaves_the_worker_alone() -> None:
    with Busy(Topics(broken=True)) as busy:
        busy.worker.push_many(MESSAGES)
        assert isinstance(busy.depths(), ZeroDivisionError)
        assert busy.worker.statistics().held == 6


def test_messages_are_counted_while_others_come_and_go() -> None:
    processed: list[Any] = []
    with af.spawn(
        lambda batch, _: processed.extend(batch), behaviour=Chunk(Fair(key=0), 3)
    ) as worker:

        def look() -> None:
            for _ in range(200):
                found = key_depths(worker.actor, 10)
                assert found is not None
                assert found.counted >= 0

        threads = [threading.Thread(target=look) for _ in range(3)]
        for each in threads:
            each.start()
        for number in range(2_000):
            worker.push((number % 7, number))
        for each in threads:
            each.join(PATIENCE)
    assert sorted(processed) == sorted((number % 7, number) for number in range(2_000))
    in_order = {key: [number for one, number in processed if one == key] for key in range(7)}
    assert all(numbers == sorted(numbers) for numbers in in_order.values())
