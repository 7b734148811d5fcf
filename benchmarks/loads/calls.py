"""Loads of callers that wait for results: many threads call a batched function with one item each.

The peer is `batched` from PyPI. Both sides get the same function, the same largest batch and the
same longest wait for company; the rows named *defaults* use each library as it comes.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from actorflow.runtime.worker.batched import batched
from behaviours import Linger, Queue
from benchmarks.loads.throughput import clean_heap
from benchmarks.peers.workers import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.loads.throughput import Figures

__all__ = ["PEER", "calls", "has_peer"]

PEER = "PyPI batched"
CALLERS = 16
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
    call(0)  # start threads, warm up
    counts = [0] * CALLERS
    gate = threading.Barrier(CALLERS + 1)
    ended = False

    def caller(number: int) -> None:
        gate.wait()
        while not ended:
            assert call(number) == number
            counts[number] += 1

    threads = [
        threading.Thread(target=caller, args=(number,), daemon=True) for number in range(CALLERS)
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
