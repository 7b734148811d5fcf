"""One question in several messages: `ask(Split(parts, join))`."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorflow as af
from actorflow.behaviours import Bounded, Chunk, Fair, Priority, Queue, Stack, Unique
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.probe import PATIENCE, until
from tests.runtime.worker.statistics.law import check_law

if TYPE_CHECKING:
    from tests.runtime.worker.probe import Probe

BEHAVIOURS: list[Any] = [
    Queue,
    Stack,
    lambda: Priority(key=lambda number: number),
    lambda: Chunk(Queue(), 2),
    lambda: Chunk(Stack(), 3),
    lambda: Fair(key=lambda number: number % 3),
    lambda: Bounded(Queue(), 1_000),
]


def square(batch: list[int], _: object) -> af.Answers[None, int]:
    answers = [ValueError(number) if number < 0 else number * number for number in batch]
    return af.Answers(None, answers)


@given(
    questions=st.lists(st.lists(st.integers(-2, 9), max_size=5), min_size=1, max_size=6),
    which=st.integers(0, len(BEHAVIOURS) - 1),
)
def test_each_caller_gets_the_joined_answers_of_its_own_parts(
    questions: list[list[int]], which: int
) -> None:
    lane = ManualLane()
    worker = af.spawn(square, behaviour=BEHAVIOURS[which], executor=lane, clock=VirtualClock())
    asked = [worker.ask(af.Split(parts, list), block=False) for parts in questions]
    lane.run()
    for parts, future in zip(questions, asked, strict=True):
        if min(parts, default=0) < 0:
            with pytest.raises(ValueError, match="-"):
                future.get(timeout=0)
        else:
            assert future.get(timeout=0) == [number * number for number in parts]
    check_law(worker)


def test_an_idle_worker_gets_the_parts_as_one_batch(pool_probe: Probe) -> None:
    worker = pool_probe.spawn()
    future = worker.ask(af.Split([1, 2, 3], tuple), block=False)
    pool_probe.begun()
    pool_probe.then(af.Answers(None, ["abc"]))
    pool_probe.open()
    del future
    assert pool_probe.batches == [[1, 2, 3]]


def test_parts_share_a_batch_with_messages_of_others() -> None:
    sizes: list[int] = []
    lane = ManualLane()

    def job(batch: list[int], _: object) -> af.Answers[None, int]:
        sizes.append(len(batch))
        return square(batch, _)

    worker = af.spawn(job, executor=lane)
    worker.push(0)
    first = worker.ask(af.Split([1, 2], sum), block=False)
    second = worker.ask(af.Split([3, 4], sum), block=False)
    lane.run()
    assert (first.get(timeout=0), second.get(timeout=0)) == (5, 25)
    assert max(sizes) >= 4


def test_the_blocking_and_the_async_call() -> None:
    with af.spawn(square) as worker:
        assert worker.ask(af.Split([1, 2, 3], sum), timeout=PATIENCE) == 14
        assert asyncio.run(worker.aask(af.Split([1, 2], sum), timeout=PATIENCE)) == 5
        assert worker.ask(af.Split([], sum)) == 0
        assert worker.ask(af.Split([1], lambda _: None), timeout=PATIENCE) is None
        with pytest.raises(ZeroDivisionError):
            worker.ask(af.Split([1], lambda answers: answers[0] / 0), timeout=PATIENCE)


def test_other_parts_are_withdrawn_when_one_fails() -> None:
    lane = ManualLane()
    worker = af.spawn(square, behaviour=lambda: Chunk(Queue(), 1), executor=lane)
    future = worker.ask(af.Split([-1, 2, 3], list), block=False)
    lane.run()
    with pytest.raises(ValueError, match="-1"):
        future.get(timeout=0)
    statistics = check_law(worker)
    assert statistics.abandoned == 2


def test_all_parts_are_withdrawn_when_the_caller_gives_up() -> None:
    entered, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def job(batch: list[int], _: object) -> af.Answers[None, int]:
        seen.extend(batch)
        entered.set()
        assert go_on.wait(PATIENCE)
        return square(batch, _)

    with af.spawn(job) as worker:
        worker.push(0)
        assert entered.wait(PATIENCE)
        with pytest.raises(af.AnswerTimeout):
            worker.ask(af.Split([1, 2], sum), timeout=0.0)
        go_on.set()
        until(lambda: worker.is_idle, "the worker is idle")
        assert seen == [0]
        assert check_law(worker).abandoned == 2


def test_a_part_that_is_refused_or_displaced_fails_the_whole() -> None:
    lane = ManualLane()
    worker = af.spawn(square, behaviour=Bounded(Queue(), 2), executor=lane)
    worker.push_many([7, 8])
    worker.push_many([7, 8])
    with pytest.raises(af.Full):
        worker.ask(af.Split([1, 2, 3], sum), block=False).get(timeout=0)
    unique = af.spawn(square, behaviour=Unique(key=lambda number: number % 2), executor=lane)
    unique.push(0)
    with pytest.raises(af.Replaced):
        unique.ask(af.Split([1, 3], sum), block=False).get(timeout=0)
    lane.run()


def test_a_worker_that_has_ended_refuses_a_split() -> None:
    worker = af.spawn(square)
    worker.stop()
    with pytest.raises(af.WorkerStopped):
        worker.ask(af.Split([1], sum))


@pytest.mark.parametrize(
    ("parts", "join", "match"), [("text", sum, "one text"), ([1], None, "must be a function")]
)
def test_a_split_that_cannot_work_is_refused(parts: Any, join: Any, match: str) -> None:
    with pytest.raises(af.BadOption, match=match):
        af.Split(parts, join)
