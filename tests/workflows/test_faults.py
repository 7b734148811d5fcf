"""Faults of workflows that were found by rewriting the programs of others."""

from __future__ import annotations

from typing import Any

import pytest

import actorflow as af
from actorflow.testing import WorkflowHarness


@af.task
def charge(order: str) -> str:
    """Return a receipt."""
    return order


class Pays(af.Workflow[str]):
    """Waits for a payment and an approval."""

    def handle(self) -> str:
        """Return the failed step, and whether the approval is still there."""
        try:
            self.execute(charge("o-1"), af.Wait("approved"), raises=True)
        except af.StepFailed as error:
            event = self.wait("approved", seconds=0)
            return f"{error.name} failed, approved: {event is not None}"
        return "paid"


def test_execute_raises_at_the_first_failure() -> None:
    with WorkflowHarness(Pays()) as pays:
        pays.fail("charge", ValueError("no money"))
        assert pays.result == "charge failed, approved: False"
    with WorkflowHarness(Pays()) as pays:
        pays.send("approved")
        pays.restart()
        pays.fail("charge", ValueError("no money"))
        assert pays.result == "charge failed, approved: True"
    with WorkflowHarness(Pays()) as pays:
        pays.succeed("charge", "ok")
        pays.send("approved")
        assert pays.result == "paid"


def test_aexecute_raises_at_the_first_failure() -> None:
    class Both(af.Workflow[str]):
        async def handle(self) -> str:
            try:
                await self.aexecute(charge("o-1"), charge("o-2"), raises=True)
            except af.StepFailed as error:
                return error.step
            return "paid"

    with WorkflowHarness(Both()) as both:
        both.fail("0/0.1", ValueError("no money"))
        assert both.result == "0/0.1"


def test_a_forgotten_execute_is_explained() -> None:
    class Forgets(af.Workflow[Any]):
        def handle(self) -> Any:
            self.receipt: Any = charge("o-1")
            return 0

    with pytest.raises(Exception, match=r"self\.execute\(charge"), WorkflowHarness(Forgets()) as it:
        _ = it.result


def test_the_time_of_a_workflow_does_not_go_back() -> None:
    class Times(af.Workflow[bool]):
        def handle(self) -> bool:
            before = self.now()
            self.wait("go")
            return self.now() >= before

    with WorkflowHarness(Times()) as times:
        times.restart()
        times._now -= 3_600  # as after a restart with a clock that is behind
        times.send("go")
        assert times.result is True
