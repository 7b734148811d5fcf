"""A pool: several workers with the same job behind one front."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import actorflow as af
from actorflow.behaviours import Bounded, Chunk, Queue
from tests.runtime.worker.probe import PATIENCE, until

ROUTES: list[dict[str, Any]] = [
    {"route": "shared"},
    {"route": "least"},
    {"route": "key", "key": lambda message: message},
]


def square(batch: list[int], _: object) -> af.Answers[None, Any]:
    answers = [ValueError(number) if number < 0 else number * number for number in batch]
    return af.Answers(None, answers)


class Member(af.Executor):
    """Notes what it gets; all members of a test share `seen`."""

    seen: dict[int, list[Any]]

    def on_start(self) -> None:
        self.mine = self.seen.setdefault(id(self), [])

    def handle(self, batch: list[Any]) -> af.Answers[None, int]:
        if "crash" in batch:
            raise ValueError("crash")
        self.mine.extend(batch)
        return af.Answers(None, [id(self)] * len(batch))


@pytest.fixture
def member() -> type[Member]:
    class Mine(Member):
        pass

    Mine.seen = {}
    return Mine


@pytest.mark.parametrize("options", ROUTES, ids=lambda options: options["route"])
def test_callers_get_their_own_answers(options: dict[str, Any]) -> None:
    with af.Pool(af.Worker("square", square), 3, **options) as pool:
        assert [pool.ask(number, timeout=PATIENCE) for number in range(10)] == [
            number * number for number in range(10)
        ]
        with pytest.raises(ValueError, match="-3"):
            pool.ask(-3, timeout=PATIENCE)
        pool.push_block(1, timeout=PATIENCE)
        pool.push_ack(2)

        async def main() -> list[Any]:
            await pool.apush(1)
            await pool.apush_block(1, timeout=PATIENCE)
            return await asyncio.gather(*[pool.aask(number) for number in range(20)])

        assert asyncio.run(main()) == [number * number for number in range(20)]
        assert len(pool) == len(pool.workers) == 3


@pytest.mark.parametrize("options", ROUTES, ids=lambda options: options["route"])
def test_a_stop_drains_everything(options: dict[str, Any], member: type[Member]) -> None:
    pool = af.Pool(af.Worker("member", member), 4, **options)
    pool.push_many(range(1_000))
    pool.stop(timeout=PATIENCE)
    assert sorted(each for seen in member.seen.values() for each in seen) == list(range(1_000))
    assert len(member.seen) == 4
    with pytest.raises(af.WorkerStopped):
        pool.push(1)


def test_all_workers_of_a_shared_pool_work_at_once() -> None:
    meeting = threading.Barrier(3)

    def job(batch: list[int], _: object) -> None:
        meeting.wait(PATIENCE)

    with af.Pool(af.Worker("meet", job, behaviour=Chunk(Queue(), 1)), 3) as pool:
        pool.push_many([1, 2, 3])
        until(lambda: pool.statistics()["meet"].processed == 3, "three batches at once")


def test_each_worker_keeps_a_state_of_its_own() -> None:
    def add(batch: list[int], total: int) -> af.Answers[int, int]:
        total += sum(batch)
        return af.Answers(total, [total] * len(batch))

    worker = af.Worker("sum", add, state=0)
    with af.Pool(worker, 3, route="key", key=lambda number: number % 3) as pool:
        for number in range(30):
            pool.push(number)
        sums = {pool.ask(key, timeout=PATIENCE) - key for key in range(3)}
    assert sums == {sum(range(key, 30, 3)) for key in range(3)}


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers()), max_size=60))
def test_a_key_stays_with_its_worker_and_in_order(messages: list[tuple[int, int]]) -> None:
    class Mine(Member):
        pass

    Mine.seen = {}
    with af.Pool(af.Worker("member", Mine), 3, route="key", key=0) as pool:
        pool.push_many(messages)
    homes: dict[int, set[int]] = {}
    for home, seen in Mine.seen.items():
        for key, _ in seen:
            homes.setdefault(key, set()).add(home)
    assert all(len(places) == 1 for places in homes.values())
    for key in homes:
        got = [each for seen in Mine.seen.values() for each in seen if each[0] == key]
        assert got == [each for each in messages if each[0] == key]


def test_least_avoids_a_worker_that_hangs() -> None:
    go_on, entered = threading.Event(), threading.Event()

    def job(batch: list[str], _: object) -> af.Answers[None, str]:
        if "slow" in batch:
            entered.set()
            assert go_on.wait(PATIENCE)
        return af.Answers(None, batch)

    with af.Pool(af.Worker("w", job), 2, route="least") as pool:
        pool.push("slow")
        assert entered.wait(PATIENCE)
        assert [pool.ask("quick", timeout=PATIENCE) for _ in range(10)] == ["quick"] * 10
        go_on.set()


@pytest.mark.parametrize("options", ROUTES, ids=lambda options: options["route"])
def test_a_crash_concerns_its_own_batch_and_the_worker_comes_back(
    options: dict[str, Any], member: type[Member]
) -> None:
    worker = af.Worker("member", member, behaviour=lambda: Chunk(Queue(), 1))
    restart = af.Restart(max_restarts=100)
    with af.Pool(worker, 2, supervisor=restart, **options) as pool:
        for _ in range(3):
            with pytest.raises(ValueError, match="crash"):
                pool.ask("crash", timeout=PATIENCE)
            assert pool.ask("fine", timeout=PATIENCE) in member.seen


def test_the_bound_of_a_shared_pool_is_that_of_its_front() -> None:
    go_on, entered = threading.Event(), threading.Semaphore(0)

    def job(batch: list[int], _: object) -> None:
        entered.release()
        assert go_on.wait(PATIENCE)

    worker = af.Worker("w", job, behaviour=Bounded(Chunk(Queue(), 1), 2))
    with af.Pool(worker, 2) as pool:
        for number in range(2):
            pool.push_ack(number)
            assert entered.acquire(timeout=PATIENCE)
        for number in range(2):
            pool.push_ack(number)
        with pytest.raises(af.Full):
            pool.push_ack(9)
        go_on.set()


def test_callers_hear_of_workers_that_have_ended() -> None:
    pool = af.Pool(af.Worker("square", square), 1, supervisor=af.Restart("temporary"))
    for worker in pool.workers:
        worker.kill()
    until(lambda: not pool.workers[0].is_alive(), "it has ended")
    with pytest.raises(af.WorkerStopped):
        pool.ask(1, timeout=PATIENCE)
    pool.stop()


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: af.Pool(square, 2), "specification"),  # type: ignore[arg-type]
        (lambda: af.Pool(af.Worker("w", square), 0), "n"),
        (lambda: af.Pool(af.Worker("w", square), 2, route="random"), "random"),
        (lambda: af.Pool(af.Worker("w", square), 2, route="key"), "key="),
        (lambda: af.Pool(af.Worker("w", square), 2, key=0), "key="),
        (lambda: af.Pool(af.Worker("w", square, name="w"), 2), "name"),
        (lambda: af.Pool(af.Worker("w", square, concurrency=2), 2), "concurrency"),
    ],
)
def test_a_pool_that_cannot_work_is_refused(build: Any, match: str) -> None:
    with pytest.raises(af.BadOption, match=match):
        build()
