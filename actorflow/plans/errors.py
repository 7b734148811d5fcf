"""The errors of plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from actorflow.plans.job_record import JobRecord

__all__ = [
    "BadCache",
    "BadPlan",
    "CodeMissing",
    "JobFailed",
    "JobSkipped",
    "PlanFailed",
    "ResultTooLarge",
    "UnknownJob",
]


class BadCache(ActorflowError):
    """A folder cannot be used as a cache: it holds something else, or its index is damaged."""


class BadPlan(ActorflowError):
    """A plan cannot be run as it is: a cycle, an unknown or repeated name, an unpicklable function.

    You get it before anything has started.
    """


class CodeMissing(ActorflowError):
    """A worker process cannot import the function of a job: its module is not there, or another."""


class UnknownJob(ActorflowError, KeyError):
    """The plan has no job of that name."""

    __str__ = Exception.__str__  # KeyError shows the repr of its text


class JobFailed(ActorflowError):
    """The result of a job was asked for, and the job has failed. The message has its traceback."""

    def __init__(self, text: str, record: JobRecord) -> None:
        super().__init__(text)
        self.record = record
        """The record of the job."""


class JobSkipped(ActorflowError):
    """The result of a job was asked for, and the job was never run: the message says why."""

    def __init__(self, text: str, record: JobRecord) -> None:
        super().__init__(text)
        self.record = record
        """The record of the job."""


class PlanFailed(ActorflowError):
    """A job of a plan has failed, or no worker could be started; `result` has the finished jobs."""

    def __init__(self, text: str, result: object) -> None:
        super().__init__(text)
        self.result = result
        """The result of the plan, as far as it came: a `PlanResult`."""


class ResultTooLarge(ActorflowError):
    """A job has returned more than a store takes, and its plan has no folder for large results."""
