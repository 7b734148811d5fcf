"""Which jobs wait for a worker, by environment and language, and which are out."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["AgentJob", "AgentQueue", "Jobs"]


class AgentQueue(NamedTuple):
    """Where workers look for jobs."""

    env: str
    lang: str


@dataclass(frozen=True, slots=True, eq=False)
class AgentJob:
    """A decision or a task, for one attempt."""

    uuid: str
    """What a worker names it by."""
    queue: AgentQueue
    lease: float
    """Seconds that a worker has for its next request about it."""
    task: str
    """The id of the engine's task behind it."""
    execution: str
    attempts: int
    """How often it was begun before."""
    answer: dict[str, Any]
    """The description of the job that a worker gets."""
    is_decision: bool = False
    was_out: bool = False
    """Whether another attempt at the same task was handed out before."""


class Jobs:
    """The jobs of an agent. Not thread-safe; every operation is O(1).

    There is at most one job for a task: a later one replaces it, wherever it is.
    """

    def __init__(self) -> None:
        self._waiting: dict[AgentQueue, OrderedDict[str, AgentJob]] = {}
        self._out: set[str] = set()
        self._by_uuid: dict[str, AgentJob] = {}
        self._by_task: dict[str, AgentJob] = {}

    def __len__(self) -> int:
        return len(self._by_task)

    def add(self, job: AgentJob) -> None:
        """Queue a job for a worker, behind the others of its queue."""
        self.remove(job.task)
        self._by_task[job.task] = self._by_uuid[job.uuid] = job
        self._waiting.setdefault(job.queue, OrderedDict())[job.uuid] = job

    def take(self, queue: AgentQueue) -> AgentJob | None:
        """Hand out the job that has waited longest; `None` if the queue is empty."""
        waiting = self._waiting.get(queue)
        if not waiting:
            return None
        uuid, job = waiting.popitem(last=False)
        if not waiting:
            del self._waiting[queue]
        self._out.add(uuid)
        return job

    def claim(self, job: AgentJob) -> None:
        """Hand out this job, whether it waits or is not here yet."""
        if self._by_uuid.get(job.uuid) is not job:
            self.add(job)
        if job.uuid not in self._out:
            self._unqueue(job)
            self._out.add(job.uuid)

    def waits(self, queue: AgentQueue) -> bool:
        """Return whether a job waits there."""
        return queue in self._waiting

    def find(self, uuid: str) -> AgentJob | None:
        """Return a job, whether it waits or is out."""
        return self._by_uuid.get(uuid)

    def is_out(self, uuid: str) -> bool:
        """Return whether a worker has a job."""
        return uuid in self._out

    def remove(self, task: str) -> AgentJob | None:
        """Forget the job of a task; return it if there was one."""
        job = self._by_task.pop(task, None)
        if job is None:
            return None
        del self._by_uuid[job.uuid]
        if job.uuid in self._out:
            self._out.discard(job.uuid)
        else:
            self._unqueue(job)
        return job

    def _unqueue(self, job: AgentJob) -> None:
        waiting = self._waiting[job.queue]
        del waiting[job.uuid]
        if not waiting:
            del self._waiting[job.queue]

    def check(self) -> None:
        """Raise AssertionError where the parts do not fit each other."""
        waiting = [uuid for queue in self._waiting.values() for uuid in queue]
        assert all(self._waiting.values()), "an empty queue is kept"  # noqa: S101 - a check
        assert {*waiting, *self._out} == set(self._by_uuid)  # noqa: S101 - a check
        assert len(waiting) + len(self._out) == len(self._by_task)  # noqa: S101 - a check
        assert set(self._by_uuid.values()) == set(self._by_task.values())  # noqa: S101 - a check
