"""Simulations agree with queueing theory."""

from __future__ import annotations

from math import factorial

import pytest

from actorflow.lab.models.traffic import Poisson
from actorflow.lab.run.simulate import simulate

SIZES = [
    pytest.param(60, 0.08, id="60s"),
    pytest.param(800, 0.01, id="800s", marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
]
"""Seconds of traffic at up to 1,600 messages a second, and how far from theory they may be."""


def mean_latency(
    rate: float, seconds: float, service: str, policy: str = "chunk(queue, 1)", executors: int = 1
) -> float:
    traffic = Poisson(rate, duration=seconds)
    return simulate(traffic, service, policy, concurrency=executors, seed=11).latency_mean


@pytest.mark.parametrize(("seconds", "tolerance"), SIZES)
@pytest.mark.parametrize("load", [0.3, 0.6])
def test_m_m_1(load: float, seconds: int, tolerance: float) -> None:
    expected = 0.001 / (1 - load)
    assert mean_latency(1_000 * load, seconds, "exp(1ms)") == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("seconds", "tolerance"), SIZES)
@pytest.mark.parametrize("load", [0.3, 0.6])
def test_m_d_1(load: float, seconds: int, tolerance: float) -> None:
    expected = 0.001 * (1 + load / (2 * (1 - load)))
    assert mean_latency(1_000 * load, seconds, "1ms") == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("seconds", "tolerance"), SIZES)
@pytest.mark.parametrize("executors", [2, 4])
def test_m_m_c(executors: int, seconds: int, tolerance: float) -> None:
    offered = 0.6 * executors
    last = offered**executors / factorial(executors) / (1 - offered / executors)
    wait = last / (last + sum(offered**k / factorial(k) for k in range(executors)))
    expected = 0.001 + wait * 0.001 / (executors - offered)
    found = mean_latency(offered * 1_000, seconds, "exp(1ms)", executors=executors)
    assert found == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("seconds", "tolerance"), SIZES)
@pytest.mark.parametrize("load", [0.7, 1.5])
def test_m_m_1_k(load: float, seconds: int, tolerance: float) -> None:
    room = 5  # one in service and four that wait
    traffic = Poisson(1_000 * load, duration=seconds)
    policy = f"chunk(bounded(queue, {room - 1}, reject), 1)"
    result = simulate(traffic, "exp(1ms)", policy, seed=11)
    refused = (1 - load) * load**room / (1 - load ** (room + 1))
    assert result.rejected / result.arrived == pytest.approx(refused, rel=tolerance)
    weights = [load**k for k in range(room + 1)]
    held = sum(k * weight for k, weight in enumerate(weights)) / sum(weights)
    expected = held / (1_000 * load * (1 - refused))
    assert result.latency_mean == pytest.approx(expected, rel=tolerance)


def bulk_wait(rate: float, largest: int) -> float:
    """Return the mean latency of M/M(1, b)/1: exponential service of up to b at once.

    The number of messages that wait while the executor is busy falls by a factor `r` for each
    more, where r is the root of rate + 1 = rate / r + r ** b, with a mean service time of 1.
    """
    low, high = 1e-9, 1 - 1e-9
    for _ in range(200):
        root = (low + high) / 2
        low, high = (root, high) if rate + 1 - rate / root - root**largest < 0 else (low, root)
    busy = 1.0  # the state: busy, nobody waits
    idle = busy / rate
    total = idle + busy / (1 - root)
    waiting = busy * root / (1 - root) ** 2 / total
    return waiting / rate + 1.0


@pytest.mark.parametrize(("seconds", "tolerance"), SIZES)
@pytest.mark.parametrize(("rate", "largest"), [(0.8, 4), (1.6, 4), (1.6, 16)])
def test_bulk_service(rate: float, largest: int, seconds: int, tolerance: float) -> None:
    expected = 0.001 * bulk_wait(rate, largest)
    found = mean_latency(1_000 * rate, seconds, "exp(1ms)", f"chunk(queue, {largest})")
    assert found == pytest.approx(expected, rel=tolerance)
