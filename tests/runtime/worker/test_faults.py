"""Faults that once were: hostile messages, errors, handlers and crowds that stick nothing."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Chunk, Linger, Queue, Unique
from actorflow.runtime.worker.job.dead_letters import DeadLetters
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.probe import Caller, Probe, ended, until
from tests.runtime.worker.statistics.law import check_law

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Floods.


def flood(count: int) -> float:
    """Return the seconds that so many malformed messages take to be refused."""
    lane = ManualLane()
    worker = af.spawn(lambda batch, state: None, behaviour=Unique, executor=lane)
    worker.push(("busy", 0))
    worker.push_many([5] * count)
    begin = time.process_time()
    lane.run()
    took = time.process_time() - begin
    assert worker.statistics().rejected == count
    return took


def test_a_flood_of_malformed_messages_is_refused_in_linear_time() -> None:
    """Quadratic, the larger flood would take 64 times as long; linear, 8 times."""
    small = min(flood(5_000) for _ in range(3))
    assert flood(40_000) < 30 * small


@pytest.mark.parametrize("behaviour", [lambda: Unique(key=0), lambda: Bounded(Unique(key=0), 5)])
@pytest.mark.parametrize("verb", ["push_ack", "push_block", "ask"])
def test_a_message_that_is_refused_holds_up_none_that_has_woken_the_worker(
    behaviour: Callable[[], Any], verb: str
) -> None:
    """With several batches in flight, the refused caller started the earlier pushes of others."""
    lane = ManualLane()
    seen: list[Any] = []
    worker = af.spawn(
        lambda batch, _: seen.extend(batch), behaviour=behaviour, concurrency=2, executor=lane
    )
    worker.push(("a", 1))
    with pytest.raises(af.Malformed):
        getattr(worker, verb)(5)
    lane.run()
    assert seen == [("a", 1)]
    assert check_law(worker).in_flight == 0


def test_a_message_that_is_refused_does_not_hide_that_a_batch_is_full() -> None:
    """Earlier messages are folded because of it, and then no longer count as raw."""
    seen: list[Any] = []
    lane = ManualLane()
    worker = af.spawn(
        lambda batch, _: seen.extend(batch),
        behaviour=Linger(Unique(key=0), 3_600.0, size=3),
        executor=lane,
        clock=VirtualClock(),
    )
    worker.push(("a", 1))
    lane.run()
    worker.push(("b", 2))
    with pytest.raises(af.Malformed):
        worker.push_ack(5)
    worker.push(("c", 3))
    lane.run()
    assert seen == [("a", 1), ("b", 2), ("c", 3)]


def test_dead_letters_stand_threads_that_bury_purge_and_retry_at_once() -> None:
    pushed: list[int] = []
    letters = DeadLetters(pushed.append, limit=50)
    done = threading.Event()

    def bury(first: int) -> None:
        for number in range(first, first + 2_000):
            letters.bury(number, ValueError(number))

    def purge() -> int:
        count = 0
        while not done.is_set():
            count += letters.purge()
        return count

    def retry() -> int:
        while not done.is_set():
            letters.retry()
            list(letters)
        return 0

    others = [Caller(purge), Caller(purge), Caller(retry)]
    for burier in [Caller(bury, first) for first in (0, 10_000)]:
        burier.value()
    done.set()
    purged = sum(other.value() for other in others)
    assert len(pushed) == len(set(pushed))
    assert len(pushed) + purged + letters.forgotten + len(letters) == 4_000


# Poison, for jobs that end later.


def deferring(handled: list[int]) -> Callable[[Any, Any], Any]:
    def job(batch: list[int], state: Any) -> af.Deferred:
        deferred = af.Deferred()

        def end() -> None:
            if any(number % 15 == 7 for number in batch):
                deferred.resolve(ValueError("poison"))
            else:
                handled.extend(batch)
                deferred.resolve()

        threading.Thread(target=end).start()
        return deferred

    return job


def awaiting(handled: list[int]) -> Callable[[Any, Any], Any]:
    async def job(batch: list[int], state: Any) -> None:
        await asyncio.sleep(0)
        if any(number % 15 == 7 for number in batch):
            raise ValueError("poison")
        handled.extend(batch)

    return job


@pytest.mark.parametrize("make", [deferring, awaiting])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_isolate_finds_two_poisons_among_30_innocents_for_jobs_that_end_later(
    make: Any, concurrency: int
) -> None:
    handled: list[int] = []
    messages = list(range(32))
    worker = af.spawn(
        make(handled), on_failure="isolate", concurrency=concurrency,
        behaviour=Linger(Queue(), 60.0, size=32),
    )  # fmt: skip
    worker.push_many(messages)
    until(lambda: worker.statistics().held + worker.statistics().in_flight == 0, "all is done")
    assert sorted(letter.message for letter in worker.dead_letters) == [7, 22]
    assert handled == [number for number in messages if number not in (7, 22)]
    worker.stop()
    counted = check_law(worker)
    assert (counted.processed, counted.dead_lettered, counted.failed) == (30, 2, 0)


# Exceptions of ours, and errors that cannot be shown, raised by a job.


class Mute(Exception):
    """An error that says nothing about itself."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


