"""What a worker counts and times: after each batch, and when somebody wants to see."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from actorflow.runtime.log import log
from actorflow.runtime.worker.lifecycle import Lifecycle
from actorflow.runtime.worker.metrics import WorkerStatistics

if TYPE_CHECKING:
    from actorflow.runtime.worker.accumulation import Batch

__all__ = ["Accounts"]

_SAMPLES = 128  # latencies kept
_SIZES = 48  # powers of two that a batch can have


class Accounts(Lifecycle):
    """The part of the accumulator that keeps the books."""

    spawned: float
    busy: float
    processed: int
    sizes: list[int] | None
    marked: tuple[int, float] | None
    samples: deque[float] | None = None
    verbose: bool = False

    def finished(self, batch: Batch, begin: float) -> None:
        """Account for a batch that the job has processed; its callers are told by the executor."""
        end = time.perf_counter()
        self.busy += end - begin
        self.processed += batch.size
        if self.core.observed:
            with self.lock:
                self.core.behaviour.observe(batch.size, end - begin)
        if self.sizes is None:
            self.sizes = [0] * _SIZES
        self.sizes[(batch.size - 1).bit_length() if batch.size > 0 else 0] += 1
        core = self.core
        if self.marked is None:
            if core.raw:
                self.marked = (core.folded + len(core.raw), end)
        else:
            with self.lock:
                left = core.folded - len(core.behaviour)
            if left >= self.marked[0]:
                if self.samples is None:
                    self.samples = deque(maxlen=_SAMPLES)
                self.samples.append(end - self.marked[1])
                self.marked = None
        if self.verbose:
            log.debug("batch", worker=repr(self), size=batch.size, seconds=round(end - begin, 6))

    def statistics(self) -> WorkerStatistics:
        """Take a picture of the worker. O(1), without stopping the job."""
        now = time.perf_counter()
        core = self.core
        with self.lock:
            tally = core.behaviour.tally()
            raw = len(core.raw)
            depth = raw + len(core.behaviour)
        samples = sorted(self.samples or ())
        marked = self.marked
        return WorkerStatistics(
            accepted=core.folded + raw - core.rejected,
            rejected=core.rejected,
            replaced=tally.replaced,
            dropped=tally.dropped,
            expired=tally.expired,
            discarded=self.discarded,
            processed=self.processed,
            batches=core.taken,
            batch_sizes={1 << at: count for at, count in enumerate(self.sizes or ()) if count},
            depth=depth,
            busy=self.busy / max(now - self.spawned, 1e-9),
            oldest_age=now - marked[1] if marked is not None and depth else 0.0,
            latency_p50=samples[len(samples) // 2] if samples else None,
            latency_p99=samples[int(len(samples) * 0.99)] if samples else None,
            restarts=self.restarts,
            dead_letters=0 if self.letters is None else len(self.letters),
        )
