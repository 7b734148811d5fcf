"""Capacity: the highest sustainable rate, against theory and against the goals themselves."""

from __future__ import annotations

import json
from math import log

import pytest

from actorflow.lab.models.notation import BadNotation
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.traffic import Given
from actorflow.lab.run.capacity import capacity
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import BadOption


def test_the_capacity_of_m_m_1_is_known() -> None:
    # The latency of M/M/1 is exponential: its p99 is log(100) / (1000 - rate).
    found = capacity("poisson(100)", "exp(1ms)", "chunk(queue, 1)", "p99 < 10ms", messages=5_000)
    expected = 1_000 - log(100) / 0.010
    assert found.rate == pytest.approx(expected, rel=0.1)
    low, high = found.interval
    assert low <= found.rate <= high
    assert low < expected < high * 1.03


def test_the_goals_hold_at_the_capacity_and_not_far_above() -> None:
    goals = "p99 < 40ms, no loss"
    found = capacity("poisson(500)", "10ms + 100us*n", "queue", goals, messages=1_500)
    below, above = (
        simulate(f"poisson({found.rate * part}, duration=2s)", "10ms + 100us*n", "queue")
        for part in (0.9, 1.15)
    )
    assert below.latency["p99"] < 0.040 < above.latency["p99"]
    rates = [point.rate for point in found.curve]
    assert rates == sorted(rates)
    assert min(rates) < found.knee <= found.interval[1]
    assert json.loads(json.dumps(found.as_dict()))["rate"] == found.rate
    assert "sustains" in str(found)


def test_more_executors_sustain_more() -> None:
    one, three = (
        capacity("poisson(500)", "1ms", "chunk(queue, 1)", "goodput(20ms) > 99%", messages=1_000,
                 concurrency=executors)
        for executors in (1, 3)
    )  # fmt: skip
    assert three.rate == pytest.approx(3 * one.rate, rel=0.15)


def test_an_overload_that_ends_before_it_is_late_is_not_sustainable() -> None:
    # A p99 of 10 s is met for a while at any rate; the backlog still grows.
    found = capacity("poisson(2000)", "1ms", "chunk(queue, 1)", "p99 < 10s", messages=6_000)
    assert found.rate < 1_600


def test_traffic_of_any_kind_is_scaled() -> None:
    messages = [(at, 0, 1.0, at / 100) for at in range(1_500)]
    found = capacity(Given(messages), "1ms", "chunk(queue, 1)", "p99 < 1.5ms")
    assert found.rate == pytest.approx(1_000, rel=0.05)


def test_what_cannot_be_answered_is_refused() -> None:
    with pytest.raises(BadOption, match="capacity needs a goal"):
        capacity("poisson(5)", "1ms", "queue", ())
    with pytest.raises(BadOption, match="no rate of their own"):
        capacity("clients(5)", "1ms", "queue", "p99 < 1s")
    with pytest.raises(BadNotation, match="goodput is the share"):
        capacity("poisson(5)", "1ms", "queue", "goodput > 5%")
    with pytest.raises(BadOption, match="not two messages"):
        capacity(parse_traffic("constant(1, duration=1s)"), "1ms", "queue", "p99 < 1s")


def test_a_goal_that_no_rate_meets_has_no_capacity() -> None:
    found = capacity("poisson(100)", "20ms", "queue", "p99 < 10ms", messages=200)
    assert found.rate == 0
