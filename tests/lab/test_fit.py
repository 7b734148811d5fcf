"""Service models from recorded batches."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.lab.models.service import parse_service
from actorflow.lab.models.trace import BadTrace
from actorflow.lab.run.fit import fit
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from pathlib import Path


def drawn(text: str, largest: int = 200, count: int = 4_000) -> list[tuple[int, float]]:
    model, random = parse_service(text), Random(3)
    sizes = [random.randint(1, largest) for _ in range(count)]
    return [(size, model.seconds([None] * size, random)) for size in sizes]


def test_a_line_is_found() -> None:
    found = fit(drawn("2ms + 10us*n"))
    assert found.fixed == pytest.approx(0.002, rel=0.01)
    assert found.slope == pytest.approx(10e-6, rel=0.01)
    assert (found.knee, found.tail) == (None, 0.0)
    assert found.residuals["error"] < 0.01
    assert found.text.startswith("2ms + ")


def test_a_knee_is_found() -> None:
    found = fit(drawn("2ms + 10us*n + 90us*over(64)"))
    assert found.knee == pytest.approx(64, rel=0.15)
    assert found.slope == pytest.approx(10e-6, rel=0.2)
    assert found.steeper == pytest.approx(90e-6, rel=0.1)
    assert parse_service(found.text).seconds([None] * 164, Random(0)) == pytest.approx(
        0.0126, rel=0.05
    )


@pytest.mark.parametrize("text", ["lognormal(5ms, 0.3)", "lognormal(2ms, 0.4) + 50us*n"])
def test_a_tail_is_found_and_predicts_latency(text: str) -> None:
    found = fit(drawn(text, largest=20))
    assert found.tail > 0.05
    assert "lognormal" in found.text
    traffic = "poisson(300, duration=20s)"
    real, predicted = (
        simulate(traffic, each, "queue").latency["p99"] for each in (text, found.text)
    )
    assert predicted == pytest.approx(real, rel=0.2)


def test_a_few_slow_calls_do_not_bend_the_line() -> None:
    batches = drawn("2ms + 10us*n")
    slow = [
        (size, 20 * took) if at % 50 == 0 else (size, took)
        for at, (size, took) in enumerate(batches)
    ]
    found = fit(slow)
    assert found.fixed == pytest.approx(0.002, rel=0.05)
    assert found.slope == pytest.approx(10e-6, rel=0.05)


def test_batches_of_one_size_have_a_fixed_time_alone() -> None:
    assert fit([(8, 0.01)] * 20).text == "10ms"


def test_a_recorded_worker_can_be_fitted(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    clock_took: list[int] = []

    def job(batch: list[Any], state: None) -> None:
        clock_took.append(len(batch))

    with af.spawn(job) as worker, af.record(worker, path) as recorder:
        for number in range(40):
            worker.push_block(number)
    assert recorder.recorded == 40
    assert recorder.batches == len(clock_took) == 40
    found = fit(path)
    assert found.batches == 40
    assert found.fixed > 0
    assert simulate(str(path), found.model(), "queue").arrived == 40


def test_what_is_no_longer_observed_is_not_recorded(tmp_path: Path) -> None:
    with af.spawn(lambda batch, state: None) as worker:
        with af.record(worker, tmp_path / "t.jsonl") as first:
            worker.push_block(1)
        worker.push_block(2)
        with af.record(worker, tmp_path / "u.jsonl") as second:
            worker.push_block(3)
        assert (first.batches, second.batches) == (1, 1)
        assert worker.statistics().batch_sizes == {1: 3}


def test_too_little_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="3 batches are too few"):
        fit([(1, 0.1)] * 3)
    with pytest.raises(BadOption, match="there is no trace"):
        fit(tmp_path / "gone.jsonl")
    path = tmp_path / "t.jsonl"
    path.write_text('{"time": 0}\n{"time": 1, "batch": "x", "took": 1}\n')
    with pytest.raises(BadTrace, match="line 2: not a batch"):
        fit(path)
