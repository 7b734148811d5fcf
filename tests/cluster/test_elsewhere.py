"""C21, C22: operations on an execution that another engine runs."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import Cancelled, ExecutionEnded
from actorflow.engine.stores.postgres.notices import Followed, decode_notice, follow_notice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.workflows.service.handle import WorkflowHandle
    from tests.servers import Nats, Postgres

PATIENCE = 60.0


class Counter(af.Workflow[int]):
    """Counts until it is stopped."""

    def __init__(self) -> None:
        self.count = 0

    def handle(self) -> int:
        self.wait("stop")
        return self.count

    def on_event(self, event: Any) -> int | None:
        if event.name != "add":
            return None
        self.count += event.data["n"]
        self.publish(self.count)
        return self.count


def append(batch: list[int], state: list[int]) -> list[int]:
    if 13 in batch:
        msg = "13 is not wanted"
        raise ValueError(msg)
    return state + batch


@pytest.fixture(params=["postgres", "nats"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Return what names a store that is empty, on each carrier in turn.

    No engine polls before the test is over: notifications must be enough.
    """
    if request.param == "nats":
        broker: Nats = request.getfixturevalue("nats")
        return broker.new_url()
    server: Postgres = request.getfixturevalue("postgres")
    return server.empty_url("elsewhere", poll=600)


class Pair:
    """An engine that runs everything, and another one that runs nothing, whose `ledger` this is."""

    def __init__(self, stack: ExitStack, url: str, **options: Any) -> None:
        self.go = threading.Event()
        self._stack, self._url = stack, url
        self.owner = self._opened()
        self.owner.resume()
        self.other = self._opened(**options)
        stack.callback(self.go.set)

    def _opened(self, **options: Any) -> af.Engine:
        engine = self._stack.enter_context(af.Engine(self._url, **options))
        engine.workflows.register(Counter)
        self.ledger = engine.worker("ledger", append, state=[])
        engine.tasker("alice", self._work)
        return engine

    def _work(self, task: Any) -> dict[str, Any]:
        assert self.go.wait(PATIENCE)
        return {**task.payload, "seen": True}


@pytest.fixture
def pair(store_url: str) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack, store_url, worker=False)


def started(engine: af.Engine) -> WorkflowHandle[int]:
    return engine.start(Counter(), id="counter")


# Flows.


@pytest.mark.timeout(120)
def test_c21_a_point_of_a_flow_that_runs_elsewhere_is_waited_for(pair: Pair) -> None:
    exid = pair.other.launch("sequence\n  task 'alice'\n  task 'alice'", payload={})
    found = pair.other.flows.wait_for(exid, "0_0 task:alice", timeout=PATIENCE)
    assert found["tasker"] == "alice"
    pair.go.set()
    pair.other.flows.wait_for(exid, "0_1 task:alice; terminated", timeout=PATIENCE)
    assert pair.other.wait(exid, timeout=PATIENCE).status == "done"
    assert pair.other.result(exid)["seen"] is True


@pytest.mark.timeout(120)
def test_c21_what_runs_elsewhere_is_waited_for_and_cancelled(pair: Pair) -> None:
    exid = pair.other.launch("task 'alice'", payload={})
    pair.other.flows.wait_for(exid, "task:alice", timeout=PATIENCE)
    ends: list[Any] = []
    waiting = threading.Thread(target=lambda: ends.append(pair.other.wait(exid, PATIENCE).status))
    waiting.start()
    assert pair.other.cancel(exid) is True
    waiting.join(PATIENCE)
    assert ends == ["cancelled"]
    with pytest.raises(Cancelled):
        pair.other.result(exid, timeout=PATIENCE)
    assert pair.owner.wait(exid, timeout=PATIENCE).status == "cancelled"


# Workflows.


@pytest.mark.timeout(120)
def test_c21_a_workflow_elsewhere_answers_and_is_queried_and_followed(pair: Pair) -> None:
    handle = started(pair.other)
    assert [handle.ask("add", n=n, timeout=PATIENCE) for n in (1, 2, 3)] == [1, 3, 6]
    assert handle.query().properties["count"] == 6
    values = handle.follow(timeout=PATIENCE)
    assert [next(values) for _ in range(3)] == [1, 3, 6]
    pair.owner.workflows.get(Counter, "counter").send("add", n=4)
    assert next(values) == 10
    handle.send("stop")
    assert handle.result(timeout=PATIENCE) == 10
    assert list(values) == []


@pytest.mark.timeout(120)
def test_c21_a_question_that_nobody_answers_any_more_is_refused(pair: Pair) -> None:
    handle = started(pair.other)
    handle.send("stop")
    handle.result(timeout=PATIENCE)
    with pytest.raises(ExecutionEnded):
        handle.ask("add", n=1, timeout=PATIENCE)


# Durable workers.


@pytest.mark.timeout(120)
def test_c21_push_block_waits_for_the_state_that_another_engine_stores(pair: Pair) -> None:
    ref = pair.ledger
    for number in range(3):
        ref.push_block(number, timeout=PATIENCE)
        assert ref.state() == list(range(number + 1))


@pytest.mark.timeout(120)
def test_c21_push_block_raises_what_the_job_of_another_engine_raised(pair: Pair) -> None:
    ref = pair.ledger
    with pytest.raises(Exception, match="13 is not wanted"):
        ref.push_block(13, timeout=PATIENCE)
    ref.push_block(1, timeout=PATIENCE)
    assert ref.state() == [1]


# Notifications on Postgres.


def test_c22_executions_are_followed_for_a_minute() -> None:
    now = [0.0]
    followed = Followed(60.0, lambda: now[0])
    assert not followed
    notice = decode_notice(follow_notice("7f3c", "order-7"))
    assert (notice.sender, notice.followed, notice.executions) == ("7f3c", "order-7", ())
    followed.add("order-7")
    assert followed.among(["order-6", "order-7"]) == ["order-7"]
    now[0] = 59.9
    followed.add("order-8")
    assert followed.among(["order-7", "order-8"]) == ["order-7", "order-8"]
    now[0] = 60.0
    assert followed.among(["order-7", "order-8"]) == ["order-8"]
