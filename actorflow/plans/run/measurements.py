"""The measurements of a run: when each job began and ended, where, and what it said."""

from __future__ import annotations

import sys
from array import array
from math import isnan, nan
from typing import TYPE_CHECKING, Any

from actorflow.plans.run.job_records import records_of
from actorflow.runtime.errors import kind_and_text
from actorflow.runtime.processes.call import CallOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.plans.job_record import JobRecord
    from actorflow.plans.run.dispatcher import Dispatcher
    from actorflow.runtime.processes.call import CallEnded, Output, ProcessCall

__all__ = ["Measurements"]


class _JobTimes:
    """When jobs were handed out, started and ended: seconds since the run began, or not a number.

    Flat arrays by number of the job: 24 bytes for each.
    """

    __slots__ = ("ended", "queued", "started")

    def __init__(self, count: int) -> None:
        self.queued = array("d", [nan]) * count
        self.started = array("d", [nan]) * count
        self.ended = array("d", [nan]) * count

    def grow(self, count: int) -> None:
        """Make room for jobs that a map has added."""
        missing = array("d", [nan]) * (count - len(self.ended))
        for column in (self.queued, self.started, self.ended):
            column.extend(missing)

    def of(self, job: int) -> Sequence[float | None]:
        """Return when a job was queued, started and ended."""
        found = (self.queued[job], self.started[job], self.ended[job])
        return [None if isnan(each) else each for each in found]


class Measurements:
    """What a run knows of its jobs besides their states and values. In the scheduler's thread.

    Args:
        dispatcher: of the run.
        clock: returns the time in seconds since the epoch.
        quiet: keep what jobs print, instead of passing it on.

    """

    def __init__(
        self, dispatcher: Dispatcher, clock: Callable[[], float], *, quiet: bool = False
    ) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._quiet = quiet
        self._began = clock()
        self._timings = _JobTimes(dispatcher.scheduler.graph.count)
        self._workers: dict[int, int] = {}
        self._errors: dict[int, tuple[str, str]] = {}
        self._output: dict[int, Output] = {}
        self._warnings: dict[int, tuple[str, ...]] = {}

    def now(self) -> float:
        """Return the seconds since the run began."""
        return self._clock() - self._began

    def handed_out(self, calls: Iterable[ProcessCall]) -> None:
        """Record that jobs were handed to the pool."""
        now = self.now()
        timings = self._timings
        if self._dispatcher.scheduler.graph.count > len(timings.queued):
            timings.grow(self._dispatcher.scheduler.graph.count)
        for call in calls:
            job: int = call.id  # type: ignore[assignment] # we have numbered the calls
            timings.queued[job] = now

    def ended(self, job: int, ended: CallEnded) -> None:
        """Record how an attempt has ended."""
        timings = self._timings
        if ended.started is not None:
            timings.started[job] = ended.started - self._began
        timings.ended[job] = ended.ended - self._began
        if ended.worker is not None:
            self._workers[job] = ended.worker
        if ended.outcome is not CallOutcome.OK:
            self._errors[job] = _text(ended).removesuffix(f" during call {job}"), ended.traceback
        if ended.warnings:
            self._warnings[job] = ended.warnings
        if any(ended.output):
            self._output[job] = ended.output
            if not self._quiet:
                if sys.stdout is not None:  # as in a service that was started without
                    sys.stdout.write(ended.output.stdout)
                if sys.stderr is not None:
                    sys.stderr.write(ended.output.stderr)

    def refused(self, job: int, text: str) -> None:
        """Record that a job could not be sent to a worker."""
        self.handed_out(())
        self._errors[job] = text, ""
        self._timings.ended[job] = self.now()

    def records(self) -> Sequence[JobRecord]:
        """Return the record of each job. Costs some microseconds for each."""
        self.handed_out(())
        return records_of(self._dispatcher, self._details)

    def _details(self, job: int) -> dict[str, Any]:
        queued, started, ended = self._timings.of(job)
        error, traceback = self._errors.get(job, ("", ""))
        output = self._output.get(job)
        return {
            "worker": str(self._workers[job]) if job in self._workers else None,
            "queued": queued,
            "started": started,
            "ended": ended,
            "error": error,
            "traceback": traceback,
            "output": "" if output is None else output.stdout + output.stderr,
            "warnings": self._warnings.get(job, ()),
        }


def _text(ended: CallEnded) -> str:
    return "" if ended.error is None else kind_and_text(ended.error)
