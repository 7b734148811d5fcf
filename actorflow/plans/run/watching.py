"""Looking at a run: its progress a few times a second, and its report when it is over."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from actorflow.plans.master import State
from actorflow.plans.report.progress import Counts
from actorflow.plans.report.report import Report

if TYPE_CHECKING:
    from actorflow.plans.report.progress import Progress
    from actorflow.plans.run.run import PlanRun

__all__ = ["LastRun", "Watch", "counts_of"]

_EVERY = 0.1  # seconds between two looks: counting a million jobs takes some milliseconds


def counts_of(run: PlanRun) -> Counts:
    """Return where the jobs of a run stand. Costs a look at every job."""
    master = run.desk.master
    cached = len(run.desk.cached)
    return Counts(
        total=len(master.states),
        # More may be handed out than there are workers, so that none has to wait.
        running=min(master.out, run.workers),
        done=master.states.count(State.DONE) - cached,
        cached=cached,
        failed=master.states.count(State.FAILED),
        skipped=master.states.count(State.SKIPPED),
        seconds=run.books.now(),
    )


class Watch:
    """Shows the progress of a run. Called in the master's thread, after each round."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._next = 0.0

    def __call__(self, run: PlanRun) -> None:
        """Show where the run stands, unless that was done a moment ago."""
        now = run.books.now()
        if now >= self._next or run.desk.master.done:
            self._next = now + _EVERY
            self._progress.update(counts_of(run))


class LastRun:
    """A run that is over. Holds its small results until the report is asked for."""

    def __init__(self, run: PlanRun) -> None:
        self._run: PlanRun | None = run
        self._workers, self._seconds = run.workers, run.books.now()

    @cached_property
    def report(self) -> Report:
        """What the run has cost."""
        assert self._run is not None  # noqa: S101 - this is called once
        records = self._run.books.records()
        self._run = None
        return Report(records, workers=self._workers, seconds=self._seconds)