OWN = [
    af.Dropped("not by the worker"),
    af.Replaced("not by the worker"),
    af.Expired("not by the worker"),
    af.WorkerStopped("another one"),
    af.WorkerCrashed("another one"),
    af.Full(3),
    af.PushTimeout("of another one"),
    af.WouldDeadlock("elsewhere"),
    af.StartFailed("another", "reason"),
    af.BadOption("of the job's own"),
    Mute(),
    ValueError("lone surrogate \ud800"),
    KeyError("\udfff"),
]


@pytest.fixture
def unseen_logs() -> Iterator[None]:
    """Format log records, but keep them out of reports, which cannot hold lone surrogates."""

    def unseen(record: logging.LogRecord) -> bool:
        logging.Formatter().format(record)
        return False

    logger = logging.getLogger("actorflow")
    logger.addFilter(unseen)
    yield
    logger.removeFilter(unseen)


@pytest.mark.usefixtures("unseen_logs")
@pytest.mark.parametrize("lane", ["pool", "asyncio"])
@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
def test_m22_m23_whatever_a_job_raises_is_an_error_of_the_job(error: Exception, lane: str) -> None:
    def job(batch: Any, state: Any) -> None:
        raise error

    async def ajob(batch: Any, state: Any) -> None:
        raise error

    worker = af.spawn(ajob if lane == "asyncio" else job)
    with pytest.raises(type(error)) as raised:
        worker.push_block(1)
    assert raised.value is error
    reason = ended(worker)
    assert isinstance(reason, af.Crash)
    assert reason.exception is error
    assert isinstance(reason.describe(), str)
    repr(worker)
    with pytest.raises(af.WorkerCrashed) as late:
        worker.push(2)
    assert late.value.__cause__ is error
    assert check_law(worker).failed == 1


@pytest.mark.usefixtures("unseen_logs")
@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("policy", [af.Retry(1), af.Isolate()])
def test_m22_m23_policies_take_it_for_an_error_of_the_job_too(
    error: Exception, policy: Any
) -> None:
    lane = ManualLane()
    failures = [error, error]

    def job(batch: Any, state: Any) -> None:
        if "bad" in batch and failures:
            raise failures.pop()

    worker = af.spawn(job, on_failure=policy, executor=lane, behaviour=Linger(Queue(), 0, size=2))
    good, bad = worker.ask("good", block=False), worker.ask("bad", block=False)
    lane.run()
    if isinstance(policy, af.Isolate):
        assert good.get(timeout=0) is None
        assert [letter.message for letter in worker.dead_letters] == ["bad"]
    with pytest.raises(type(error)):
        bad.get(timeout=0)
    check_law(worker)


