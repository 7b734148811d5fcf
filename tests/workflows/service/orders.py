"""Workflows that several tests run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import actorflow as af
from tests.engine.kinds import flush, until

if TYPE_CHECKING:
    from actorflow.testing import VirtualClock
    from actorflow.workflows.workflow import StepError, StepInfo

PATIENCE = 20.0
"""Seconds that a wait may take on a slow machine; nothing depends on how long it really takes."""


def wait_for_event(handle: af.WorkflowHandle[Any]) -> None:
    """Wait until it waits for an event."""
    until(handle._engine, lambda: handle.query().state.waits)
    flush(handle._engine)  # wait for the effects of the commit as well: timers are armed


def advance_until_done(
    engine: af.Engine, clock: VirtualClock, handle: af.WorkflowHandle[Any], seconds: float
) -> None:
    """Move time on, step by step, until an instance is done."""

    def done() -> bool:
        clock.advance(seconds)
        return handle.status == "done"

    until(engine, done)


@af.task
def charge(order: str) -> int:
    return len(order)


@af.task
def reserve(order: str) -> str:
    return f"{order} reserved"


@af.task
def refund(order: str) -> str:
    return f"{order} refunded"


@af.task
def ship(order: str, paid: int) -> str:
    return f"{order} shipped for {paid}"


class Order(af.Workflow[str]):
    """The example of the documentation."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.paid = 0

    def handle(self) -> str:
        self.execute(charge(self.order), reserve(self.order))
        if self.wait("paid", days=3) is None:
            return self.execute(refund(self.order))
        return self.execute(ship(self.order, self.paid))

    def on_event(self, event: af.Event) -> int:
        if event.name == "paid":
            self.paid += event.data["amount"]
        return self.paid


class Parent(af.Workflow[str]):
    """Has another workflow as a step."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.seen: list[str] = []

    def handle(self) -> str:
        return "child: " + self.execute(Order(self.order))

    def on_start(self, step: StepInfo) -> None:
        self.seen = [*self.seen, f"start {step.name}"]

    def on_success(self, step: StepInfo, output: Any) -> None:
        self.seen = [*self.seen, f"success {step.name} {output}"]

    def on_failure(self, step: StepInfo, error: StepError) -> None:
        self.seen = [*self.seen, f"failure {step.name} {error.name}"]
