"""Messages that the job gets again: `Again`, retries that wait, late pushes, breakers on trial."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Chunk, PerKey, Priority, Queue, Rate, Throttle
from actorflow.runtime.restarts import Backoff
from actorflow.runtime.worker.job.failure import Retry
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.probe import PATIENCE


def steps(batch: list[tuple[str, int]], _: Any) -> af.Answers:
    """Take one step of each request; the answer is how its text has grown."""
    return af.Answers(
        None,
        [text if not left else af.Again((text + ".", left - 1)) for text, left in batch],
    )


@pytest.mark.parametrize(
    "behaviour",
    [
        Queue,
        lambda: Chunk(Queue(), 2),
        lambda: Priority(key=1),
        lambda: Throttle(Queue(), 0.0001),
        lambda: PerKey(Queue(), key=lambda request: request[0][:1]),
        lambda: Rate(Queue(), 1e6, burst=10),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_message_that_the_job_asks_for_again_keeps_its_caller(
    behaviour: Any, concurrency: int
) -> None:
    async def main() -> list[Any]:
        with af.spawn(steps, behaviour=behaviour(), concurrency=concurrency) as worker:
            asked = [
                worker.aask((name, at % 5), timeout=PATIENCE) for at, name in enumerate("abcdefgh")
            ]
            return await asyncio.gather(*asked)

    answers = asyncio.run(main())
    assert answers == [name + "." * (at % 5) for at, name in enumerate("abcdefgh")]


def test_short_requests_do_not_wait_for_the_long_ones_that_came_with_them() -> None:
    sizes: list[int] = []
    order: list[str] = []

    def job(batch: list[tuple[str, int]], state: Any) -> af.Answers:
        sizes.append(len(batch))
        order.extend(text for text, left in batch if not left)
        return steps(batch, state)

    with af.spawn(job, behaviour=Chunk(Queue(), 4)) as worker:
        worker.push_many([("long", 9), ("a", 0), ("b", 0), ("c", 0), ("d", 0)])
        worker.stop(drain=True, timeout=PATIENCE)
    assert order == ["a", "b", "c", "d", "long........."]
    assert sizes[:2] == [4, 2]


def test_a_full_behaviour_tells_the_caller_of_a_message_that_does_not_fit_again() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def job(batch: list[tuple[str, int]], state: Any) -> af.Answers:
        entered.set()
        assert go_on.wait(PATIENCE)
        return steps(batch, state)

    with af.spawn(job, behaviour=Bounded(Queue(), 1)) as worker:
        future = worker.ask(("a", 1), block=False)
        assert entered.wait(PATIENCE)
        worker.push_ack(("b", 0))
        go_on.set()
        with pytest.raises(af.Full):
            future.get(timeout=PATIENCE)


class Failing:
    """A job that fails so many times, and notes when it was called."""

    def __init__(self, clock: VirtualClock, times: int) -> None:
        self.clock = clock
        self.left = times
        self.calls: list[float] = []

    def __call__(self, batch: list[Any], _: Any) -> None:
        self.calls.append(self.clock.now())
        if self.left:
            self.left -= 1
            raise ValueError("not yet")


def run(behaviour: Any, policy: Any, times: int, span: float) -> list[float]:
    clock, lane = VirtualClock(), ManualLane()
    job = Failing(clock, times)
    worker = af.spawn(job, behaviour=behaviour, on_failure=policy, clock=clock, executor=lane)
    worker.push("a")
    lane.run()
    for _ in range(int(span * 4)):
        clock.advance(0.25)
        lane.run()
    begin = job.calls[0]
    worker.kill()
    return [round(call - begin, 3) for call in job.calls]


def test_a_retry_backs_off() -> None:
    assert run(Queue(), af.Retry(3, backoff=0.5), 3, 6.0) == [0.0, 0.5, 1.5, 3.5]
    backoff = Backoff(initial=1.0, factor=1.0)
    assert run(Queue(), af.Retry(3, backoff=backoff), 3, 6.0) == [0.0, 1.0, 2.0, 3.0]
    assert run(Queue(), af.Retry(3), 3, 1.0) == [0.0, 0.0, 0.0, 0.0]


def test_jitter_takes_a_random_part_off() -> None:
    assert Retry(3, backoff=1.0, jitter=0.5).wait(2, 0.5) == 1.5
    assert Retry(3, backoff=1.0).wait(9, 0.5) == 30.0


def test_retries_respect_the_rate_limit() -> None:
    assert run(Rate(Queue(), 1.0), af.Retry(3), 3, 6.0) == [0.0, 1.0, 2.0, 3.0]
    assert run(Throttle(Queue(), 2.0), af.Retry(2), 2, 6.0) == [0.0, 2.0, 4.0]


@pytest.mark.parametrize(
    "build",
    [lambda: Retry(3, backoff=-1), lambda: Retry(3, jitter=2), lambda: af.Breaker(half_open=0)],
)
def test_bad_numbers_are_refused(build: Any) -> None:
    with pytest.raises(af.BadOption, match="as in"):
        build()


def test_a_worker_may_stop_while_a_retry_waits() -> None:
    clock, lane = VirtualClock(), ManualLane()
    job = Failing(clock, 9)
    worker = af.spawn(job, on_failure=af.Retry(3, backoff=5.0), clock=clock, executor=lane)
    future = worker.ask("a", block=False)
    lane.run()
    worker.kill()
    lane.run()
    with pytest.raises(af.ActorflowError):
        future.get(timeout=PATIENCE)
    clock.advance(10.0)
    lane.run()
    assert len(job.calls) == 1


def test_a_message_can_be_pushed_later_or_not_after_all() -> None:
    seen: list[str] = []
    done = threading.Event()

    def job(batch: list[str], _: Any) -> None:
        seen.extend(batch)
        if "late" in seen:
            done.set()

    with af.spawn(job) as worker:
        never = worker.push_after(0.05, "never")
        worker.push_after(0.1, "late")
        worker.push("now")
        never.cancel()
        assert done.wait(PATIENCE)
        with pytest.raises(af.BadOption, match="delay=-1"):
            worker.push_after(-1, "x")
    assert seen == ["now", "late"]
    with pytest.raises(af.WorkerStopped):
        worker.push_after(1.0, "x")
