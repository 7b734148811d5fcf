"""What a run has cost: time, workers, the critical path, and a table of the jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from actorflow.plans.job_record import JobRecord, JobStatus
from actorflow.plans.report.critical_path import CriticalPath, critical_path
from actorflow.plans.report.figures import save
from actorflow.plans.report.gantt import gantt, worker_rows
from actorflow.plans.report.text import seconds_text, table_text

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

__all__ = ["Report"]

_SHOWN = 20  # rows of the table, unless told otherwise
_LONGEST = 6  # jobs of the critical path that are named
_HEADINGS = ("job", "status", "worker", "attempts", "waited", "ran", "why")
_URGENT = (JobStatus.FAILED, JobStatus.RUNNING)


@dataclass(frozen=True)
class Report:
    """A run of a plan in figures. Printing it shows a summary and the slowest jobs.

    Args:
        records: one for each job.
        workers: the largest number of processes; by default of the processes that ran a job.
        seconds: how long the run took; by default until the last job had ended.

    """

    records: Sequence[JobRecord]
    workers: int | None = None
    seconds: float | None = None

    @cached_property
    def counts(self) -> Counter[JobStatus]:
        """How many jobs there are of each status."""
        return Counter(record.status for record in self.records)

    @cached_property
    def elapsed(self) -> float:
        """Seconds from the beginning of the run to its end."""
        if self.seconds is not None:
            return self.seconds
        return max((each.ended for each in self.records if each.ended is not None), default=0.0)

    @cached_property
    def busy(self) -> float:
        """Seconds that jobs ran, all together."""
        return sum(record.seconds for record in self.records)

    @cached_property
    def width(self) -> int:
        """How many workers there were."""
        return self.workers if self.workers is not None else len(worker_rows(self.records))

    @property
    def parallelism(self) -> float:
        """How many jobs ran at the same time, on average."""
        return self.busy / self.elapsed if self.elapsed else 0.0

    @property
    def parallelism_possible(self) -> float:
        """The parallelism with any number of workers: the graph allows no more."""
        longest = self.critical_path.seconds
        return self.busy / longest if longest else 0.0

    @property
    def unused(self) -> float:
        """The share of the workers' time in which they ran nothing, from 0 to 1."""
        available = self.width * self.elapsed
        return max(0.0, 1 - self.busy / available) if available else 0.0

    @cached_property
    def critical_path(self) -> CriticalPath:
        """The chain of jobs that took the longest: more workers cannot make the run shorter."""
        return critical_path(self.records)

    def slowest(self, count: int = 10) -> list[JobRecord]:
        """Return the jobs that ran the longest."""
        return sorted(self.records, key=lambda record: -record.seconds)[:count]

    def summary(self) -> str:
        """Return the figures of the whole run, in a few lines."""
        jobs = len(self.records)
        workers = f"{self.width} worker{'' if self.width == 1 else 's'}"
        lines = [
            f"{jobs:,} job{'' if jobs == 1 else 's'} in {seconds_text(self.elapsed)} on {workers}: "
            + (", ".join(self._counted()) or "nothing to do")
        ]
        if self.busy:
            lines.append(
                f"parallelism {self.parallelism:.1f} (the graph allows "
                f"{self.parallelism_possible:.1f}), {self.unused:.0%} of the workers' time unused"
            )
            path = self.critical_path
            lines.append(f"critical path {seconds_text(path.seconds)}: {_chain(path.names)}")
        return "\n".join(lines)

    def _counted(self) -> list[str]:
        return [f"{self.counts[each]:,} {each}" for each in JobStatus if self.counts[each]]

    def table(self, most: int | None = None) -> str:
        """Return a table of the jobs, in the order of the plan; of many only the slowest.

        Jobs that have failed or still run are always shown.
        """
        shown = range(len(self.records))
        if most is not None and len(self.records) > most:
            first = sorted(shown, key=lambda at: -self.records[at].seconds)[:most]
            urgent = [at for at in shown if self.records[at].status in _URGENT]
            shown = sorted({*first, *urgent})  # type: ignore[assignment] # places as well
        text = table_text(_HEADINGS, [_row(self.records[at]) for at in shown])
        left_out = len(self.records) - len(shown)
        return f"{text}\n... and {left_out:,} more" if left_out else text

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw who ran what when, to a file that ends with `.png`, `.svg` or `.pdf`.

        Raises:
            BadOption: it ends with something else.
            MissingExtra: matplotlib is not installed.

        """
        save(gantt(self), path)

    def __str__(self) -> str:
        if not self.records:
            return self.summary()
        return f"{self.summary()}\n\n{self.table(_SHOWN)}"


def _chain(names: Sequence[str]) -> str:
    if len(names) > _LONGEST:
        half = _LONGEST // 2
        names = (*names[:half], f"({len(names) - 2 * half} more)", *names[-half:])
    return " -> ".join(names)


def _row(record: JobRecord) -> tuple[str, ...]:
    ran = record.started is not None and record.ended is not None
    waited = None
    if record.ready is not None and record.started is not None:
        waited = record.started - record.ready
    return (
        record.name,
        str(record.status),
        record.worker or "-",
        str(record.attempts) if record.attempts else "-",
        "-" if waited is None else seconds_text(max(waited, 0.0)),
        seconds_text(record.seconds) if ran else "-",
        record.error.partition("\n")[0] or record.reason,
    )
