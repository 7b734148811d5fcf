"""Workflows beside DBOS: two steps, many steps, events, and a crowd that waits.

python benchmarks/workflows.py [--quick] [--rounds N] [--only NAME] [--markdown [PAGE]]

Each case runs in a process of its own, in a folder of its own; cases take turns, so that whatever
else the machine does falls on all of them. Inside a case, bare commits take turns with steps.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import actorflow as af  # noqa: E402
from benchmarks.harness.machine import resident  # noqa: E402
from benchmarks.harness.tables import put_between_markers  # noqa: E402
from benchmarks.harness.turns import (  # noqa: E402
    Case,
    Figures,
    Found,
    Goal,
    command_line,
    measure_chosen,
    median,
    over,
    page,
)
from benchmarks.loads import workflows as loads  # noqa: E402
from benchmarks.peers.engine import bare_commits, version  # noqa: E402

OURS, DBOS = "actorflow", "DBOS"
SUBJECTS = {OURS: loads.actorflow, DBOS: loads.dbos}
TWO, STEPS, REACTION, EVENTS, CROWD = (
    "two steps, 8 starters", "steps of one workflow", "event to reaction",
    "events into one workflow", "waiting workflows",
)  # fmt: skip
METHOD = (
    "Each case runs in a process of its own, and cases take turns; figures are medians of the "
    "rounds. `rate` is per second, `rate_cpu` per second of processor time of the process, which "
    "says more on a busy machine. Both libraries write SQLite files with a write-ahead log and "
    "synced commits. A bare commit inserts one row with the sqlite3 module, in the same folder."
)
_LONG = 600.0
_BARE = 100  # commits between two workflows


def _timed(count: int, work: Callable[[], object]) -> tuple[float, float]:
    """Return how many were done in a second, and in a second of processor time."""
    gc.collect()
    cpu, begin = time.process_time(), time.perf_counter()
    work()
    wall, used = time.perf_counter() - begin, time.process_time() - cpu
    return count / wall, count / max(used, 1e-9)


def two_steps(folder: Path, subject: str, starters: int, each: int) -> Figures:
    """Run workflows of two steps from several threads, each until its result is known."""
    with SUBJECTS[subject](folder) as library:

        def start() -> None:
            for number in range(each):
                assert library.two_steps(number) == number + 1

        def work() -> None:
            threads = [threading.Thread(target=start) for _ in range(starters)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        library.two_steps(0)
        rate, rate_cpu = _timed(starters * each, work)
        return {"rate": rate, "rate_cpu": rate_cpu}


def steps(folder: Path, subject: str, lengths: Sequence[int], turns: int) -> Figures:
    """Run workflows of several lengths, one at a time, in turns with bare commits."""
    rates: dict[str, list[float]] = {}
    with SUBJECTS[subject](folder) as library:
        library.many_steps(5)
        for turn in range(turns):
            for length in lengths:
                wall, cpu = _timed(length, lambda count=length: library.many_steps(count))  # type: ignore[misc]
                rates.setdefault(f"rate_{length}", []).append(wall)
                rates.setdefault(f"rate_cpu_{length}", []).append(cpu)
                place = folder / f"bare-{turn}-{length}"
                place.mkdir()
                bare = statistics.median(bare_commits(place, _BARE))
                rates.setdefault("bare", []).append(1 / bare)
    return {name: statistics.median(values) for name, values in rates.items()}


def reaction(folder: Path, subject: str, count: int) -> Figures:
    """Send one event at a time to a workflow that waits for it."""
    with SUBJECTS[subject](folder) as library:
        found = sorted(library.reactions(count))
    return {"p50_ms": statistics.median(found) * 1e3, "p95_ms": found[-len(found) // 20] * 1e3}


def events(folder: Path, _subject: str, callers: int, each: int) -> Figures:
    """Send events from concurrent tasks of one loop, until a running workflow has counted all."""
    count = callers * each
    with af.Engine(folder / "engine.db") as engine:
        handle = engine.start(loads.Adds(count))

        async def send() -> None:
            for number in range(each):
                await handle.asend("amount", number=number)

        async def main() -> None:
            await asyncio.gather(*(send() for _ in range(callers)))

        def work() -> None:
            asyncio.run(main())
            handle.send("enough")
            assert handle.result(_LONG) == count + 1

        rate, rate_cpu = _timed(count, work)
    return {"rate": rate, "rate_cpu": rate_cpu}


def crowd(folder: Path, _subject: str, count: int) -> Figures:
    """Start workflows that wait; close; find them again; let one of them go on."""
    figures: Figures = {}

    async def start(engine: af.Engine, numbers: range) -> None:
        for number in numbers:
            await engine.astart(loads.Waits(f"o-{number}"), id=f"w-{number}")

    async def start_all(engine: af.Engine) -> None:
        callers = 500
        await asyncio.gather(
            *(start(engine, range(first, count, callers)) for first in range(callers))
        )

    with af.Engine(folder / "engine.db", durability="normal", check=False) as engine:
        engine.start(loads.Waits("first")).send("paid")
        gc.collect()
        before = resident()
        rate, rate_cpu = _timed(count, lambda: asyncio.run(start_all(engine)))
        figures |= {"start_rate": rate, "start_rate_cpu": rate_cpu}
        gc.collect()
        figures["bytes_started"] = max(resident() - before, 0) / count
    gc.collect()
    before = resident()
    cpu, begin = time.process_time(), time.perf_counter()
    with af.Engine(folder / "engine.db", durability="normal", check=False) as engine:
        engine.workflows.register(loads.Waits)
        engine.resume()
        handle = engine.workflows.get(loads.Waits, f"w-{count // 2}")
        handle.send("paid")
        assert handle.result(_LONG) == "paid"
        figures["restart_s"] = time.perf_counter() - begin
        figures["restart_cpu_s"] = time.process_time() - cpu
        gc.collect()
        figures["bytes_found"] = max(resident() - before, 0) / count
        assert sum(1 for _ in engine.core.store.due(count)) == count - 1
    return figures


LOADS: dict[str, Callable[..., Figures]] = {
    each.__name__: each for each in (two_steps, steps, reaction, events, crowd)
}


def cases(*, quick: bool) -> list[Case]:
    """Return all cases; those of DBOS are smaller, because it is slower."""
    few = 10 if quick else 1
    lengths = (20, 100, 200) if quick else (200, 1_000, 2_000)
    people = 2_000 if quick else 100_000
    found = [
        Case(TWO, OURS, "two_steps", {"starters": 8, "each": 200 // few}),
        Case(TWO, DBOS, "two_steps", {"starters": 8, "each": 20 // few}),
        Case(STEPS, OURS, "steps", {"lengths": lengths, "turns": 5 // min(few, 5)}),
        Case(STEPS, DBOS, "steps", {"lengths": lengths[:1], "turns": 1}),
        Case(REACTION, OURS, "reaction", {"count": 500 // few}),
        Case(REACTION, DBOS, "reaction", {"count": 10 // min(few, 5)}),
        Case(EVENTS, OURS, "events", {"callers": 500 // few, "each": 40}),
        Case(CROWD, f"{people:,}", "crowd", {"count": people}, once=True),
    ]
    return [case for case in found if case.label != DBOS or version("dbos")]


def goals(found: Found) -> list[Goal]:
    """Compare with what workflows are meant to reach."""

    def ours(section: str, figure: str) -> float | None:
        return median(found, section, OURS, figure)

    def ratio(figure: str, other: str) -> float | None:
        return over(ours(STEPS, figure), ours(STEPS, other))

    crowds = next(iter(found.get(CROWD, {})), "")
    dbos = median(found, TWO, DBOS, "rate")
    return [
        Goal.of("two-step workflows, 8 starters / DBOS", ">= 10 x", over(ours(TWO, "rate"), dbos),
                lambda value: value >= 10),
        Goal.of("steps/s of a 1,000-step workflow / bare synced commits", ">= 0.6 x",
                ratio("rate_1000", "bare"), lambda value: value >= 0.6),
        Goal.of("steps/s of a 2,000-step workflow / of a 200-step one", ">= 0.8 x",
                ratio("rate_2000", "rate_200"), lambda value: value >= 0.8),
        Goal.of("the same, per second of processor time", ">= 0.8 x",
                ratio("rate_cpu_2000", "rate_cpu_200"), lambda value: value >= 0.8),
        Goal.of("event to reaction, p50, ms", "< 5", ours(REACTION, "p50_ms"),
                lambda value: value < 5),
        Goal.of("events/s into one workflow that counts them", ">= 5,000", ours(EVENTS, "rate"),
                lambda value: value >= 5_000),
        Goal.of(f"{crowds} waiting workflows found after a restart, s", "< 5",
                median(found, CROWD, crowds, "restart_s"), lambda value: value < 5),
        Goal.of("memory of each while it waits, bytes", "< 1,024",
                max((value for name in ("bytes_started", "bytes_found")
                     if (value := median(found, CROWD, crowds, name)) is not None), default=None),
                lambda value: value < 1_024),
    ]  # fmt: skip


def as_markdown(found: Found) -> str:
    """Return the results as a section of RESULTS.md."""
    return page("Workflows", {DBOS: version("dbos")}, METHOD, goals(found), found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says."""
    given = command_line(__doc__, LOADS, arguments)
    if version("dbos") is None:
        print("DBOS is left out: pip install dbos (or the extra bench-peers)")
    found = measure_chosen(given, __file__, cases(quick=given.quick), goals)
    if given.markdown:
        put_between_markers(given.markdown, as_markdown(found), "workflows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
