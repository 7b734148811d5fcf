"""Measure the policy lab: how fast it simulates, and whether its predictions are right.

python benchmarks/lab.py               both tables
python benchmarks/lab.py --markdown    ... and into benchmarks/RESULTS.md
python benchmarks/lab.py --quick       tiny sizes, to see that everything runs

Speed is in messages per second of this process's own time, so that others on the machine do not
count. Measured latencies are real time: a busy machine shows.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from actorflow.lab.models.notation import seconds_text
from actorflow.lab.models.traffic import Constant, Poisson, Zipf
from actorflow.lab.run.measure import measure
from actorflow.lab.run.simulate import simulate
from benchmarks.harness.machine import describe
from benchmarks.harness.tables import piped, plain, put_between_markers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness.tables import Rows

RESULTS = Path(__file__).parent / "RESULTS.md"

SPEED_SERVICE = "2ms + 10us*n"
SPEEDS = {
    "queue": 300_000, "unique": 150_000, "priority": 150_000, "stack": None, "coalesce": None,
    "fair": None, "chunk(queue, 100)": None, "chunk(priority, 20)": None,
    "bounded(queue, 1000, drop_oldest)": None, "throttle(queue, 10ms)": None,
    "expire(queue, 1s)": None, "linger(queue, 10ms)": None, "debounce(queue, 5ms, 50ms)": None,
    "adaptive(queue, 50ms)": None, "chunk(queue, 1)": None,
}  # fmt: skip
"""Policies, and the goals in messages per second."""

AGREEMENT_SERVICE = "10ms + 50us*n"
AGREEMENT = ("queue", "unique", "chunk(queue, 10)", "linger(queue, 30ms)", "throttle(queue, 40ms)",
             "adaptive(queue, 80ms)")  # fmt: skip
WITHIN = 0.15


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much to run."""

    rounds: int
    seconds: float
    real: float
    repetitions: int
    max_lag: float


FULL = Sizes(rounds=3, seconds=60.0, real=5.0, repetitions=3, max_lag=0.01)
QUICK = Sizes(rounds=1, seconds=0.2, real=0.1, repetitions=1, max_lag=100.0)


def speeds(sizes: Sizes) -> Rows:
    """Time the simulation of each policy; the best of the rounds counts."""
    traffic = Poisson(5_000, duration=sizes.seconds, keys=Zipf(1_000))
    table = [["policy", "messages/s", "mean batch", "goal", ""]]
    for text, goal in SPEEDS.items():
        service = "100us" if text.endswith(" 1)") else SPEED_SERVICE
        best, batch = 0.0, 0.0
        for _ in range(sizes.rounds):
            started = time.process_time()
            result = simulate(traffic, service, text)
            best = max(best, result.arrived / max(time.process_time() - started, 1e-9))
            batch = result.batch_mean
        verdict = "" if goal is None else "met" if best >= goal else "MISSED"
        asked = "" if goal is None else f">= {goal:,}"
        table.append([text, f"{best:,.0f}", f"{batch:,.3g}", asked, verdict])
    return table


def agreement(sizes: Sizes) -> Rows:
    """Compare simulated latencies with measured ones, for a job that sleeps."""
    traffic = Constant(400, duration=sizes.real, keys=Zipf(50))
    table = [
        ["policy", "p50 simulated", "p50 measured", "apart", "p99 simulated", "p99 measured", ""]
    ]
    for text in AGREEMENT:
        predicted = simulate(traffic, AGREEMENT_SERVICE, text)
        real = measure(
            traffic, AGREEMENT_SERVICE, text, repetitions=sizes.repetitions, max_lag=sizes.max_lag
        )
        apart = real.latency["p50"] / max(predicted.latency["p50"], 1e-9) - 1
        table.append([
            text, seconds_text(predicted.latency["p50"]), seconds_text(real.latency["p50"]),
            f"{apart:+.1%}", seconds_text(predicted.latency["p99"]),
            seconds_text(real.latency["p99"]), "met" if abs(apart) <= WITHIN else "MISSED",
        ])  # fmt: skip
    return table


def as_markdown(tables: dict[str, Rows]) -> str:
    """Return the section of the page."""
    facts = "\n".join(f"- {name}: {value}" for name, value in describe().items())
    parts = ["## The policy lab", facts]
    for title, table in tables.items():
        parts += [f"### {title}", piped(table)]
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes: the figures mean nothing")
    parser.add_argument(
        "--markdown", nargs="?", type=Path, const=RESULTS, metavar="FILE",
        help=f"put the tables into FILE (by default {RESULTS.name})",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else FULL
    tables = {
        f"Speed of simulation: poisson(5000), {SPEED_SERVICE}, per second of process time": speeds(
            sizes
        ),
        f"Simulated and measured: constant(400), a job that sleeps {AGREEMENT_SERVICE}": agreement(
            sizes
        ),
    }
    for title, table in tables.items():
        print(f"{title}\n\n{plain(table)}\n")
    if options.markdown:
        put_between_markers(options.markdown, as_markdown(tables), "lab")
    return 0


if __name__ == "__main__":
    sys.exit(main())
