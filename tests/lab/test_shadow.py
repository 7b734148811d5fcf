"""Shadows: a second accumulator that follows live arrivals and executes nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Chunk, PerKey, Queue, Unique
from actorflow.lab import shadow, simulate
from actorflow.lab.models.policies import policy_of
from actorflow.lab.models.service import parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.shadow_accumulator import ShadowAccumulator, ShadowRefused
from actorflow.runtime.errors import BadOption


@pytest.mark.parametrize(
    "text", ["queue", "chunk(queue, 3)", "linger(queue, 5ms, 8)", "unique", "deadline(queue, 30ms)"]
)
@pytest.mark.parametrize("executors", [1, 3])
def test_a_second_accumulator_does_what_the_simulation_does(text: str, executors: int) -> None:
    traffic, service = parse_traffic("poisson(700, duration=4s, keys=uniform(40))"), "3ms + 1ms*n"
    expected = simulate(traffic, service, text, concurrency=executors)
    follower = ShadowAccumulator(
        policy_of(text).make(), parse_service(service), concurrency=executors
    )
    for chunk in traffic.chunks(0):
        for message in chunk:
            follower.push(message, message[3])
    follower.push((0, 0, 1.0, 1e3), 1e3)  # so that all the others have left
    found = follower.result(text)
    assert found.arrived == expected.arrived + 1
    assert found.latency["p50"] == pytest.approx(expected.latency["p50"], rel=0.02)
    assert found.latency["p99"] == pytest.approx(expected.latency["p99"], rel=0.05)
    assert found.lost == pytest.approx(expected.lost, abs=2)


def test_a_shadow_sees_the_messages_and_executes_nothing() -> None:
    seen: list[Any] = []

    def job(batch: list[Any], state: None) -> None:
        seen.extend(batch)

    with af.spawn(job) as worker, shadow(worker, lambda: Unique(key=lambda m: m["id"])) as other:
        for number in range(600):
            worker.push_block({"id": number % 3, "number": number})
        worker.push_many([{"id": 1, "number": number} for number in range(50)])
        found = other.result()
    assert found.mode == "shadow"
    assert found.arrived == 650
    assert found.replaced > 0  # of the messages pushed at once
    assert found.processed + found.replaced <= 650
    assert len(seen) == 650
    assert other.result().arrived == 650  # after the end, too
    assert "push" not in vars(worker)


def test_a_policy_that_would_miss_its_goals_is_not_put_in_place() -> None:
    release = threading.Event()

    def job(batch: list[Any], state: None) -> None:
        release.wait(20)

    with af.spawn(job) as worker, shadow(worker, _small) as other:
        worker.push(0)
        with pytest.raises(ShadowRefused, match="too few to know p99: it needs 459"):
            other.change("p99 < 1s")
        release.set()
        for number in range(700):
            worker.push_block(number)
        with pytest.raises(ShadowRefused, match="would have missed p99 <"):
            other.change("p99 < 1us")
        other.change("p99 < 100s, no loss")
        assert "Chunk" in repr(worker.actor.core.behaviour)
        with pytest.raises(BadOption, match="change needs a goal"):
            other.change(())


def _small() -> Chunk:
    return Chunk(Queue(), 1)


def test_one_ref_has_one_shadow() -> None:
    with af.spawn(lambda batch, state: None) as worker, shadow(worker, Queue) as other:
        with pytest.raises(BadOption, match="shadowed already"):
            shadow(worker, Queue)
        assert other.error() is None  # nothing was pushed


def test_bounds_and_keys_are_those_of_the_real_messages() -> None:
    with af.spawn(lambda batch, state: None) as worker:
        with shadow(worker, lambda: Bounded(PerKey(Queue(), key=str.lower), 5)) as other:
            worker.push_many(["a", "B", "A"])
        assert other.result().arrived == 3
