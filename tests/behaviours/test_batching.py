"""`check_batching` accepts jobs that do not depend on batches, and finds jobs that do."""

from __future__ import annotations

from typing import Any

import pytest

import actorflow as af
from actorflow.testing.batching import check_batching

MESSAGES = [(key, number) for number in range(4) for key in "ab"]


def newest(batch: list[Any], state: dict[str, int]) -> dict[str, int]:
    return {**state, **dict(batch)}


def test_a_job_that_keeps_the_newest_of_each_key_passes() -> None:
    check_batching(newest, MESSAGES, state={}, key=0)


def test_answers_are_compared_too() -> None:
    def ranks(batch: list[Any], total: int) -> Any:
        return af.Answers(total + len(batch), [total + at for at, _ in enumerate(batch)])

    check_batching(ranks, MESSAGES, state=0)
    with pytest.raises(AssertionError, match="answers"):
        check_batching(ranks, MESSAGES, state=0, key=0)


def test_a_planted_dependence_on_the_order_is_found_at_once() -> None:
    calls = 0

    def last(batch: list[Any], _: Any) -> Any:
        nonlocal calls
        calls += 1
        return batch[-1]

    check_batching(last, MESSAGES)
    calls = 0
    with pytest.raises(AssertionError) as found:
        check_batching(last, MESSAGES * 5, key=0)
    assert calls < 2_000
    code = str(found.value)
    assert code.count("state = last(") <= 4
    first = code.index("state = None")
    scope: dict[str, Any] = {"last": last}
    exec(code[first : code.index("# in batches")], scope)  # noqa: S102 - the report is a program
    one_by_one = scope["state"]
    exec(code[code.index("# in batches") :], scope)  # noqa: S102
    assert scope["state"] != one_by_one


def test_a_dependence_on_the_batch_is_found() -> None:
    with pytest.raises(AssertionError, match="in batches"):
        check_batching(lambda batch, calls: calls + 1 if batch else calls, [1, 2, 3], state=0)


def test_nothing_to_process_checks_nothing() -> None:
    with pytest.raises(ValueError, match="at least one message"):
        check_batching(newest, [], state={})
