"""Loads of callers that wait for results: threads or tasks call a function with one item each.

The peer of `calls` is `batched` from PyPI. Both sides get the same function, the same largest batch
and the same longest wait for company; the rows named *defaults* use each library as it comes. The
peers of `asked` and `gathered` are what people write by hand: a batching thread, a batching task.
"""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import actorflow as af
from actorflow.behaviours import Linger, Queue
from actorflow.runtime.worker.batched import batched
from benchmarks.loads.throughput import clean_heap
from benchmarks.peers.workers import PATIENCE, AskedTask, AskedThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.loads.throughput import Figures

__all__ = ["BY_HAND", "PEER", "TASKS", "asked", "calls", "gathered", "has_peer"]

PEER = "PyPI batched"
BY_HAND = "by hand"
CALLERS = 16
TASKS = 64
_COST = 0.001  # seconds for one call of the function that is not trivial


def has_peer() -> bool:
    """Return whether the peer is installed."""
    return importlib.util.find_spec("batched") is not None


def _trivial(items: list[int]) -> list[int]:
    return items


def _costly(items: list[int]) -> list[int]:
    time.sleep(_COST)
    return items


def _ours(function: Any, size: int | None, wait: float) -> tuple[Callable[[int], int], Any]:
    decorate = batched() if size is None else batched(Linger(Queue(), wait, size=size))
    call = decorate(function)
    return call, call.worker.stop


def _theirs(function: Any, size: int | None, wait: float) -> tuple[Callable[[int], int], Any]:
    settings = {} if size is None else {"batch_size": size, "timeout_ms": wait * 1e3}
    call = import_module("batched").dynamically(function, **settings)
    return call, call.shutdown


def calls(
    subject: str, *, seconds: float, costly: bool = False, size: int | None, wait: float = 0.0
) -> Figures:
    """Call the function from 16 threads for some time, and count the results.

    Args:
        subject: `af.batched` or the peer.
        seconds: how long the callers go on.
        costly: use a function that takes 1 ms per call.
        size: the largest batch; `None` for the defaults of the library.
        wait: how many seconds a batch waits for company.

    """
    make = _theirs if subject == PEER else _ours
    call, close = make(_costly if costly else _trivial, size, wait)
    return _from_threads(call, close, CALLERS, seconds)


def _spin(items: list[int]) -> list[int]:
    """Take 50 us, and 1 us for each item."""
    end = time.perf_counter() + 50e-6 + 1e-6 * len(items)
    while time.perf_counter() < end:
        pass
    return items


def _answers(batch: list[int], _state: None) -> af.Answers:
    return af.Answers(None, _spin(batch))


def asked(subject: str, *, seconds: float, callers: int) -> Figures:
    """Ask a worker, or a batching thread written by hand, from some threads for some time."""
    if subject == BY_HAND:
        thread = AskedThread(_spin)
        return _from_threads(thread.ask, thread.close, callers, seconds)
    worker = af.spawn(_answers)
    return _from_threads(worker.ask, worker.stop, callers, seconds)


def gathered(subject: str, *, seconds: float, costly: bool = False) -> Figures:
    """Call the function from 64 tasks of an event loop for some time, and count the results."""
    return asyncio.run(_gathered(subject, seconds, _costly if costly else _trivial))


async def _gathered(subject: str, seconds: float, function: Any) -> Figures:
    call: Any
    if subject == BY_HAND:
        task = AskedTask(function)
        call, close = task.ask, task.close
    else:
        decorated = batched()(function)
        call, close = decorated.aio, decorated.worker.stop
    await call(0)
    clean_heap()
    count = 0
    begin = time.perf_counter()

    async def caller(number: int) -> None:
        nonlocal count
        while time.perf_counter() < begin + seconds:
            assert await call(number) == number
            count += 1

    await asyncio.gather(*[caller(number) for number in range(TASKS)])
    elapsed = time.perf_counter() - begin
    close()
    return {"rate": count / elapsed}


def _from_threads(
    call: Callable[[int], int], close: Callable[[], Any], callers: int, seconds: float
) -> Figures:
    """Call from some threads for some time, and count the results."""
    call(0)  # start threads, warm up
    counts = [0] * callers
    gate = threading.Barrier(callers + 1)
    ended = False

    def caller(number: int) -> None:
        gate.wait()
        while not ended:
            assert call(number) == number
            counts[number] += 1

    threads = [
        threading.Thread(target=caller, args=(number,), daemon=True) for number in range(callers)
    ]
    for thread in threads:
        thread.start()
    clean_heap()
    gate.wait()
    begin = time.perf_counter()
    time.sleep(seconds)
    total, elapsed = sum(counts), time.perf_counter() - begin
    ended = True
    for thread in threads:
        thread.join(PATIENCE)
    close()
    return {"rate": total / elapsed}
