"""Traffic: rates, shapes, and the same for the same seed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.traffic import (
    AT,
    CHUNK,
    KEY,
    PRIORITY,
    SIZE,
    Bursty,
    Constant,
    Given,
    Poisson,
    Uniform,
)

if TYPE_CHECKING:
    from actorflow.lab.models.traffic import Message, Traffic


def messages(traffic: Traffic, seed: int = 0) -> list[Message]:
    return [message for chunk in traffic.chunks(seed) for message in chunk]


MODELS = (
    "constant(1000, duration=20s)", "poisson(1000, duration=20s)",
    "bursty(3000, on=1s, off=1s, quiet_rate=100, duration=20s)",
    "step(500, 2000, at=10s, duration=20s)", "ramp(0, 2000, duration=20s)",
    "diurnal(0, 2000, period=10s, duration=20s)", "ramp(2000, 0, duration=20s)",
)  # fmt: skip


@pytest.mark.parametrize("text", MODELS)
def test_messages_come_in_order_and_the_same_for_the_same_seed(text: str) -> None:
    traffic = parse_traffic(text)
    all_of_them = messages(traffic)
    times = [message[AT] for message in all_of_them]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 20
    assert all_of_them == messages(traffic)
    assert all_of_them != messages(traffic, seed=1)


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        (MODELS[0], 10_000, 10_000), (MODELS[1], 10_000, 10_000), (MODELS[2], 15_500, 15_500),
        (MODELS[3], 5_000, 20_000), (MODELS[4], 5_000, 15_000), (MODELS[5], 10_000, 10_000),
        (MODELS[6], 15_000, 5_000),
    ],
)  # fmt: skip
def test_as_many_as_the_model_says(text: str, first: int, second: int) -> None:
    times = [message[AT] for message in messages(parse_traffic(text))]
    early = sum(at < 10 for at in times)
    assert early == pytest.approx(first, rel=0.05)
    assert len(times) - early == pytest.approx(second, rel=0.05)


def test_bursts_are_where_they_should_be() -> None:
    times = [message[AT] for message in messages(Bursty(500, on=1, off=3, duration=20))]
    assert {int(at) % 4 for at in times} == {0}


def test_keys_do_not_change_the_arrivals() -> None:
    some = messages(Poisson(1000, duration=5, keys=Uniform(3)))
    others = messages(Poisson(1000, duration=5, keys=Uniform(500)))
    assert [message[AT] for message in some] == [message[AT] for message in others]
    assert {message[KEY] for message in some} == {0, 1, 2}


def test_zipf_prefers_the_first() -> None:
    drawn = messages(parse_traffic("constant(20000, duration=1s, keys=zipf(10, 1.0))"))
    counts = Counter(message[KEY] for message in drawn)
    assert set(counts) == set(range(10))
    assert counts[0] == pytest.approx(2 * counts[1], rel=0.1)
    assert counts[0] == pytest.approx(20_000 / 2.928968, rel=0.05)


def test_sizes_and_priorities() -> None:
    drawn = messages(
        parse_traffic("constant(5000, duration=1s, priorities=uniform(4), sizes=fixed(200))")
    )
    assert {message[PRIORITY] for message in drawn} == {0, 1, 2, 3}
    assert {message[SIZE] for message in drawn} == {200}


def test_given_messages_come_in_chunks() -> None:
    given = messages(Constant(CHUNK + 5, duration=1))
    assert [len(chunk) for chunk in Given(given).chunks(3)] == [CHUNK, 5]
    assert messages(Given(given)) == given
