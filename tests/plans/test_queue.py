"""The priority queue: the cases of the R package, and a naive model."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actorflow.plans.graph import Graph
from actorflow.plans.queue import JobQueue


def queue_of(*keys: int, **priorities: int) -> JobQueue:
    return JobQueue(array("i", keys), {int(job[1:]): each for job, each in priorities.items()})


def test_t10_an_empty_queue_has_no_rows() -> None:
    queue = queue_of()
    assert list(queue.rows()) == []
    assert len(queue) == 0
    assert queue.peek0() is None
    assert queue.pop0() is None
    assert queue.list0() == []


def test_t10_rows_have_three_columns_sorted_by_key_and_priority() -> None:
    queue = queue_of(2, 0, 1, 1, 0, _3=7, _4=1)
    assert list(queue.rows()) == [(4, 0, 1), (1, 0, 0), (3, 1, 7), (2, 1, 0), (0, 2, 0)]


def test_t18_peek0_and_pop0_see_only_jobs_with_the_key_0() -> None:
    queue = queue_of(1, 0, 0)
    assert queue.list0() == [1, 2]
    assert queue.peek0() == 1
    assert queue.pop0() == 1
    assert queue.pop0() == 2
    assert queue.peek0() is None
    assert queue.pop0() is None
    assert len(queue) == 1


def test_t14_a_finished_job_decreases_the_keys_of_those_directly_after_it() -> None:
    graph = Graph(4, [0, 0, 1, 2], [1, 2, 3, 3])
    queue = JobQueue(graph.keys())
    assert queue.pop0() == 0
    assert [queue.decrease(job) for job in graph.after(0)] == [True, True]
    assert queue.list0() == [1, 2]
    assert [queue.decrease(job) for job in graph.after(1)] == [False]
    assert queue.key(3) == 1


def test_remove_is_idempotent_and_takes_any_key() -> None:
    queue = queue_of(0, 3)
    assert [queue.remove(1), queue.remove(1), queue.remove(0), queue.remove(0)] == [
        True,
        False,
        True,
        False,
    ]
    assert not queue.remove(17)
    with pytest.raises(KeyError):
        queue.key(0)


def test_decrease_leaves_alone_what_is_at_0_or_gone() -> None:
    queue = queue_of(0, 1)
    assert not queue.decrease(0)
    queue.remove(1)
    assert not queue.decrease(1)
    assert queue.list0() == [0]


def test_t17_what_is_pushed_back_goes_behind_the_others_with_the_key_0() -> None:
    queue = queue_of(0, 0, 0)
    first = queue.pop0()
    assert first == 0
    queue.push(first)
    assert queue.list0() == [1, 2, 0]


def test_a12_a_higher_priority_comes_first_and_equals_in_order() -> None:
    queue = queue_of(0, 0, 0, 0, _2=5, _3=-1)
    queue.push(9, 0, 5)
    assert queue.list0() == [2, 9, 0, 1, 3]


def test_a_job_is_not_pushed_twice() -> None:
    queue = queue_of(2)
    with pytest.raises(ValueError, match="job 0 is in the queue already, with the key 2"):
        queue.push(0)


class Against(RuleBasedStateMachine):
    """The queue against a list of [job, key, priority, arrival at 0]."""

    @initialize(
        keys=st.lists(st.integers(0, 3), max_size=8),
        priorities=st.dictionaries(st.integers(0, 7), st.integers(-1, 1)),
    )
    def begin(self, keys: list[int], priorities: dict[int, int]) -> None:
        self.queue = JobQueue(array("i", keys), priorities)
        self.priorities = dict(priorities)
        self.clock = 0
        self.model: dict[int, list[int]] = {}
        for job, key in enumerate(keys):
            self.model[job] = [key, self.tick()]
        self.popped: int | None = None

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def ready(self) -> list[int]:
        ready = [job for job, (key, _) in self.model.items() if not key]
        return sorted(ready, key=lambda job: (-self.priorities.get(job, 0), self.model[job][1]))

    @rule(job=st.integers(0, 9), key=st.integers(0, 3), priority=st.integers(-1, 1))
    def push(self, job: int, key: int, priority: int) -> None:
        if job in self.model:
            return
        if priority:
            self.priorities[job] = priority
        self.queue.push(job, key, priority)
        self.model[job] = [key, self.tick()]
        self.popped = None

    @rule(job=st.integers(0, 9))
    def decrease(self, job: int) -> None:
        if job not in self.model:
            return
        row = self.model[job]
        expected = row[0] == 1
        assert self.queue.decrease(job) == expected
        if row[0]:
            row[0] -= 1
            if expected:
                row[1] = self.tick()
        self.popped = None

    @rule(job=st.integers(0, 9))
    def remove(self, job: int) -> None:
        assert self.queue.remove(job) == (self.model.pop(job, None) is not None)
        self.popped = None

    @rule()
    def pop(self) -> None:
        ready = self.ready()
        self.popped = self.queue.pop0()
        assert self.popped == (ready[0] if ready else None)
        if self.popped is not None:
            del self.model[self.popped]

    @precondition(lambda self: self.popped is not None)
    @rule()
    def restore(self) -> None:
        assert self.popped is not None
        self.queue.restore(self.popped)
        self.model[self.popped] = [0, -self.tick()]
        self.popped = None

    @rule()
    def clear(self) -> None:
        assert self.queue.clear() == sorted(self.model)
        self.model.clear()
        self.popped = None

    @invariant()
    def agrees(self) -> None:
        self.queue.check()
        assert self.queue.list0() == self.ready()
        assert len(self.queue) == len(self.model)
        assert {job: key for job, key, _ in self.queue.rows()} == {
            job: key for job, (key, _) in self.model.items()
        }


TestAgainstAModel = Against.TestCase
