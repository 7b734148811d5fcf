"""Measurement: real workers. No figure that depends on the machine is looked at."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Adaptive, Queue, Unique
from actorflow.lab.models.service import ServiceFailure
from actorflow.lab.models.traffic import Given
from actorflow.lab.run import measure as module
from actorflow.lab.run.goals import parse_goals
from actorflow.lab.run.repeats import combine
from actorflow.lab.run.result import RunFailed
from actorflow.lab.run.simulate import simulate
from actorflow.lab.run.verdicts import judge

# Other processes may keep this machine busy, so that the generator is late.
measure = partial(module.measure, max_lag=100.0)
NOW: Any = Given([(number % 7, number % 2, 3.0, 0.0) for number in range(1_000)])


@pytest.mark.parametrize("text", ["queue", "unique", "coalesce", "chunk(priority, 10)"])
def test_every_message_is_accounted_for(text: str) -> None:
    seen: list[Any] = []
    result = measure(NOW, seen.append, text, repetitions=1)
    assert result.mode == "measure"
    assert result.arrived == 1_000
    assert result.processed + result.replaced + result.merged + result.lost == 1_000
    assert result.processed == sum(map(len, seen))
    assert result.batches == len(seen)
    assert result.batch_max == max(map(len, seen))
    assert 0 < result.latency["p50"] <= result.latency["max"]
    assert result.memory == 3.0 * result.peak_depth


@pytest.mark.parametrize("when_full", ["reject", "drop_oldest", "drop_newest"])
@pytest.mark.parametrize("text", ["bounded({}, 2, {})", "chunk(bounded({}, 2, {}), 1)"])
def test_no_more_than_the_bound_is_ever_waiting(text: str, when_full: str) -> None:
    pushed, started = threading.Event(), threading.Event()

    def job(batch: list[Any]) -> None:
        if not started.is_set():
            started.set()
            pushed.wait(20)

    result = measure(
        NOW, job, text.format("queue", when_full), repetitions=1, progress=lambda _: pushed.set()
    )
    assert result.batches > 1
    assert result.peak_depth <= 2


def test_repetitions_give_intervals() -> None:
    told: list[int] = []
    result = measure(NOW, lambda _batch: None, "queue", repetitions=3, progress=told.append)
    assert told == [1_000, 2_000, 3_000]
    assert result.arrived == result.processed == 1_000
    low, high = result.intervals["throughput"]
    assert low <= result.throughput <= high
    single = measure(NOW, lambda _batch: None, "queue", repetitions=1)
    assert single.intervals == {}


def test_a_bound_is_the_same_for_real() -> None:
    held = threading.Event()

    def job(batch: list[Any]) -> None:
        held.wait(20)

    def progress(count: int) -> None:
        held.set()

    result = measure(NOW, job, "bounded(queue, 10, drop_oldest)", repetitions=1, progress=progress)
    assert result.dropped == 1_000 - result.processed
    assert result.processed <= 11


@pytest.mark.parametrize("on_failure", ["drop", "retry", "isolate"])
def test_a_failing_job_is_counted_and_the_worker_goes_on(on_failure: str) -> None:
    def job(batch: list[Any]) -> None:
        if any(message[0] == 3 for message in batch):
            msg = "no threes"
            raise ValueError(msg)

    result = measure(NOW, job, "chunk(fair, 1)", repetitions=1, on_failure=on_failure)
    threes = sum(message[0] == 3 for message in NOW.messages)
    assert (result.failed, result.processed) == (threes, 1_000 - threes)
    assert result.error == "ValueError: no threes"


def test_a_model_may_fail_on_every_batch() -> None:
    def fail(batch: list[Any]) -> None:
        raise ServiceFailure(0.0)

    result = measure(NOW, fail, "chunk(queue, 100)", repetitions=1)
    assert (result.failed, result.processed, result.error) == (1_000, 0, None)


@pytest.mark.parametrize("on_failure", ["drop", "retry", "isolate"])
def test_a_job_that_always_fails_is_an_error(on_failure: str) -> None:
    def job(batch: list[Any], state: Any) -> Any:
        msg = "no disk"
        raise OSError(msg)

    with pytest.raises(RunFailed, match=r"not one of 1,000 .* OSError: no disk") as caught:
        measure(NOW, job, "queue", repetitions=1, on_failure=on_failure)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_job_that_ends_its_worker_is_an_error() -> None:
    def leave(batch: list[Any], state: Any) -> Any:
        raise SystemExit(3)

    def stop(batch: list[Any], state: Any) -> Any:
        return af.Stop("enough")

    later: Any = Given([(0, 0, 1.0, at / 1000) for at in range(200)])
    for job in (leave, stop):
        with pytest.raises(RunFailed, match=r"the worker crashed|ended the worker"):
            measure(later, job, "queue", repetitions=1)


def test_a_policy_that_refuses_the_messages_is_an_error() -> None:
    def unusable(message: Any) -> Any:
        return message.colour

    for run in (measure, simulate):
        with pytest.raises(RunFailed, match="colour"):
            run(NOW, "1ms", lambda: Unique(key=unusable))


# --- the shapes of a job -------------------------------------------------------------------------


def test_a_job_of_two_arguments_keeps_its_state() -> None:
    seen: list[int] = []

    def job(batch: list[Any], total: int) -> int:
        seen.append(total)
        return total + len(batch)

    result = measure(NOW, job, "chunk(queue, 100)", state=0, repetitions=1)
    assert result.processed == 1_000
    assert seen[0] == 0
    assert seen == sorted(set(seen))
    assert seen[-1] >= 900


def test_each_repetition_begins_with_the_first_state() -> None:
    first: list[Any] = []
    lengths: list[int] = []

    def job(batch: list[Any], seen: list[Any]) -> list[Any]:
        lengths.append(len(seen))
        seen.extend(batch)
        return seen

    measure(NOW, job, "chunk(queue, 500)", state=first, repetitions=2)
    assert lengths.count(0) == 2
    assert first == []


def test_a_coroutine_function_is_awaited() -> None:
    done: list[Any] = []

    async def job(batch: list[Any], state: Any) -> Any:
        await asyncio.sleep(0)
        done.extend(batch)
        return state

    async def alone(batch: list[Any]) -> None:
        await job(batch, None)

    for each in (job, alone):
        done.clear()
        result = measure(NOW, each, "queue", repetitions=1)
        assert result.processed == len(done) == 1_000


class Counter(af.Executor):
    """Counts messages, starting from a given number."""

    def __init__(self, begun: list[str]) -> None:
        self.begun = begun

    def on_start(self) -> None:
        self.begun.append("started")

    def handle(self, batch: list[Any]) -> None:
        self.begun.extend("m" * len(batch))


class AsyncCounter(Counter):
    """The same, on the event loop."""

    async def handle(self, batch: list[Any]) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.begun.extend("m" * len(batch))


@pytest.mark.parametrize("kind", [Counter, AsyncCounter])
def test_an_executor_is_measured(kind: type[Counter]) -> None:
    seen: list[str] = []
    result = measure(NOW, partial(kind, seen), "queue", repetitions=1)
    assert result.processed == 1_000
    assert seen == ["started", *"m" * 1_000]


def test_answers_that_are_errors_are_failures() -> None:
    def job(batch: list[Any], state: Any) -> af.Answers:
        return af.Answers(state, [ValueError("odd") if m[1] else "fine" for m in batch])

    result = measure(NOW, job, "queue", repetitions=1)
    assert (result.processed, result.failed) == (500, 500)
    assert result.error == "ValueError: odd"


def test_a_deferred_batch_ends_when_it_is_resolved() -> None:
    waiting: list[af.Deferred] = []

    def job(batch: list[Any], state: Any) -> af.Deferred:
        waiting.append(af.Deferred())
        threading.Timer(0.02, waiting[-1].resolve).start()
        return waiting[-1]

    result = measure(NOW, job, "queue", repetitions=1)
    assert result.processed == 1_000
    assert result.latency["p50"] >= 0.02


def test_a_job_that_cannot_be_called_as_one_is_refused() -> None:
    def job(one: Any, two: Any, three: Any) -> None: ...

    with pytest.raises(af.BadOption, match=r"cannot be a job; write def job\(batch, state\)"):
        measure(NOW, job, "queue")


def test_repetitions_are_averaged_in_every_figure() -> None:
    one = simulate(
        "poisson(500, duration=2s, priorities=uniform(10))", "1ms*n", "chunk(queue, 1)", seed=1
    )
    two = simulate(
        "poisson(900, duration=2s, priorities=uniform(10))", "1ms*n",
        "bounded(queue, 1, drop_oldest)", seed=2,
    )  # fmt: skip
    both = combine([one, two])
    assert both.curve[-1][1] == pytest.approx((one.carried + two.carried) / 2)
    assert [share for _, share in both.curve] == sorted(share for _, share in both.curve)
    assert both.curve[-1][0] == max(one.curve[-1][0], two.curve[-1][0])
    expected = (one.priorities[3.0]["p99"] + two.priorities[3.0]["p99"]) / 2
    assert both.priorities[3.0]["p99"] == expected


def test_what_is_retried_is_processed_once() -> None:
    failed: list[Any] = []

    def job(batch: list[Any]) -> None:
        if not failed:
            failed.append(batch)
            raise ServiceFailure(0.0)

    result = measure(NOW, job, "queue", repetitions=1, on_failure="retry")
    assert (result.failed, result.processed) == (0, 1_000)


def test_a_model_is_slept_and_text_is_read() -> None:
    result = measure("constant(1000, duration=10ms)", "1us + 1us*n", "queue", repetitions=1)
    assert result.processed == result.arrived == 10


def test_bad_options_are_refused() -> None:
    with pytest.raises(af.BadOption, match="repetitions=0"):
        measure(NOW, "1ms", "queue", repetitions=0)
    with pytest.raises(af.BadOption, match="neither a job"):
        measure(NOW, 5, "queue")


@pytest.mark.parametrize("options", [{}, {"help": True}, {"executor": "thread"}])
def test_a_worker_tells_its_behaviour_how_long_calls_took(options: Any) -> None:
    adaptive = Adaptive(Queue(), target=0.001)
    with af.spawn(lambda _batch, _state: None, behaviour=adaptive, **options) as worker:
        for message in "abc":
            worker.push_block(message, timeout=None)
    assert adaptive._calls.count == pytest.approx(1 + 0.98 + 0.98**2)


def test_a_run_whose_generator_was_too_late_is_rejected() -> None:
    runs: list[int] = []
    with pytest.raises(RunFailed, match=r"the generator was late by .* stop what else"):
        module.measure(NOW, lambda batch: runs.append(len(batch)), "queue", max_lag=-1.0)
    assert sum(runs) == 3_000  # it was tried three times


def test_several_batches_run_at_once() -> None:
    both = threading.Barrier(2)
    result = measure(
        Given([(0, 0, 1.0, 0.0)] * 2), lambda _: both.wait(20) and None, "chunk(queue, 1)",
        repetitions=1, concurrency=2,
    )  # fmt: skip
    assert result.processed == 2
    assert result.executors == 2


def test_a_job_that_keeps_the_interpreter_busy_is_measured() -> None:
    def spin(batch: list[Any]) -> None:
        sum(range(20_000))

    traffic: Any = Given([(at, 0, 1.0, at / 2_000) for at in range(400)])
    result = measure(traffic, spin, "queue", repetitions=1)
    assert result.processed == 400
    assert result.lag is not None


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        ("p99 < 100ms", "pass"), ("p99 < 1ms", "fail"), ("p99 < 10ms", "undecided"),
        ("goodput(100ms) > 99%", "pass"), ("goodput(1ms) > 90%", "fail"), ("no loss", "pass"),
        ("busy < 50%", "fail"), ("busy < 99%", "pass"), ("max(high) < 1ms", "fail"),
    ],
)  # fmt: skip
def test_goals_pass_fail_or_stay_undecided(goal: str, verdict: str) -> None:
    traffic = "poisson(800, duration=2s)"
    runs = [simulate(traffic, "1ms", "chunk(queue, 1)", seed=seed) for seed in range(3)]
    [parsed] = parse_goals(goal)
    assert judge(parsed, runs) == verdict
