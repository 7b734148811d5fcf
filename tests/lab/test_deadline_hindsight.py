"""`Deadline`, untuned, against the best policy in hindsight: the share of messages in time."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from actorflow.lab.models.notation import seconds_text
from actorflow.lab.run.simulate import simulate

CLOSE = 0.03


class Case(NamedTuple):
    """Traffic, a job, and the time within which messages are worth something."""

    traffic: str
    service: str
    within: float


CASES = [
    Case("poisson(4000, duration={}s)", "5ms + 400us*n", 0.050),
    Case("poisson(1500, duration={}s)", "5ms + 400us*n", 0.050),
    Case("poisson(2600, duration={}s)", "5ms + 400us*n", 0.040),
    Case("bursty(5000, on=500ms, off=500ms, quiet_rate=200, duration={}s)", "4ms + 300us*n", 0.060),
    Case("bursty(3000, on=200ms, off=800ms, duration={}s)", "10ms + 200us*n", 0.080),
    Case("step(500, 6000, at=1s, duration={}s)", "3ms + 300us*n", 0.030),
    Case("ramp(100, 6000, duration={}s)", "5ms + 300us*n", 0.050),
    Case("diurnal(200, 5000, period=2s, duration={}s)", "5ms + 300us*n", 0.050),
    Case("constant(3000, duration={}s)", "2ms + 450us*n", 0.020),
    Case("constant(900, duration={}s)", "1ms*n", 0.010),
    Case("poisson(1300, duration={}s)", "1ms*n", 0.020),
    Case("poisson(2000, duration={}s)", "1ms*n", 0.020),
    Case("poisson(8000, duration={}s)", "20ms + 100us*n", 0.100),
    Case("poisson(12000, duration={}s)", "20ms + 100us*n", 0.100),
    Case("poisson(4000, duration={}s)", "lognormal(5ms, 0.2) + 300us*n", 0.060),
    Case("poisson(2500, duration={}s)", "exp(2ms) + 400us*n", 0.060),
    Case("poisson(3000, duration={}s)", "uniform(3ms, 6ms) + 350us*n", 0.040),
    Case("bursty(9000, on=100ms, off=300ms, quiet_rate=500, duration={}s)", "5ms + 250us*n", 0.050),
    Case("step(6000, 500, at=1s, duration={}s)", "5ms + 300us*n", 0.200),
    Case("poisson(5000, duration={}s)", "1ms + 190us*n", 0.030),
]


def rivals(case: Case) -> list[str]:
    """Return policies with every tuning worth trying."""
    half, most = seconds_text(case.within / 2), seconds_text(case.within * 0.8)
    found = []
    for size in (1, 3, 10, 20, 40, 80, 160, 400):
        found += [
            f"chunk(queue, {size})", f"chunk(stack, {size})",
            f"chunk(expire(queue, {half}), {size})", f"chunk(expire(queue, {most}), {size})",
            f"chunk(expire(stack, {half}), {size})",
            f"chunk(bounded(queue, {size}, reject), {size})",
            f"chunk(bounded(queue, {size}, drop_oldest), {size})",
        ]  # fmt: skip
    return [*found, f"adaptive(queue, {most})", f"expire(queue, {half})", f"expire(queue, {most})"]


def in_time(case: Case, policy: str, seconds: int, seed: int) -> float:
    result = simulate(case.traffic.format(seconds), case.service, policy, seed=seed)
    return result.within(case.within)


def gap(case: Case, seconds: int, seed: int) -> float:
    """Return by how much the best rival is better than `Deadline`."""
    best = max(in_time(case, each, seconds, seed) for each in rivals(case))
    return best - in_time(case, f"deadline(queue, {seconds_text(case.within)})", seconds, seed)


@pytest.mark.parametrize("number", [0, 3, 9])
def test_an_untuned_deadline_is_close_to_the_best_in_hindsight(number: int) -> None:
    assert gap(CASES[number], 2, seed=901) <= CLOSE


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_an_untuned_deadline_is_close_to_the_best_for_all_traffics(number: int) -> None:
    gaps = [gap(CASES[number], 6, seed=950 + at) for at in range(5)]
    assert sum(gaps) / len(gaps) <= CLOSE


@pytest.mark.parametrize("number", [0, 3, 11])
def test_in_overload_twice_as_many_are_in_time_as_with_expire(number: int) -> None:
    case = CASES[number]
    expire = in_time(case, f"expire(queue, {seconds_text(case.within)})", 3, 901)
    deadline = in_time(case, f"deadline(queue, {seconds_text(case.within)})", 3, 901)
    assert deadline >= 2 * expire
