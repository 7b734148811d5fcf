"""The books of a run: when each job began and ended, where, and what it said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from actorflow.plans.run.records import records_of
from actorflow.plans.run.timings import Timings
from actorflow.runtime.lanes.process.call import CallOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.plans.record import JobRecord
    from actorflow.plans.run.desk import Desk
    from actorflow.runtime.lanes.process.call import Call, Ended, Output

__all__ = ["Books"]


class Books:
    """What a run knows of its jobs besides their states and values. In the master's thread.

    Args:
        desk: of the run.
        clock: returns the time in seconds since the epoch.
        quiet: keep what jobs print, instead of passing it on.

    """

    def __init__(self, desk: Desk, clock: Callable[[], float], *, quiet: bool = False) -> None:
        self._desk = desk
        self._clock = clock
        self._quiet = quiet
        self._began = clock()
        self._timings = Timings(desk.master.graph.count)
        self._workers: dict[int, int] = {}
        self._errors: dict[int, tuple[str, str]] = {}
        self._output: dict[int, Output] = {}
        self._warnings: dict[int, tuple[str, ...]] = {}

    def now(self) -> float:
        """Return the seconds since the run began."""
        return self._clock() - self._began

    def handed_out(self, calls: Iterable[Call]) -> None:
        """Note that jobs were handed to the crew."""
        now = self.now()
        timings = self._timings
        if self._desk.master.graph.count > len(timings.queued):
            timings.grow(self._desk.master.graph.count)
        for call in calls:
            job: int = call.id  # type: ignore[assignment] # we have numbered the calls
            timings.queued[job] = now

    def ended(self, job: int, ended: Ended) -> None:
        """Note how an attempt has ended."""
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
        """Note that a job could not be sent to a worker."""
        self.handed_out(())
        self._errors[job] = text, ""
        self._timings.ended[job] = self.now()

    def records(self) -> Sequence[JobRecord]:
        """Return what is known of each job. Costs some microseconds for each."""
        self.handed_out(())
        return records_of(self._desk, self._details)

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


def _text(ended: Ended) -> str:
    return "" if ended.error is None else f"{type(ended.error).__name__}: {ended.error}"
