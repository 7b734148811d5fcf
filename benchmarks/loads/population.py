"""Loads that measure what one more worker costs: to start, to keep, to stop."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import actorflow as af
from benchmarks.harness.machine import resident
from benchmarks.loads.latency import percentiles
from benchmarks.peers.workers import PATIENCE, PlainPykka

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.loads.throughput import Figures

__all__ = ["population", "traced"]

_SAMPLE = 500  # workers that are stopped one by one while the others live


def _ignore(_batch: Any, state: Any) -> Any:
    return state


def _spawn() -> Any:
    return af.spawn(_ignore)


def _start() -> Any:
    return PlainPykka(print).ref


def population(subject: str, *, workers: int) -> Figures:
    """Start that many workers, leave them idle, stop them. The collector stays on."""
    spawn = _spawn if subject == "Queue" else _start
    for _ in range(10):  # start threads, warm up
        spawn().stop()
    gc.collect()
    refs: list[Any] = [None] * workers
    threads, memory = threading.active_count(), resident()
    begin = time.perf_counter()
    for number in range(workers):
        refs[number] = spawn()
    seconds = time.perf_counter() - begin
    figures = {
        "spawn us": seconds / workers * 1e6,
        "bytes (RSS)": (resident() - memory) / workers,
        "threads before": float(threads),
        "threads after": float(threading.active_count()),
    }
    begin = time.perf_counter()
    gc.collect()
    figures["full gc ms"] = (time.perf_counter() - begin) * 1e3
    figures |= _stop_some(refs)
    if subject == "Queue":
        figures |= _stop_all(refs)
    else:
        for ref in refs:
            ref.stop(block=False)
    return figures


def _stop_some(refs: list[Any]) -> Figures:
    times = []
    for _ in range(min(_SAMPLE, len(refs) // 2)):
        # From the middle: a linear search for it would have to pass half of the list.
        ref = refs.pop(len(refs) // 2)
        begin = time.perf_counter()
        ref.stop()
        times.append(time.perf_counter() - begin)
    return {"stop p50": percentiles(times)["p50"]}


def _stop_all(refs: list[af.WorkerRef]) -> Figures:
    left = len(refs)
    counting, done = threading.Lock(), threading.Lock()
    done.acquire()

    def notice(_actor: Any, _reason: Any) -> None:
        nonlocal left
        with counting:
            left -= 1
            if not left:
                done.release()

    for ref in refs:
        ref.watch(notice)
    count = len(refs)
    begin = time.perf_counter()
    for ref in refs:
        ref.stop(block=False)
    assert done.acquire(timeout=PATIENCE)
    return {"stop us": (time.perf_counter() - begin) / count * 1e6}


def traced(subject: str, *, workers: int) -> Figures:
    """Count the bytes that Python allocates for each idle worker and its ref."""
    make: Callable[[], Any] = _spawn if subject == "Queue" else _start
    make().stop()
    refs: list[Any] = [None] * workers
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(workers):
            refs[number] = make()
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    for ref in refs:
        ref.stop(block=False)
    return {"bytes (traced)": (after - before) / workers}
