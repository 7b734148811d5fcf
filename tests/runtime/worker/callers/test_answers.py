"""Answers (M17, M18): what callers of `ask`, `aask` and `push_block` hear about their message."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pykka
import pytest

import actorflow as af
from actorflow.behaviours import Base, Bounded, Queue, Stack
from actorflow.runtime import tickets
from actorflow.runtime.worker.pair import runner
from actorflow.testing import ManualLane
from tests.runtime.worker.probe import PATIENCE, Caller, Probe, until, until_accumulated


def squares(batch: list[Any], state: Any) -> af.Answers:
    return af.Answers(state, [number * number for number in batch])


async def asquares(batch: list[Any], state: Any) -> af.Answers:
    await asyncio.sleep(0)
    return squares(batch, state)


class Squares(af.Executor):
    def handle(self, batch: list[Any]) -> af.Answers:
        self.calls = getattr(self, "calls", 0) + 1
        return squares(batch, None)


JOBS: dict[str, tuple[Any, dict[str, Any]]] = {
    "pool": (squares, {}),
    "thread": (squares, {"executor": "thread"}),
    "asyncio": (asquares, {}),
    "executor": (Squares, {}),
    "concurrent": (squares, {"concurrency": 3}),
    "help": (squares, {"help": True}),
}


@pytest.fixture(params=JOBS)
def squarer(request: pytest.FixtureRequest) -> Any:
    """Yield a worker that answers with squares, on each lane."""
    job, options = JOBS[request.param]
    worker = af.spawn(job, **options)
    yield worker
    worker.stop(now=True)


def holding(probe: Probe, **options: Any) -> af.WorkerRef:
    """Return a worker that is busy with the message `None`, which it answers with `None`."""
    worker = probe.spawn(**options)
    worker.push(None)
    probe.begun()
    return worker


# M17: one answer for each message, in the order of the batch.


def test_m17_ask_returns_the_answer_to_its_own_message(squarer: af.WorkerRef) -> None:
    callers = [Caller(squarer.ask, number) for number in range(20)]
    assert [caller.value() for caller in callers] == [number**2 for number in range(20)]
    assert squarer.statistics().processed == 20


def test_m17_aask_returns_the_answer_to_its_own_message(squarer: af.WorkerRef) -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(*(squarer.aask(number) for number in range(20)))

    assert asyncio.run(main()) == [number**2 for number in range(20)]


def test_m17_the_order_is_that_of_the_batch_whatever_the_behaviour(pool_probe: Probe) -> None:
    worker = holding(pool_probe, behaviour=Stack)
    futures = [worker.ask(number, block=False) for number in range(4)]
    until_accumulated(worker, 4)
    pool_probe.then(af.Answers(None, ["d", "c", "b", "a"]))
    pool_probe.open()
    assert pykka.get_all(futures, timeout=PATIENCE) == ["a", "b", "c", "d"]
    assert pool_probe.batches[1] == [3, 2, 1, 0]


def test_m17_a_job_that_gives_no_answers_answers_none(probe: Probe) -> None:
    worker = probe.spawn(state=7)
    probe.open()
    assert worker.ask("anything") is None
    assert asyncio.run(worker.aask("anything")) is None
    assert worker.ask("anything", block=False).get(timeout=PATIENCE) is None


def test_m17_push_and_push_block_ignore_answers_and_the_state_goes_on() -> None:
    def job(batch: list[Any], total: int) -> af.Answers:
        total += sum(batch)
        return af.Answers(total, [total] * len(batch))

    with af.spawn(job, state=0) as worker:
        worker.push(1)
        worker.push_block(2)
        assert worker.ask(3) == 6


class Summed(Base):
    """Hands over one number, made of all messages."""

    def transform(self, messages: Any) -> Any:
        return sum(messages)


def test_m17_a_payload_that_is_no_list_takes_one_answer_for_all() -> None:
    lane = ManualLane()
    worker = af.spawn(
        lambda total, state: af.Answers(None, [total * 10]), behaviour=Summed, executor=lane
    )
    futures = [worker.ask(number, block=False) for number in (1, 2, 3)]
    lane.run()
    assert pykka.get_all(futures, timeout=0) == [10, 50, 50]
    assert worker.statistics().processed == 3


# pykka's signature.


def test_ask_without_blocking_returns_a_pykka_future(squarer: af.WorkerRef) -> None:
    future = squarer.ask(4, block=False)
    assert isinstance(future, pykka.Future)
    assert future.get(timeout=PATIENCE) == 16
    assert future.map(lambda square: square + 1).get(timeout=PATIENCE) == 17


def test_get_all_over_several_workers() -> None:
    workers = [af.spawn(job, **options) for job, options in JOBS.values()]
    futures = [worker.ask(number, block=False) for number, worker in enumerate(workers, 2)]
    assert pykka.get_all(futures, timeout=PATIENCE) == [n**2 for n in range(2, 2 + len(workers))]
    for worker in workers:
        worker.stop()


def test_ask_raises_pykkas_timeout_and_withdraws_the_message(probe: Probe) -> None:
    worker = probe.spawn()
    worker.push(1)
    probe.begun()
    with pytest.raises(pykka.Timeout, match="withdrawn, unless it runs"):
        worker.ask(2, timeout=0.001)

    async def late() -> None:
        with pytest.raises(pykka.Timeout, match="withdrawn, unless it runs"):
            await worker.aask(3, timeout=0.001)

    asyncio.run(late())
    probe.open()
    worker.stop()
    assert probe.batches == [[1]]
    assert worker.statistics().abandoned == 2


def test_ask_with_a_timeout_that_suffices(squarer: af.WorkerRef) -> None:
    assert squarer.ask(3, timeout=PATIENCE) == 9
    assert asyncio.run(squarer.aask(3, timeout=PATIENCE)) == 9


def test_ask_waits_for_room_within_its_timeout(pool_probe: Probe) -> None:
    worker = holding(pool_probe, behaviour=Bounded(Queue, 1, when_full="block"))
    worker.push("fills it")
    with pytest.raises(pykka.Timeout):
        worker.ask("late", timeout=0.001)
    waits = Caller(worker.ask, "patient")
    until(lambda: len(worker.actor.offers._blocked or ()) == 1, "it waits for room")
    pool_probe.open()
    assert waits.value() is None
    assert "late" not in [message for batch in pool_probe.batches for message in batch]


def test_m5_a_future_in_line_for_room_is_answered_or_told_of_the_end(probe: Probe) -> None:
    worker = holding(probe, behaviour=Bounded(Queue, 1, when_full="block"))
    worker.push("fills it")
    lucky, late = (worker.ask(n, block=False) for n in (1, 2))
    probe.let_end()
    probe.begun()  # "fills it", and `lucky` has its place
    worker.stop(drain=False, block=False)
    probe.open()
    for future in (lucky, late):
        with pytest.raises(af.WorkerStopped):
            future.get(timeout=PATIENCE)


@pytest.mark.parametrize("block", [True, False])
def test_ask_of_its_own_job_would_deadlock(block: bool) -> None:  # noqa: FBT001
    def job(batch: list[Any], state: Any) -> None:
        if batch != ["mine"]:
            worker.ask("mine", block=block)

    worker = af.spawn(job)
    if block:
        with pytest.raises(af.WouldDeadlock):
            worker.push_block(1)
    else:  # nobody waits
        worker.push_block(1)
        worker.stop()
        assert worker.statistics().processed == 2


def test_an_ended_worker_refuses_each_ask() -> None:
    worker = af.spawn(squares)
    worker.stop()
    with pytest.raises(af.WorkerStopped):
        worker.ask(1)
    with pytest.raises(af.WorkerStopped):
        worker.ask(1, block=False).get(timeout=0)
    with pytest.raises(af.WorkerStopped):
        asyncio.run(worker.aask(1))


# Exceptions among the answers.


def picky(batch: list[Any], state: Any) -> af.Answers:
    """Answer with the text of a number; any other message fails alone."""
    return af.Answers(
        state, [str(m) if isinstance(m, int) else ValueError(f"{m} is not a number") for m in batch]
    )


async def apicky(batch: list[Any], state: Any) -> af.Answers:
    return picky(batch, state)


@pytest.mark.parametrize("job", [picky, apicky])
def test_m17_an_exception_is_raised_to_its_caller_alone_and_counted(job: Any) -> None:
    worker = af.spawn(job)
    callers = {message: Caller(worker.ask, message) for message in (1, "two", 3, "four")}
    for message, caller in callers.items():
        if isinstance(message, int):
            assert caller.value() == str(message)
        else:
            with pytest.raises(ValueError, match=f"{message} is not a number"):
                caller.value()
    with pytest.raises(ValueError, match="five is not a number"):
        worker.push_block("five")
    with pytest.raises(ValueError, match="six is not a number"):
        worker.ask("six", block=False).get(timeout=PATIENCE)
    assert worker.stop()
    assert worker.exit_reason == af.Normal()
    counted = worker.statistics()
    assert (counted.processed, counted.failed, counted.dead_letters) == (2, 4, 0)


def test_m17_with_retry_a_failed_message_is_run_again_alone() -> None:
    batches: list[list[str]] = []
    tries: dict[str, int] = {}
    lane = ManualLane()

    def job(batch: list[str], calls: int) -> af.Answers:
        batches.append(batch)
        reason = af.current_batch()
        assert reason is not None
        answers: list[Any] = []
        for message in batch:
            tries[message] = tries.get(message, 0) + 1
            again = message.startswith("flaky") and tries[message] < 3
            bad = again or message == "bad"
            answers.append(OSError(message) if bad else (message, reason.attempt))
        return af.Answers(calls + 1, answers)

    worker = af.spawn(job, on_failure=af.Retry(2), executor=lane, state=0)
    worker.push("first")
    futures = [worker.ask(m, block=False) for m in ("a", "flaky", "b", "bad")]
    lane.run()
    assert batches[:2] == [["first"], ["a", "flaky", "b", "bad"]]
    assert batches[2:] == [["flaky"], ["flaky"], ["bad"], ["bad"]]
    assert [future.get(timeout=0) for future in futures[:3]] == [("a", 1), ("flaky", 3), ("b", 1)]
    with pytest.raises(OSError, match="bad"):
        futures[3].get(timeout=0)
    counted = worker.statistics()
    assert (counted.processed, counted.failed, counted.in_flight) == (4, 1, 0)
    assert counted.reasons == {"idle": 2}
    assert worker.actor.value == 6
    assert worker.is_alive()


def test_m17_with_isolate_a_failed_message_becomes_a_dead_letter() -> None:
    lane = ManualLane()
    worker = af.spawn(picky, on_failure="isolate", executor=lane)
    worker.push(0)
    futures = [worker.ask(message, block=False) for message in (1, "two", 3)]
    lane.run()
    assert futures[0].get(timeout=0) == "1"
    assert futures[2].get(timeout=0) == "3"
    with pytest.raises(ValueError, match="two is not a number"):
        futures[1].get(timeout=0)
    (letter,) = worker.dead_letters
    assert letter.message == "two"
    counted = worker.statistics()
    assert (counted.processed, counted.failed, counted.dead_lettered) == (3, 0, 1)


@pytest.mark.parametrize("count", [1, 3])
def test_m17_a_job_that_empties_its_batch_cannot_answer_it(count: int) -> None:
    lane = ManualLane()

    def job(batch: list[int], _state: Any) -> Any:
        if batch == [0]:
            return None
        batch.clear()
        return af.Answers(None, [])

    worker = af.spawn(job, executor=lane)
    worker.push(0)
    futures = [worker.ask(number, block=False) for number in range(1, count + 1)]
    lane.run()
    for future in futures:
        with pytest.raises(af.BadJob, match="has removed messages"):
            future.get(timeout=0)
    assert isinstance(worker.exit_reason, af.Crash)
    assert worker.statistics().failed == count


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([1], "1 answers for a batch of 2"),
        ([1, 2, 3], "3 answers for a batch of 2"),
        ([], "0 answers for a batch of 2"),
        ("ab", "needs a list with one answer for each message"),
        (None, "needs a list with one answer for each message"),
        ({1: 2}, "needs a list with one answer for each message"),
    ],
)
def test_m17_a_wrong_number_of_answers_is_an_error_for_the_whole_batch(
    answers: Any, said: str
) -> None:
    lane = ManualLane()
    worker = af.spawn(
        lambda batch, state: None if batch == [0] else af.Answers(None, answers), executor=lane
    )
    worker.push(0)
    futures = [worker.ask(number, block=False) for number in (1, 2)]
    lane.run()
    for future in futures:
        with pytest.raises(af.BadJob, match=said):
            future.get(timeout=0)
    assert isinstance(worker.exit_reason, af.Crash)
    assert worker.statistics().failed == 2


def test_m17_an_interrupt_among_the_answers_is_the_failure_of_that_message() -> None:
    lane = ManualLane()
    worker = af.spawn(
        lambda batch, state: af.Answers(None, [KeyboardInterrupt("mine")] * len(batch)),
        executor=lane, on_failure="isolate",
    )  # fmt: skip
    future = worker.ask(1, block=False)
    lane.run()
    with pytest.raises(KeyboardInterrupt, match="mine"):
        future.get(timeout=0)
    assert worker.is_alive()
    assert (worker.statistics().failed, worker.statistics().dead_lettered) == (1, 0)


# The end of the worker.


def test_the_end_of_the_worker_ends_every_ask(probe: Probe) -> None:
    worker = holding(probe)
    waits = Caller(worker.ask, 1)
    until_accumulated(worker, 1)
    future = worker.ask(2, block=False)
    worker.stop(now=True)
    with pytest.raises(af.WorkerStopped):
        waits.value()
    with pytest.raises(af.WorkerStopped):
        future.get(timeout=PATIENCE)


def test_a_drain_answers_what_was_asked(probe: Probe) -> None:
    worker = holding(probe)
    future = worker.ask(1, block=False)
    probe.then(af.Answers(None, ["last"]))
    stopped = Caller(worker.stop)
    until(lambda: worker.status is af.PairState.STOPPING, "it stops")
    probe.open()
    assert future.get(timeout=PATIENCE) == "last"
    assert stopped.value()


def test_many_threads_get_their_own_answers_and_none_twice() -> None:
    wrong: list[Any] = []
    with af.spawn(squares, concurrency=2) as worker:

        def ask(first: int) -> None:
            wrong.extend(n for n in range(first, first + 300) if worker.ask(n) != n * n)

        threads = [threading.Thread(target=ask, args=(1_000 * n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert worker.statistics().processed == 2_400
    assert wrong == []


def test_threads_that_ask_again_at_once_share_the_next_batch(
    pool_probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the answers are under way, the next batch is not taken."""
    pool_probe.then(None, af.Answers(None, [1, 2]))
    worker = pool_probe.spawn()
    worker.push("first")
    pool_probe.begun()
    callers = [Caller(worker.ask, "a"), Caller(worker.ask, "b")]
    until_accumulated(worker, 2)
    pool_probe.let_end()
    assert len(pool_probe.begun()) == 2
    worker.push("waits")
    monkeypatch.setattr(runner, "let_callers_run", lambda _ticket: worker.push("asks again"))
    pool_probe.let_end()
    assert sorted(caller.value() for caller in callers) == [1, 2]
    assert pool_probe.begun() == ["waits", "asks again"]
    monkeypatch.undo()
    pool_probe.open()


def test_tasks_that_ask_again_at_once_share_the_next_batch(
    pool_probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tickets, "_TURN", PATIENCE)
    pool_probe.then(None, af.Answers(None, [1, 2]), af.Answers(None, [3, 4, 5]))
    worker = pool_probe.spawn()

    async def caller(name: str) -> list[int]:
        return [await worker.aask(name), await worker.aask(name)]

    async def main() -> list[list[int]]:
        worker.push("first")
        await asyncio.to_thread(pool_probe.begun)
        tasks = [asyncio.create_task(caller(name)) for name in ("a", "b")]
        await asyncio.sleep(0)
        pool_probe.let_end()
        assert await asyncio.to_thread(pool_probe.begun) == ["a", "b"]
        worker.push("waits")
        pool_probe.open()
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [[1, 4], [2, 5]]
    assert pool_probe.batches[-1] == ["waits", "a", "b"]


def test_nobody_waits_for_a_loop_that_is_closed_or_runs_in_this_thread() -> None:
    async def main() -> tickets.AsyncTicket:
        ticket = tickets.AsyncTicket()
        tickets.let_callers_run(ticket)  # would wait for itself
        return ticket

    tickets.let_callers_run(asyncio.run(main()))
    tickets.let_callers_run(None)
