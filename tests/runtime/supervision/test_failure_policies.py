"""What becomes of a batch whose job raised, and of a worker that crashes too often."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Queue, Unique
from tests.runtime.worker.probe import PATIENCE, Caller, until, until_accumulated

if TYPE_CHECKING:
    from tests.runtime.supervision.kit import Stage

POISONS = sorted(random.Random(7).sample(range(10_000), 7))


class Picky:
    """A job that raises on poison, as a function, a coroutine function and an Executor."""

    def __init__(self, poisons: Any) -> None:
        self.poisons = set(poisons)
        self.seen: list[Any] = []
        self.calls = 0
        self.states: list[Any] = []

    def call(self, batch: Any, state: Any) -> Any:
        self.calls += 1
        self.states.append(state)
        bad = self.poisons.intersection(batch)
        if bad:
            raise ValueError(sorted(bad))
        self.seen.extend(batch)
        return (state or 0) + len(batch)

    async def acall(self, batch: Any, state: Any) -> Any:
        return self.call(batch, state)

    def executor(self) -> type[af.Executor]:
        picky = self

        class PickyExecutor(af.Executor):
            def handle(self, batch: Any) -> None:
                self.state = picky.call(batch, self.state)

        return PickyExecutor

    def job(self, form: str) -> Any:
        return {"function": self.call, "coroutine": self.acall, "subclass": self.executor()}[form]


forms = pytest.mark.parametrize("form", ["function", "coroutine", "subclass"])


@forms
def test_isolate_finds_7_poisons_among_10000(form: str) -> None:
    picky = Picky(POISONS)
    with af.spawn(picky.job(form), on_failure="isolate") as worker:
        worker.push_many(range(10_000))
        until(lambda: worker.statistics().processed == 9_993, "all others delivered")
        letters = list(worker.dead_letters)
        assert [letter.message for letter in letters] == POISONS
        assert [letter.number for letter in letters] == [1, 2, 3, 4, 5, 6, 7]
        assert all(isinstance(letter.error, ValueError) for letter in letters)
        assert picky.seen == [n for n in range(10_000) if n not in picky.poisons]  # in order
        assert picky.calls <= 1 + 2 * 7 * 14
        statistics = worker.statistics()
        assert (statistics.dead_letters, statistics.restarts) == (7, 0)
        # They can be tried again, one by one or all, and thrown away.
        picky.poisons.discard(POISONS[0])
        assert worker.dead_letters.retry(letters[0]) == 1
        assert worker.dead_letters.retry(letters[0]) == 0
        until(lambda: picky.seen[-1] == POISONS[0], "the first one is delivered after all")
        assert worker.dead_letters.purge(letters[1]) == 1
        assert len(worker.dead_letters) == 5
        assert worker.dead_letters.retry() == 5
        until(lambda: len(worker.dead_letters) == 5, "they are poison still")
        assert worker.dead_letters.purge() == 5
        assert len(worker.dead_letters) == 0


@forms
def test_isolate_reports_to_each_caller_its_own_outcome(form: str) -> None:
    picky = Picky({3, 5})
    gate = threading.Event()
    entered = threading.Event()
    call = picky.call

    def slow(batch: Any, state: Any) -> Any:
        if batch == ["first"]:
            entered.set()
            assert gate.wait(PATIENCE)
        return call(batch, state)

    picky.call = slow  # type: ignore[method-assign]
    with af.spawn(picky.job(form), on_failure="isolate") as worker:
        worker.push("first")
        assert entered.wait(PATIENCE)
        callers = []
        for number in range(8):
            callers.append(Caller(worker.push_block, number, timeout=PATIENCE))
            until_accumulated(worker, number + 1)
        gate.set()
        outcomes = [caller.wait().error for caller in callers]
        assert [n for n, error in enumerate(outcomes) if error is not None] == [3, 5]
        assert [str(outcomes[3]), str(outcomes[5])] == ["[3]", "[5]"]
        assert picky.seen == ["first", 0, 1, 2, 4, 6, 7]


def test_isolate_retries_a_message_that_stands_alone(stage: Stage) -> None:
    tries = iter([ValueError("once"), ValueError("twice"), None])
    seen: list[Any] = []

    def job(batch: Any, state: Any) -> None:
        error = next(tries)
        if error:
            raise error
        seen.extend(batch)

    worker = af.spawn(job, on_failure=af.Isolate(retries=2), executor=stage.lane)
    worker.push("x")
    stage.run()
    assert seen == ["x"]
    assert len(worker.dead_letters) == 0
    worker.stop()


def test_isolate_with_a_payload_that_is_no_list(stage: Stage) -> None:
    from actorflow.behaviours import Base  # noqa: PLC0415 - only here

    class OneByOne(Base):
        def transform(self, messages: Any) -> Any:
            return messages[-1]

        def clear(self, messages: Any) -> Any:
            return messages[:-1]

    seen: list[Any] = []

    def job(message: Any, state: Any) -> None:
        if message == "bad":
            raise ValueError(message)
        seen.append(message)

    worker = af.spawn(job, behaviour=OneByOne, on_failure="isolate", executor=stage.lane)
    for message in ("a", "bad", "b"):
        worker.push(message)
    stage.run()
    assert sorted(seen) == ["a", "b"]
    assert [letter.message for letter in worker.dead_letters] == ["bad"]
    worker.stop()


def test_isolate_over_unique(stage: Stage) -> None:
    picky = Picky({("b", 2)})
    worker = af.spawn(picky.call, behaviour=Unique, on_failure="isolate", executor=stage.lane)
    worker.push(("z", 0))
    for message in (("a", 1), ("b", 1), ("b", 2), ("c", 3)):
        worker.push(message)
    stage.run()
    assert sorted(picky.seen) == [("a", 1), ("c", 3), ("z", 0)]
    worker.stop()


def test_system_exit_is_never_contained(stage: Stage) -> None:
    def job(batch: Any, state: Any) -> None:
        raise SystemExit(1)

    for policy in ("drop", "retry", "isolate"):
        worker = af.spawn(job, on_failure=policy, executor=stage.lane)
        worker.push(1)
        stage.run()
        assert isinstance(worker.exit_reason, af.Crash)
        assert len(worker.dead_letters) == 0


def test_retry_runs_the_batch_again_with_the_state_it_began_with(stage: Stage) -> None:
    picky = Picky({"bad"})
    worker = af.spawn(picky.call, state=0, on_failure=af.Retry(2), executor=stage.lane)
    worker.push("a")
    stage.run()
    worker.push("bad")
    for _ in range(2):
        stage.lane.step()
    stage.run()
    assert picky.states == [0, 1, 1, 1]
    assert isinstance(worker.exit_reason, af.Crash)  # tried three times, then as Drop


def test_retry_that_succeeds_answers_the_callers(stage: Stage) -> None:
    tries = iter([ValueError("once"), None])

    def job(batch: Any, state: Any) -> None:
        error = next(tries)
        if error:
            raise error

    worker = af.spawn(job, on_failure="retry", executor=stage.lane)
    worker.push_block("x")
    assert worker.statistics().processed == 1
    worker.stop()


def test_drop_raises_the_cause_in_the_callers_of_that_batch_alone(stage: Stage) -> None:
    picky = Picky({"bad"})
    supervisor = stage.up(stage.worker("w", picky.call), max_restarts=9)
    worker = supervisor.worker("w")
    with pytest.raises(ValueError, match="bad"):
        worker.push_block("bad")
    worker.push_block("good")
    assert picky.seen == ["good"]
    assert worker.statistics().restarts == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("repeat", "did you mean|there are"),
        (7, "is not a policy"),
        (af.Isolate, "is not a policy"),
    ],
)
def test_bad_policy_is_refused(given: Any, words: str) -> None:
    with pytest.raises(af.BadOption, match=words):
        af.spawn(lambda batch, state: None, on_failure=given)


@pytest.mark.parametrize(
    "make",
    [
        lambda: af.Retry(0),
        lambda: af.Retry(True),  # noqa: FBT003
        lambda: af.Isolate(retries=-1),
        lambda: af.Breaker(failures=0),
        lambda: af.Breaker(within=0),
    ],
)
def test_bad_numbers_are_refused(make: Any) -> None:
    with pytest.raises(af.BadOption):
        make()


def test_policy_of_ones_own(stage: Stage) -> None:
    class FirstOnly:
        buries = True

        def parts(self, batch: Any) -> Any:
            return None

    picky = Picky({"bad"})
    worker = af.spawn(picky.call, on_failure=FirstOnly(), executor=stage.lane)
    worker.push_many(["bad", "good"])
    stage.run()
    assert [letter.message for letter in worker.dead_letters] == ["bad", "good"]
    assert worker.is_alive()
    worker.stop()


def test_dead_letters_have_a_limit() -> None:
    from actorflow.runtime.worker.job.dead_letters import DeadLetters  # noqa: PLC0415 - only here

    letters = DeadLetters(lambda message: None, limit=3)
    for number in range(5):
        letters.bury(number, ValueError())
    assert [letter.message for letter in letters] == [2, 3, 4]
    assert letters.forgotten == 2


# The breaker.


def parked(stage: Stage, **options: Any) -> tuple[af.SupervisorRef, af.WorkerRef, Picky]:
    picky = Picky({"bad"})
    supervisor = stage.up(
        stage.child("a"),
        stage.worker("w", picky.call, breaker=af.Breaker(failures=3, within=10.0), **options),
        stage.child("b"),
        max_restarts=100,
        strategy="one_for_all" if options.pop("all", False) else "one_for_one",
    )
    worker = supervisor.worker("w")
    for _ in range(3):
        worker.push("bad")
        stage.run()
    assert worker.status is af.PairState.PARKED
    return supervisor, worker, picky


def test_breaker_parks_instead_of_burning_restarts(stage: Stage) -> None:
    supervisor, worker, picky = parked(stage, behaviour=lambda: Bounded(Queue(), 2))
    assert supervisor.statistics().restarts == 2
    assert "parked" in str(supervisor.tree())
    worker.push_ack("x")
    worker.push_ack("y")
    with pytest.raises(af.Full):
        worker.push_ack("z")  # it accumulates up to the bound
    stage.run(100.0)
    assert picky.seen == []
    with pytest.raises(af.WorkerCrashed, match="parked"):
        worker.executor.tell("hello")
    worker.resume()
    stage.run()
    assert picky.seen == ["x", "y"]
    assert worker.status is af.PairState.IDLE
    with pytest.raises(af.NotParked):
        worker.resume()
    assert supervisor.worker("w") is worker


def test_breaker_counts_within_its_window_only(stage: Stage) -> None:
    picky = Picky({"bad"})
    supervisor = stage.up(
        stage.worker("w", picky.call, breaker=af.Breaker(failures=2, within=1.0)),
        max_restarts=100,
    )
    worker = supervisor.worker("w")
    for _ in range(5):
        worker.push("bad")
        stage.run(1.5)
    assert worker.status is af.PairState.IDLE


def test_a_parked_worker_is_started_on_trial(stage: Stage) -> None:
    picky = Picky({"bad"})
    breaker = af.Breaker(failures=2, within=5.0, half_open=10.0)
    supervisor = stage.up(stage.worker("w", picky.call, breaker=breaker), max_restarts=100)
    worker = supervisor.worker("w")
    for _ in range(2):
        worker.push("bad")
        stage.run()
    assert worker.status is af.PairState.PARKED
    worker.push("bad")
    stage.run(9.0)
    assert worker.status is af.PairState.PARKED
    stage.run(2.0)  # on trial, it fails at once
    assert worker.status is af.PairState.PARKED
    worker.push("good")
    stage.run(11.0)
    now: af.PairState = worker.status
    assert now is af.PairState.IDLE
    assert picky.seen[-1] == "good"
    stage.run(6.0)  # the trial is over: one crash is not too many
    worker.push("bad")
    stage.run(1.0)
    assert worker.status.value == "idle"


@pytest.mark.parametrize("end", ["stop", "terminate", "worker", "kill"])
def test_parked_worker_can_be_ended(stage: Stage, end: str) -> None:
    supervisor, worker, _ = parked(stage)
    worker.push("left")
    if end == "stop":
        supervisor.stop()
    elif end == "terminate":
        supervisor.terminate_child("w")
    elif end == "worker":
        worker.stop()
        stage.run()
        assert supervisor.worker("w") is not worker
    else:
        supervisor.kill()
    assert worker.exit_reason is not None
    assert worker.status is af.PairState.DEAD
    assert worker.statistics().dropped == 1


def test_parked_bystander_is_started_again(stage: Stage) -> None:
    picky = Picky({"bad"})
    supervisor = stage.up(
        stage.child("a"),
        stage.worker("w", picky.call, breaker=af.Breaker(failures=1)),
        strategy="one_for_all",
    )
    worker = supervisor.worker("w")
    worker.push("bad")
    stage.run()
    assert worker.status is af.PairState.PARKED
    worker.push("good")
    stage.crash(supervisor, "a")  # no time passes: nothing waits for the parked one
    assert picky.seen == ["good"]
    assert supervisor.worker("w") is worker


# How a worker ends under a supervisor: drain, finish, now.


@pytest.mark.parametrize("mode", ["drain", "finish", "now"])
def test_stop_modes_of_a_supervised_worker(mode: str) -> None:
    entered, gate = threading.Event(), threading.Event()
    seen: list[Any] = []

    def job(batch: Any, state: Any) -> None:
        entered.set()
        assert gate.wait(PATIENCE)
        seen.extend(batch)

    server = af.Server([af.Worker("w", job)], supervisor=af.Restart(shutdown=PATIENCE))
    worker = server.worker("w")
    server.push("w", 1)
    assert entered.wait(PATIENCE)
    waiting = Caller(worker.push_block, 2, timeout=PATIENCE)
    until_accumulated(worker, 1)
    options: dict[str, Any] = {
        "drain": {"drain": True}, "finish": {"drain": False}, "now": {"now": True},
    }[mode]  # fmt: skip
    stopping = Caller(server.stop, **options)
    if mode == "now":
        stopping.value()  # it does not wait for the job
        gate.set()
    else:
        until(lambda: worker.status is af.PairState.STOPPING, "it is stopping")
        gate.set()
        stopping.value()
    waiting.wait()
    assert (waiting.error is None) is (mode == "drain")
    if mode == "drain":
        assert seen == [1, 2]
    until(lambda: 1 in seen, "the job ends in its own time")


def test_drain_ends_at_the_deadline() -> None:
    entered, gate = threading.Event(), threading.Event()

    def job(batch: Any, state: Any) -> None:
        entered.set()
        assert gate.wait(PATIENCE)

    server = af.Server([af.Worker("w", job)], supervisor=af.Restart(shutdown=0.01))
    worker = server.worker("w")
    blocked = Caller(worker.push_block, 1, timeout=PATIENCE)
    assert entered.wait(PATIENCE)
    server.stop()
    assert isinstance(blocked.wait().error, af.WorkerStopped)
    assert worker.exit_reason is not None
    gate.set()


# The pair under load.


class Boom(Exception):
    """What the job raises."""


@pytest.mark.timeout(120)
def test_executor_crashes_1000_times_under_load_of_4_producers() -> None:
    crashes = 1_000
    per_producer = 5_000
    delivered: list[Any] = []
    lost: list[Any] = []
    crashed = 0

    def job(batch: Any, state: Any) -> None:
        nonlocal crashed
        if crashed < crashes and any(number % 5 == 0 for _, number in batch):
            crashed += 1
            lost.extend(batch)
            raise Boom
        delivered.extend(batch)

    def produce(worker: af.WorkerRef, producer: int) -> list[Any]:
        failed = []
        for number in range(per_producer):
            message = (producer, number)
            if number % 10 == 0:
                try:
                    worker.push_block(message, timeout=PATIENCE)
                except Boom:
                    failed.append(message)
            else:
                worker.push(message)
        return failed

    supervisor = af.Supervisor([af.Worker("w", job)], max_restarts=10 * crashes).start()
    worker = supervisor.worker("w")
    producers = [Caller(produce, worker, producer) for producer in range(4)]
    failed = [message for caller in producers for message in caller.value()]
    while crashed < crashes:  # the remaining ones, one by one
        with pytest.raises(Boom):
            worker.push_block((4, 0), timeout=PATIENCE)
    worker.push_block((5, 1), timeout=PATIENCE)
    assert supervisor.worker("w") is worker
    assert supervisor.stop()
    extra = {(4, 0), (5, 1)}
    got = [message for message in delivered if message not in extra]
    gone = [message for message in lost if message not in extra]
    everything = {(producer, number) for producer in range(4) for number in range(per_producer)}
    assert len(got) + len(gone) == len(everything)  # each exactly once
    assert {*got, *gone} == everything
    for producer in range(4):
        numbers = [number for who, number in got if who == producer]
        assert numbers == sorted(numbers)  # in order
    assert {message for message in gone if message[1] % 10 == 0} == set(failed)
    assert worker.statistics().restarts == crashes
