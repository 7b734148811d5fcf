"""Plans beside pools of processes: layers of no-ops, renewal, single calls, size, large results.

python benchmarks/plans.py [--quick] [--markdown] [--only NAME]

Each case runs in a process of its own; cases take turns, so that whatever else the machine does
falls on all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from importlib import import_module
from multiprocessing import Pipe, Process
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import plans_peers as peers  # noqa: E402
from benchmarks.machine import busy, describe  # noqa: E402
from benchmarks.tables import put_between_markers  # noqa: E402

Figures = dict[str, float]
OURS = "actorflow"
WORKERS = 2
METHOD = (
    "Each case runs in a process of its own, with two workers; figures are medians of the rounds. "
    "A graph has layers of jobs that do nothing, each after two of the layer before. Memory is the "
    "peak of the process that runs the plan, without its workers."
)


def _edges(layers: int, width: int) -> list[list[int]]:
    edges: list[list[int]] = [[] for _ in range(width)]
    for layer in range(1, layers):
        first = (layer - 1) * width
        edges += [[first + place, first + (place + 1) % width] for place in range(width)]
    return edges


def _measured(count: int, work: Callable[[], object]) -> Figures:
    cpu, begin = time.process_time(), time.perf_counter()
    work()
    wall, used = time.perf_counter() - begin, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "jobs/s": count / wall,
        "us of the master each": used / count * 1e6,
        "peak MB of the master": peak,
    }


def _run_plan(edges: list[list[int]], **options: Any) -> Callable[[], object]:
    from actorflow.plans.plan import Plan  # noqa: PLC0415 - only where it is measured

    plan = Plan()
    jobs: list[Any] = []
    for before in edges:
        jobs.append(plan.job(peers.nothing, after=[jobs[each] for each in before]))
    return lambda: plan.run(WORKERS, **options)


def layers(subject: str, layers: int, width: int) -> Figures:
    """Run a graph of no-ops."""
    edges = _edges(layers, width)
    if subject == OURS:
        return _measured(len(edges), _run_plan(edges))
    return _measured(len(edges), lambda: peers.PEERS[subject][1](edges, WORKERS))


def renewal(subject: str, layers: int, width: int) -> Figures:
    """Run a graph of no-ops; a process is replaced after 100 jobs."""
    edges = _edges(layers, width)
    if subject == OURS:
        return _measured(len(edges), _run_plan(edges, renew_after=100))
    return _measured(len(edges), lambda: peers.RENEWING[subject][1](edges, WORKERS))


def size(_subject: str, layers: int, width: int) -> Figures:
    """Run graphs of different sizes."""
    edges = _edges(layers, width)
    return _measured(len(edges), _run_plan(edges))


def build(_subject: str, count: int) -> Figures:
    """Build and check a plan, and start nothing."""
    from actorflow.plans.plan import Plan  # noqa: PLC0415 - only where it is measured

    cpu, begin = time.process_time(), time.perf_counter()
    plan = Plan()
    before = [plan.job(peers.nothing) for _ in range(1_000)]
    while len(plan) < count:
        before = [
            plan.job(peers.nothing, before[place], before[place - 1]) for place in range(1_000)
        ]
    plan.check()
    return {"seconds": time.perf_counter() - begin, "of the processor": time.process_time() - cpu}


def calls(subject: str, count: int) -> Figures:
    """Call a function again and again from one caller, without waiting for each answer."""
    if subject != OURS:
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

        with ProcessPoolExecutor(WORKERS) as pool:
            list(pool.map(peers.nothing, range(10)))

            def work() -> None:
                for future in [pool.submit(peers.nothing) for _ in range(count)]:
                    future.result()

            return _measured(count, work)
    from actorflow.runtime.lanes.process.call import Call, Ended  # noqa: PLC0415
    from actorflow.runtime.lanes.process.crew import Crew  # noqa: PLC0415
    from actorflow.runtime.lanes.process.packing import pack  # noqa: PLC0415

    over = threading.Semaphore(0)

    def ended(end: Ended) -> None:
        assert end.ok, end
        over.release()

    with Crew(WORKERS) as crew:
        packed = pack(peers.nothing)

        def submit(first: int, many: int) -> None:
            for number in range(first, first + many):
                crew.submit(Call(number, packed), ended)
            for _ in range(many):
                over.acquire()

        submit(0, 10)
        return _measured(count, lambda: submit(10, count))


def _array(megabytes: int) -> Any:
    numpy = import_module("numpy")
    return numpy.ones(megabytes * 131_072)


def _send_array(pipe: Any, megabytes: int, times: int) -> None:
    for _ in range(times):
        pipe.send(_array(megabytes))


def large(subject: str, megabytes: int, times: int) -> Figures:
    """Return a large array from another process."""
    elapsed: list[float] = []
    if subject != OURS:
        ours, theirs = Pipe()
        process = Process(target=_send_array, args=(theirs, megabytes, times + 1))
        process.start()
        assert ours.recv().nbytes == megabytes << 20
        for _ in range(times):
            begin = time.perf_counter()
            ours.recv()
            elapsed.append(time.perf_counter() - begin)
        process.join()
        return {"ms": statistics.median(elapsed) * 1e3}
    from actorflow.runtime.lanes.process.call import Call, Ended  # noqa: PLC0415
    from actorflow.runtime.lanes.process.crew import Crew  # noqa: PLC0415

    over = threading.Semaphore(0)
    found: list[Ended] = []

    def ended(end: Ended) -> None:
        found.append(end)
        over.release()

    with Crew(1) as crew:
        for number in range(times + 1):
            begin = time.perf_counter()
            crew.submit(Call.of(number, _array, megabytes), ended)
            over.acquire()
            elapsed.append(time.perf_counter() - begin)
            assert found.pop().result.nbytes == megabytes << 20
    return {"ms": statistics.median(elapsed[1:]) * 1e3}


def _count_down(batch: list[int], _state: Any) -> None:
    for steps in batch:
        left = steps
        while left:
            left -= 1


def cpu_bound(subject: str, batches: int, steps: int) -> Figures:
    """Run a job that only computes, in threads or in processes."""
    from actorflow.runtime.worker.spec import spawn  # noqa: PLC0415 - only where it is measured
    from behaviours import Chunk, Queue  # noqa: PLC0415

    with spawn(
        _count_down,
        behaviour=Chunk(Queue(), 1),
        concurrency=WORKERS,
        executor="process" if subject == PROCESSES else "pool",
    ) as worker:
        for _ in range(WORKERS):
            worker.push_block(1, timeout=60)
        begin = time.perf_counter()
        for _ in range(batches):
            worker.push(steps)
        worker.stop()
        return {"seconds": time.perf_counter() - begin}


LOADS: dict[str, Callable[..., Figures]] = {
    each.__name__: each for each in (layers, renewal, size, build, calls, large, cpu_bound)
}
Case = tuple[str, str, str, dict[str, int]]
PIPE = "multiprocessing.Pipe"
THREADS, PROCESSES = "threads", "processes"
BARE = "concurrent.futures + graphlib"
POOL = "concurrent.futures"


def cases(*, quick: bool) -> list[Case]:
    """Return section, label, load and options of each case."""
    few = 10 if quick else 1
    graph = {"layers": 100 // few, "width": 100}
    found = [name for name, (package, _) in peers.PEERS.items() if peers.version(package)]
    renewing = [name for name, (package, _) in peers.RENEWING.items() if peers.version(package)]
    wide = {"layers": 100, "width": 1_000 // few}
    sizes = {"10,000 jobs": graph, "100,000 jobs": wide} if not quick else {"1,000 jobs": graph}
    return [
        *(("layers", name, "layers", graph) for name in (OURS, *found)),
        *(("renewal after 100 jobs", name, "renewal", graph) for name in (OURS, *renewing)),
        *(("size", name, "size", options) for name, options in sizes.items()),
        ("build", f"{1_000_000 // few:,} jobs", "build", {"count": 1_000_000 // few}),
        *(("single calls", name, "calls", {"count": 20_000 // few}) for name in (OURS, POOL)),
        *(
            ("large results", name, "large", {"megabytes": 100 // few, "times": 10 // few + 1})
            for name in (OURS, PIPE)
        ),
        *(
            (
                "a worker that computes",
                name,
                "cpu_bound",
                {"batches": 20, "steps": 3_000_000 // few},
            )
            for name in (THREADS, PROCESSES)
        ),
    ]


def run_case(case: Case) -> Figures:
    """Run one case in a process of its own."""
    _, label, load, options = case
    done = subprocess.run(  # noqa: S603 - our own interpreter on our own file
        [sys.executable, __file__, "--case", json.dumps([load, label, options])],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{label}, {load}: {done.stderr}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


Found = dict[str, dict[str, list[Figures]]]


def measure(chosen: list[Case], rounds: int) -> Found:
    """Run the cases in turn, for a number of rounds."""
    found: Found = {}
    for _ in range(rounds):
        for case in chosen:
            section, label, *_ = case
            figures = run_case(case)
            found.setdefault(section, {}).setdefault(label, []).append(figures)
            text = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())
            print(f"{section:24} {label:30} {text}", flush=True)
    return found


def median(found: Found, section: str, label: str, figure: str) -> float | None:
    """Return the median of the rounds."""
    values = [each[figure] for each in found.get(section, {}).get(label, [])]
    return statistics.median(values) if values else None


def goals(found: Found) -> list[tuple[str, str, float | None, bool | None]]:
    """Compare with what plans are meant to reach."""

    def over(section: str, one: str, other: str, figure: str = "jobs/s") -> float | None:
        ours, theirs = median(found, section, one, figure), median(found, section, other, figure)
        return None if ours is None or not theirs else ours / theirs

    rows: list[tuple[str, str, float | None, Callable[[float], bool]]] = [
        (
            "10,000 no-ops in 100 layers / bare pool and graphlib",
            ">= 1.0 x",
            over("layers", OURS, BARE),
            lambda value: value >= 1.0,
        ),
        (
            "the same / dask.distributed",
            ">= 8 x",
            over("layers", OURS, "dask.distributed"),
            lambda value: value >= 8,
        ),
        (
            "single calls, pipelined, calls/s",
            ">= 10,000",
            median(found, "single calls", OURS, "jobs/s"),
            lambda value: value >= 10_000,
        ),
        (
            "single calls / ProcessPoolExecutor",
            ">= 1.3 x",
            over("single calls", OURS, POOL),
            lambda value: value >= 1.3,
        ),
        (
            "renewal after 100 jobs / pebble",
            ">= 1.5 x",
            over("renewal after 100 jobs", OURS, "pebble + graphlib"),
            lambda value: value >= 1.5,
        ),
        (
            "peak memory of the master, MB",
            "<= 40",
            median(found, "layers", OURS, "peak MB of the master"),
            lambda value: value <= 40,
        ),
        (
            "time for each of 100,000 jobs / of 10,000",
            "<= 1.3 x",
            over("size", "10,000 jobs", "100,000 jobs"),
            lambda value: value <= 1.3,
        ),
        (
            "1,000,000 jobs built and checked, s",
            "< 15",
            median(found, "build", "1,000,000 jobs", "seconds"),
            lambda value: value < 15,
        ),
        (
            "100 MB array as a result, pipe / actorflow",
            ">= 3 x",
            over("large results", PIPE, OURS, "ms"),
            lambda value: value >= 3,
        ),
        (
            "a worker that computes, threads / processes",
            ">= 1.8 x",
            over("a worker that computes", THREADS, PROCESSES, "seconds"),
            lambda value: value >= 1.8,
        ),
    ]
    return [
        (name, limit, value, None if value is None else holds(value))
        for name, limit, value, holds in rows
    ]


def as_markdown(found: Found) -> str:
    """Return the results as a section of RESULTS.md."""
    lines = ["## Plans", ""]
    lines += [f"- {name}: {value}" for name, value in describe().items()]
    for label, (package, _) in peers.PEERS.items():
        lines.append(f"- {label}: {peers.version(package) or 'not installed, left out'}")
    load = busy()
    if load is not None:
        text = f"The machine was busy with something else (load {load:.1f}): a sketch, to be run"
        lines += ["", f"{text} again when it is quiet."]
    lines += ["", METHOD, ""]
    lines += ["| goal | limit | reached |  |", "| --- | ---: | ---: | --- |"]
    for name, limit, value, met in goals(found):
        verdict = "-" if met is None else "met" if met else "MISSED"
        lines.append(
            f"| {name} | {limit} | {'-' if value is None else f'{value:,.2f}'} | {verdict} |"
        )
    for section, rows in found.items():
        names = list(dict.fromkeys(name for each in rows.values() for name in each[0]))
        lines += ["", f"### {section}", "", f"| case | {' | '.join(names)} |"]
        lines.append("| --- |" + " ---: |" * len(names))
        for label in rows:
            cells = [median(found, section, label, name) for name in names]
            shown = ["-" if cell is None else f"{cell:,.2f}" for cell in cells]
            lines.append(f"| {label} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="sections whose name contains this")
    parser.add_argument(
        "--markdown",
        nargs="?",
        const=str(ROOT / "benchmarks" / "RESULTS.md"),
        help="write the results there; benchmarks/RESULTS.md by default",
    )
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.case:
        load, label, options = json.loads(given.case)
        print(json.dumps(LOADS[load](label, **options)))
        sys.stdout.flush()
        return 0
    for label, (package, _) in peers.PEERS.items():
        if peers.version(package) is None:
            print(f"{label} is left out: pip install {package} (or the extra bench-peers)")
    chosen = [case for case in cases(quick=given.quick) if given.only in case[0]]
    found = measure(chosen, 1 if given.quick else given.rounds)
    for name, limit, value, met in goals(found):
        if value is not None:
            print(f"{name:56} {limit:>10} {value:12,.2f}  {'met' if met else 'MISSED'}")
    if given.markdown:
        put_between_markers(Path(given.markdown), as_markdown(found), "plans")
    return 0


if __name__ == "__main__":
    sys.exit(main())
