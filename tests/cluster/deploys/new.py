"""The program of `old` after a deploy: a workflow was changed, one is new, and so is a task."""

from __future__ import annotations

from typing import Any

import actorflow as af

__all__ = ["Gift", "Order", "setup"]


@af.task
def check(order: str) -> bool:
    """Check an order."""
    return bool(order)


class Order(af.Workflow[str]):
    """Waits to be paid; a check is asked for first, if it has begun after the deploy."""

    def __init__(self, order: str) -> None:
        self.order = order

    def handle(self) -> str:
        path = "old"
        if self.patched("check first"):
            self.dispatch(check(self.order))
            path = "new"
        self.wait("paid")
        return path


class Gift(af.Workflow[str]):
    """A workflow that is new."""

    def handle(self) -> str:
        self.wait("paid")
        return "given"


def setup(engine: af.Engine) -> None:
    """Register what this version has."""

    def work(task: Any) -> dict[str, Any]:
        return {"n": task.payload["n"] + 1, "checked": True}

    engine.tasker("alice", work, concurrency=4)
    engine.workflows.register(Order)
    engine.workflows.register(Gift)
