"""The engine beside durable queues from PyPI: enqueue, end to end, latency, recovery, growth.

python benchmarks/engine.py [--quick] [--markdown] [--only NAME]

Each case runs in a process of its own, in a folder of its own; cases take turns, so that whatever
else the machine does falls on all of them.
"""

from __future__ import annotations

import asyncio
import gc
import math
import statistics
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

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
from benchmarks.peers import engine as peers  # noqa: E402

MESSAGE = {"order": 7, "text": "hello"}
_LONG = 300.0
_TRACED = 10_000  # executions whose memory is counted byte by byte
METHOD = (
    "Each case runs in a process of its own; figures are medians of the rounds. Peers write with "
    "WAL and `synchronous = FULL`, as the engine does; the script reads both settings. "
    "`others_cpu` is the share of the processors that other processes took. The fastest "
    "peer is the fastest of 1 and 8 "
    "threads."
)


def _count(batch: list[Any], state: int) -> int:
    return state + len(batch)


def _rates(count: int, work: Callable[[], None]) -> Figures:
    gc.collect()
    cpu, begin = time.process_time(), time.perf_counter()
    work()
    wall, used = time.perf_counter() - begin, time.process_time() - cpu
    return {"rate": count / wall, "rate_cpu": count / max(used, 1e-9)}


