"""Jobs by environment and language, against a naive model."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from actorflow.workflows.agent.jobs import AgentJob, AgentQueue, Jobs

QUEUES = [AgentQueue(env, lang) for env in ("dev", "prod") for lang in ("javascript", "php")]
queues = st.sampled_from(QUEUES)
tasks = st.sampled_from("abcdef")


def job(queue: AgentQueue, task: str, number: int) -> AgentJob:
    return AgentJob(f"{task}-{number}", queue, 60.0, task, "i", number, {"name": task})


class JobsMachine(RuleBasedStateMachine):
    """The model is a list of jobs, each with whether it is out."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = Jobs()
        self.model: list[tuple[AgentJob, bool]] = []
        self.number = 0

    @rule(queue=queues, task=tasks)
    def add(self, queue: AgentQueue, task: str) -> None:
        self.number += 1
        added = job(queue, task, self.number)
        self.jobs.add(added)
        self.model = [each for each in self.model if each[0].task != task]
        self.model.append((added, False))

    @rule(queue=queues)
    def take(self, queue: AgentQueue) -> None:
        waiting = [each for each, out in self.model if each.queue == queue and not out]
        expected = waiting[0] if waiting else None
        assert self.jobs.waits(queue) == bool(waiting)
        assert self.jobs.take(queue) is expected
        self.model = [(each, out or each is expected) for each, out in self.model]

    @rule(queue=queues, task=tasks, new=st.booleans())
    def claim(self, queue: AgentQueue, task: str, *, new: bool) -> None:
        found = [each for each, _ in self.model if each.task == task]
        if new or not found:
            self.number += 1
            found = [job(queue, task, self.number)]
            self.model = [each for each in self.model if each[0].task != task]
            self.model.append((found[0], False))
        self.jobs.claim(found[0])
        self.model = [(each, out or each is found[0]) for each, out in self.model]

    @rule(task=tasks)
    def remove(self, task: str) -> None:
        found = [each for each, _ in self.model if each.task == task]
        assert self.jobs.remove(task) is (found[0] if found else None)
        self.model = [each for each in self.model if each[0].task != task]

    @invariant()
    def fits(self) -> None:
        self.jobs.check()
        assert len(self.jobs) == len(self.model)
        for each, out in self.model:
            assert self.jobs.find(each.uuid) is each
            assert self.jobs.is_out(each.uuid) == out


TestJobs = JobsMachine.TestCase


def test_z51_each_language_of_each_environment_has_its_own_queue() -> None:
    jobs = Jobs()
    for number, queue in enumerate(QUEUES):
        jobs.add(job(queue, f"task {number}", number))
    taken = [jobs.take(queue) for queue in QUEUES]
    assert [each and each.queue for each in taken] == QUEUES
    assert all(jobs.take(queue) is None for queue in QUEUES)
