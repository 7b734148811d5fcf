"""The result of a run of a plan."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from actorflow.plans.errors import JobFailed, JobSkipped, UnknownJob
from actorflow.plans.job import Job
from actorflow.plans.job_record import JobRecord, JobStatus
from actorflow.plans.report.report import Report
from actorflow.plans.result_files import remove_files
from actorflow.plans.results import load
from actorflow.runtime.errors import near

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from actorflow.plans.results import Value

__all__ = ["PlanResult"]


class PlanResult:
    """The results of a plan by job or by name, and what happened to each job.

    A result is unpickled each time it is asked for. Large results stay in files, which are deleted
    by `close()`, at the end of a `with` block, or when the object is gone.

    Args:
        records: one for each job, made when they are first asked for.
        value: returns the result of a job that is done, by its number.
        seconds: how long the run took.
        workers: how many processes there were at most.
        directory: a folder or URL to delete in the end; `None` keeps the files.
        plan: whose jobs are meant; `None` takes jobs of a plan that has the same names.

    """

    def __init__(
        self,
        records: Callable[[], Sequence[JobRecord]],
        value: Callable[[int], Value],
        *,
        seconds: float,
        workers: int,
        directory: str | None = None,
        plan: object = None,
    ) -> None:
        self._make = records
        self._records: Sequence[JobRecord] | None = None
        self._places: dict[str, int] = {}
        self._value = value
        self._plan = plan
        self.seconds = seconds
        """How long the run took."""
        self.workers = workers
        """How many processes there were at most."""
        self._delete: Callable[[], object] | None = None
        if directory is not None:
            self._delete = weakref.finalize(self, remove_files, directory)

    @property
    def records(self) -> Sequence[JobRecord]:
        """What happened to each job, in the order of the plan; jobs that maps have added follow."""
        if self._records is None:
            self._records = self._make()
            self._places = {record.name: place for place, record in enumerate(self._records)}
        return self._records

    def record(self, job: Job | str) -> JobRecord:
        """Return what happened to a job.

        Raises:
            UnknownJob: the plan has no such job.

        """
        return self.records[self._place(job)]

    def __getitem__(self, job: Job | str) -> Any:
        """Return the result of a job. Runs code of its classes; costs a read if it is large.

        Raises:
            JobFailed: the job has failed.
            JobSkipped: the job was not run.
            UnknownJob: the plan has no such job.

        """
        place = self._place(job)
        record = self.records[place]
        if record.status is JobStatus.FAILED:
            msg = f"job {record.name!r} failed: {record.error}\n{record.traceback}".rstrip()
            raise JobFailed(msg, record)
        if record.status not in (JobStatus.DONE, JobStatus.CACHED):
            msg = f"job {record.name!r} was not run: {record.reason}"
            raise JobSkipped(msg, record)
        return load(self._value(place))

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[str]:
        return (record.name for record in self.records)

    def __contains__(self, job: object) -> bool:
        self.records  # noqa: B018 - made when first asked for
        if isinstance(job, Job) and self._plan is not None:
            return job.blueprint is self._plan and job.index < len(self.records)
        return (job.name if isinstance(job, Job) else job) in self._places

    @property
    def failed(self) -> Mapping[str, JobRecord]:
        """The jobs that have failed, by name."""
        return self._with(JobStatus.FAILED)

    @property
    def skipped(self) -> Mapping[str, JobRecord]:
        """The jobs that were not run, by name; `reason` says why."""
        return self._with(JobStatus.SKIPPED)

    @property
    def cached(self) -> Mapping[str, JobRecord]:
        """The jobs that were up to date, by name."""
        return self._with(JobStatus.CACHED)

    @property
    def ok(self) -> bool:
        """Whether every job is done."""
        return not self.failed and not self.skipped

    def report(self) -> Report:
        """Return what the run has cost: times, workers, the critical path; print it."""
        return Report(self.records, workers=self.workers, seconds=self.seconds)

    def close(self) -> None:
        """Delete the files of large results; the others can still be asked for."""
        if self._delete is not None:
            self._delete()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __str__(self) -> str:
        counts: dict[JobStatus, int] = {}
        for record in self.records:
            counts[record.status] = counts.get(record.status, 0) + 1
        parts = [f"{counts[status]:,} {status}" for status in JobStatus if status in counts]
        jobs = f"{len(self):,} job{'' if len(self) == 1 else 's'}"
        return f"{jobs} in {self.seconds:.2f} s: {', '.join(parts) or 'nothing to do'}"

    def __repr__(self) -> str:
        return f"<PlanResult: {self}>"

    def _place(self, job: Job | str) -> int:
        if job not in self:
            if isinstance(job, Job):
                msg = f"{job!r} is not of the plan that was run: it was added later, or elsewhere"
                raise UnknownJob(msg)
            msg = f"there is no job {job!r}{near(job, self._places)}"
            raise UnknownJob(msg)
        if isinstance(job, Job):
            return job.index if self._plan is not None else self._places[job.name]
        return self._places[job]

    def _with(self, status: JobStatus) -> Mapping[str, JobRecord]:
        return {record.name: record for record in self.records if record.status is status}
