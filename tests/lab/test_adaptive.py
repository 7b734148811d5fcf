"""`Adaptive` in the lab: it holds its target when the load jumps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actorflow.lab.models.traffic import AT, Given, RateStep
from actorflow.lab.run.simulate import simulate

STEP = RateStep(500, 20_000, at=5, duration=10)
TARGET = 0.05
FIXED = (
    "queue", "chunk(queue, 100)", "chunk(queue, 1000)", "linger(queue, 10ms)",
    "linger(queue, 30ms)", "throttle(queue, 25ms)", "linger(chunk(queue, 500), 20ms, 500)",
)  # fmt: skip


@pytest.mark.parametrize("service", ["5ms + 20us*n", "10ms + 10us*n", "exp(5ms) + 20us*n"])
def test_the_target_is_held_under_a_load_step(service: str) -> None:
    adaptive = simulate(STEP, service, "adaptive(queue, 50ms)")
    fixed = [simulate(STEP, service, text) for text in FIXED]
    assert adaptive.latency["p99"] == pytest.approx(TARGET, rel=0.2)
    assert adaptive.throughput >= 0.9 * max(result.throughput for result in fixed)
    assert adaptive.processed == adaptive.arrived
    in_time = [result for result in fixed if result.latency["p99"] <= 1.2 * TARGET]
    assert adaptive.busy <= 1.1 * min(result.busy for result in in_time)


@pytest.mark.parametrize("rate", [500, 20_000])
def test_the_target_is_held_on_each_side_of_the_step(rate: int) -> None:
    [messages] = [[m for chunk in STEP.chunks(0) for m in chunk if (m[AT] < 5) == (rate == 500)]]
    result = simulate(Given(messages), "5ms + 20us*n", "adaptive(queue, 50ms)")
    assert result.latency["p99"] == pytest.approx(TARGET, rel=0.2)


def test_a_fixed_part_that_leaves_no_room_does_not_cost_throughput() -> None:
    steady = replace(STEP, before=20_000)
    adaptive = simulate(steady, "20ms + 20us*n", "adaptive(queue, 50ms)")
    queue = simulate(steady, "20ms + 20us*n", "queue")
    assert adaptive.throughput >= 0.95 * queue.throughput
    assert adaptive.latency["p99"] <= 1.2 * queue.latency["p99"]


def test_more_than_can_be_borne_is_processed_as_fast_as_can_be() -> None:
    traffic = "poisson(4000, duration=5s)"
    adaptive = simulate(traffic, "2ms + 500us*n", "adaptive(queue, 50ms)")
    queue = simulate(traffic, "2ms + 500us*n", "queue")
    assert adaptive.throughput >= 0.9 * queue.throughput
    assert adaptive.latency["p50"] <= queue.latency["p50"]
