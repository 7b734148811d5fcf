"""Looking at a run: its progress a few times a second, and its report when it is over."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from actorflow.plans.report.report import Report
from actorflow.plans.report.text import JobCounts
from actorflow.plans.scheduler import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.plans.report.progress import ProgressBar
    from actorflow.plans.run.run import PlanRun

__all__ = ["LastRun", "RunMonitor", "counts_of"]

_EVERY = 0.1  # seconds between two looks: counting a million jobs takes some milliseconds


def counts_of(run: PlanRun) -> JobCounts:
    """Return where the jobs of a run stand. Costs a look at every job."""
    scheduler = run.dispatcher.scheduler
    cached = len(run.dispatcher.cached)
    return JobCounts(
        total=len(scheduler.states),
        # More may be handed out than there are workers, so that none has to wait.
        running=min(scheduler.out, run.workers),
        done=scheduler.states.count(State.DONE) - cached,
        cached=cached,
        failed=scheduler.states.count(State.FAILED),
        skipped=scheduler.states.count(State.SKIPPED),
        seconds=run.measurements.now(),
    )


class RunMonitor:
    """Shows the progress of a run. Called in the scheduler's thread, after each round."""

    def __init__(self, progress: ProgressBar) -> None:
        self._progress = progress
        self._next = 0.0

    def __call__(self, run: PlanRun) -> None:
        """Show where the run stands, unless that was done a moment ago."""
        now = run.measurements.now()
        if now >= self._next or run.dispatcher.scheduler.done:
            self._next = now + _EVERY
            self._progress.update(counts_of(run))


class LastRun:
    """A run that is over. Holds its small results until the report is asked for."""

    def __init__(self, report: Callable[[], Report]) -> None:
        self._report: Callable[[], Report] | None = report

    @classmethod
    def of(cls, run: PlanRun) -> LastRun:
        """Return a run on processes of this machine, which is over now."""
        seconds = run.measurements.now()
        return cls(lambda: Report(run.measurements.records(), workers=run.workers, seconds=seconds))

    @cached_property
    def report(self) -> Report:
        """What the run has cost."""
        assert self._report is not None  # noqa: S101 - this is called once
        report = self._report()
        self._report = None
        return report
