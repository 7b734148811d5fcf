"""The last batches of a worker, recorded as long as somebody asks for them."""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from actorflow.runtime.worker.latency import observe_batches

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.accumulator import Accumulator
    from actorflow.runtime.worker.ref import WorkerRef

__all__ = ["BatchLog", "LoggedBatch", "batch_log"]

_KEPT = 2_000
_PATIENCE = 30.0  # seconds without a question after which recording ends


class LoggedBatch(NamedTuple):
    """A batch that was processed."""

    began: float
    took: float
    size: int


class BatchLog:
    """Records the batches of a worker until nobody has asked for some time. Thread-safe."""

    def __init__(self, worker: WorkerRef, patience: float = _PATIENCE) -> None:
        self._worker = worker
        self._patience = patience
        self._batches: deque[LoggedBatch] = deque(maxlen=_KEPT)
        self._since = self._asked = monotonic()
        self._accepted = worker.statistics().accepted
        self._stop = observe_batches(worker.actor, self._note)
        self._wait(patience)

    def _note(self, size: int, began: float, done: float) -> None:
        """Record a batch. Runs under the lock of the worker."""
        took = done - began
        self._batches.append(LoggedBatch(monotonic() - took, took, size))

    def _wait(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._close_unless_asked)
        timer.name, timer.daemon = "actorflow-batch-log", True
        timer.start()

    def _close_unless_asked(self) -> None:
        with _LOCK:
            left = self._asked + self._patience - monotonic()
            if left <= 0:
                self._stop()
                _logs.pop(self._worker.actor, None)
                return
        self._wait(left)

    def batches(self) -> list[LoggedBatch]:
        """Return the last batches, in the order of their ends, and go on recording."""
        self._asked = monotonic()
        return list(self._batches)

    def arrivals(self) -> float:
        """Return how many messages were accepted per second since recording began."""
        count = self._worker.statistics().accepted - self._accepted
        return count / max(monotonic() - self._since, 1e-3)


_LOCK = threading.Lock()
_logs: WeakKeyDictionary[Accumulator, BatchLog] = WeakKeyDictionary()


def batch_log(worker: WorkerRef) -> BatchLog:
    """Return the log of a worker; recording begins with the first call."""
    with _LOCK:
        found = _logs.get(worker.actor)
        if found is None:
            found = _logs[worker.actor] = BatchLog(worker)
        return found
