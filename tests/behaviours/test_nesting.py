"""Limits of a batch hold in every nesting."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actorflow.behaviours import (
    Adaptive,
    Behaviour,
    Chunk,
    Debounce,
    Expire,
    Fair,
    Linger,
    Malformed,
    Priority,
    Queue,
    Stack,
    Throttle,
    TooLarge,
    Unique,
)
from tests.behaviours.models import learn


def filled(behaviour: Behaviour, *messages: Any) -> Behaviour:
    behaviour.ready_at(0.0)
    behaviour.extend(list(messages))
    return behaviour


def second(message: Any) -> float:
    return message[1]  # type: ignore[no-any-return]


def test_the_number_within_a_weight() -> None:
    chunk = Chunk(Chunk(Queue(), 2), 1000, weight=len)
    assert len(filled(chunk, *"abcdef").take()) == 2


def test_the_weight_within_a_weight() -> None:
    inner = Chunk(Queue(), 3, weight=second)
    chunk = Chunk(inner, 1000, weight=lambda _: 1)
    assert len(filled(chunk, *[(at, 1) for at in range(9)]).take()) == 3


def test_the_number_within_what_expires() -> None:
    assert filled(Chunk(Expire(Chunk(Queue(), 1), 60.0), 3), *"abc").take() == ["a"]


def test_the_cut_of_an_adaptive_within_a_weight() -> None:
    adaptive = Adaptive(Queue(), target=1.0)
    chunk = Chunk(adaptive, 1e9, weight=len)
    for size in 1, 100:
        learn(chunk, size, size / 100)
    assert chunk.portion() == len(filled(chunk, *["x"] * 90).take()) == 50


def test_a_linger_hands_over_at_most_its_size() -> None:
    linger = Linger(Queue(), 0.005, size=64)
    assert [len(filled(linger, *range(200)).take()) for _ in range(1)] == [64]


def test_a_backlog_that_has_expired_uses_up_no_turns() -> None:
    chunk = Chunk(Expire(Fair(key=0), 5.0), 3)
    filled(chunk, *[("noisy", at) for at in range(9)])
    chunk.ready_at(10.0)
    chunk.extend([("noisy", 10), ("noisy", 11), ("a", 1), ("b", 1)])
    assert chunk.take() == [("noisy", 10), ("a", 1), ("b", 1)]


def test_a_cost_is_never_exceeded_and_large_messages_run_alone_or_are_refused() -> None:
    def padded(so_far: Any, text: str) -> tuple[int, int, int]:
        _, count, longest = so_far or (0, 0, 0)
        count, longest = count + 1, max(longest, len(text))
        return count * longest, count, longest

    chunk = Chunk(Queue(), 6, cost=padded)
    filled(chunk, "a", "bcd", "e", "longer than that", "f")
    batches = [chunk.take() for _ in range(4)]
    assert batches == [["a", "bcd"], ["e"], ["longer than that"], ["f"]]
    strict = Chunk(Queue(), 6, cost=padded, oversize="reject")
    with pytest.raises(TooLarge, match="has a cost of 7, and a batch may have 6"):
        strict.add("seven77")
    with pytest.raises(Malformed, match="no cost=padded"):
        strict.add(5)
    assert strict.tally().rejected == 2


WRAPPERS = st.sampled_from(
    [
        *[lambda inner, n=n: Chunk(inner, n) for n in (1, 2, 3, 5)],
        *[lambda inner, n=n: Chunk(inner, n, weight=second) for n in (1, 2, 4)],
        *[lambda inner, n=n: Linger(inner, 1.0, size=n) for n in (2, 4)],
        lambda inner: Expire(inner, 2.0),
        lambda inner: Throttle(inner, 0.0),
        lambda inner: Debounce(inner, 0.5),
    ]
)
LEAVES = st.sampled_from([Queue, Stack, Priority, Fair, lambda: Unique(key=lambda each: each)])


def layers(behaviour: Any) -> list[Any]:
    found = [behaviour]
    while hasattr(found[-1], "_inner"):
        found.append(found[-1]._inner)
    return found


@settings(max_examples=max(200, settings().max_examples))
@given(
    leaf=LEAVES,
    around=st.lists(WRAPPERS, min_size=1, max_size=4),
    rounds=st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=8),
            st.sampled_from([0.0, 1.0, 3.0]),
        ),
        max_size=5,
    ),
)
def test_every_limit_holds_at_depth_4(leaf: Any, around: list[Any], rounds: list[Any]) -> None:
    behaviour = leaf()
    for wrap in around:
        if behaviour.traits.expires and isinstance(wrap(Queue()), Expire):
            continue
        behaviour = wrap(behaviour)
    now = 0.0
    for messages, by in rounds:
        now += by
        behaviour.ready_at(now)
        behaviour.extend(list(messages))
        while len(behaviour):
            before = len(behaviour)
            most = behaviour.portion()
            batch = behaviour.take()
            assert most is None or len(batch) <= most
            for layer in layers(behaviour):
                limit = layer.portion()
                assert limit is None or len(batch) <= limit
                if isinstance(layer, Chunk) and layer._weight is not None:
                    assert len(batch) <= 1 or sum(map(second, batch)) <= layer._size
            assert len(behaviour) < before
