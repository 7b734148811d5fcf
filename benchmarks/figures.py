"""Draw the figures of the documentation with the lab itself: `make docs-figures`.

What the lab draws is simulated from fixed seeds, so it changes only when the code does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.policies import parse_policies
from actorflow.lab.report import figures
from actorflow.lab.report.gallery import today
from actorflow.lab.report.timeline import timeline
from actorflow.lab.run.simulate import simulate

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from examples.plan_pipeline import pipeline  # noqa: E402 - from the checkout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.figure import Figure

    from actorflow.lab.models.traffic import Message
    from actorflow.lab.run.result import Result

FOLDER = ROOT / "docs" / "figures"
DPI = 200

# Two flurries and a straggler: when (ms), key, priority.
ARRIVALS = (
    (0, "A", 1), (3, "B", 1), (5, "A", 2), (8, "C", 1), (10, "A", 3), (13, "B", 1), (15, "A", 1),
    (18, "A", 2), (20, "C", 3), (48, "B", 1), (50, "B", 2), (55, "A", 1), (84, "C", 1),
)  # fmt: skip
MESSAGES: list[Message] = [(key, priority, 1.0, at / 1000) for at, key, priority in ARRIVALS]
TIMELINE_SERVICE = "8ms + 0.5ms*n"

BEHAVIOURS = {
    "queue": ("queue", "number"),
    "stack": ("stack", "number"),
    "unique": ("unique", "key"),
    "tableunique": ("table_unique", "key"),
    "coalesce": ("coalesce", "key"),
    "priority": ("chunk(priority, 3)", "priority"),
    "fair": ("chunk(fair, 3)", "key"),
    "throttle": ("throttle(queue, 24ms)", "number"),
    "bounded": ("bounded(queue, 3, drop_oldest)", "number"),
    "chunk": ("chunk(queue, 2)", "number"),
    "linger": ("linger(queue, 16ms)", "number"),
    "debounce": ("debounce(queue, 6ms, 30ms)", "number"),
    "expire": ("expire(stack, 8ms)", "number"),
    "adaptive": ("adaptive(queue, 32ms)", "number"),
    "bucket": ("bucket", "key"),
    "deadline": ("deadline(queue, 11ms)", "number"),
    "rate": ("rate(queue, 100, burst=3)", "number"),
    "perkey": ("per_key(chunk(queue, 2))", "key"),
    "padto": ("pad_to(queue, 4)", "number"),
    "shortest": ("chunk(shortest(weight=priority), 3)", "priority"),
    "sample": ("sample(3)", "number"),
    "lifo": ("chunk(lifo(queue, 3), 2)", "number"),
    "codel": ("codel(chunk(queue, 1), 4ms, 8ms)", "number"),
    "window": ("window(20ms)", "number"),
    "dedup": ("dedup(queue, 40ms)", "key"),
    "lanes": ("lanes(queue, queue)", "priority"),
}
"""For each behaviour a policy that shows it, and the label of the messages."""


def run(traffic: str, service: str, *policies: str) -> list[Result]:
    """Simulate some policies."""
    return [simulate(traffic, service, policy) for policy in parse_policies(policies)]


def expensive_calls() -> Sequence[Result]:
    """Show a job that is expensive per call: what waiting buys."""
    return run(
        "poisson(2000, duration=20s)", "10ms + 20us*n", "queue",
        "linger(queue, {5ms, 20ms, 50ms, 100ms})", "throttle(queue, 40ms)", "chunk(queue, 30)",
        "adaptive(queue, {50ms, 100ms})",
    )  # fmt: skip


def duplicates() -> Sequence[Result]:
    """Show more messages than the job can process, about few things."""
    return run(
        "poisson(2000, duration=15s, keys=zipf(100, 1.2))", "1ms + 1ms*n",
        "queue", "unique", "linger(unique, 50ms)", "bounded(queue, 200, drop_oldest)",
    )  # fmt: skip


def priorities() -> Sequence[Result]:
    """Show a worker near its limit, and some messages that must not wait."""
    return run(
        "poisson(950, duration=30s, priorities=uniform(10))", "1ms*n",
        "queue", "priority", "chunk(priority, {1, 10, 50})",
    )  # fmt: skip


def overload() -> Sequence[Result]:
    """Show bursts beyond capacity: what to do with the backlog."""
    return run(
        "bursty(3000, on=2s, off=4s, quiet_rate=300, duration=18s)", "500us*n",
        "chunk(queue, 50)", "chunk(stack, 50)", "chunk(bounded(queue, 500, drop_oldest), 50)",
        "chunk(expire(queue, 300ms), 50)",
    )  # fmt: skip


def load_step() -> Sequence[Result]:
    """Show a jump from 500 to 20,000 messages a second: fixed waits and one that adapts."""
    return run(
        "step(500, 20000, at=5s, duration=10s)", "10ms + 20us*n",
        "queue", "linger(queue, 20ms)", "linger(queue, 40ms)", "adaptive(queue, 50ms)",
    )  # fmt: skip


SCENES: dict[str, tuple[Callable[[], Sequence[Result]], Callable[[Any], Figure]]] = {
    "expensive-calls": (expensive_calls, figures.frontier),
    "expensive-calls-latency": (expensive_calls, figures.latency_cdf),
    "duplicates": (duplicates, figures.depths),
    "priorities": (priorities, figures.by_priority),
    "overload-latency": (overload, figures.latency_cdf),
    "overload-depth": (overload, figures.depths),
    "load-step": (load_step, figures.batch_sizes),
    "load-step-latency": (load_step, figures.latency_cdf),
}


PLANS = ("plan-graph", "plan-time")
"""Of the plan in examples/plan_pipeline.py: real time, so the bars are never quite the same."""


def draw_plan(folder: Path) -> None:
    """Run the plan of the example, and draw its graph and who ran what when."""
    plan = pipeline(degrees=6)
    plan.run(workers=2)
    plan.draw(folder / "plan-graph.png")
    plan.report().plot(folder / "plan-time.png")


def main(folder: Path = FOLDER) -> int:
    """Draw everything."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (policy, label) in BEHAVIOURS.items():
        figure = timeline(MESSAGES, TIMELINE_SERVICE, policy, label=label)
        figures.save(figure, folder / f"behaviour-{name}.png", DPI)
    known: dict[Any, Sequence[Result]] = {}
    for name, (scene, draw) in SCENES.items():
        results = known.setdefault(scene, ()) or scene()
        known[scene] = results
        figure = draw(results)
        figures.footer(figure, results, today())
        figures.save(figure, folder / f"{name}.png", DPI)
    draw_plan(folder)
    print(f"wrote {len(BEHAVIOURS) + len(SCENES) + len(PLANS)} figures to {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
