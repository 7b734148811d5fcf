"""Workflows beside DBOS: two steps, many steps, events, and a crowd that waits.

python benchmarks/workflows.py [--quick] [--rounds N] [--only NAME] [--markdown [PAGE]]

Each case runs in a process of its own, in a folder of its own; cases take turns, so that whatever
else the machine does falls on all of them. Inside a case, bare commits take turns with steps.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import actorflow as af  # noqa: E402
from actorflow.engine.stores.sqlite.store import SqliteStore  # noqa: E402
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
from benchmarks.peers.engine import bare_commits, require_synced, version  # noqa: E402

OURS, DBOS, LOGGED = "actorflow", "DBOS", "DBOS, write-ahead log"
SUBJECTS = {OURS: loads.actorflow, DBOS: loads.dbos, LOGGED: loads.dbos_logged}
TWO = {1: "two steps, 1 starter", 8: "two steps, 8 starters", 64: "two steps, 64 starters"}
REPLAY, STEPS, REACTION, EVENTS, CROWD = (
    "its own SQL replayed", "steps of one workflow", "event to reaction",
    "events into one workflow", "waiting workflows",
)  # fmt: skip
FEATURES, KEYED = "other features", "keyed workers"
MEMORY, FILE = "in memory", "SQLite"
REPLAYED = {"two_steps": "two steps", "many_steps": "1,000 steps"}
METHOD = (
    "Each case runs in a process of its own, and cases take turns; figures are medians of the "
    "rounds. `rate` is per second, `rate_cpu` per second of processor time of the process, which "
    "says more on a busy machine. Both libraries write SQLite files with synced commits. DBOS "
    "makes files with a rollback journal; it is measured like that, and on a file that was given "
    "a write-ahead log, like ours, beforehand. A bare commit inserts one row with the sqlite3 "
    "module, in the same folder. For `its own SQL replayed`, the statements that store workflows "
    "are recorded, and executed once more by a bare loop, on another file: that takes only the "
    "time of SQLite and of the disk. `others_cpu` is the share of the processors that other "
    "processes took. The settings of the peer are read, not trusted."
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


def replay(folder: Path, _subject: str, work: str, argument: int, each: int, turns: int) -> Figures:
    """Run workflows one at a time, in turns with their own SQL, which a bare loop replays."""
    ours: list[float] = []
    bare: list[float] = []
    with loads.actorflow(folder) as library:
        library.two_steps(0)
        for turn in range(turns):
            place = folder / str(turn)
            place.mkdir()
            statements = _statements_of(place, work, argument, each)
            begin = time.perf_counter()
            for _ in range(each):
                getattr(library, work)(argument)
            ours.append((time.perf_counter() - begin) / each)
            bare.append(_replayed(place, statements) / each)
    mine, sql = statistics.median(ours), statistics.median(bare)
    return {"ours_ms": mine * 1e3, "replayed_ms": sql * 1e3, "ratio": sql / mine}


def _statements_of(place: Path, work: str, argument: int, each: int) -> list[loads.Statement]:
    with loads.recorded(place) as (library, statements):
        library.two_steps(0)
        del statements[:]
        for _ in range(each):
            getattr(library, work)(argument)
        return list(statements)


def _replayed(place: Path, statements: list[loads.Statement]) -> float:
    """Return the seconds that statements take on a new store, without any code of ours."""
    SqliteStore(place / "replayed.db").close()
    connection = sqlite3.connect(place / "replayed.db", isolation_level=None, cached_statements=512)
    connection.execute("PRAGMA synchronous = FULL")
    require_synced(connection.execute)
    begin = time.perf_counter()
    for text, values, many in statements:
        (connection.executemany if many else connection.execute)(text, values)
    took = time.perf_counter() - begin
    connection.close()
    return took


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
        assert sum(1 for _ in engine.parts.store.due(count)) == count - 1
    return figures


def kept(folder: Path, _subject: str, count: int) -> Figures:
    """Send events that no wait expects yet; then let the workflow read all of them."""
    with af.Engine(folder / "engine.db") as engine:
        handle = engine.start(loads.Reads())

        async def send() -> None:
            await asyncio.gather(*(handle.asend("m", n=number) for number in range(count)))

        def read() -> None:
            handle.send("go")
            assert handle.result(_LONG) == count

        sent, _ = _timed(count, lambda: asyncio.run(send()))
        rate, rate_cpu = _timed(count, read)
    return {"send_rate": sent, "rate": rate, "rate_cpu": rate_cpu}


def until(folder: Path, _subject: str, count: int) -> Figures:
    """Send events, after each of which a condition holds that a workflow waits for."""
    with af.Engine(folder / "engine.db") as engine:
        handle = engine.start(loads.Votes(count))

        def work() -> None:
            for _ in range(count):
                handle.send("vote")
            assert handle.result(_LONG) == count

        rate, rate_cpu = _timed(count, work)
    return {"rate": rate, "rate_cpu": rate_cpu}


def again(folder: Path, _subject: str, hops: int) -> Figures:
    """Begin anew many times, with a step in each run."""
    with af.Engine(folder / "engine.db") as engine:

        def work() -> None:
            assert engine.start(loads.Hops(hops)).result(_LONG) == hops

        rate, rate_cpu = _timed(hops, work)
    return {"rate": rate, "rate_cpu": rate_cpu}


def lanes(folder: Path, _subject: str, count: int, concurrency: int) -> Figures:
    """Start workflows of one step in a lane; all wait there before the first one begins."""
    with af.Engine(folder / "engine.db") as engine:
        lane = af.Lane("bench", concurrency=concurrency)
        engine.pause(lane)

        async def start() -> list[af.WorkflowHandle[int]]:
            starts = (engine.astart(loads.OneStep(), lane=lane) for _ in range(count))
            return await asyncio.gather(*starts)

        handles: list[af.WorkflowHandle[int]] = []
        start_rate, _ = _timed(count, lambda: handles.extend(asyncio.run(start())))

        def work() -> None:
            engine.resume(lane)
            for handle in handles:
                handle.result(_LONG)

        rate, rate_cpu = _timed(count, work)
    return {"start_rate": start_rate, "rate": rate, "rate_cpu": rate_cpu}


def keyed(folder: Path, subject: str, keys: int, each: int) -> Figures:
    """Ask workers of a family, one for each key; and push to one worker, for comparison."""

    def add(batch: list[int], total: int) -> object:
        return af.Answers(total + sum(batch), [total + sum(batch)] * len(batch))

    def note(batch: list[int], total: int) -> int:
        return total + sum(batch)

    where = ":memory:" if subject == MEMORY else folder / "engine.db"
    with af.Engine(where, max_live=keys) as engine:
        accounts = engine.workers("account/{id}", add, state=0)
        single = engine.worker("single", note, state=0)

        async def ask(first: int) -> None:
            for number in range(first, keys, 100):
                for _ in range(each):
                    await accounts[str(number)].aask(1)

        async def push() -> None:
            for _ in range(keys * each // 100):
                await single.apush_block(1)

        async def all_of(one: Callable[..., object], *, numbered: bool) -> None:
            given = [(n,) if numbered else () for n in range(min(100, keys))]
            calls: list[Any] = [one(*arguments) for arguments in given]
            await asyncio.gather(*calls)

        rate, rate_cpu = _timed(keys * each, lambda: asyncio.run(all_of(ask, numbered=True)))
        pushes = keys * each // 100 * min(100, keys)
        push_rate, _ = _timed(max(pushes, 1), lambda: asyncio.run(all_of(push, numbered=False)))
        assert accounts["0"].ask(1, timeout=_LONG) == each + 1
    return {"rate": rate, "rate_cpu": rate_cpu, "push_rate": push_rate, "ratio": rate / push_rate}


LOADS: dict[str, Callable[..., Figures]] = {
    each.__name__: each
    for each in (
        two_steps, replay, steps, reaction, events, crowd, kept, until, again, lanes, keyed,
    )
}  # fmt: skip


def cases(*, quick: bool) -> list[Case]:
    """Return all cases; those of DBOS are smaller, because it is slower."""
    few = 10 if quick else 1
    lengths = (20, 100, 200) if quick else (200, 1_000, 2_000)
    people = 2_000 if quick else 100_000
    found = [
        *(
            Case(section, OURS, "two_steps", {"starters": n, "each": 1_600 // (n * few) or 1})
            for n, section in TWO.items()
        ),
        *(
            Case(section, LOGGED, "two_steps", {"starters": n, "each": 160 // (n * few) or 1})
            for n, section in TWO.items()
        ),
        Case(TWO[8], DBOS, "two_steps", {"starters": 8, "each": 20 // few}),
        *(
            Case(
                REPLAY,
                name,
                "replay",
                {"work": work, "argument": number, "each": each, "turns": 10 // min(few, 5)},
            )
            for (work, name), number, each in zip(
                REPLAYED.items(), (1, 1_000 // few), (100 // few, 1), strict=True
            )
        ),
        Case(STEPS, OURS, "steps", {"lengths": lengths, "turns": 5 // min(few, 5)}),
        *(
            Case(STEPS, peer, "steps", {"lengths": lengths[:1], "turns": 1})
            for peer in (DBOS, LOGGED)
        ),
        Case(REACTION, OURS, "reaction", {"count": 500 // few}),
        Case(REACTION, DBOS, "reaction", {"count": 10 // min(few, 5)}),
        Case(EVENTS, OURS, "events", {"callers": 500 // few, "each": 40}),
        Case(FEATURES, "kept events", "kept", {"count": 5_000 // few}),
        Case(FEATURES, "until", "until", {"count": 1_000 // few}),
        Case(FEATURES, "again", "again", {"hops": 1_000 // few}),
        Case(FEATURES, "a lane of 10", "lanes", {"count": 2_000 // few, "concurrency": 10}),
        *(
            Case(KEYED, where, "keyed", {"keys": 10_000 // few, "each": 2})
            for where in (MEMORY, FILE)
        ),
        Case(CROWD, f"{people:,}", "crowd", {"count": people}, once=True),
    ]
    return [case for case in found if case.label not in {DBOS, LOGGED} or version("dbos")]


def goals(found: Found) -> list[Goal]:
    """Compare with what workflows are meant to reach."""

    def ours(section: str, figure: str) -> float | None:
        return median(found, section, OURS, figure)

    def ratio(figure: str, other: str) -> float | None:
        return over(ours(STEPS, figure), ours(STEPS, other))

    crowds = next(iter(found.get(CROWD, {})), "")
    two = [
        Goal.of(f"{section} / DBOS with a write-ahead log", f">= {limit} x",
                over(ours(section, "rate"), median(found, section, LOGGED, "rate")),
                lambda value, limit=limit: value >= limit)  # type: ignore[misc]
        for section, limit in zip(TWO.values(), (3, 6, 6), strict=True)
    ]  # fmt: skip
    replays = [
        Goal.of(f"{name}, one at a time / its own SQL replayed", f">= {limit}",
                median(found, REPLAY, name, "ratio"),
                lambda value, limit=limit: value >= limit)  # type: ignore[misc]
        for name, limit in zip(REPLAYED.values(), (0.5, 0.55), strict=True)
    ]  # fmt: skip
    return [
        *two,
        Goal("two steps, 8 starters / DBOS with a rollback journal", "-",
             over(ours(TWO[8], "rate"), median(found, TWO[8], DBOS, "rate")), None),
        *replays,
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
        Goal.of("asks/s of 10,000 keyed workers in memory", ">= 20,000",
                median(found, KEYED, MEMORY, "rate"), lambda value: value >= 20_000),
        Goal.of("asks/s of keyed workers on SQLite / durable push_block", ">= 0.8 x",
                median(found, KEYED, FILE, "ratio"), lambda value: value >= 0.8),
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
