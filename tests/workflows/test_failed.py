"""A failure as a result: `Failed` ends an instance."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import ExecutionEnded
from actorflow.testing import WorkflowHarness

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 20


@af.task
def charge(amount: int) -> int:
    """Return the amount."""
    return amount


class Payment(af.Workflow[int]):
    """Fails for good if the amount is too high."""

    def __init__(self, amount: int) -> None:
        self.amount = amount
        self.stage = "new"

    def handle(self) -> int:
        """Charge, then decide."""
        self.stage = "charged"
        charged = self.execute(charge(self.amount))
        self.stage = "decided"
        if charged > 100:
            raise af.Failed("declined", data={"code": 51})
        self.wait("done")
        return charged

    def on_event(self, event: af.Event) -> None:
        """Fail for good."""
        if event.name == "fail":
            raise af.Failed("told to")


class Shop(af.Workflow[Any]):
    """Executes a payment."""

    def handle(self) -> Any:
        """Return the error."""
        try:
            return self.execute(Payment(200), raises=True)
        except af.StepFailed as error:
            return error.error


@pytest.fixture
def engine() -> Iterator[af.Engine]:
    """Return an engine in memory."""
    with af.Engine(":memory:") as engine:
        engine.workflows.register(Payment, Shop, charge)
        yield engine


def test_callers_get_the_failure_with_its_data(engine: af.Engine) -> None:
    payment = engine.start(Payment(200), id="p-1")
    with pytest.raises(af.WorkflowFailed, match=r"p-1.*declined") as caught:
        payment.result(timeout=PATIENCE)
    assert caught.value.data == {"code": 51}
    assert caught.value.failure.message == "declined"
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made here
    assert copy.data == {"code": 51}
    assert payment.status == "failed"
    assert [each.id for each in engine.executions(status="failed")] == ["p-1"]
    with pytest.raises(ExecutionEnded):
        payment.send("done")
    assert payment.query().properties["stage"] == "decided"
    assert [each for each in payment.history() if each.get("type") == "given up"]


def test_async_callers_get_it_too(engine: af.Engine) -> None:
    payment = engine.start(Payment(200))
    with pytest.raises(af.WorkflowFailed):
        asyncio.run(payment.aresult(timeout=PATIENCE))


def test_the_parent_is_notified(engine: af.Engine) -> None:
    error = engine.start(Shop()).result(timeout=PATIENCE)
    assert (error["name"], error["message"]) == ("WorkflowFailed", "declined")
    assert error["data"] == {"code": 51}


def test_an_event_can_end_the_instance() -> None:
    with WorkflowHarness(Payment(1), stubs={charge: 1}) as payment:
        payment.send("fail")
        with pytest.raises(af.WorkflowFailed, match="told to"):
            _ = payment.result
        payment.restart()
        payment.send("done")
        assert payment.mode == "given up"


def test_steps_that_were_dispatched_go_on(engine: af.Engine) -> None:
    done = threading.Event()

    @af.task
    def tell(text: str) -> None:
        done.set()

    class Tells(af.Workflow[None]):
        def handle(self) -> None:
            self.dispatch(tell("sorry"))
            raise af.Failed("no")

    engine.workflows.register(Tells, tell)
    with pytest.raises(af.WorkflowFailed):
        engine.start(Tells()).result(timeout=PATIENCE)
    assert done.wait(PATIENCE)


def test_data_that_cannot_be_stored_only_stops_the_instance() -> None:
    class Bad(af.Workflow[None]):
        def handle(self) -> None:
            raise af.Failed("no", data=object())

    with WorkflowHarness(Bad()) as bad:
        assert bad.mode == "failed"
        assert bad.state.error["name"] == "NotStorable"
