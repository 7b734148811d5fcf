"""Which jobs wait for a worker, by environment and language, and which are out."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Job", "Jobs", "Queue"]


class Queue(NamedTuple):
    """Where workers look for jobs."""

    env: str
    lang: str


@dataclass(frozen=True, slots=True)
class Job:
    """A decision or a task, for one attempt."""

    uuid: str
    """What a worker names it by."""
    queue: Queue
    task: str
    """The id of the engine's task behind it."""
    execution: str
    attempts: int
    """How often it was begun before."""
    answer: dict[str, Any]
    """What a worker is told of it."""
    is_decision: bool = False


class Jobs:
    """The jobs of an agent. Not thread-safe; every operation is O(1).

    There is at most one job for a task: a later one replaces it, wherever it is.
    """

    def __init__(self) -> None:
        self._waiting: dict[Queue, OrderedDict[str, Job]] = {}
        self._out: dict[str, Job] = {}
        self._by_task: dict[str, Job] = {}

    def __len__(self) -> int:
        return len(self._by_task)

    def add(self, job: Job) -> None:
        """Let a job wait for a worker, behind the others of its queue."""
        self.remove(job.task)
        self._by_task[job.task] = job
        self._waiting.setdefault(job.queue, OrderedDict())[job.uuid] = job

    def take(self, queue: Queue) -> Job | None:
        """Hand out the job that has waited longest; `None` if there is none."""
        waiting = self._waiting.get(queue)
        if not waiting:
            return None
        uuid, job = waiting.popitem(last=False)
        if not waiting:
            del self._waiting[queue]
        self._out[uuid] = job
        return job

    def waits(self, queue: Queue) -> bool:
        """Return whether a job waits there."""
        return queue in self._waiting

    def find(self, uuid: str) -> Job | None:
        """Return a job that is out."""
        return self._out.get(uuid)

    def remove(self, task: str) -> Job | None:
        """Forget the job of a task; return it if there was one."""
        job = self._by_task.pop(task, None)
        if job is not None and self._out.pop(job.uuid, None) is None:
            waiting = self._waiting[job.queue]
            del waiting[job.uuid]
            if not waiting:
                del self._waiting[job.queue]
        return job

    def check(self) -> None:
        """Raise AssertionError where the parts do not fit each other."""
        parts = [self._out, *self._waiting.values()]
        held = [job for part in parts for job in part.values()]
        assert all(self._waiting.values()), "an empty queue is kept"  # noqa: S101 - a check
        assert {job.task: job for job in held} == self._by_task  # noqa: S101 - a check
        assert len(held) == len(self._by_task)  # noqa: S101 - a check