def test_m23_stop_is_the_one_that_stops_wherever_it_is_raised() -> None:
    class Enough(af.Stop):
        pass

    def inner(batch: Any, state: Any) -> None:
        raise Enough

    def outer(batch: Any, state: Any) -> None:
        first.push_block(1)

    first, second = af.spawn(inner), af.spawn(outer)
    second.push_block(1)  # a stop of one worker is no failure for its watchers
    assert ended(first) == af.Normal()
    assert second.is_alive()
    second.stop()


def test_m23_what_another_worker_answers_does_not_stop_this_one() -> None:
    """`WorkerStopped` from a worker that is asked is a failure of the asking job, not its stop."""
    gone = af.spawn(lambda batch, state: None)
    gone.stop()

    def job(batch: Any, state: Any) -> None:
        gone.ask(1)

    worker = af.spawn(job)
    with pytest.raises(af.WorkerStopped):
        worker.push_block(1)
    assert isinstance(ended(worker), af.Crash)


# Logging.


class Pushing(logging.Handler):
    """A log handler that sends log records to a worker, as one for metrics may."""

    def __init__(self, worker: af.WorkerRef) -> None:
        super().__init__(logging.DEBUG)
        self.worker = worker
        self.seen = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.seen += 1
        for verb in (self.worker.push, self.worker.push_ack):
            with suppress(af.ActorflowError):
                verb(("log", record.getMessage()))
        self.worker.statistics()
        len(self.worker)


@pytest.mark.parametrize("end", ["drain", "finish", "now", "crash"])
def test_m21_a_log_handler_may_push_to_the_worker_that_logs(end: str) -> None:
    probe = Probe()
    worker = probe.spawn(behaviour=Unique, verbose=True)
    handler = Pushing(worker)
    logger = logging.getLogger("actorflow")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        if end == "crash":
            probe.then(ValueError("broken"))
        worker.push(("a", 1))
        probe.begun()
        worker.push("malformed")
        worker.push(("b", 1))
        stopping = Caller(worker.stop, drain={"drain": True, "finish": False}.get(end),
                          now=end == "now")  # fmt: skip
        if end != "now":
            until(lambda: worker.status is af.PairState.STOPPING, "it stops")
        probe.open()
        stopping.value()
        assert handler.seen
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        probe.close()
    check_law(worker)


# Options that cannot work.


def test_a_breaker_without_a_supervisor_is_refused() -> None:
    with pytest.raises(af.BadOption, match="nobody supervises this one"):
        af.spawn(lambda batch, state: None, breaker=af.Breaker())
    with pytest.raises(af.BadOption, match="nobody supervises this one"):
        af.Worker("w", lambda batch, state: None, breaker=af.Breaker())()
    with af.Supervisor([af.Worker("w", lambda batch, state: None, breaker=af.Breaker())]) as tree:
        tree.worker("w").push_block(1)


@pytest.mark.parametrize("timeout", ["5", True, float("nan"), [], object()])
@pytest.mark.parametrize("verb", ["push_block", "push_ack", "ask", "stop"])
def test_a_timeout_that_is_no_number_is_refused_at_once(verb: str, timeout: Any) -> None:
    worker = af.spawn(lambda batch, state: None, behaviour=Unique)
    call = getattr(worker, verb)
    with pytest.raises(af.BadOption, match="must be a number of seconds"):
        call(timeout=timeout) if verb == "stop" else call(("a", 1), timeout=timeout)
    assert worker.is_alive()
    assert worker.statistics().accepted == 0

    async def main() -> None:
        acall = getattr(worker, f"a{verb}")
        with pytest.raises(af.BadOption, match="must be a number of seconds"):
            await (acall(timeout=timeout) if verb == "stop" else acall(("a", 1), timeout=timeout))

    asyncio.run(main())
    assert worker.statistics().accepted == 0
    worker.stop()


