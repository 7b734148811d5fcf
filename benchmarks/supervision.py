"""Measure supervisors: a hundred thousand children should cost ten times what ten thousand do.

python benchmarks/supervision.py                the table, in about a minute
python benchmarks/supervision.py --markdown     ... and into benchmarks/RESULTS.md
python benchmarks/supervision.py --quick        tiny sizes, to check that everything runs
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import actorflow as af
from benchmarks.harness.machine import busy, describe, processors
from benchmarks.harness.tables import put_between_markers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RESULTS = Path(__file__).parent / "RESULTS.md"


class Child(af.Actor):
    """A child that does nothing until a message makes it crash."""

    def on_receive(self, message: Any) -> None:
        """Crash."""
        raise RuntimeError(message)


def children(count: int, restarts: int) -> dict[str, float]:
    """Start, restart and stop dynamic children; return microseconds for each."""
    supervisor = af.Supervisor(
        [af.Child("child", Child)], strategy="dynamic", max_restarts=10 * restarts
    ).start()
    gc.collect()
    begin = perf_counter()
    refs = [supervisor.start_copy().ref for _ in range(count)]
    started = perf_counter()
    gc.freeze()
    times = []
    for middle in refs[count // 2 : count // 2 + restarts]:
        again = threading.Event()
        middle.watch(lambda _actor, _reason, again=again: again.set())
        before = perf_counter()
        middle.tell("crash")
        again.wait()
        supervisor.count_children()  # answered after the restart
        times.append(perf_counter() - before)
    refs.clear()
    stopping = perf_counter()
    supervisor.stop()
    stopped = perf_counter()
    return {
        "start": (started - begin) / count * 1e6,
        "restart": median(times) * 1e6,
        "stop": (stopped - stopping) / count * 1e6,
    }


def burst(worker: af.WorkerRef, count: int) -> float:
    """Push many messages and wait for the last; return messages per second."""
    push = worker.push
    gc.collect()
    begin = perf_counter()
    for number in range(count):
        push(number)
    worker.push_block(count, timeout=None)
    return count / (perf_counter() - begin)


def job(batch: list[int], total: int) -> int:
    """Count the messages."""
    return total + len(batch)


def supervised_ratio(count: int, rounds: int) -> tuple[float, float, float]:
    """Compare a supervised worker with an unsupervised one, in turns: M/s, a ratio, a control.

    A ratio is the median of the ratios within each round, so that a machine that is slower for a
    while is slower for all. The control compares two workers that are both unsupervised.
    """
    rates: dict[str, list[float]] = {"alone": [], "control": [], "supervised": []}
    with (
        af.Supervisor([af.Worker("counter", job, state=0)]) as supervisor,
        af.spawn(job, state=0) as alone,
        af.spawn(job, state=0) as control,
    ):
        subjects = [
            ("alone", alone), ("control", control), ("supervised", supervisor.worker("counter")),
        ]  # fmt: skip
        for number in range(rounds):
            turn = number % len(subjects)
            for name, worker in subjects[turn:] + subjects[:turn]:
                rates[name].append(burst(worker, count))

    def ratio(name: str) -> float:
        return median(a / b for a, b in zip(rates[name], rates["alone"], strict=True))

    return median(rates["alone"]) / 1e6, ratio("supervised"), ratio("control")


@contextmanager
def _silence() -> Iterator[None]:
    """Silence the log, because the measured crashes would fill it."""
    logger = logging.getLogger("actorflow")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


_LINEAR = (
    "Linear means that the ratio is near 1: the work for one child does not grow with the number "
    "of its siblings. `restart` is the time from the message that makes one child in the middle "
    "crash until its supervisor has restarted it and answers a request."
)


def _ratio(pushes: int, rounds: int, alone: float, ratio: float, control: float) -> str:
    return (
        f"Bursts of {pushes:,} messages, {rounds} interleaved rounds: {alone:.2f} M/s "
        f"unsupervised; supervised / unsupervised {ratio:.3f} (goal: at least 0.97); two "
        f"unsupervised workers compared in the same way {control:.3f}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that the arguments select."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--markdown", nargs="?", type=Path, const=RESULTS, metavar="FILE")
    options = parser.parse_args(arguments)
    machine = describe()
    small, large, pushes, rounds = (
        (100, 1_000, 1_000, 3) if options.quick else (10_000, 100_000, 300_000, 60)
    )
    with _silence():
        few, many = children(small, 20), children(large, 20)
        alone, ratio, control = supervised_ratio(pushes, rounds)
    lines = [
        f"| us for each child | of {small:,} | of {large:,} | ratio |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {name} | {few[name]:.1f} | {many[name]:.1f} | {many[name] / few[name]:.2f} |"
            for name in few
        ),
        "",
        _LINEAR,
        "",
        _ratio(pushes, rounds, alone, ratio, control),
    ]
    text = "\n".join(lines)
    print(text)
    if options.markdown:
        load = busy()
        note = (
            ""
            if load is None
            else (
                f"\n\nThe machine was busy with something else (load {load:.1f} on {processors()})."
            )
        )
        head = "\n".join(f"- {name}: {value}" for name, value in machine.items())
        put_between_markers(
            options.markdown, f"## Supervision\n\n{head}{note}\n\n{text}", "supervision"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
