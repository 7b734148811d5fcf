"""Jobs whose worker is gone or slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.errors import BadOption
from actorflow.workflows.errors import InvalidStep
from actorflow.workflows.remote import LEASE
from tests.engine.kinds import until
from tests.workflows.agent.orders import ORDER, ended, refused, start, statuses, waits
from tests.workflows.agent.worker import PATIENCE, Agency, Worker

if TYPE_CHECKING:
    from actorflow.testing import VirtualClock


def test_r24_a_task_starts_when_it_is_handed_out(engine: af.Engine, agency: Agency) -> None:
    handle, worker = start(engine, agency)
    worker.decide(agency.job())
    until(engine, lambda: statuses(handle))
    assert handle.query().state.executions == [0]
    name = agency.job()["name"]
    until(engine, lambda: len(handle.query().state.branches) == 2)
    assert handle.query().state.branches[1].task_name == name


def test_r24_a_decision_comes_back_under_another_uuid_when_its_worker_dies(
    engine: af.Engine, agency: Agency, clock: VirtualClock
) -> None:
    handle, worker = start(engine, agency)
    lost = agency.job()
    agency.next_branch(lost["uuid"])
    assert agency.job(wait=0) == {"action": "None"}
    clock.advance(LEASE + 1)
    again = agency.job()
    assert again["action"] == "DecisionScheduled"
    assert again["uuid"] != lost["uuid"]
    refused(410, agency.next_branch, lost["uuid"])
    refused(410, agency.finish_branch, lost["uuid"], {"properties": {}})
    refused(410, agency.execute, lost["uuid"], [])
    refused(410, agency.error, lost["uuid"], {})
    worker.decide(again)
    until(engine, lambda: statuses(handle) == ["charge", "reserve"])


def test_r24_requests_about_a_decision_renew_its_lease(
    engine: af.Engine, agency: Agency, clock: VirtualClock
) -> None:
    start(engine, agency)
    uuid = agency.job()["uuid"]
    for _ in range(3):
        clock.advance(LEASE - 1)
        agency.next_branch(uuid)
    clock.advance(LEASE - 1)
    agency.execute(uuid, [])
    clock.advance(LEASE - 1)
    agency.finish_branch(uuid, {"properties": {}})
    assert agency.next_branch(uuid) == {}


def test_r24_the_lease_is_that_of_the_workflow_or_the_task(
    engine: af.Engine, agency: Agency, clock: VirtualClock
) -> None:
    worker = Worker(agency, {"Order": ORDER})
    order = engine.workflows.remote("Order", lang="test", tasks=["charge"], lease=10.0)
    engine.workflows.remote_tasks("reserve", lang="test", lease=LEASE * 10)
    engine.start(order(order=7, seen=0), id="o")
    lost = agency.job()
    clock.advance(11)
    again = agency.job()
    assert again["uuid"] != lost["uuid"]
    worker.decide(again)
    tasks = worker.next_tasks(2)
    clock.advance(11)
    until(engine, lambda: engine.parts.writer.quiet)
    clock.advance(LEASE * 9)
    assert worker.next_task() == tasks["charge"]
    agency.task(tasks["reserve"]["uuid"], status="running")
    agency.task(tasks["charge"]["uuid"], status="running")


def test_r24_a_lease_is_checked_where_it_is_given(engine: af.Engine) -> None:
    for bad in (0, -1.0, "60", float("inf")):
        given: Any = bad
        with pytest.raises(BadOption, match=r"lease=600.0"):
            engine.workflows.remote("Order", lang="test", lease=given)
        with pytest.raises(BadOption, match=r"lease=600.0"):
            engine.workflows.remote_tasks("charge", lang="test", lease=given)
        with pytest.raises(BadOption, match=r"lease=600.0"):
            af.task(lang="test", lease=given)
    with pytest.raises(InvalidStep, match="only tasks of other languages"):
        af.task(lease=60.0)


def pass_time(engine: af.Engine, clock: VirtualClock) -> None:
    """Let the leases of all that is out run out, and the backoff after."""
    retried = engine.statistics().tasks_retried
    clock.advance(LEASE + 1)
    assert engine.statistics().tasks_retried > retried
    until(engine, lambda: engine.parts.writer.quiet)
    clock.advance(10)


def test_r24_a_task_comes_back_under_the_same_uuid_and_any_answer_is_welcome(
    engine: af.Engine, agency: Agency, clock: VirtualClock
) -> None:
    handle, worker = start(engine, agency)
    tasks = worker.next_tasks(2)
    lost = tasks["charge"]
    agency.task(tasks["reserve"]["uuid"], status="completed", output=3)
    pass_time(engine, clock)
    again = worker.next_task()
    assert again == lost
    agency.task(lost["uuid"], status="completed", output="late, and first")
    refused(410, agency.task, again["uuid"], status="completed", output="second")
    worker.work_until(lambda: waits(handle))
    handle.send("paid")
    worker.work_until(lambda: ended(handle))
    assert handle.result(PATIENCE)[0] == ["late, and first", 3]


def test_r24_a_task_that_takes_long_renews_its_lease(
    engine: af.Engine, agency: Agency, clock: VirtualClock
) -> None:
    _, worker = start(engine, agency)
    task = worker.next_task()
    for _ in range(3):
        clock.advance(LEASE - 1)
        assert agency.task(task["uuid"], status="running") == {}
    agency.task(task["uuid"], status="completed")
    refused(410, agency.task, task["uuid"], status="running")


def test_r24_a_task_that_kills_every_worker_is_given_up(
    engine: af.Engine, agency: Agency, clock: VirtualClock
) -> None:
    handle, worker = start(engine, agency)
    tasks = worker.next_tasks(2)
    charge = tasks["charge"]
    agency.task(tasks["reserve"]["uuid"], status="completed")
    for _ in range(2):
        pass_time(engine, clock)
        assert worker.next_task() == charge
    clock.advance(LEASE + 1)
    worker.work_until(lambda: ended(handle))
    (failed,) = handle.query().failed
    assert (failed.name, failed.error["name"]) == ("charge", "TaskTimeout")
    refused(410, agency.task, charge["uuid"], status="completed")
