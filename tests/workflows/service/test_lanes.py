"""Workflows that begin later: in a lane, or at a moment."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import ExecutionExists, ExecutionFailed
from actorflow.runtime.tickets import ThreadTicket
from actorflow.workflows.errors import InvalidStep
from tests.engine.kinds import flush, rows, until
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from actorflow.testing import VirtualClock

BEGUN: list[str] = []


class Job(af.Workflow[str]):
    """Records that it has begun, and ends on request."""

    def handle(self) -> str:
        """Wait for the end."""
        if self.id not in BEGUN:  # a replay
            BEGUN.append(self.id)
        self.wait("end")
        return str(self.id)


class Listener(af.Workflow[list[str]]):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def handle(self) -> list[str]:
        """Take one event."""
        self.wait("paid")
        return self.heard

    def on_event(self, event: af.Event) -> int:
        """Note it."""
        self.heard.append(event.name)
        return len(self.heard)


@pytest.fixture(autouse=True)
def _none_begun() -> None:
    BEGUN.clear()


def lane(engine: af.Engine, key: str = "c") -> Any:
    return engine.execution(f"lane:{key}").view


def test_starts_wait_in_order_while_others_run(engine: af.Engine) -> None:
    jobs = [engine.start(Job(), id=f"j{n}", lane=af.Lane("c", concurrency=2)) for n in range(4)]
    until(engine, lambda: [each.query().held for each in jobs] == [False, False, True, True])
    until(engine, lambda: lane(engine).waiting == ["j2", "j3"])
    assert lane(engine).running == ["j0", "j1"]
    jobs[1].send("end")
    assert jobs[1].result(PATIENCE) == "j1"
    until(engine, lambda: len(BEGUN) == 3)
    for each in (jobs[0], jobs[2], jobs[3]):
        each.send("end")
        each.result(PATIENCE)
    assert BEGUN[2:] == ["j2", "j3"]
    until(engine, lambda: lane(engine).running == [])
    until(engine, lambda: rows(engine, "messages") == [])
    assert rows(engine, "dead") == rows(engine, "timers") == []


def test_urgent_starts_begin_first(engine: af.Engine) -> None:
    first = engine.start(Job(), id="first", lane=af.Lane("c", concurrency=1))
    for name, priority in (("low", 0), ("high", 5), ("middle", 3)):
        engine.start(Job(), id=name, lane=af.Lane("c", priority=priority)).send("end")
    first.send("end")
    for name in ("low", "middle", "high"):
        engine.result(name, PATIENCE)
    assert BEGUN == ["first", "high", "middle", "low"]


def test_a_rate_counts_starts_not_ends(engine: af.Engine, clock: VirtualClock) -> None:
    jobs = [engine.start(Job(), id=f"j{n}", lane=af.Lane("c", rate=(2, 30))) for n in range(5)]
    until(engine, lambda: len(BEGUN) == 2)
    for each in jobs:
        each.send("end")
    until(engine, lambda: len(rows(engine, "timers")) == 1)
    flush(engine)
    clock.advance(29.0)
    flush(engine)
    assert len(BEGUN) == 2
    clock.advance(1.0)
    jobs[3].result(PATIENCE)
    until(engine, lambda: len(rows(engine, "timers")) == 1)
    flush(engine)
    assert sorted(BEGUN) == ["j0", "j1", "j2", "j3"]
    clock.advance(30.0)
    assert jobs[4].result(PATIENCE) == "j4"


def test_one_that_waits_takes_events_and_can_be_cancelled_and_killed(engine: af.Engine) -> None:
    limits = af.Lane("c", concurrency=1)
    first = engine.start(Job(), id="first", lane=limits)
    hears, cancelled, killed = (
        engine.start(Listener(), id=name, lane=limits) for name in ("hears", "cancelled", "killed")
    )
    hears.send("hello")
    hears.send("paid")
    assert cancelled.cancel()
    assert killed.kill()
    with pytest.raises(af.Cancelled):
        cancelled.result(PATIENCE)
    assert cancelled.query().mode == "cancelled"
    until(engine, lambda: lane(engine).waiting == ["hears"])
    first.send("end")
    assert hears.result(PATIENCE) == ["hello", "paid"]
    assert rows(engine, "dead") == []


def test_whatever_ends_a_workflow_makes_room(engine: af.Engine) -> None:
    limits = af.Lane("c", concurrency=1)
    jobs = [engine.start(Job(), id=f"j{n}", lane=limits) for n in range(4)]
    until(engine, lambda: BEGUN == ["j0"])
    jobs[0].kill()
    until(engine, lambda: BEGUN == ["j0", "j1"])
    jobs[1].cancel()
    until(engine, lambda: BEGUN == ["j0", "j1", "j2"])
    jobs[2].send("end")
    jobs[3].send("end")
    assert jobs[3].result(PATIENCE) == "j3"


def test_a_paused_lane_lets_nothing_begin_also_after_a_restart(
    opens: Callable[..., af.Engine], tmp_path: Path
) -> None:
    with opens(tmp_path / "store.db", durability="off") as engine:
        engine.pause(af.Lane("c"))
        engine.start(Job(), id="j", lane=af.Lane("c")).send("end")
    with opens(tmp_path / "store.db", durability="off") as engine:
        engine.workflows.register(Job)
        engine.resume()
        flush(engine)
        assert lane(engine).paused
        assert (BEGUN, lane(engine).waiting) == ([], ["j"])
        engine.resume(af.Lane("c"))
        assert engine.result("j", PATIENCE) == "j"


def test_a_paused_task_waits_and_other_tasks_go_on(engine: af.Engine) -> None:
    engine.pause(slow)
    engine.pause(sure)
    both = [engine.start(Calls(), id=name) for name in ("a", "b")]
    until(engine, lambda: {each.tasker for each in rows(engine, "tasks")} == {"slow"})
    engine.resume(slow)
    engine.resume(slow)  # has no effect
    until(engine, lambda: {each.tasker for each in rows(engine, "tasks")} == {"sure"})
    engine.resume(sure)
    assert [each.result(PATIENCE) for each in both] == ["slow sure"] * 2
    with pytest.raises(af.BadOption, match="no tasker 'slo'; did you mean 'slow'"):
        engine.pause("slo")


@af.task
def slow() -> str:
    return "slow"


@af.task(pure=True)
def sure() -> str:
    return "sure"


class Calls(af.Workflow[str]):
    """Calls two tasks."""

    def handle(self) -> str:
        """Call them."""
        return f"{self.execute(slow())} {self.execute(sure())}"


def test_a_start_waits_for_its_moment_and_keeps_events(
    engine: af.Engine, clock: VirtualClock
) -> None:
    later = engine.start(Listener(), id="later", at=clock.now() + 60)
    later.send("paid")
    assert later.query().held
    flush(engine)
    clock.advance(59.0)
    flush(engine)
    assert later.query().held
    clock.advance(1.0)
    assert later.result(PATIENCE) == ["paid"]
    past = datetime.fromtimestamp(clock.now() - 5, UTC)
    soon = engine.start(Listener(), at=past)
    soon.send("paid")
    assert soon.result(PATIENCE) == ["paid"]


def test_a_start_enters_its_lane_when_its_moment_comes(
    engine: af.Engine, clock: VirtualClock
) -> None:
    limits = af.Lane("c", concurrency=1)
    later = engine.start(Job(), id="later", lane=limits, at=clock.now() + 60)
    engine.start(Job(), id="first", lane=limits)
    engine.start(Job(), id="second", lane=limits).send("end")
    until(engine, lambda: len(rows(engine, "timers")) == 1)
    flush(engine)
    clock.advance(60.0)
    until(engine, lambda: lane(engine).waiting == ["second", "later"])
    later.send("end")
    engine.send("first", {"event": "end"})
    assert later.result(PATIENCE) == "later"
    assert BEGUN == ["first", "second", "later"]


def test_a_start_that_was_cancelled_before_its_moment_leaves_nothing(
    engine: af.Engine, clock: VirtualClock
) -> None:
    later = engine.start(Job(), id="later", lane=af.Lane("c"), at=clock.now() + 60)
    later.cancel()
    with pytest.raises(af.Cancelled):
        later.result(PATIENCE)
    until(engine, lambda: rows(engine, "messages") == [])
    assert rows(engine, "timers") == rows(engine, "dead") == BEGUN == []


def test_an_id_that_is_taken_is_refused_if_asked_for(engine: af.Engine) -> None:
    first = engine.start(Job(), id="j")
    assert engine.start(Job(), id="j").id == "j"
    with pytest.raises(ExecutionExists, match="there is a workflow 'j' already"):
        engine.start(Job(), id="j", on_conflict="refuse")
    with pytest.raises(ExecutionExists):
        engine.start(Job(), id="j", lane=af.Lane("c"), on_conflict="refuse")
    with pytest.raises(ExecutionExists):
        asyncio.run(engine.astart(Job(), id="j", on_conflict="refuse"))
    first.send("end")
    assert first.result(PATIENCE) == "j"
    assert engine.start(Job(), id="k", on_conflict="refuse").id == "k"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lane": "c"}, "lane='c' is not a lane: lane=af.Lane"),
        ({"at": "now"}, "at='now'"),
        ({"at": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - the fault
        ({"on_conflict": "ignore"}, "on_conflict='ignore'"),
        ({"on_conflict": "replace", "connection": object()}, "cannot join a transaction"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], text: str) -> None:
    with af.Engine(":memory:") as engine:
        with pytest.raises(af.BadOption, match=text):
            engine.start(Job(), **options)
        with pytest.raises(af.BadOption, match="lane= is for workflows"):
            engine.start(af.Plan(), lane=af.Lane("c"))  # type: ignore[call-overload]
        engine.pause(af.Lane("c"))
        with pytest.raises(af.BadOption, match="a lane cannot be cancelled"):
            engine.cancel("lane:c")


RUNNING: list[str] = []
MOST: list[int] = []
OPEN = threading.Event()


@af.task(lane=lambda customer, _n: af.Lane(f"bill/{customer}", concurrency=1), timeout=1_000)
def bill(customer: str, _n: int) -> str:
    """Note how many run at the same time."""
    RUNNING.append(customer)
    MOST.append(RUNNING.count(customer))
    OPEN.wait(PATIENCE)
    RUNNING.remove(customer)
    return af.current_task().id


@af.task(lane=af.Lane("declines", concurrency=1))
def declines(n: int) -> int:
    """Fail the first time."""
    BEGUN.append(str(n))
    if len(BEGUN) == 1:
        raise ValueError("no money")
    return n


class Bills(af.Workflow[list[str]]):
    """Bills a customer three times at once."""

    def __init__(self, customer: str) -> None:
        self.customer = customer

    def handle(self) -> list[str]:
        """Do it."""
        return self.execute_all([bill(self.customer, n) for n in range(3)])


class Declines(af.Workflow[int]):
    """Waits for a task that fails."""

    def handle(self) -> int:
        """Execute it."""
        return self.execute(declines(1))


@pytest.fixture
def _open() -> Iterator[None]:
    OPEN.set()
    RUNNING.clear()
    MOST.clear()
    yield
    OPEN.set()


@pytest.mark.usefixtures("_open")
def test_calls_of_a_task_share_a_lane_of_all_instances(engine: af.Engine) -> None:
    bills = [engine.start(Bills(name), id=f"{name}{n}") for name in "ab" for n in range(2)]
    for each in bills:
        assert each.result(PATIENCE) == [f"{each.id}/0/0.{n}" for n in range(3)]
    assert (len(MOST), max(MOST)) == (12, 1)
    until(engine, lambda: lane(engine, "bill/a").running == [])
    until(engine, lambda: rows(engine, "messages") == [])
    assert rows(engine, "dead") == rows(engine, "timers") == []


@pytest.mark.usefixtures("_open")
def test_whatever_ends_a_task_makes_room(engine: af.Engine) -> None:
    OPEN.clear()
    cancelled, killed, last = (engine.start(Bills("a"), id=name) for name in ("c", "k", "l"))
    until(engine, lambda: any(each.id == "lane:bill/a" for each in engine.executions()))
    until(engine, lambda: len(lane(engine, "bill/a").waiting) == 8)
    assert len(lane(engine, "bill/a").running) == 1
    cancelled.cancel()
    engine.parts.cancellation.end("k/0/0.0", ThreadTicket())  # as by `actorflow kill`
    killed.kill()
    OPEN.set()
    assert len(last.result(PATIENCE)) == 3
    until(engine, lambda: lane(engine, "bill/a").running == [])
    assert lane(engine, "bill/a").waiting == []
    assert rows(engine, "dead") == []


def test_a_task_that_fails_in_a_lane_makes_room_and_can_be_retried(engine: af.Engine) -> None:
    first = engine.start(Declines(), id="first")
    with pytest.raises(ExecutionFailed, match="ValueError: the task declines"):
        first.result(PATIENCE)
    assert engine.start(Declines(), id="second").result(PATIENCE) == 1
    first.retry()
    assert first.result(PATIENCE) == 1
    until(engine, lambda: lane(engine, "declines").running == [])


def test_what_is_no_lane_of_a_task_is_refused() -> None:
    with pytest.raises(InvalidStep, match="lane='stripe' is not a lane"):
        af.task(lane="stripe")  # type: ignore[call-overload]
    with pytest.raises(InvalidStep, match="pure=True, lane="):
        af.task(pure=True, lane=af.Lane("c"))
    with pytest.raises(InvalidStep, match=r"has returned 'c', not an af\.Lane"):
        af.task(lane=lambda _n: "c")(declines.function)(1)  # type: ignore[arg-type, return-value]