def test_no_timeout_means_to_wait_for_ever() -> None:
    with af.spawn(lambda batch, state: None, behaviour=Unique) as worker:
        worker.push_ack(("a", 1), timeout=None)
        worker.push_block(("b", 1), timeout=None)
        worker.ask(("c", 1), timeout=None)


def test_a_worker_cannot_be_pickled_and_says_what_to_do() -> None:
    worker = af.spawn(lambda batch, state: None)
    for one in (worker, [worker], worker.executor):
        with pytest.raises(TypeError, match=r"cannot be pickled|lives in this process"):
            pickle.dumps(one)
    worker.stop()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(worker)


# Behaviours that fail while they are asked for the time.


class Timeless:
    """Its `ready_at` raises as soon as the test says so."""

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.broken = False

    def add(self, message: Any) -> None:
        self.held.append(message)

    def take(self) -> Any:
        held, self.held = self.held, []
        return held

    def ready_at(self, now: float) -> float:
        if self.broken:
            raise RuntimeError("what time is it?")
        return now + 10.0

    def __len__(self) -> int:
        return len(self.held)


@pytest.mark.parametrize("verb", ["push", "push_many", "push_ack"])
def test_a_ready_at_that_raises_crashes_the_worker_and_hits_no_pusher(verb: str) -> None:
    lane, clock = ManualLane(), VirtualClock()
    behaviour = Timeless()
    worker = af.spawn(lambda batch, state: None, behaviour=behaviour, executor=lane, clock=clock)
    waits = worker.ask("waits", block=False)
    behaviour.broken = True
    if verb == "push_ack":
        with pytest.raises(af.WorkerCrashed, match="its behaviour failed"):
            worker.push_ack(1)
    else:
        getattr(worker, verb)([1, 2])  # innocent, so nothing is raised here
    clock.advance(20.0)
    lane.run()
    reason = worker.exit_reason
    assert isinstance(reason, af.Crash)
    assert isinstance(reason.exception, RuntimeError)
    with pytest.raises((af.WorkerCrashed, RuntimeError)):
        waits.get(timeout=0)
    check_law(worker)


# Pushers that wait for room.


def test_m19_200_blocked_pushers_are_woken_in_order_as_many_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = 0
    add = Bounded.add

    def counted(self: Any, message: Any) -> None:
        nonlocal attempts
        attempts += 1
        add(self, message)

    monkeypatch.setattr(Bounded, "add", counted)
    probe = Probe()
    worker = probe.spawn(behaviour=Bounded(Chunk(Queue(), 1), 10, when_full="block"))
    worker.push("busy")
    probe.begun()
    for number in range(10):
        worker.push(number)
    attempts = 0
    callers: list[Caller] = []
    for number in range(10, 210):
        callers.append(Caller(worker.push, number))
        until(lambda: len(worker.actor.offers._blocked or ()) == len(callers), "it waits")
    assert attempts <= 201  # only the first one tried; the others stand in line
    attempts = 0
    probe.let_end()
    probe.begun()
    until(callers[0].done.is_set, "the first is woken")
    assert sum(caller.done.is_set() for caller in callers) == 1
    probe.open()
    for caller in callers:
        caller.value()
    worker.stop()
    assert [m for batch in probe.batches for m in batch] == ["busy", *range(210)]
    assert attempts <= 2 * 200 + 20
    probe.close()


def test_m19_a_pusher_that_gives_up_lets_the_next_one_in() -> None:
    probe = Probe()
    worker = probe.spawn(behaviour=Bounded(Queue(), 1, when_full="block"))
    worker.push("busy")
    probe.begun()
    worker.push("held")
    with pytest.raises(af.Full):
        worker.push_ack("late", timeout=0.001)
    next_one = Caller(worker.push_ack, "next")
    until(lambda: len(worker.actor.offers._blocked or ()) == 1, "it waits")
    probe.open()
    next_one.value()
    worker.stop()
    assert [m for batch in probe.batches for m in batch] == ["busy", "held", "next"]
