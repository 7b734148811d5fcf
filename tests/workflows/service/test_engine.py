"""Workflows on an engine: what users call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import (
    Cancelled,
    EngineClosed,
    ExecutionEnded,
    KindMismatch,
    UnknownExecution,
    WaitTimeout,
)
from actorflow.workflows.errors import InvalidWorkflow
from tests.engine.kinds import flush, rows, until
from tests.workflows.service.orders import PATIENCE, Order, Parent, charge, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actorflow.testing import VirtualClock
    from actorflow.workflows.workflow import StepError, StepInfo

DAY = 86_400.0


def test_an_order_that_is_paid(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"), id="o-1")
    wait_for_event(order)
    order.send("paid", amount=40)
    assert order.result(PATIENCE) == "o-1 shipped for 40"
    assert engine.execution("o-1").status == "done"
    assert engine.result("o-1") == "o-1 shipped for 40"
    assert rows(engine, "timers") == rows(engine, "tasks") == rows(engine, "messages") == []
    assert rows(engine, "dead") == []


def test_an_order_that_is_not_paid_in_time(engine: af.Engine, clock: VirtualClock) -> None:
    order = engine.start(Order("o-1"))
    wait_for_event(order)
    clock.advance(3 * DAY - 1)
    assert order.status == "active"
    clock.advance(1)
    assert order.result(PATIENCE) == "o-1 refunded"


class Swallows(af.Workflow[None]):
    """Lets no exception pass."""

    def handle(self) -> None:
        while True:
            with contextlib.suppress(BaseException):
                self.wait("go")


def test_an_engine_with_code_that_never_ends_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with af.Engine(tmp_path / "store.db", durability="off") as engine:
        wait_for_event(engine.start(Swallows(), id="s-1"))
    assert "catches everything; it stays suspended" in caplog.text
    with af.Engine(tmp_path / "store.db", durability="off") as engine:
        engine.cancel("s-1")
        with pytest.raises(Cancelled):
            engine.result("s-1", PATIENCE)


def test_only_the_first_start_of_an_id_counts(engine: af.Engine) -> None:
    one = engine.start(Order("first"), id="o-1")
    two = engine.start(Order("second"), id="o-1")
    assert one.id == two.id
    assert two.query().properties["order"] == "first"
    with pytest.raises(KindMismatch, match="workflow:Order"):
        engine.start(Parent("o"), id="o-1")


def test_the_handle_of_one_that_was_started_before(engine: af.Engine) -> None:
    engine.start(Order("o-1"), id="o-1")
    order = engine.workflows.get(Order, "o-1")
    wait_for_event(order)
    order.send("paid", amount=1)
    assert order.result(PATIENCE) == "o-1 shipped for 1"
    with pytest.raises(UnknownExecution, match="o-2"):
        engine.workflows.get(Order, "o-2")
    with pytest.raises(KindMismatch):
        engine.workflows.get(Parent, "o-1")
    assert [each.id for each in engine.workflows.instances(Order)] == ["o-1"]
    assert list(engine.workflows.instances(Order, status="active")) == []


def test_r14_an_event_with_the_same_id_counts_once(engine: af.Engine) -> None:
    class Counts(af.Workflow[int]):
        def __init__(self) -> None:
            self.count = 0

        def handle(self) -> int:
            self.wait("end")
            return self.count

        def on_event(self, event: af.Event) -> int:
            self.count += event.name == "more"
            return self.count

    counts = engine.start(Counts())
    wait_for_event(counts)
    for _ in range(3):
        counts.send("more", id="the same")
    assert [counts.ask("more", id="question", timeout=PATIENCE) for _ in range(3)] == [2, 2, 2]
    counts.send("end")
    assert counts.result(PATIENCE) == 2


def test_an_event_can_be_an_object(engine: af.Engine) -> None:
    @dataclass
    class Paid:
        amount: int

    class Waits(af.Workflow[int]):
        def handle(self) -> int:
            paid = self.wait(Paid)
            assert paid is not None
            return paid.amount

    waits = engine.start(Waits())
    wait_for_event(waits)
    waits.send(Paid(7))
    assert waits.result(PATIENCE) == 7
    with pytest.raises(TypeError, match="its own data"):
        waits.send(Paid(7), amount=8)


def test_a_paused_workflow_keeps_what_happens(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"))
    wait_for_event(order)
    order.pause()
    assert order.query().mode == "paused"
    order.send("paid", amount=3)
    until(engine, lambda: order.query().state.buffer)
    assert order.status == "active"
    order.resume()
    assert order.result(PATIENCE) == "o-1 shipped for 3"


@pytest.mark.parametrize(("verb", "mode"), [("cancel", "cancelled"), ("kill", "killed")])
def test_what_is_cancelled_ends(engine: af.Engine, verb: str, mode: str) -> None:
    order = engine.start(Order("o-1"))
    wait_for_event(order)
    assert getattr(order, verb)() is True
    with pytest.raises(Cancelled):
        order.result(PATIENCE)
    assert getattr(order, verb)() is False
    assert order.query().mode == mode
    assert rows(engine, "timers") == []


def test_sub_workflows_are_steps(engine: af.Engine) -> None:
    parent = engine.start(Parent("o-1"), id="p")
    until(engine, lambda: [one for one in engine.executions() if one.id == "p/0/0.0"])
    child = engine.workflows.get(Order, "p/0/0.0")
    wait_for_event(child)
    assert engine.execution(child.id).parent == "p"
    child.send("paid", amount=9)
    assert parent.result(PATIENCE) == "child: o-1 shipped for 9"
    assert parent.query().properties["seen"] == [
        "start Order",
        "success Order o-1 shipped for 9",
    ]


def test_r20_a_child_that_is_cancelled_has_failed(engine: af.Engine) -> None:
    parent = engine.start(Parent("o-1"), id="p")
    until(engine, lambda: [one for one in engine.executions() if one.id == "p/0/0.0"])
    engine.workflows.get(Order, "p/0/0.0").cancel()
    until(engine, lambda: parent.query().failed)
    assert "failure Order Cancelled" in parent.query().properties["seen"]
    assert parent.status == "stuck"
    parent.retry()
    until(engine, lambda: [one for one in engine.executions() if one.id == "p/0/0.0#2"])
    child = engine.workflows.get(Order, "p/0/0.0#2")
    wait_for_event(child)
    child.send("paid", amount=1)
    assert parent.result(PATIENCE) == "child: o-1 shipped for 1"


def test_children_end_with_a_parent_that_is_cancelled(engine: af.Engine) -> None:
    parent = engine.start(Parent("o-1"), id="p")
    until(engine, lambda: [one for one in engine.executions() if one.id == "p/0/0.0"])
    child = engine.workflows.get(Order, "p/0/0.0")
    parent.cancel()
    with pytest.raises(Cancelled):
        child.result(PATIENCE)


def test_what_was_published_can_be_followed_from_any_offset(engine: af.Engine) -> None:
    class Speaks(af.Workflow[None]):
        def handle(self) -> None:
            for number in range(3):
                self.publish(number)
                self.wait("next")

    speaks = engine.start(Speaks())
    live = speaks.follow(timeout=PATIENCE)
    for number in range(3):
        assert next(live) == number
        wait_for_event(speaks)
        speaks.send("next")
    assert list(live) == []
    assert list(speaks.follow()) == [0, 1, 2]
    assert list(speaks.follow(2)) == [2]


def test_tags_are_shown(engine: af.Engine) -> None:
    class Tagged(af.Workflow[None]):
        def handle(self) -> None:
            self.tag(customer="c-7")
            self.wait("end")

    tagged = engine.start(Tagged())
    wait_for_event(tagged)
    assert tagged.query().tags == {"customer": "c-7"}
    assert tagged.query().plain()["tags"] == {"customer": "c-7"}


def test_z48_the_fields_of_the_states_table_can_be_inspected(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"), id="o-1")
    wait_for_event(order)
    shown = order.query().plain()
    assert {
        "id", "custom_id", "workflow_name", "programming_language", "branches", "executions",
        "statuses", "properties", "buffer", "ongoing_index", "decision_mode", "decision_ongoing",
        "decision_current_index", "waits",
    } <= set(shown)  # fmt: skip
    assert shown["workflow_name"] == "Order"
    assert shown["decision_mode"] == "run"


def test_the_history_says_what_has_happened(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"))
    wait_for_event(order)
    order.send("paid", amount=40)
    order.result(PATIENCE)
    entries = list(order.history())
    assert entries[0]["type"] == "start"
    assert [each["name"] for each in entries if each["type"] == "scheduled"] == [
        "charge",
        "reserve",
        "Wait",
        "ship",
    ]
    assert [each["event_name"] for each in entries if each["type"] == "onEvent"] == ["paid"]
    assert entries[-1] == {"type": "terminated", "output": "o-1 shipped for 40"}


def test_recorded_instances_can_be_held_against_new_code(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"), id="o-1")
    wait_for_event(order)
    assert engine.workflows.check("o-1", Order) is None

    class Other(af.Workflow[None]):
        def handle(self) -> None:
            self.execute(charge("o-1"))

    Other.__qualname__ = "Order"
    found = engine.workflows.check("o-1", Other)
    assert found is not None
    assert found.position == "0.1"
    assert "reserve" in str(found)


def test_from_asyncio(engine: af.Engine) -> None:
    async def main() -> str:
        order = await engine.astart(Order("o-1"))
        await asyncio.to_thread(wait_for_event, order)
        assert await order.aask("other", timeout=PATIENCE) == 0
        await order.apause()
        await order.aresume()
        await order.asend("paid", amount=5)
        result = await order.aresult(PATIENCE)
        assert [value async for value in order.afollow()] == []
        other = await engine.astart(Order("o-2"))
        assert await other.acancel()
        assert not await other.akill()
        return result

    assert asyncio.run(main()) == "o-1 shipped for 5"


def test_an_async_workflow_gathers(engine: af.Engine) -> None:
    class Gathers(af.Workflow[list[int]]):
        async def handle(self) -> list[int]:
            found = await asyncio.gather(*(charge("x" * number) for number in range(5)))
            return list(found)

    assert engine.start(Gathers()).result(PATIENCE) == [0, 1, 2, 3, 4]


def test_instances_go_on_after_a_restart(reopen: Callable[..., Any], clock: VirtualClock) -> None:
    engine = reopen()
    for number in range(20):
        wait_for_event(engine.start(Order(f"o-{number}"), id=f"o-{number}"))
    engine = reopen()
    engine.workflows.register(Order)
    for number in range(10):
        engine.workflows.get(Order, f"o-{number}").send("paid", amount=number)
    clock.advance(3 * DAY)
    for number in range(10):
        assert engine.result(f"o-{number}", PATIENCE) == f"o-{number} shipped for {number}"
    for number in range(10, 20):
        assert engine.result(f"o-{number}", PATIENCE) == f"o-{number} refunded"


def test_instances_wait_for_their_class(reopen: Callable[..., Any]) -> None:
    engine = reopen()
    wait_for_event(engine.start(Order("o-1"), id="o-1"))
    engine = reopen()
    engine.send("o-1", {"event": "paid", "data": {"amount": 1}})
    with pytest.raises(WaitTimeout):
        engine.result("o-1", 0.05)
    engine.workflows.register(Order)
    assert engine.result("o-1", PATIENCE) == "o-1 shipped for 1"


def test_a_dispatched_task_outlives_its_workflow(engine: af.Engine) -> None:
    go, done = threading.Event(), threading.Event()

    @af.task
    def mail(to: str) -> str:
        assert go.wait(PATIENCE)
        done.set()
        return to

    class Dispatches(af.Workflow[str]):
        def handle(self) -> str:
            self.dispatch(mail("you"))
            return "ended"

    started = engine.start(Dispatches(), id="d")
    assert started.result(PATIENCE) == "ended"
    go.set()
    assert engine.result("d/0/0.0", PATIENCE) == "you"
    assert done.is_set()


def test_on_start_on_timeout_and_on_failure(engine: af.Engine, clock: VirtualClock) -> None:
    go = threading.Event()

    @af.task(timeout=60)
    def slow() -> str:
        assert go.wait(PATIENCE)
        return "slow"

    class Watches(af.Workflow[list[str]]):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def handle(self) -> list[str]:
            self.execute(slow())
            return self.seen

        def on_start(self, step: StepInfo) -> None:
            self.seen = [*self.seen, f"start {step.name}"]

        def on_timeout(self, step: StepInfo) -> None:
            self.seen = [*self.seen, f"timeout {step.name}"]

        def on_failure(self, step: StepInfo, error: StepError) -> None:
            self.seen = [*self.seen, f"failure {error.name}"]

    watches = engine.start(Watches())
    until(engine, lambda: watches.query().properties["seen"])
    flush(engine)
    clock.advance(61)
    until(engine, lambda: len(watches.query().properties["seen"]) == 3)
    go.set()
    assert watches.query().properties["seen"] == [
        "start slow", "timeout slow", "failure TaskTimeout",
    ]  # fmt: skip


def test_what_is_no_workflow_is_refused(engine: af.Engine) -> None:
    with pytest.raises(InvalidWorkflow, match="is not a workflow"):
        engine.start(42)  # type: ignore[call-overload]
    with pytest.raises(InvalidWorkflow, match="neither"):
        engine.workflows.register(Order("o"))  # type: ignore[arg-type]
    with pytest.raises(af.BadOption, match="__init__"):
        engine.start(Order("o"), {"body": 1})  # type: ignore[call-overload]
    with pytest.raises(af.BadOption, match="inbox="):
        engine.start("worker", inbox=1)  # type: ignore[call-overload]


def test_an_event_to_one_that_has_ended_is_refused(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"))
    wait_for_event(order)
    order.cancel()
    with pytest.raises(Cancelled):
        order.result(PATIENCE)
    with pytest.raises(ExecutionEnded, match="has ended"):
        order.send("paid", amount=1)
    with pytest.raises(ExecutionEnded):
        order.ask("paid", amount=1)
    with pytest.raises(ExecutionEnded):
        order.pause()


def test_closing_does_not_wait_for_code_that_blocks(reopen: Callable[..., Any]) -> None:
    entered, go, left = threading.Event(), threading.Event(), threading.Event()

    class Blocks(af.Workflow[str]):
        def handle(self) -> str:
            entered.set()
            go.wait(PATIENCE)
            left.set()
            return "ended"

    engine = reopen()
    starter = threading.Thread(target=lambda: _start(engine, Blocks()))
    starter.start()
    assert entered.wait(PATIENCE)
    engine.close(0.05)
    assert not left.is_set()
    go.set()
    assert left.wait(PATIENCE)
    starter.join(PATIENCE)


def _start(engine: af.Engine, workflow: af.Workflow[Any]) -> None:
    with contextlib.suppress(EngineClosed):
        engine.start(workflow, id="blocks")
