"""The scheduler: what it hands out, what becomes of what fails, when it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.plans.graph import Graph
from actorflow.plans.scheduler import Ending, OnFailure, Role, Rules, Scheduler, State

OK, FAILED, CRASHED, CANCELLED = Ending.OK, Ending.FAILED, Ending.CRASHED, Ending.CANCELLED


def graph_of(count: int, *edges: tuple[int, int]) -> Graph:
    return Graph(count, [first for first, _ in edges], [second for _, second in edges])


def everything(scheduler: Scheduler) -> list[int]:
    taken = []
    while (job := scheduler.take()) is not None:
        taken.append(job)
    return taken


def test_t13_an_empty_plan_is_done_at_once() -> None:
    assert Scheduler(graph_of(0)).done


def test_t13_a2_a_plan_is_not_done_while_a_job_is_out() -> None:
    scheduler = Scheduler(graph_of(1))
    assert everything(scheduler) == [0]
    assert not scheduler.done
    assert scheduler.ended(0, OK) is State.DONE
    assert scheduler.done


def test_t14_a_batch_of_completions_releases_all_that_waited_for_it() -> None:
    scheduler = Scheduler(graph_of(4, (0, 2), (1, 2), (1, 3)), places=9)
    assert everything(scheduler) == [0, 1]
    scheduler.ended(0, OK)
    assert everything(scheduler) == []
    scheduler.ended(1, OK)
    assert everything(scheduler) == [2, 3]


def test_a7_all_ready_jobs_leave_in_one_round() -> None:
    scheduler = Scheduler(graph_of(50), places=50)
    assert everything(scheduler) == list(range(50))


def test_t17_a_job_that_failed_goes_behind_the_other_ready_jobs() -> None:
    scheduler = Scheduler(graph_of(3), default=Rules(retries=1), places=1)
    assert scheduler.take() == 0
    assert scheduler.ended(0, FAILED) is State.READY
    assert scheduler.take() == 1
    scheduler.ended(1, OK)
    assert scheduler.take() == 2
    scheduler.ended(2, OK)
    assert scheduler.take() == 0
    assert scheduler.attempts(0) == 1


def test_t20_a6_a_retried_job_keeps_the_plan_open_after_the_queue_was_empty() -> None:
    scheduler = Scheduler(graph_of(1), default=Rules(retries=1))
    scheduler.take()
    assert scheduler.ended(0, FAILED) is State.READY
    assert not scheduler.done
    assert scheduler.take() == 0
    assert scheduler.ended(0, FAILED) is State.FAILED
    assert scheduler.done


def test_a5_crashes_have_their_own_counter() -> None:
    scheduler = Scheduler(graph_of(1), default=Rules(retries=0, crashes_max=2))
    scheduler.take()
    assert scheduler.ended(0, CRASHED) is State.READY
    scheduler.take()
    assert scheduler.ended(0, CRASHED) is State.FAILED
    assert (scheduler.attempts(0), scheduler.crashes(0)) == (2, 2)


def test_a8_stop_lets_what_runs_end_and_begins_nothing_more() -> None:
    scheduler = Scheduler(graph_of(4, (0, 3)), places=2)
    assert everything(scheduler) == [0, 1]
    assert scheduler.ended(0, FAILED) is State.FAILED
    assert everything(scheduler) == []
    assert [scheduler.state(job) for job in (1, 2, 3)] == [State.OUT, State.SKIPPED, State.SKIPPED]
    assert scheduler.blamed == {3: 0}
    assert not scheduler.done
    assert scheduler.ended(1, OK) is State.DONE
    assert scheduler.done


def test_a8_continue_skips_the_descendants_and_runs_the_rest() -> None:
    graph = graph_of(5, (0, 1), (1, 2), (3, 4))
    scheduler = Scheduler(graph, places=9, on_failure=OnFailure.CONTINUE)
    assert everything(scheduler) == [0, 3]
    scheduler.ended(0, FAILED)
    assert scheduler.blamed == {1: 0, 2: 0}
    scheduler.ended(3, OK)
    assert everything(scheduler) == [4]
    scheduler.ended(4, OK)
    assert scheduler.done


def test_a_job_that_is_taken_back_is_skipped() -> None:
    scheduler = Scheduler(graph_of(2, (0, 1)), places=2)
    scheduler.take()
    scheduler.stop()
    assert scheduler.ended(0, CANCELLED) is State.SKIPPED
    assert scheduler.done


def test_a_report_that_comes_twice_does_no_harm() -> None:
    scheduler = Scheduler(graph_of(2, (0, 1)))
    scheduler.take()
    scheduler.ended(0, OK)
    assert scheduler.ended(0, FAILED) is State.DONE
    assert everything(scheduler) == [1]


def test_a12_priorities_decide_among_ready_jobs() -> None:
    scheduler = Scheduler(graph_of(3), rules={2: Rules(priority=1)}, places=9)
    assert everything(scheduler) == [2, 0, 1]


def test_weights_fill_the_places_and_a_heavy_job_goes_alone() -> None:
    scheduler = Scheduler(graph_of(3), rules={0: Rules(weight=2), 1: Rules(weight=9)}, places=3)
    assert everything(scheduler) == [0]  # 1 keeps its turn, so that it comes at all
    scheduler.ended(0, OK)
    assert everything(scheduler) == [1]
    scheduler.ended(1, OK)
    assert everything(scheduler) == [2]


def test_a_job_that_lacks_a_resource_lets_others_pass() -> None:
    gpu = Rules(uses={"gpu": 1})
    scheduler = Scheduler(graph_of(4), rules={0: gpu, 1: gpu, 3: gpu}, places=9, limits={"gpu": 1})
    assert everything(scheduler) == [0, 2]
    scheduler.ended(0, OK)
    assert everything(scheduler) == [1]
    scheduler.ended(1, OK)
    assert everything(scheduler) == [3]


def test_queued_payloads_keep_to_the_budget() -> None:
    scheduler = Scheduler(graph_of(5), places=9, budget=100)
    for job in (0, 1):
        assert scheduler.take() == job
        scheduler.weigh(job, 60)
    assert scheduler.take() is None
    scheduler.ended(0, OK)
    assert scheduler.take() == 2
    scheduler.weigh(2, 10_000)
    assert scheduler.take() is None
    scheduler.ended(1, OK)
    assert scheduler.take() is None
    scheduler.ended(2, OK)
    assert scheduler.take() == 3  # however large: one job is always allowed


def test_a_map_becomes_one_job_for_each_item() -> None:
    scheduler = Scheduler(graph_of(3, (0, 1), (1, 2)), roles={1: Role.MAP}, places=9)
    scheduler.take()
    scheduler.ended(0, OK)
    assert everything(scheduler) == [1]
    assert list(scheduler.expand(1, 2)) == [3, 4]
    assert list(scheduler.children(1)) == [3, 4]
    assert scheduler.origin(4) == (1, 1)
    assert everything(scheduler) == [3, 4]
    scheduler.ended(3, OK)
    scheduler.ended(4, OK)
    assert scheduler.state(1) is State.DONE
    assert everything(scheduler) == [2]


def test_a_map_over_nothing_is_done() -> None:
    scheduler = Scheduler(graph_of(2, (0, 1)), roles={0: Role.MAP})
    scheduler.take()
    assert list(scheduler.expand(0, 0)) == []
    assert everything(scheduler) == [1]


def test_a_map_has_the_jobs_of_its_items_in_the_rules_of_the_map() -> None:
    scheduler = Scheduler(graph_of(1), roles={0: Role.MAP}, rules={0: Rules(retries=1, priority=3)})
    scheduler.take()
    scheduler.expand(0, 1)
    assert scheduler.rules(1) == Rules(retries=1, priority=3)
    scheduler.take()
    assert scheduler.ended(1, FAILED) is State.READY


def test_a_map_of_a_stopped_plan_adds_nothing_to_do() -> None:
    scheduler = Scheduler(graph_of(2), roles={0: Role.MAP}, places=2)
    assert everything(scheduler) == [0, 1]
    scheduler.ended(1, FAILED)
    scheduler.expand(0, 3)
    assert scheduler.done
    assert scheduler.states.count(State.SKIPPED) == 4


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_gather_is_done_when_those_before_it_are(count: int) -> None:
    graph = graph_of(count + 2, *((job, count) for job in range(count)), (count, count + 1))
    scheduler = Scheduler(graph, roles={count: Role.GATHER}, places=9)
    for job in range(count):
        assert scheduler.take() == job
    for job in range(count):
        scheduler.ended(job, OK)
    assert scheduler.state(count) is State.DONE
    assert everything(scheduler) == [count + 1]


# Random graphs, failures, crashes, maps, restarts.


@dataclass
class Case:
    """A random plan, and what its jobs will do."""

    count: int
    edges: list[tuple[int, int]]
    rules: dict[int, Rules]
    roles: dict[int, Role]
    on_failure: OnFailure
    places: int
    seed: int
    handed: dict[int, int] = field(default_factory=dict)
    succeeded: dict[int, int] = field(default_factory=dict)

    def scheduler(self) -> Scheduler:
        return Scheduler(
            graph_of(self.count, *self.edges),
            rules=self.rules,
            roles=self.roles,
            on_failure=self.on_failure,
            places=self.places,
            limits={"gpu": 1},
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(0, 12))
    pairs = [(first, second) for second in range(count) for first in range(second)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    rules = st.builds(
        Rules,
        priority=st.integers(-1, 1),
        retries=st.integers(0, 2),
        crashes_max=st.integers(1, 3),
        weight=st.integers(1, 3),
        uses=st.sampled_from([{}, {"gpu": 1}]),
    )
    jobs = st.integers(0, max(count - 1, 0))
    roles = st.sampled_from([Role.MAP, Role.GATHER])
    return Case(
        count,
        edges,
        draw(st.dictionaries(jobs, rules)) if count else {},
        draw(st.dictionaries(jobs, roles)) if count else {},
        draw(st.sampled_from(OnFailure)),
        draw(st.integers(1, 4)),
        draw(st.integers(0, 2**32)),
    )


@given(cases(), st.floats(0, 0.5), st.sampled_from([0.0, 0.3]))
def test_every_job_that_can_run_runs_once_to_success_and_never_before_its_upstream(
    case: Case, trouble: float, restarts: float
) -> None:
    dice = Random(case.seed)
    scheduler = case.scheduler()
    out: list[int] = []
    before: dict[int, set[int]] = {job: set() for job in range(case.count)}
    for first, second in case.edges:
        before[second].add(first)
    while not scheduler.done:
        for job in everything(scheduler):
            assert all(scheduler.state(each) is State.DONE for each in before.get(job, ()))
            out.append(job)
            case.handed[job] = case.handed.get(job, 0) + 1
            scheduler.weigh(job, dice.randrange(10))
        assert sorted(out) == sorted(scheduler.handed_out())
        weights = [scheduler.rules(job).weight for job in out]
        assert len(out) == 1 or sum(weights) <= case.places
        assert sum(scheduler.rules(job).uses.get("gpu", 0) for job in out) <= 1
        assert out, "nothing is out, and it is not done: it would hang"
        if dice.random() < restarts:  # the scheduler died; its jobs still run
            kept = scheduler.snapshot()
            scheduler = case.scheduler()
            scheduler.restore(kept)
            assert scheduler.snapshot() == kept
        job = out.pop(dice.randrange(len(out)))
        if dice.random() < trouble:
            ending = dice.choice((FAILED, CRASHED))
            bad = scheduler.attempts(job)
            after = scheduler.ended(job, ending)
            assert scheduler.attempts(job) == bad + 1
            rules = scheduler.rules(job)
            final = scheduler.crashes(job) >= rules.crashes_max or (
                scheduler.attempts(job) - scheduler.crashes(job) > rules.retries
            )
            expected = {State.FAILED} if final else {State.READY}
            assert after in (expected if not scheduler.stopped or final else {State.SKIPPED})
        elif scheduler.role(job) is Role.MAP:
            before |= {child: set() for child in scheduler.expand(job, dice.randrange(4))}
        else:
            assert scheduler.ended(job, OK) is State.DONE
            case.succeeded[job] = case.succeeded.get(job, 0) + 1
    assert not out or scheduler.stopped
    assert_all_accounted_for(case, scheduler, before)


def assert_all_accounted_for(case: Case, scheduler: Scheduler, before: dict[int, set[int]]) -> None:
    for job in range(scheduler.graph.count):
        state = scheduler.state(job)
        assert state in (State.DONE, State.FAILED, State.SKIPPED)
        assert case.succeeded.get(job, 0) <= 1
        if state is State.DONE and job in before and not scheduler.stopped:
            assert all(scheduler.state(each) is State.DONE for each in before[job])
        if state is State.SKIPPED and not scheduler.stopped:
            culprit = scheduler.blamed[job]
            assert scheduler.state(culprit) is State.FAILED
    if case.on_failure is OnFailure.CONTINUE:
        assert not scheduler.stopped