def _from_threads(push: Callable[[Any], None], threads: int, each: int) -> Figures:
    def produce() -> None:
        for _ in range(each):
            push(MESSAGE)

    def work() -> None:
        started = [threading.Thread(target=produce) for _ in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    push(MESSAGE)
    return _rates(threads * each, work)


def enqueue(folder: Path, subject: str, threads: int, each: int) -> Figures:
    """Acknowledged, synced enqueues from blocking threads."""
    if subject != "actorflow":
        return _from_threads(peers.PEERS[subject][1](folder), threads, each)
    from actorflow.engine.engine import BareEngine  # noqa: PLC0415

    with BareEngine(folder / "engine.db") as engine:
        worker = engine.worker("w", _count, state=0)
        return _from_threads(lambda message: worker.push_ack(message, timeout=_LONG), threads, each)


def enqueue_asyncio(folder: Path, _subject: str, callers: int, each: int) -> Figures:
    """Acknowledged enqueues from concurrent tasks of one event loop."""
    from actorflow.engine.engine import BareEngine  # noqa: PLC0415

    with BareEngine(folder / "engine.db") as engine:
        worker = engine.worker("w", _count, state=0)

        async def produce() -> None:
            for _ in range(each):
                await worker.apush_ack(MESSAGE, timeout=_LONG)

        async def main() -> None:
            await asyncio.gather(*(produce() for _ in range(callers)))

        worker.push_block(MESSAGE)
        return _rates(callers * each, lambda: asyncio.run(main()))


def end_to_end(folder: Path, _subject: str, count: int) -> Figures:
    """Push from one producer until the state that all led to is committed."""
    from actorflow.engine.engine import BareEngine  # noqa: PLC0415

    with BareEngine(folder / "engine.db") as engine:
        worker = engine.worker("w", _count, state=0)
        worker.push_block(MESSAGE)

        def work() -> None:
            for _ in range(count - 1):
                worker.push(MESSAGE)
            worker.push_block(MESSAGE, timeout=_LONG)

        figures = _rates(count, work)
        assert worker.state() == count + 1
        return figures


def latency(folder: Path, _subject: str, count: int) -> Figures:
    """One push_block at a time on an idle engine, and one bare synced commit, in turn."""
    from actorflow.engine.engine import BareEngine  # noqa: PLC0415

    ours: list[float] = []
    bare: list[float] = []
    with BareEngine(folder / "engine.db") as engine:
        worker = engine.worker("w", _count, state=0)
        worker.push_block(MESSAGE)
        for number in range(10):
            for _ in range(count // 10):
                begin = time.perf_counter()
                worker.push_block(MESSAGE, timeout=_LONG)
                ours.append(time.perf_counter() - begin)
            (folder / str(number)).mkdir()
            bare += peers.bare_commits(folder / str(number), count // 10)
    return {
        "p50_us": statistics.median(ours) * 1e6,
        "bare_us": statistics.median(bare) * 1e6,
        "ratio": statistics.median(ours) / statistics.median(bare),
    }


def _traced(work: Callable[[], None]) -> int:
    """Count the bytes that some work leaves in use."""
    tracemalloc.start()
    work()
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return grown


def population(folder: Path, _subject: str, count: int) -> Figures:  # noqa: C901 - one life, in order
    """Make executions that each process one message; close; recover; wake them all."""
    from actorflow.engine.engine import BareEngine  # noqa: PLC0415
    from actorflow.engine.kind import Context, Options, Outcome  # noqa: PLC0415

    done = threading.Event()
    left = count

    class Kind:
        name = "counter"

        def quick(self, execution: str) -> bool:
            return True

        def options(self, execution: str) -> Options:
            return Options()

        def decode(self, data: bytes | None) -> Any:
            return int.from_bytes(data or b"\0", "big")

        def encode(self, state: int) -> bytes:
            return state.to_bytes(8, "big")

        def run(self, context: Context, state: int, batch: Any) -> Outcome:
            nonlocal left
            left -= len(batch)
            if left <= 0:
                done.set()
            return Outcome(state=state + len(batch))

    figures: Figures = {}

    def send_all(engine: BareEngine) -> None:
        nonlocal left
        left = count
        done.clear()
        for number in range(count):
            engine.parts.sender.append(f"execution-{number}", "counter", (MESSAGE,))
        assert done.wait(_LONG)
        engine.parts.writer.call_and_wait(lambda: None)  # all finished runs are committed now

    with BareEngine(folder / "engine.db", durability="normal") as engine:
        engine.register(Kind())
        cpu, begin = time.process_time(), time.perf_counter()
        send_all(engine)
        figures["create_s"] = time.perf_counter() - begin
        figures["create_cpu_s"] = time.process_time() - cpu
    gc.collect()
    before = resident()
    cpu, begin = time.process_time(), time.perf_counter()
    engine = BareEngine(folder / "engine.db", durability="normal", max_live=count)
    engine.register(Kind())
    engine.resume()
    figures["recover_idle_s"] = time.perf_counter() - begin
    figures["recover_idle_cpu_s"] = time.process_time() - cpu
    figures["bytes_waiting"] = max(resident() - before, 0) / count
    if count <= _TRACED:  # tracing makes it several times slower
        figures["bytes_loaded"] = _traced(lambda: send_all(engine)) / count
    engine.close()
    with BareEngine(folder / "engine.db", durability="normal") as engine:  # without its kind
        for number in range(count):
            engine.parts.sender.append(f"execution-{number}", "counter", (MESSAGE,))
        engine.send("execution-0", MESSAGE)
    left = count + 1
    done.clear()
    cpu, begin = time.process_time(), time.perf_counter()
    with BareEngine(folder / "engine.db", durability="normal") as engine:
        engine.register(Kind())
        engine.resume()
        assert done.wait(_LONG)
        figures["recover_pending_s"] = time.perf_counter() - begin
        figures["recover_pending_cpu_s"] = time.process_time() - cpu
    return figures


def timers(folder: Path, _subject: str, count: int) -> Figures:
    """Store timers, recover with them pending, and see one fire on time."""
    from actorflow.engine.engine import BareEngine  # noqa: PLC0415
    from actorflow.engine.stores.protocol import Change, TimerRow  # noqa: PLC0415

    far = time.time() + 1e6
    with BareEngine(folder / "engine.db", durability="normal") as engine:
        begin = time.perf_counter()
        for start in range(0, count, 10_000):
            rows = [TimerRow("x", str(n), far + n, b"\x01") for n in range(start, start + 10_000)]
            assert engine.parts.writer.commit([Change("x", timers=rows)]) is None
        store_s = time.perf_counter() - begin
    before = resident()
    begin = time.perf_counter()
    with BareEngine(folder / "engine.db", durability="normal", check=False) as engine:
        engine.resume()
        open_s = time.perf_counter() - begin
        grown = resident() - before
        fired = threading.Event()

        def job(_batch: list[Any], _state: Any) -> Any:
            fired.set()

        engine.worker("w", job).push_block(1)
        fired.clear()
        due = time.time() + 0.2
        timer = TimerRow("w", "soon", due, b"\x01")

        def added(change: Change, _error: Exception | None) -> None:
            engine.parts.timers.added(change.timers)

        engine.parts.writer.submit(Change("w", timers=[timer]), added)
        assert fired.wait(_LONG)
        late = time.time() - due
    return {
        "store_rate": count / store_s,
        "open_s": open_s,
        "bytes_each": max(grown, 0) / count,
        "late_ms": late * 1e3,
    }


LOADS: dict[str, Callable[..., Figures]] = {
    each.__name__: each
    for each in (enqueue, enqueue_asyncio, end_to_end, latency, population, timers)
}


def cases(*, quick: bool) -> list[Case]:
    """Return section, label, load and options of each case."""
    few = 5 if quick else 1
    subjects = [name for name, (package, _) in peers.PEERS.items() if peers.version(package)]
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    eight = {"threads": 8, "each": 500 // few}
    one = {"threads": 1, "each": 500 // few}
    many = {"callers": 1_000, "each": 20 // few}
    everyone = ("actorflow", *subjects)
    timed = {"count": 1_000_000 // (few * few)}
    return [
        *(Case("enqueue, 8 threads", name, "enqueue", eight) for name in everyone),
        *(Case("enqueue, 1 thread", name, "enqueue", one) for name in everyone),
        Case("enqueue, 1,000 asyncio callers", "actorflow", "enqueue_asyncio", many),
        Case("end to end", "actorflow", "end_to_end", {"count": 100_000 // few}),
        Case("latency", "actorflow", "latency", {"count": 500 // few}),
        *(
            Case("population", f"{n:,} executions", "population", {"count": n}, once=True)
            for n in sizes
        ),
        Case("timers", "1,000,000 timers", "timers", timed, once=True),
    ]


def _exponent(few: float | None, many: float | None) -> float | None:
    return None if not few or not many else math.log10(many / few)


def goals(found: Found) -> list[Goal]:
    """Compare with what the engine is meant to reach."""

    def fastest(section: str) -> float | None:
        rates = [
            rate
            for label in found.get(section, {})
            if label != "actorflow" and (rate := median(found, section, label, "rate"))
        ]
        return max(rates, default=None)

    threads, single = "enqueue, 8 threads", "enqueue, 1 thread"
    best = max(filter(None, (fastest(threads), fastest(single))), default=None)
    pending = {n: median(found, "population", f"{n:,} executions", "recover_pending_s")
               for n in (10_000, 100_000)}  # fmt: skip
    ours_async = median(found, "enqueue, 1,000 asyncio callers", "actorflow", "rate")
    whole = "100,000 executions"
    create = {n: median(found, "population", f"{n:,} executions", "create_cpu_s")
              for n in (1_000, 10_000, 100_000)}  # fmt: skip
    rows: list[tuple[str, str, float | None, Callable[[float], bool]]] = [
        (
            "push_ack from 1 thread / fastest peer's enqueue from 1 thread",
            ">= 0.9 x",
            over(median(found, "enqueue, 1 thread", "actorflow", "rate"), fastest(single)),
            lambda value: value >= 0.9,
        ),
        (
            "push_ack from 8 threads / fastest peer's enqueue",
            ">= 2.5 x",
            over(median(found, threads, "actorflow", "rate"), best),
            lambda value: value >= 2.5,
        ),
        (
            "apush_ack from 1,000 callers / fastest peer's enqueue",
            ">= 12 x",
            over(ours_async, best),
            lambda value: value >= 12,
        ),
        (
            "push to committed state, one producer, messages/s",
            ">= 20,000",
            median(found, "end to end", "actorflow", "rate"),
            lambda value: value >= 20_000,
        ),
        (
            "push_block on an idle engine, p50 / bare synced commit",
            "<= 1.6 x",
            median(found, "latency", "actorflow", "ratio"),
            lambda value: value <= 1.6,
        ),
        (
            "100,000 idle executions recovered, s",
            "< 10",
            median(found, "population", whole, "recover_idle_s"),
            lambda value: value < 10,
        ),
        (
            "100,000 executions with a message each recovered and run, s",
            "-",
            median(found, "population", whole, "recover_pending_s"),
            lambda _: True,
        ),
        (
            "exponent of that from 10,000 to 100,000",
            "<= 1.1",
            _exponent(pending[10_000], pending[100_000]),
            lambda value: value <= 1.1,
        ),
        (
            "memory of a waiting execution, bytes",
            "0",
            median(found, "population", whole, "bytes_waiting"),
            lambda value: value < 100,
        ),
        (
            "memory of a loaded execution, bytes",
            "< 4,096",
            median(found, "population", f"{_TRACED:,} executions", "bytes_loaded"),
            lambda value: value < 4_096,
        ),
        (
            "10 x executions (1k to 10k), x processor time",
            "about 10",
            over(create[10_000], create[1_000]),
            lambda value: value < 15,
        ),
        (
            "10 x executions (10k to 100k), x processor time",
            "<= 11",
            over(create[100_000], create[10_000]),
            lambda value: value <= 11,
        ),
        (
            "a timer among 1,000,000, ms late",
            "-",
            median(found, "timers", "1,000,000 timers", "late_ms"),
            lambda _: True,
        ),
    ]
    return [Goal.of(*row) for row in rows]


def as_markdown(found: Found) -> str:
    """Return the results as a section of RESULTS.md."""
    versions = {label: peers.version(package) for label, (package, _) in peers.PEERS.items()}
    return page("Engine", versions, METHOD, goals(found), found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says."""
    given = command_line(__doc__, LOADS, arguments)
    for label, (package, _) in peers.PEERS.items():
        if peers.version(package) is None:
            print(f"{label} is left out: pip install {package} (or the extra bench-peers)")
    found = measure_chosen(given, __file__, cases(quick=given.quick), goals)
    if given.markdown:
        put_between_markers(given.markdown, as_markdown(found), "engine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
