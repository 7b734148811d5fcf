"""The agent on every store, with engines that are closed and opened again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from tests.workflows.agent.orders import ORDER, ended, refused, start, waits
from tests.workflows.agent.worker import PATIENCE, Agency, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from actorflow.testing import VirtualClock
    from tests.servers import Nats, Postgres


@pytest.fixture(params=["sqlite", "postgres", "nats"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    server: Postgres | Nats = request.getfixturevalue(request.param)
    return server.new_url()


@pytest.fixture
def opened(url: str, clock: VirtualClock) -> Iterator[Callable[[], tuple[af.Engine, Agency]]]:
    """Yield what opens another engine on the same store, with an agent that knows the order."""
    engines: list[af.Engine] = []

    def made() -> tuple[af.Engine, Agency]:
        engine = af.Engine(url, clock=clock, durability="off", retention=None)
        engines.append(engine)
        return engine, Agency(engine.serve_agent(port=0))

    yield made
    for engine in engines:
        engine.close()


def test_z66_r24_a_workflow_runs_on_every_store_though_workers_die(
    opened: Any, clock: VirtualClock
) -> None:
    engine, agency = opened()
    handle, worker = start(engine, agency)
    lost = agency.job()
    clock.advance(61)
    worker.decide(agency.job())
    refused(410, agency.next_branch, lost["uuid"])
    worker.work_until(lambda: waits(handle))
    handle.send("paid", amount=5)
    worker.work_until(lambda: ended(handle))
    paid = {"event_name": "paid", "event_input": {"amount": 5}}
    assert handle.result(PATIENCE) == [[{"order": 7}, 3], paid, 1]


def again(opened: Any) -> tuple[Any, Agency, Worker]:
    """Open the store once more; return the order that was begun before."""
    engine, agency = opened()
    order = engine.workflows.remote("Order", lang="test", tasks=["charge", "reserve"])
    return engine.workflows.get(order, "o-7"), agency, Worker(agency, {"Order": ORDER})


@pytest.mark.parametrize("asks", [False, True], ids=["at once", "later"])
def test_r18_a_task_that_was_handed_out_before_a_restart_is_answered_after_it(
    opened: Any,
    asks: bool,  # noqa: FBT001 - a parameter
) -> None:
    engine, agency = opened()
    _, worker = start(engine, agency)
    tasks = worker.next_tasks(2)
    engine.close()
    handle, agency, worker = again(opened)
    if asks:
        assert worker.next_task() in tasks.values()
    agency.task(tasks["charge"]["uuid"], status="running")
    agency.task(tasks["charge"]["uuid"], status="completed", output="first")
    refused(410, agency.task, tasks["charge"]["uuid"], status="completed", output="second")
    agency.task(tasks["reserve"]["uuid"], status="completed", output="other")
    worker.work_until(lambda: waits(handle))
    assert {each["action"] for each in worker.done} <= {"DecisionScheduled", "None"}
    handle.send("paid")
    worker.work_until(lambda: ended(handle))
    assert handle.result(PATIENCE)[0] == ["first", "other"]


def test_r18_a_task_that_was_handed_out_before_a_restart_fails_after_it(opened: Any) -> None:
    engine, agency = opened()
    _, worker = start(engine, agency)
    tasks = worker.next_tasks(2)
    engine.close()
    handle, agency, worker = again(opened)
    agency.task(tasks["charge"]["uuid"], status="failed", error={"name": "CardDeclined"})
    refused(410, agency.task, tasks["charge"]["uuid"], status="running")
    worker.work_until(lambda: ended(handle))
    assert [each.error["name"] for each in handle.query().failed] == ["CardDeclined"]
