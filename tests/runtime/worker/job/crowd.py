"""A job that many batches are inside of at once, in the hand of the test."""

from __future__ import annotations

import threading
from typing import Any

import actorflow as af
from tests.runtime.worker.probe import PATIENCE, until


class Crowd:
    """A job that many batches are in at once; the test decides when each one ends."""

    def __init__(self) -> None:
        self.most = self.inside = 0
        self.begun: list[Any] = []
        self.failing: dict[Any, BaseException] = {}
        self._gates: list[tuple[Any, threading.Event]] = []
        self._lock = threading.Lock()
        self.is_open = False

    def __call__(self, batch: Any, state: Any) -> Any:
        gate = threading.Event()
        with self._lock:
            self.begun.append(batch)
            self.inside += 1
            self.most = max(self.most, self.inside)
            self._gates.append((batch, gate))
            if self.is_open:
                gate.set()
        assert gate.wait(PATIENCE), "nobody let the batch end"
        with self._lock:
            self.inside -= 1
        for message in batch:
            if message in self.failing:
                raise self.failing[message]
        return af.Answers(None, [("answer", message) for message in batch])

    def release(self, *batches: Any) -> None:
        """Let these batches end."""
        for batch, gate in list(self._gates):
            if batch in batches:
                gate.set()

    def open(self) -> None:
        """Let all batches end, those to come too."""
        with self._lock:
            self.is_open = True
            for _, gate in self._gates:
                gate.set()

    def await_begun(self, count: int) -> None:
        until(lambda: len(self.begun) >= count, f"{count} batches begin")


def busy(crowd: Crowd, count: int = 3, **options: Any) -> af.WorkerRef:
    """Return a worker with so many batches in flight: [0], [1], ..."""
    worker = af.spawn(crowd, concurrency=count, **options)
    for number in range(count):
        worker.push(number)
        crowd.await_begun(number + 1)
    return worker
