"""The priority queue of a plan, keyed by how many upstream jobs are unfinished (T10). Pure.

Only jobs with the key 0 may leave it: those of a higher priority first, then in the order in which
they came to 0 (A12). A job that is pushed back goes behind the others of its priority (T17).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Mapping

__all__ = ["JobQueue"]

_OUT = -1


class JobQueue:
    """Jobs by the number of unfinished jobs before each.

    Args:
        keys: for each job, how many jobs come directly before it; the queue changes it.
        priorities: of the jobs whose priority is not 0; a higher number comes first.

    Every method costs O(1), but for `list0`, `rows`, and `remove` of a job with the key 0.

    >>> from array import array
    >>> queue = JobQueue(array("i", [0, 1, 1]))
    >>> queue.peek0(), queue.pop0(), queue.pop0()
    (0, 0, None)
    >>> queue.decrease(2), queue.pop0()
    (True, 2)
    """

    __slots__ = ("_buckets", "_keys", "_length", "_order", "_priorities")

    def __init__(self, keys: array[int], priorities: Mapping[int, int] | None = None) -> None:
        self._keys = keys
        self._priorities = {} if priorities is None else dict(priorities)
        self._buckets: dict[int, deque[int]] = {}
        self._order: list[int] = []  # negative priorities of the buckets that are not empty
        self._length = len(keys)
        for job, key in enumerate(keys):
            if not key:
                self._append(job)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, job: int) -> bool:
        return 0 <= job < len(self._keys) and self._keys[job] != _OUT

    def key(self, job: int) -> int:
        """Return how many jobs before this one are unfinished.

        Raises:
            KeyError: it is not in the queue.

        """
        if job not in self:
            raise KeyError(job)
        return self._keys[job]

    def push(self, job: int, key: int = 0, priority: int = 0) -> None:
        """Add a job, also one that has left; with the key 0 behind its equals.

        Raises:
            ValueError: it is in the queue.

        """
        if job in self:
            msg = f"job {job} is in the queue already, with the key {self._keys[job]}"
            raise ValueError(msg)
        if job >= len(self._keys):
            self._keys.extend([_OUT] * (job + 1 - len(self._keys)))
        if priority:
            self._priorities[job] = priority
        self._keys[job] = key
        self._length += 1
        if not key:
            self._append(job)

    def restore(self, job: int) -> None:
        """Put a job back that `pop0` has just returned: in front of its equals."""
        self._keys[job] = 0
        self._length += 1
        self._bucket(job).appendleft(job)

    def decrease(self, job: int) -> bool:
        """Lower the key of a job by one; return whether it is 0 now.

        A job that is not in the queue, or at 0, is left alone.
        """
        key = self._keys[job]
        if key > 1:
            self._keys[job] = key - 1
            return False
        if key == 1:
            self._keys[job] = 0
            self._append(job)
            return True
        return False

    def peek0(self) -> int | None:
        """Return the job that `pop0` would return."""
        return self._buckets[self._order[0]][0] if self._order else None

    def pop0(self) -> int | None:
        """Remove and return the first job with the key 0, or `None`."""
        if not self._order:
            return None
        first = self._order[0]
        bucket = self._buckets[first]
        job = bucket.popleft()
        if not bucket:
            del self._buckets[first], self._order[0]
        self._keys[job] = _OUT
        self._length -= 1
        return job

    def list0(self) -> list[int]:
        """Return the jobs with the key 0, first to last."""
        return [job for first in self._order for job in self._buckets[first]]

    def remove(self, job: int) -> bool:
        """Remove a job, whatever its key; return whether it was there."""
        if job not in self:
            return False
        if not self._keys[job]:
            first = -self._priorities.get(job, 0)
            bucket = self._buckets[first]
            bucket.remove(job)
            if not bucket:
                del self._buckets[first]
                self._order.remove(first)
        self._keys[job] = _OUT
        self._length -= 1
        return True

    def clear(self) -> list[int]:
        """Remove all jobs; return them by number."""
        jobs = [job for job, key in enumerate(self._keys) if key != _OUT]
        for job in jobs:
            self._keys[job] = _OUT
        self._buckets.clear()
        self._order.clear()
        self._length = 0
        return jobs

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Yield (job, key, priority) of every job: those with the key 0 first and in their order.

        The rest follows by key, then priority, then number.
        """
        priorities = self._priorities
        for job in self.list0():
            yield job, 0, priorities.get(job, 0)
        rest = [job for job, key in enumerate(self._keys) if key > 0]
        rest.sort(key=lambda job: (self._keys[job], -priorities.get(job, 0)))
        for job in rest:
            yield job, self._keys[job], priorities.get(job, 0)

    def check(self) -> None:
        """Raise AssertionError if the parts contradict each other."""
        listed = self.list0()
        at_0 = [job for job, key in enumerate(self._keys) if not key]
        assert sorted(listed) == at_0, (listed, at_0)  # noqa: S101 - an invariant, for tests
        assert self._order == sorted(self._buckets), self._order  # noqa: S101
        assert all(self._buckets.values()), self._buckets  # noqa: S101
        assert self._length == sum(key != _OUT for key in self._keys)  # noqa: S101

    def _append(self, job: int) -> None:
        self._bucket(job).append(job)

    def _bucket(self, job: int) -> deque[int]:
        first = -self._priorities.get(job, 0)
        bucket = self._buckets.get(first)
        if bucket is None:
            bucket = self._buckets[first] = deque()
            insort(self._order, first)
        return bucket
