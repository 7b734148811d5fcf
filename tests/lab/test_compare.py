"""Comparisons: common random numbers, paired differences, verdicts."""

from __future__ import annotations

import json

import pytest

from actorflow.lab.run.compare import compare
from actorflow.runtime.errors import BadOption

TRAFFIC = "poisson(800, duration=2s)"
SERVICE = "1ms + 100us*n"


def test_what_is_better_and_what_is_worse_is_found() -> None:
    found = compare(
        "linger(queue, 5ms)", "queue", traffic=TRAFFIC, service=SERVICE,
        figures="p99, busy, goodput(5ms)",
    )  # fmt: skip
    assert found["p99"].verdict == "worse"
    assert found["busy"].verdict == "better"
    assert found["goodput(5ms)"].verdict == "worse"
    low, high = found["p99"].interval
    assert low < found["p99"].first - found["p99"].second < high
    assert "p99: 6" in str(found)


def test_a_policy_is_the_same_as_itself() -> None:
    found = compare("queue", "linger(queue, 0s)", traffic=TRAFFIC, service=SERVICE)
    assert {each.verdict for each in found.differences} == {"same"}
    assert found.runs == 5


def test_pairs_tell_apart_what_the_figures_alone_do_not() -> None:
    # Half a millisecond more of waiting, in traffic whose p99 differs far more from run to run.
    found = compare(
        "chunk(queue, 1)", "chunk(queue, 1)", traffic="poisson(850, duration=3s)",
        service="exp(1ms)", figures=["p99"],
    )  # fmt: skip
    assert found["p99"].verdict == "same"
    closer = compare(
        "chunk(queue, 2)", "chunk(queue, 3)", traffic="poisson(850, duration=3s)",
        service="1ms*n", figures=["mean"],
    )  # fmt: skip
    assert closer["mean"].verdict == "better"


def test_what_differs_by_chance_alone_is_undecided() -> None:
    # Both have the same work to do; which batch takes how long is drawn.
    found = compare(
        "chunk(queue, 2)", "chunk(queue, 3)", traffic="poisson(500, duration=300ms)",
        service="exp(1ms)*n", figures=["busy"], most=6,
    )  # fmt: skip
    assert found["busy"].verdict == "undecided"
    assert found.runs == 6


def test_a_comparison_is_data_too() -> None:
    found = compare("queue", "chunk(queue, 1)", traffic=TRAFFIC, service=SERVICE, figures=["p50"])
    again = json.loads(json.dumps(found.as_dict()))
    assert again["differences"]["p50"]["verdict"] == "better"
    with pytest.raises(KeyError, match="was not compared; there are p50"):
        found["p99"]


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(BadOption, match="fewer pairs say nothing"):
        compare("queue", "stack", traffic=TRAFFIC, service=SERVICE, most=2)
