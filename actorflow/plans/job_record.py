"""The record of a job, during a run of its plan and afterwards: the input of every report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["JobRecord", "JobStatus"]


class JobStatus(StrEnum):
    """Where a job stands."""

    WAITING = "waiting"
    """For its upstream jobs."""
    READY = "ready"
    """Every upstream job is done; it waits for a worker."""
    RUNNING = "running"
    """It was handed out."""
    DONE = "done"
    CACHED = "cached"
    """Up to date: its result was taken from the cache, and it was not run."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """It was never run: an upstream job failed, or the plan stopped before. See `reason`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job at one moment. Times are seconds since the run of the plan began."""

    name: str
    status: JobStatus
    upstream: tuple[str, ...] = ()
    """The names of the jobs directly before it."""
    attempts: int = 0
    """How often it was handed out."""
    crashes: int = 0
    """How many of these attempts ended with the death of their worker."""
    worker: str | None = None
    """Who ran the last attempt."""
    ready: float | None = None
    """When its last upstream job was done."""
    queued: float | None = None
    """When the last attempt was handed out."""
    started: float | None = None
    """When the worker began it."""
    ended: float | None = None
    reason: str = ""
    """Why it was run, skipped or taken from the cache."""
    error: str = ""
    """The class and the text of the error, if the job failed."""
    traceback: str = ""
    output: str = ""
    """What the last attempt wrote to stdout and stderr."""
    warnings: tuple[str, ...] = ()
    size: int = 0
    """Bytes of its pickled result."""

    @property
    def seconds(self) -> float:
        """How long the last attempt ran; 0 for a job that was not run."""
        if self.started is None or self.ended is None:
            return 0.0
        return self.ended - self.started
