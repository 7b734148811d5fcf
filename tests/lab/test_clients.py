"""Closed-loop clients: they wait, think, give up and try again."""

from __future__ import annotations

import pytest

from actorflow.lab.models.notation import BadNotation
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.run.measure import measure
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import BadOption


def test_clients_send_as_fast_as_they_are_answered() -> None:
    # Each client needs 100 ms to think and 10 ms for an answer.
    result = simulate("clients(5, think=100ms, duration=22s)", "10ms", "queue")
    assert result.clients["answered"] == result.clients["requests"] == result.processed
    assert result.clients["requests"] == pytest.approx(5 * 22 / 0.110, rel=0.1)


def test_a_closed_loop_agrees_with_theory() -> None:
    """The machine repairman: n clients, exponential thinking and service, one executor."""
    count, think, service = 10, 0.100, 0.015
    weights = [1.0]
    for busy in range(1, count + 1):
        weights.append(weights[-1] * (count - busy + 1) * service / think)
    expected = (1 - weights[0] / sum(weights)) / service
    result = simulate(
        "clients(10, think=exp(100ms), duration=300s)", "exp(15ms)", "chunk(queue, 1)"
    )
    assert result.throughput == pytest.approx(expected, rel=0.03)
    assert result.clients["p50"] == pytest.approx(result.latency["p50"], rel=0.01)


def test_timeouts_and_retries_keep_an_overload_alive() -> None:
    calm = "clients(100, think=exp(500ms), duration=30s)"
    hasty = "clients(100, think=exp(500ms), timeout=300ms, retries=3, backoff=10ms, duration=30s)"
    service = "exp(8ms)"
    patient = simulate(calm, service, "chunk(queue, 1)")
    storm = simulate(hasty, service, "chunk(queue, 1)")
    assert patient.clients["timeouts"] == 0
    assert storm.clients["timeouts"] > 1_000
    assert storm.clients["retries"] > storm.clients["requests"] / 2
    assert storm.clients["answered"] < patient.clients["answered"]
    settled = storm.processed + storm.lost + storm.replaced + storm.merged
    assert settled == storm.arrived
    assert storm.abandoned > 0
    requests = storm.clients["answered"] + storm.clients["gave_up"]
    assert requests <= storm.clients["requests"] <= requests + 100


def test_refused_clients_try_again() -> None:
    result = simulate(
        "clients(20, think=10ms, retries=2, backoff=5ms, duration=5s)", "10ms",
        "chunk(bounded(queue, 2, reject), 1)",
    )  # fmt: skip
    assert result.rejected == result.clients["refused"] > 0
    assert result.clients["retries"] > 0
    assert result.clients["gave_up"] > 0


def test_clients_hear_at_once_that_their_message_has_expired() -> None:
    result = simulate(
        "clients(50, think=exp(20ms), duration=10s)", "5ms + 400us*n", "deadline(queue, 30ms)"
    )
    assert result.expired == result.clients["refused"]
    assert result.clients["p99"] < 0.040


def test_the_same_seed_gives_the_same_clients() -> None:
    text = "clients(5, think=exp(20ms), timeout=30ms, retries=1, duration=2s)"
    one, two = (simulate(text, "exp(5ms)", "queue", seed=3) for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("clients(0)", "count=0 must be a whole number"),
        ("clients(5, think=5)", "5 has no unit of time"),
        ("clients(5, timeout=5)", "timeout 5 has no unit"),
        ("clients(5, retries=-1)", "retries=-1 must be"),
    ],
)
def test_bad_clients_say_what_is_known(text: str, complaint: str) -> None:
    with pytest.raises(BadNotation, match=complaint):
        parse_traffic(text)


def test_clients_are_for_simulation() -> None:
    with pytest.raises(BadOption, match="can be simulated, and not replayed"):
        measure("clients(5, duration=1s)", "1ms", "queue", repetitions=1)
    with pytest.raises(BadOption, match="use when_full='reject'"):
        simulate("clients(5, duration=1s)", "1ms", "bounded(queue, 2, block)")
