"""Plans beside pools of processes: layers of no-ops, renewal, single calls, size, large results.

python benchmarks/plans.py [--quick] [--only NAME] [--markdown [PAGE]] [--tables [PAGE]]

Each case runs in a process of its own; cases take turns, so that whatever else the machine does
falls on all of them.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from importlib import import_module
from multiprocessing import Pipe, Process
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.harness.machine import busy, describe  # noqa: E402
from benchmarks.harness.tables import Rows, piped, put_between_markers  # noqa: E402
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
from benchmarks.peers import plans as peers  # noqa: E402

RENEWAL_PAGE = ROOT / "docs" / "plans" / "renewal.md"
OURS = "actorflow"
WORKERS = 2
METHOD = (
    "Each case runs in a process of its own, with two workers; figures are medians of the rounds, "
    "but dask.distributed and the largest plan are measured once. "
    "A graph has layers of jobs that do nothing, each after two of the layer before. Memory is the "
    "peak of the process that runs the plan, without its workers. What a worker computes is also "
    "given in processor time, of the parent and of the busiest process: that is how long it takes "
    "where each has a processor to itself."
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
        "us of the scheduler each": used / count * 1e6,
        "peak MB of the scheduler": peak,
    }


def _run_plan(edges: list[list[int]], **options: Any) -> Callable[[], object]:
    from actorflow.plans.plan import Plan  # noqa: PLC0415 - only where it is measured

    plan = Plan()
    jobs: list[Any] = []
    for before in edges:
        jobs.append(plan.job(peers.nothing, after=[jobs[each] for each in before]))
    return lambda: plan.run(WORKERS, **options)


def layers(_folder: Path, subject: str, layers: int, width: int) -> Figures:
    """Run a graph of no-ops."""
    edges = _edges(layers, width)
    if subject == OURS:
        return _measured(len(edges), _run_plan(edges))
    return _measured(len(edges), lambda: peers.PEERS[subject][1](edges, WORKERS))


def renewal(_folder: Path, subject: str, layers: int, width: int) -> Figures:
    """Run a graph of no-ops; a process is replaced after 100 jobs."""
    edges = _edges(layers, width)
    if subject == OURS:
        return _measured(len(edges), _run_plan(edges, renew_after=100))
    return _measured(len(edges), lambda: peers.RENEWING[subject][1](edges, WORKERS))


def size(_folder: Path, _subject: str, layers: int, width: int) -> Figures:
    """Run graphs of different sizes."""
    edges = _edges(layers, width)
    return _measured(len(edges), _run_plan(edges))


def build(_folder: Path, _subject: str, count: int) -> Figures:
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


def calls(_folder: Path, subject: str, count: int) -> Figures:
    """Call a function again and again from one caller, without waiting for each answer."""
    if subject != OURS:
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

        with ProcessPoolExecutor(WORKERS) as pool:
            list(pool.map(peers.nothing, range(10)))

            def work() -> None:
                for future in [pool.submit(peers.nothing) for _ in range(count)]:
                    future.result()

            return _measured(count, work)
    from actorflow.runtime.processes.call import CallEnded, ProcessCall  # noqa: PLC0415
    from actorflow.runtime.processes.packed import pack  # noqa: PLC0415
    from actorflow.runtime.processes.process_pool import ProcessPool  # noqa: PLC0415

    over = threading.Semaphore(0)

    def ended(end: CallEnded) -> None:
        assert end.ok, end
        over.release()

    with ProcessPool(WORKERS) as processes:
        packed = pack(peers.nothing)

        def submit(first: int, many: int) -> None:
            for number in range(first, first + many):
                processes.submit(ProcessCall(number, packed), ended)
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


def large(_folder: Path, subject: str, megabytes: int, times: int) -> Figures:
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
    from actorflow.runtime.processes.call import CallEnded, ProcessCall  # noqa: PLC0415
    from actorflow.runtime.processes.process_pool import ProcessPool  # noqa: PLC0415

    over = threading.Semaphore(0)
    found: list[CallEnded] = []

    def ended(end: CallEnded) -> None:
        found.append(end)
        over.release()

    with ProcessPool(1) as processes:
        for number in range(times + 1):
            begin = time.perf_counter()
            processes.submit(ProcessCall.of(number, _array, megabytes), ended)
            over.acquire()
            elapsed.append(time.perf_counter() - begin)
            assert found.pop().result.nbytes == megabytes << 20
    return {"ms": statistics.median(elapsed[1:]) * 1e3}


def _count_down(steps: int, folder: Path) -> None:
    """Compute, and note in a file of this process how much of the processor that took."""
    before = time.thread_time()
    left = steps
    while left:
        left -= 1
    with (folder / str(os.getpid())).open("a") as file:  # one line is one write
        file.write(f"{time.thread_time() - before}\n")


def _count_batch(batch: list[tuple[int, Path]], _state: Any) -> None:
    for each in batch:
        _count_down(*each)


def _busiest(folder: Path) -> float:
    """Return how long the process that had most to do has computed."""
    notes = (file.read_text().split() for file in folder.iterdir())
    return max(sum(map(float, each)) for each in notes)


def cpu_bound(folder: Path, subject: str, batches: int, steps: int) -> Figures:
    """Run a job that only computes, in threads or in processes."""
    with ExitStack() as stack:
        warm, noted = folder / "warm", folder / "noted"
        warm.mkdir()
        noted.mkdir()
        if subject == POOL:
            from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

            pool = stack.enter_context(ProcessPoolExecutor(WORKERS))

            def push(steps: int, where: Path) -> None:
                pool.submit(_count_down, steps, where)

            end: Callable[[], object] = pool.shutdown
        else:
            from actorflow.behaviours import Chunk, Queue  # noqa: PLC0415
            from actorflow.runtime.worker.spec import spawn  # noqa: PLC0415

            kind: Any = "process" if subject == PROCESSES else "pool"
            made = spawn(
                _count_batch, behaviour=Chunk(Queue(), 1), concurrency=WORKERS, executor=kind
            )
            worker = stack.enter_context(made)

            def push(steps: int, where: Path) -> None:
                worker.push((steps, where))

            end = worker.stop
        while len(list(warm.iterdir())) < (1 if subject == THREADS else WORKERS):
            push(steps // 10, warm)  # until each of them has begun
            time.sleep(0.05)
        time.sleep(1.0)  # the surplus messages are processed
        cpu, begin = time.process_time(), time.perf_counter()
        for _ in range(batches):
            push(steps, noted)
        end()
        wall, used = time.perf_counter() - begin, time.process_time() - cpu
    shared = used if subject == THREADS else used + _busiest(noted)
    return {"seconds": wall, SHARED: shared}


LOADS: dict[str, Callable[..., Figures]] = {
    each.__name__: each for each in (layers, renewal, size, build, calls, large, cpu_bound)
}
PIPE = "multiprocessing.Pipe"
THREADS, PROCESSES = "threads", "processes"
BARE, PEBBLE, DASK = "concurrent.futures + graphlib", "pebble + graphlib", "dask.distributed"
POOL = "concurrent.futures"
SHARED = "CPU s, if each had a processor"
LAYERS, RENEWAL, SIZE, BUILD, CALLS, LARGE, COMPUTES = (
    "layers", "renewal after 100 jobs", "size", "build", "single calls", "large results",
    "a worker that computes",
)  # fmt: skip


def cases(*, quick: bool) -> list[Case]:
    """Return all cases, with those peers that are installed."""
    few = 10 if quick else 1
    graph = {"layers": 100 // few, "width": 100}
    found = [name for name, (package, _) in peers.PEERS.items() if peers.version(package)]
    renewing = [name for name, (package, _) in peers.RENEWING.items() if peers.version(package)]
    wide = {"layers": 100, "width": 1_000 // few}
    sizes = {"10,000 jobs": graph, "100,000 jobs": wide} if not quick else {"1,000 jobs": graph}
    count = 1_000_000 // few
    array = {"megabytes": 100 // few, "times": 10 // few + 1}
    computed = {"batches": 80 // few, "steps": 2_000_000 // few}
    return [
        *(Case(LAYERS, name, "layers", graph, once=name == DASK) for name in (OURS, *found)),
        *(Case(RENEWAL, name, "renewal", graph) for name in (OURS, *renewing)),
        *(Case(SIZE, name, "size", options) for name, options in sizes.items()),
        Case(BUILD, f"{count:,} jobs", "build", {"count": count}, once=True),
        *(Case(CALLS, name, "calls", {"count": 20_000 // few}) for name in (OURS, POOL)),
        *(Case(LARGE, name, "large", array) for name in (OURS, PIPE)),
        *(Case(COMPUTES, name, "cpu_bound", computed) for name in (THREADS, PROCESSES, POOL)),
    ]


def goals(found: Found) -> list[Goal]:
    """Compare with what plans are meant to reach."""

    def ratio(section: str, one: str, other: str, figure: str = "jobs/s") -> float | None:
        return over(median(found, section, one, figure), median(found, section, other, figure))

    def at_least(limit: float) -> Callable[[float], bool]:
        return lambda value: value >= limit

    def at_most(limit: float) -> Callable[[float], bool]:
        return lambda value: value <= limit

    computing = {name: median(found, COMPUTES, name, SHARED) for name in (THREADS, PROCESSES)}
    return [
        Goal.of("10,000 no-ops in 100 layers / bare pool and graphlib", ">= 1.0 x",
                ratio(LAYERS, OURS, BARE), at_least(1.0)),
        Goal.of("the same / dask.distributed", ">= 8 x", ratio(LAYERS, OURS, DASK), at_least(8)),
        Goal.of("single calls, pipelined, calls/s", ">= 10,000",
                median(found, CALLS, OURS, "jobs/s"), at_least(10_000)),
        Goal.of("single calls / ProcessPoolExecutor", ">= 1.3 x",
                ratio(CALLS, OURS, POOL), at_least(1.3)),
        Goal.of("renewal after 100 jobs / pebble", ">= 1.5 x",
                ratio(RENEWAL, OURS, PEBBLE), at_least(1.5)),
        Goal.of("peak memory of the scheduler, MB", "<= 40",
                median(found, LAYERS, OURS, "peak MB of the scheduler"), at_most(40)),
        Goal.of("time for each of 100,000 jobs / of 10,000", "<= 1.3 x",
                ratio(SIZE, "10,000 jobs", "100,000 jobs"), at_most(1.3)),
        Goal.of("1,000,000 jobs built and checked, s", "< 15",
                median(found, BUILD, "1,000,000 jobs", "seconds"), at_most(15)),
        Goal.of("100 MB array as a result, pipe / actorflow", ">= 3 x",
                ratio(LARGE, PIPE, OURS, "ms"), at_least(3)),
        Goal.of("a worker that computes, threads / processes", ">= 1.8 x",
                ratio(COMPUTES, THREADS, PROCESSES, "seconds"), at_least(1.8)),
        Goal.of("the same, by processor time", ">= 1.8 x",
                over(computing[THREADS], computing[PROCESSES]), at_least(1.8)),
        Goal("threads / ProcessPoolExecutor, which shows what the machine had to give", "-",
             ratio(COMPUTES, THREADS, POOL, "seconds"), None),
    ]  # fmt: skip


def as_markdown(found: Found) -> str:
    """Return the results as a section of RESULTS.md."""
    versions = {label: peers.version(package) for label, (package, _) in peers.PEERS.items()}
    return page("Plans", versions, METHOD, goals(found), found)


def as_tables(found: Found) -> str:
    """Return the tables of the page that compares plans with others."""

    def cell(section: str, label: str, figure: str = "jobs/s", digits: int = 0) -> str:
        value = median(found, section, label, figure)
        return "-" if value is None else f"{value:,.{digits}f}"

    computed = [
        [over(*(median(found, COMPUTES, each, figure) for each in (THREADS, other)))
         for other in (PROCESSES, POOL)]
        for figure in ("seconds", SHARED)
    ]  # fmt: skip
    ratios = [["-" if value is None else f"{value:.1f}" for value in each] for each in computed]
    graphs: Rows = [["10,000 jobs that do nothing, in 100 layers", "jobs/s",
                     "processor time of the scheduler for each, us",
                     "peak memory of the scheduler, MB",
                     "jobs/s, renewed after 100"]]  # fmt: skip
    graphs += [
        [label, cell(LAYERS, label), cell(LAYERS, label, "us of the scheduler each"),
         cell(LAYERS, label, "peak MB of the scheduler"), cell(RENEWAL, label)]
        for label in found.get(LAYERS, {})
    ]  # fmt: skip
    others: Rows = [
        ["", "actorflow", "the standard library"],
        ["calls a second from one caller, pipelined", cell(CALLS, OURS), cell(CALLS, POOL)],
        ["an array of 100 MB as a result, ms", cell(LARGE, OURS, "ms"), cell(LARGE, PIPE, "ms")],
        ["jobs/s of a plan of 100,000 jobs", cell(SIZE, "100,000 jobs"), ""],
        ["1,000,000 jobs built and checked, s", cell(BUILD, "1,000,000 jobs", "seconds", 1), ""],
        ["a job that computes, threads / two processes, time", *ratios[0]],
        ["the same, processor time of the busiest process", *ratios[1]],
    ]
    facts, load = describe(), busy()
    note = f"{facts['machine']}, {facts['date']}."
    if load is not None:
        note += f" The machine was busy with something else (load {load:.1f})."
    return f"{piped(graphs)}\n\n{piped(others)}\n\n{note}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says."""
    tables = ("--tables", RENEWAL_PAGE, "write the figures of this page, or renewal.md")
    given = command_line(__doc__, LOADS, arguments, page=tables)
    for label, (package, _) in peers.PEERS.items():
        if peers.version(package) is None:
            print(f"{label} is left out: pip install {package} (or the extra bench-peers)")
    found = measure_chosen(given, __file__, cases(quick=given.quick), goals)
    if given.markdown:
        put_between_markers(given.markdown, as_markdown(found), "plans")
    if given.tables:
        put_between_markers(given.tables, as_tables(found), "figures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
