"""Jobs in worker processes: the accumulator stays here, each batch is sent to a process."""

from __future__ import annotations

import itertools
import pickle
import sys
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import BadJob, WorkerStopped, install_hint, kind_and_text
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from actorflow.runtime.processes.call import CallEnded, ProcessCall
from actorflow.runtime.processes.packed import pack, pack_value
from actorflow.runtime.processes.process_pool import ProcessPool
from actorflow.runtime.worker.job.deferred import Deferred

if TYPE_CHECKING:
    from actorflow.runtime.clock import Clock
    from actorflow.runtime.lanes.lane import Runnable, Waiter
    from actorflow.runtime.worker.process.options import Processes

__all__ = ["ProcessLane", "repeat_output"]


class ProcessLane:
    """The lane of a worker whose job runs in processes (`executor="process"`).

    The threads of the pool only hand batches over; what a job returns arrives in the thread of
    the process pool. Processes are started with the first batch, and killed when the worker ends.
    """

    can_help = False

    def __init__(
        self, name: str, job: Any, concurrency: int, given: Processes, clock: Clock = SYSTEM
    ) -> None:
        try:
            self._job = pack_value(job).data
        except Exception as error:
            msg = (
                f"{brief(job)} cannot run in another process: it cannot be sent there "
                f"({kind_and_text(error)}); give a function at the top of a module that "
                "can be imported; lambdas and closures need cloudpickle: "
                f"{install_hint('plans')}"
            )
            raise BadJob(msg) from error
        self._given = name, job, concurrency, given, clock
        self._numbers = itertools.count(1)
        self._pool: ProcessPool | None = None
        self._starting = threading.Lock()
        self._released = False

    def successor(self) -> ProcessLane:
        """Return a lane with processes of its own, for the next executor of the same job."""
        return ProcessLane(*self._given)

    # A lane, as the pool is one.

    def submit(self, runnable: Runnable, /) -> None:
        """Schedule one call of `runnable.run()` in the pool. See `RuntimeLane`."""
        POOL.submit(runnable)

    def claim(self, idle: list[Any]) -> bool:
        """Move a token from `idle` to the pool. See `RuntimeLane`."""
        return POOL.claim(idle)

    def wait(self, ticket: Waiter, timeout: float | None) -> bool:
        """Block the calling thread until the ticket is resolved. See `RuntimeLane`."""
        return POOL.wait(ticket, timeout)

    def release(self) -> None:
        """Kill the processes: the worker has ended."""
        UNINTERRUPTIBLE.run(self._release)

    def _release(self) -> None:
        with self._starting:
            self._released = True
            processes = self._pool
        if processes is not None:
            processes.close(block=False)

    # Calls.

    def number(self) -> int:
        """Return the number of a call that can be cancelled. Thread-safe."""
        return next(self._numbers)

    def cancel(self, number: int) -> None:
        """Kill the process of a call that runs. Does nothing when it has ended. Thread-safe."""
        processes = self._pool
        if processes is not None:
            processes.cancel(number)

    def call(self, batch: Any, state: Any, number: int | None = None) -> Deferred:
        """Call the job with a batch in a process, and wait. In a thread of the pool.

        Raises:
            BadJob: the batch or the state cannot be sent to another process.
            WorkerStopped: the worker has ended meanwhile.

        """
        given = self._given[3]
        payload = pack(_perform, (self._job, batch, state))
        place = Deferred()

        def ended(what: CallEnded) -> None:
            try:
                repeat_output(what)
            finally:
                place.resolve(what.error, what.result)

        id = next(self._numbers) if number is None else number  # noqa: A001 - as `ProcessCall` has it
        call = ProcessCall(id, payload, timeout=given.timeout, memory=given.memory)
        self._running().submit(call, ended)
        return place

    def _running(self) -> ProcessPool:
        with self._starting:
            if self._released:
                msg = "the worker has ended, and its processes with it"
                raise WorkerStopped(msg)
            if self._pool is None:
                name, _, concurrency, given, clock = self._given
                options = given.pool_options()
                # Without a reserve: as many batches as processes are in flight at most.
                self._pool = ProcessPool(concurrency, name=name, prefetch=0, clock=clock, **options)
            return self._pool


def repeat_output(ended: CallEnded) -> None:
    """Print here what a function has printed in its process, and its warnings."""
    out, err = ended.output
    if out and sys.stdout is not None:  # as in a service that was started without
        sys.stdout.write(out)
        sys.stdout.flush()
    if (err or ended.warnings) and sys.stderr is not None:
        sys.stderr.write("".join((err, *(f"{each}\n" for each in ended.warnings))))
        sys.stderr.flush()


def _perform(job: bytes, batch: Any, state: Any) -> Any:
    """Call the job. In the worker process."""
    return _job_of(job)(batch, state)


@lru_cache(maxsize=64)
def _job_of(job: bytes) -> Any:
    return pickle.loads(job)  # noqa: S301 - from our own parent
