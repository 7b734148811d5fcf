"""Graphs of jobs on pools of processes from PyPI and the standard library.

Each takes the same graph: for each job, the numbers of the jobs before it.
"""

from __future__ import annotations

import importlib.metadata
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from graphlib import TopologicalSorter
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["PEERS", "RENEWING", "nothing", "version"]

Edges = list[list[int]]


def version(package: str | None) -> str | None:
    """Return the version of a package, `None` if it is not installed; that of Python is its own."""
    if package is None:
        return "of that Python"
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def nothing(*_: Any) -> None:
    """Do nothing."""


def drive(edges: Edges, submit: Callable[[], Any]) -> None:
    """Run a graph on a pool: `submit` returns a future."""
    sorter: TopologicalSorter[int] = TopologicalSorter(dict(enumerate(edges)))
    sorter.prepare()
    out: dict[Any, int] = {}
    while sorter.is_active():
        for job in sorter.get_ready():
            out[submit()] = job
        done, _ = wait(out, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
            sorter.done(out.pop(future))


def bare(edges: Edges, workers: int) -> None:
    """Run on a `ProcessPoolExecutor`."""
    with ProcessPoolExecutor(workers) as pool:
        drive(edges, lambda: pool.submit(nothing))


def pebble(edges: Edges, workers: int, max_tasks: int = 0) -> None:
    """Run on pebble's pool."""
    with import_module("pebble").ProcessPool(workers, max_tasks=max_tasks) as pool:
        drive(edges, lambda: pool.schedule(nothing))


def pebble_renewing(edges: Edges, workers: int) -> None:
    """Run on pebble's pool; a process is replaced after 100 jobs."""
    pebble(edges, workers, max_tasks=100)


def loky(edges: Edges, workers: int) -> None:
    """Run on loky's pool."""
    with import_module("loky").ProcessPoolExecutor(workers) as pool:
        drive(edges, lambda: pool.submit(nothing))


def dask(edges: Edges, workers: int) -> None:
    """Run on dask.distributed, which takes the graph as it is."""
    distributed = import_module("distributed")
    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        futures: list[Any] = []
        for before in edges:
            inputs: Sequence[Any] = [futures[each] for each in before]
            futures.append(client.submit(nothing, *inputs, pure=False))
        client.gather(futures)


PEERS: dict[str, tuple[str | None, Callable[[Edges, int], None]]] = {
    "concurrent.futures + graphlib": (None, bare),
    "pebble + graphlib": ("pebble", pebble),
    "loky + graphlib": ("loky", loky),
    "dask.distributed": ("distributed", dask),
}
RENEWING: dict[str, tuple[str | None, Callable[[Edges, int], None]]] = {
    "pebble + graphlib": ("pebble", pebble_renewing),
}
