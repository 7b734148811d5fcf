"""A plan that reruns only the jobs whose inputs have changed, with a report and pictures."""

from __future__ import annotations

import math
import random
from pathlib import Path

import actorflow as af

SEED = 7


def load(rows: int) -> list[float]:
    """Stand in for reading a file."""
    source = random.Random(SEED)
    return [source.random() for _ in range(rows)]


def clean(values: list[float]) -> list[float]:
    """Return the usable values."""
    return [value for value in values if usable(value)]


def usable(value: float) -> bool:
    """Return whether a value can be used. Change this, and see what runs again."""
    return 0.01 < value < 0.99


def fit(values: list[float], degree: int) -> float:
    """Stand in for something slow: each degree takes longer than the one before."""
    return sum(math.sin(value) ** power for value in values for power in range(5 * degree))


def best(scores: list[float]) -> float:
    """Return the highest score."""
    return max(scores)


def pipeline(degrees: int) -> af.Plan:
    """Build the plan."""
    plan = af.Plan()
    values = plan.job(clean, plan.job(load, 5_000))
    scores = [plan.job(fit, values, degree, name=f"fit[{degree}]") for degree in range(degrees)]
    plan.job(best, scores)
    return plan


def main() -> None:
    """Run the plan twice: the second time there is more to do."""
    plan = pipeline(degrees=4)
    plan.run(workers=2, cache="pipeline-cache")
    print(plan.report())

    plan = pipeline(degrees=6)  # two more
    result = plan.run(workers=2, cache="pipeline-cache")
    print(f"\nrun again: {', '.join(name for name in result if name not in result.cached)}")
    print(f"best: {plan.why('best')}")

    try:
        plan.report().plot("pipeline-time.png")
        plan.draw("pipeline-graph.png")
    except ImportError as error:  # matplotlib is an extra
        print(error)
    else:
        print(f"pictures: {', '.join(sorted(map(str, Path().glob('pipeline-*.png'))))}")


if __name__ == "__main__":
    main()
