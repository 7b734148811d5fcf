"""The harness of the test kit."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Struct

import actorflow as af
from actorflow.engine.errors import Cancelled, ExecutionFailed
from actorflow.testing import WorkflowHarness
from actorflow.workflows.errors import InvalidWorkflow, StepFailed
from tests.workflows.service.orders import Order, Parent, charge, refund, reserve, ship

STUBS = {charge: 40, reserve: "r", refund: "refunded", ship: lambda order, paid: f"{order} {paid}"}


def test_an_event_in_time() -> None:
    with WorkflowHarness(Order("o-1"), stubs=STUBS) as order:
        order.advance(days=2, hours=23)
        order.send("paid", amount=7)
        assert order.result == "o-1 7"
        assert [name for name, _ in order.steps] == ["charge", "reserve", "Wait", "ship"]
        assert ("onEvent", "paid") in order.history
        assert order.properties["paid"] == 7


def test_three_days_pass_at_once() -> None:
    with WorkflowHarness(Order("o-1"), stubs=STUBS) as order:
        before = order.now
        order.advance(days=4)
        assert order.result == "refunded"
        assert (order.now - before).days == 4


def test_steps_without_a_stub_wait() -> None:
    with WorkflowHarness(Order("o-1")) as order:
        assert order.open == ["charge", "reserve"]
        with pytest.raises(LookupError, match="charge"):
            _ = order.result
        order.succeed("reserve", "r")
        order.fail(charge, OSError("no network"))
        with pytest.raises(LookupError, match="no 'charge' is open"):
            order.succeed(charge)
        assert order.state.statuses[0].status == "failed"


def test_stubs_of_sub_workflows_and_restarts() -> None:
    with WorkflowHarness(Parent("o-1"), stubs={}) as parent:
        assert parent.open == ["Order"]
        parent.restart()
        parent.succeed(Order, "done")
        assert parent.result == "child: done"
    with WorkflowHarness(Parent("o-1"), stubs={Order: "stub"}) as parent:
        assert parent.result == "child: stub"


def test_a_stub_that_fails_is_tried_as_often_as_the_task() -> None:
    calls: list[str] = []

    @af.task(retries=2)
    def fragile(text: str) -> str: ...  # type: ignore[empty-body]

    class Tries(af.Workflow[str]):
        def handle(self) -> str:
            try:
                return self.execute(fragile("x"), raises=True)
            except StepFailed as error:
                return str(error.error["message"])

    def fails(text: str) -> str:
        calls.append(text)
        raise OSError("no network")

    with WorkflowHarness(Tries(), stubs={fragile: fails}) as tries:
        assert tries.result == "no network"
    assert calls == ["x"] * 3


def test_an_error_of_the_code_is_raised_with_its_traceback() -> None:
    class Raises(af.Workflow[None]):
        def handle(self) -> None:
            raise RuntimeError("no")

    with (
        WorkflowHarness(Raises()) as raises,
        pytest.raises(ExecutionFailed, match=r"RuntimeError: no[\s\S]*in handle"),
    ):
        _ = raises.result


def test_code_that_does_not_do_the_same_again_is_found() -> None:
    turns: list[str] = []

    class Differs(af.Workflow[int]):
        def handle(self) -> int:
            turns.append("o")
            return self.execute(charge("".join(turns)))

    with (
        pytest.raises(AssertionError, match="a replay does something else"),
        WorkflowHarness(Differs(), stubs=STUBS) as differs,
    ):
        assert differs.result == 40


def test_what_is_published_and_tagged() -> None:
    class Speaks(af.Workflow[None]):
        def handle(self) -> None:
            self.publish(1)
            self.tag(stage="one")
            self.wait(minutes=1)
            self.publish(2)

    with WorkflowHarness(Speaks()) as speaks:
        assert speaks.published == [1]
        speaks.pause()
        speaks.advance(minutes=1)
        assert speaks.published == [1]
        speaks.resume()
        assert speaks.published == [1, 2]
        assert speaks.tags == {"stage": "one"}
        assert speaks.mode == "terminated"


def test_a_step_that_has_failed_is_named_and_can_be_retried() -> None:
    declined = ["card"]

    def answer(order: str) -> int:
        if declined:
            raise ValueError(declined.pop())
        return 40

    with WorkflowHarness(Order("o-1"), stubs={charge: answer, "reserve": "r"}) as order:
        with pytest.raises(ExecutionFailed, match=r"waits for charge \(0/0.0\), which failed"):
            _ = order.result
        with pytest.raises(LookupError, match="no 'ship' has failed: there are charge"):
            order.retry(ship)
        order.retry(charge)
        order.kill()
        with pytest.raises(Cancelled):
            _ = order.result


def test_steps_of_one_name_can_be_answered_in_any_order() -> None:
    class Asks(af.Workflow[list[int]]):
        async def handle(self) -> list[int]:
            return list(await asyncio.gather(charge("a"), charge("b"), charge("c")))

    with WorkflowHarness(Asks()) as asks:
        with pytest.raises(LookupError, match=r"there are charge \(0/0.0\), charge \(0/1.0\), "):
            asks.succeed("0/7.0", 1)
        asks.succeed("0/2.0", 3)
        asks.restart()
        asks.fail("0/1.0", ValueError("card"))
        asks.retry("0/1.0")
        asks.succeed("0/1.0", 2)
        asks.succeed(charge, 1)
        assert asks.result == [1, 2, 3]


def test_events_may_be_objects() -> None:
    class Paid(Struct):
        amount: int

    class Waits(af.Workflow[int]):
        def handle(self) -> int:
            paid = self.wait(Paid)
            assert paid is not None
            return paid.amount

    with WorkflowHarness(Waits()) as waits:
        waits.send(Paid(7))
        assert waits.result == 7


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="5 is not a workflow"):
        WorkflowHarness(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="5 names no step"):
        WorkflowHarness(Order("o-1"), stubs={5: 1})
    with (
        WorkflowHarness(Order("o-1")) as order,
        pytest.raises(ValueError, match="time cannot go back by 1 day"),
    ):
        order.advance(days=-1)
    with (
        WorkflowHarness(Order("o-1")) as order,
        pytest.raises(TypeError, match=r"'no' is not an error: fail\(charge, ValueError"),
    ):
        order.fail(order.open[0], "no")  # type: ignore[arg-type]
