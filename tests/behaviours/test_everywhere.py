"""Each behaviour of the lab conforms, works in `batched`, and as the inbox of durable workers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

import actorflow as af
from actorflow.lab.models.policies import BUILT_INS, policy_of
from actorflow.testing import check_behaviour

MESSAGES: list[Any] = [(number, 0, 1.0, 0.0) for number in range(5)]


@pytest.mark.parametrize("text", BUILT_INS)
def test_every_behaviour_batches_calls_of_a_function(text: str) -> None:
    @af.batched(policy_of(text).make)
    def double(items: list[Any]) -> list[int]:
        return [2 * item[0] for item in items]

    assert [double(message) for message in MESSAGES] == [0, 2, 4, 6, 8]
    double.worker.stop()


def remember(batch: list[Any], state: list[int]) -> list[int]:
    return [*state, *(message[0] for message in batch)]


@pytest.mark.timeout(120)
def test_every_behaviour_is_the_inbox_of_a_durable_worker() -> None:
    engine = af.Engine(":memory:")
    try:
        for text in BUILT_INS:
            name = text.partition("(")[0]
            worker = engine.worker(name, remember, state=[], behaviour=policy_of(text).make)
            for message in MESSAGES[:2]:
                worker.push_block(message, timeout=30)
            assert [each for each in worker.state() if each] == [1], text
    finally:
        engine.close()


@pytest.mark.parametrize("text", BUILT_INS)
def test_every_behaviour_conforms(text: str) -> None:
    numbers = st.integers(0, 3)
    messages = st.tuples(numbers, numbers, st.floats(0.0, 5.0), st.floats(0.0, 5.0))
    check_behaviour(policy_of(text).make, messages=messages, max_examples=30)
