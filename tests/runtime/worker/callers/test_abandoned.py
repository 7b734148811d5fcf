"""A message is withdrawn if everybody who asked for its answer has given up before its turn."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import (
    Adaptive,
    Bounded,
    Chunk,
    Deadline,
    Expire,
    PadTo,
    PerKey,
    Priority,
    Queue,
    Stack,
    Unique,
    Window,
)
from tests.runtime.worker.probe import PATIENCE
from tests.runtime.worker.statistics.law import check_law

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.runtime.worker.probe import Probe

BEHAVIOURS: list[Callable[[], Any]] = [
    Queue,
    Stack,
    lambda: Chunk(Queue(), 3),
    lambda: Bounded(Queue(), 9),
    Priority,
    lambda: Chunk(Priority(), 2),
    lambda: Expire(Queue(), 60),
    lambda: Adaptive(Queue()),
    lambda: Deadline(within=60),
    lambda: PadTo(Queue(), sizes=[1, 2, 4]),
    lambda: PerKey(key=1),
    lambda: Window(0.01),
]


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_late_ask_is_withdrawn_and_all_others_are_processed(
    behaviour: Callable[[], Any], before: int, pool_probe: Probe
) -> None:
    worker = pool_probe.spawn(behaviour=behaviour)
    worker.push((0, "first"))
    pool_probe.begun()
    wanted = [(0, f"wanted {number}") for number in range(before)]
    worker.push_many(wanted)
    for number in range(2):
        with pytest.raises(af.AnswerTimeout):
            worker.ask((0, f"late {number}"), timeout=0.0)
    pool_probe.open()
    worker.stop()
    handed = [message for batch in pool_probe.batches for message in batch]
    assert sorted(handed) == sorted([(0, "first"), *wanted])
    statistics = check_law(worker)
    assert (statistics.abandoned, statistics.processed) == (2, 1 + before)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_late_ask_is_counted_while_the_worker_is_still_busy(
    behaviour: Callable[[], Any], pool_probe: Probe
) -> None:
    worker = pool_probe.spawn(behaviour=behaviour)
    worker.push((0, "first"))
    pool_probe.begun()
    worker.push((0, "wanted"))
    with pytest.raises(af.AnswerTimeout):
        worker.ask((0, "late"), timeout=0.0)
    assert len(worker) == 1
    assert (check_law(worker).abandoned, worker.statistics().held) == (1, 1)
    pool_probe.open()
    worker.stop()
    assert check_law(worker).processed == 2


@pytest.mark.parametrize("inner", [Queue, lambda: Priority(key=abs), lambda: Chunk(Queue(), 1)])
def test_a_late_ask_leaves_its_place_below_a_bound_to_others(
    inner: Callable[[], Any], pool_probe: Probe
) -> None:
    worker = pool_probe.spawn(behaviour=Bounded(inner(), 2))
    worker.push(0)
    pool_probe.begun()
    for number in 1, 2:
        with pytest.raises(af.AnswerTimeout):
            worker.ask(number, timeout=0.0)
    worker.push_ack(3)
    worker.push_ack(4)
    with pytest.raises(af.Full):
        worker.push_ack(5)
    pool_probe.open()
    worker.stop()
    assert sorted(message for batch in pool_probe.batches for message in batch) == [0, 3, 4]
    assert check_law(worker).abandoned == 2


def test_a_cancelled_aask_is_withdrawn(pool_probe: Probe) -> None:
    worker = pool_probe.spawn()

    async def main() -> None:
        worker.push(0)
        await asyncio.to_thread(pool_probe.begun)
        asked = asyncio.create_task(worker.aask(1))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        pool_probe.open()
        await worker.astop()

    asyncio.run(main())
    assert pool_probe.batches == [[0]]
    assert check_law(worker).abandoned == 1


def test_a_late_push_block_stays_accumulated(pool_probe: Probe) -> None:
    worker = pool_probe.spawn()
    worker.push(0)
    pool_probe.begun()
    with pytest.raises(af.PushTimeout):
        worker.push_block(1, timeout=0.0)
    pool_probe.open()
    worker.stop()
    assert pool_probe.batches == [[0], [1]]
    assert check_law(worker).abandoned == 0


def test_a_message_that_others_have_merged_with_is_not_withdrawn(pool_probe: Probe) -> None:
    worker = pool_probe.spawn(behaviour=Unique(key=lambda message: 0))
    worker.push(0)
    pool_probe.begun()
    with pytest.raises(af.AnswerTimeout):
        worker.ask(1, timeout=0.0)
    pool_probe.open()
    worker.stop()
    assert pool_probe.batches == [[0], [1]]


def test_a_running_job_sees_that_nobody_waits_any_more() -> None:
    seen = []
    late, asked = threading.Event(), threading.Event()

    def job(batch: list[int], state: Any) -> Any:
        current = af.current_batch()
        assert current is not None
        seen.append(current.abandoned)
        asked.set()
        assert late.wait(PATIENCE)
        seen.append(current.abandoned)
        return af.Answers(state, batch)

    with af.spawn(job) as worker:

        async def main() -> None:
            asking = asyncio.create_task(worker.aask(1))
            await asyncio.to_thread(asked.wait)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking

        asyncio.run(main())
        late.set()
        assert worker.ask(2) == 2
    assert seen == [False, True, False, False]
