"""Measurement: real workers. No figure that depends on the machine is looked at."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import actorflow as af
from actorflow.lab.models.service import ServiceFailure
from actorflow.lab.models.traffic import Given
from actorflow.lab.run.measure import measure
from behaviours import Adaptive, Queue

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


def test_a_failing_job_is_counted_and_the_worker_goes_on() -> None:
    def job(batch: list[Any]) -> None:
        if batch[0][3] == 0.0:
            raise ServiceFailure(0.0)

    result = measure(NOW, job, "chunk(queue, 100)", repetitions=1)
    assert (result.failed, result.processed) == (1_000, 0)


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
        measure(NOW, 5, "queue")  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"help": True}, {"executor": "thread"}])
def test_a_worker_tells_its_behaviour_how_long_calls_took(options: Any) -> None:
    adaptive = Adaptive(Queue(), target=0.001)
    with af.spawn(lambda _batch, _state: None, behaviour=adaptive, **options) as worker:
        for message in "abc":
            worker.push_block(message, timeout=None)
    assert adaptive._sums[0] == pytest.approx(1 + 0.98 + 0.98**2)
