"""The page of things that need attention: each concern, from the figures of real engines."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.api.cli.connect import reach
from actorflow.api.pages.content.attention import attention, overview
from actorflow.api.pages.content.execution import execution
from actorflow.api.pages.content.page_request import PageRequest
from actorflow.api.pages.content.samples import Samples
from actorflow.api.pages.content.workers import worker, workers
from actorflow.api.verbs.table import Verbs
from tests.api.browser import until
from tests.api.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Clock:
    """The time of the samples."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def engine() -> Iterator[af.Engine]:
    with af.Engine(":memory:") as engine:
        engine.register(Ledger())
        yield engine


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def page_request(engine: af.Engine, clock: Clock) -> PageRequest:
    return PageRequest(Verbs(engine), {}, Samples(clock))


pytestmark = pytest.mark.usefixtures("only_own_workers")


def titles(page_request: PageRequest) -> list[str]:
    return [each.title for each in attention(page_request)["concerns"]]


def concern(page_request: PageRequest, word: str) -> Any:
    (found,) = (each for each in attention(page_request)["concerns"] if word in each.title)
    return found


def test_nothing_needs_attention_in_an_engine_without_problems(page_request: PageRequest) -> None:
    assert titles(page_request) == []


def test_a_burst_that_is_worked_off_is_no_growth(page_request: PageRequest, clock: Clock) -> None:
    with af.spawn(lambda _rows, _state: None, name="bursts") as bursts:
        for burst in (300, 0, 200):
            bursts.pause()
            for row in range(burst):
                bursts.push(row)
            assert titles(page_request) == []
            clock.now += 10.0
            bursts.resume()
            bursts.push_block("last")


def test_a_worker_that_gets_more_than_it_can_do_is_growing(
    page_request: PageRequest, clock: Clock
) -> None:
    go_on = threading.Event()
    with af.spawn(lambda _rows, _state: go_on.wait() and None, name="slow") as slow:
        slow.push(0)
        titles(page_request)
        for row in range(300):
            slow.push(row)
        clock.now += 10.0
        found = concern(page_request, "slow")
        assert found.title == "slow is growing: 300 messages wait"
        assert found.text == "It accepts 30.0/s and processes 0.0/s."
        (row,) = (each for each in workers(page_request)["rows"] if each["name"] == "slow")
        assert (row["held"], row["in_flight"], row["drain"]) == (300, 1, None)
        go_on.set()


def test_a_workflow_is_shown_without_its_class_and_without_an_engine(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "s.db") as engine:
        engine.workflows.register(Waiting)
        order = engine.start(Waiting(), id="w-1")
        order.send("hello")
        until(lambda: order.query().kept)
    with reach(str(tmp_path / "s.db")) as verbs:
        view = verbs.execution("w-1")["view"]
        page = execution(PageRequest(verbs, {"id": "w-1"}, Samples()))
    assert view["workflow_name"] == "Waiting"
    assert [each["event"] for each in view["waits"]] == ["paid"]
    assert [each["name"] for each in page["bars"]] == ["Wait (0/0.0)"]
    assert [each["name"] for each in page["kept"]] == ["hello"]
    assert page["source"] == []


class Waiting(af.Workflow[None]):
    def handle(self) -> None:
        self.wait("paid")


def test_the_page_of_a_worker_has_its_rates(page_request: PageRequest, clock: Clock) -> None:
    with af.spawn(lambda rows, total: total + len(rows), state=0, name="quick") as quick:
        titles(page_request)
        for row in range(50):
            quick.push_block(row)
        clock.now += 10.0
        page = worker(page_request._replace(query={"name": "quick"}))
    assert page["worker"]["rate"] == 5.0
    assert sum(each["value"] for each in page["reasons"]) == 50
    assert page["charts"][1]["series"][1]["values"] == [5.0]
    assert page["charts"][1]["series"][1]["at"] == [1_010.0]


def test_a_parked_worker_can_be_resumed(engine: af.Engine, page_request: PageRequest) -> None:
    def fail(_rows: list[int], _state: None) -> None:
        raise ValueError("no disk")

    breaker = af.Breaker(failures=1, within=60.0)
    tree = af.Supervisor([af.Worker("disk", fail, breaker=breaker)], max_restarts=9).start()
    try:
        tree.worker("disk").push(1)
        until(lambda: any("is parked" in each for each in titles(page_request)))
        found = concern(page_request, "is parked")
        assert found.post == "resume-worker"
        (name,) = (name for field, name in found.fields if field == "worker")
        Verbs(engine).resume_worker(name)
    finally:
        tree.stop()


def test_a_supervisor_about_to_give_up_is_named(page_request: PageRequest) -> None:
    def fail(_rows: list[int], _state: None) -> None:
        raise ValueError("no disk")

    tree = af.Supervisor(
        [af.Worker("disk", fail)], max_restarts=1, within=600.0, name="top"
    ).start()
    try:
        tree.worker("disk").push(1)
        until(lambda: any("'top' is about to give up" in each for each in titles(page_request)))
    finally:
        tree.stop()


def test_failures_are_counted_by_their_cause(engine: af.Engine, page_request: PageRequest) -> None:
    for number in range(3):
        engine.start("ledger", {"raise": f"order {number} is broken"}, id=f"order-{number}")
    until(lambda: sum(each["count"] for each in Verbs(engine).errors()["dead"]) == 3)
    found = concern(page_request, "dead letter")
    assert found.title == "3 dead letters: ValueError: order # is broken"
    assert found.button == "Retry 3 messages"
    assert [field for field, _ in found.fields] == ["letter"] * 3
    assert overview(page_request)["figures"]["dead letters"] == "3"


def test_a_store_without_an_engine_says_so(tmp_path: Path, clock: Clock) -> None:
    with af.Engine(tmp_path / "s.db") as engine:
        engine.register(Ledger())
        engine.start("ledger", {"later": 1.0}, id="a")
        engine.start("ledger", id="b")
    with reach(str(tmp_path / "s.db")) as verbs:
        page = attention(PageRequest(verbs, {}, Samples(clock)))
        rows = workers(PageRequest(verbs, {}, Samples(clock)))
    assert "No engine runs on this store" in [each.title for each in page["concerns"]]
    assert rows["rows"] == []
    assert not rows["alive"]
