"""The run of a plan: the scheduler as a worker, whose accumulator is the cleanup queue.

Completions that arrive while the scheduler is busy are its next batch (T14). It never waits: it
hands calls to a pool of processes, which pushes back how each call has ended.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, Any

from actorflow.behaviours import Queue
from actorflow.plans.errors import PlanFailed
from actorflow.plans.run.dispatcher import ArgumentsNotSent, Dispatcher
from actorflow.plans.run.measurements import Measurements
from actorflow.plans.run.result import PlanResult
from actorflow.plans.scheduler import Ending, OnFailure, State
from actorflow.runtime.errors import LaunchFailed, WorkerStopped
from actorflow.runtime.processes.call import CallEnded, CallOutcome, ProcessCall
from actorflow.runtime.processes.process_pool import ProcessPool
from actorflow.runtime.worker.spec import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.plans.blueprint import Blueprint
    from actorflow.plans.run.options import RunOptions

__all__ = ["PlanRun"]

_BEGIN = object()
_STOP = object()
_ENDINGS = {
    CallOutcome.OK: Ending.OK,
    CallOutcome.FAILED: Ending.FAILED,
    CallOutcome.TIMED_OUT: Ending.FAILED,
    CallOutcome.CRASHED: Ending.CRASHED,
    CallOutcome.CANCELLED: Ending.CANCELLED,
}


class PlanRun:
    """One run of a plan.

    Args:
        blueprint: the plan.
        options: how it is run.
        watch: called in the scheduler's thread after each round, with this run.

    Raises:
        BadPlan: it cannot be run.

    """

    def __init__(
        self,
        blueprint: Blueprint,
        options: RunOptions,
        *,
        watch: Callable[[PlanRun], object] | None = None,
    ) -> None:
        self._options = options
        self.workers = options.workers
        """How many processes there are at most."""
        self._directory = tempfile.mkdtemp(prefix="actorflow-plan-")
        try:
            self.dispatcher = Dispatcher(
                blueprint,
                self._directory,
                on_failure=OnFailure(options.on_failure),
                workers=options.workers,
                budget=options.budget,
                retries=options.retries,
                crashes_max=options.crashes_max,
                limits=options.resources,
                cache=options.cache,
            )
        except BaseException:
            shutil.rmtree(self._directory)
            raise
        self.measurements = Measurements(self.dispatcher, time, quiet=options.quiet)
        """When each job began and ended, and what it said."""
        self._watch = watch
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._launch_error: str | None = None
        self._pool: ProcessPool | None = None
        self._push: Callable[[Any], object] = _nowhere

    def run(self) -> PlanResult:
        """Run the plan to its end; return its result.

        Raises:
            PlanFailed: a job has failed, and failures stop the plan; or no worker can be started.
            KeyboardInterrupt: Ctrl-C; running jobs are killed, and a report is printed.

        """
        options = self._options
        try:
            pool = self._pool = ProcessPool(
                (1, options.workers),
                launcher=options.launcher,
                renew_after=options.renew_after,
                renew_after_seconds=options.renew_after_seconds,
                max_rss=options.max_rss,
                setup=options.setup,
                name="plan",
            )
            try:
                with spawn(self._round, behaviour=Queue) as scheduler:
                    self._push = scheduler.push
                    scheduler.push(_BEGIN)
                    self._wait(scheduler.push)
            finally:
                self._over.set()
                pool.close()
            return self._finish()
        except PlanFailed:
            raise  # its result needs the files
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    def _wait(self, push: Callable[[Any], object]) -> None:
        try:
            self._over.wait()
        except KeyboardInterrupt:
            # The scheduler hears of it as of everything else; the second Ctrl-C is not waited for.
            push(_STOP)
            self._over.wait()
            result = self._result()
            if sys.stderr is not None:
                sys.stderr.write(f"\ninterrupted: {result}\n")
            raise

    def _finish(self) -> PlanResult:
        if self._error is not None:
            raise self._error
        result = self._result()
        if self._launch_error is not None:
            raise PlanFailed(self._launch_error, result)
        if self.dispatcher.scheduler.stopped:
            first = min(result.failed.values(), key=lambda record: record.ended or 0.0)
            msg = f"job {first.name!r} failed: {first.error}\n{first.traceback}".rstrip()
            raise PlanFailed(f"{msg}\n{result}", result)
        return result

    def _result(self) -> PlanResult:
        return PlanResult(
            self.measurements.records,
            self.dispatcher.value,
            seconds=self.measurements.now(),
            workers=self._options.workers,
            directory=self._directory,
            plan=self.dispatcher.blueprint,
        )

    def _on_ended(self, ended: CallEnded) -> None:
        """Pass on that a call has ended. In the pool's thread."""
        if not self._over.is_set():
            with suppress(WorkerStopped):  # a second Ctrl-C: nobody waits for it
                self._push(ended)

    # In the scheduler's thread.

    def _round(self, batch: Sequence[Any], _: Any) -> None:
        try:
            for each in batch:
                if isinstance(each, CallEnded):
                    self._ended(each)
                elif each is _STOP:
                    self._stop()
            self._hand_out()
            if self._watch is not None:
                self._watch(self)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._error = error
            self._over.set()
        if self.dispatcher.scheduler.done:
            self._over.set()

    def _ended(self, ended: CallEnded) -> None:
        job: Any = ended.id
        if isinstance(ended.error, LaunchFailed):
            self._launch_error = str(ended.error)
            self.dispatcher.ended(job, Ending.CANCELLED)
            self._stop()
            return
        was_stopped = self.dispatcher.scheduler.stopped
        seconds = None if ended.started is None else ended.ended - ended.started
        state = self.dispatcher.ended(job, _ENDINGS[ended.outcome], ended.result, seconds)
        self.measurements.ended(job, ended)
        if state is State.FAILED and not was_stopped and self.dispatcher.scheduler.stopped:
            self._withdraw()

    def _stop(self) -> None:
        """Begin nothing more, and end what runs."""
        self.dispatcher.scheduler.stop()
        assert self._pool is not None  # noqa: S101 - for mypy
        for job in self.dispatcher.scheduler.handed_out():
            self._pool.cancel(job)

    def _withdraw(self) -> None:
        """Withdraw jobs that have not begun; running jobs may end."""
        assert self._pool is not None  # noqa: S101 - for mypy
        for job in self.dispatcher.scheduler.handed_out():
            self._pool.cancel(job, running=False)

    def _hand_out(self) -> None:
        dispatcher, pool = self.dispatcher, self._pool
        assert pool is not None  # noqa: S101 - for mypy
        calls: list[ProcessCall] = []
        while (job := dispatcher.next()) is not None:
            try:
                packed = dispatcher.call(job)
            except ArgumentsNotSent as refused:
                self.measurements.refused(job, str(refused))
                dispatcher.ended(job, Ending.FAILED)
                continue
            options = dispatcher.options(job)
            calls.append(
                ProcessCall(
                    job,
                    packed,
                    timeout=options.timeout,
                    memory=options.memory or None,
                    attempt=dispatcher.scheduler.attempts(job) + 1,
                )
            )
        self.measurements.handed_out(calls)
        if calls:
            pool.submit(calls, self._on_ended)


def _nowhere(_: Any) -> None:
    """Replace the inbox of a scheduler that has not started yet."""
