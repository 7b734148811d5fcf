"""A program before a deploy: see `new`."""

from __future__ import annotations

from typing import Any

import actorflow as af

__all__ = ["Order", "setup"]


class Order(af.Workflow[str]):
    """Waits to be paid."""

    def __init__(self, order: str) -> None:
        self.order = order

    def handle(self) -> str:
        self.wait("paid")
        return "old"


def setup(engine: af.Engine) -> None:
    """Register what this version has."""

    def work(task: Any) -> dict[str, Any]:
        return {"n": task.payload["n"] + 1}

    engine.tasker("alice", work, concurrency=4)
    engine.workflows.register(Order)
