"""Workflows and tasks that several test modules drive."""

from __future__ import annotations

import msgspec

from actorflow.workflows.task import task
from actorflow.workflows.workflow import Workflow


@task
def double(number: int) -> int:
    return 2 * number


@task(timeout=30)
def ship(order: str) -> str:
    return f"shipped {order}"


class Point(msgspec.Struct):
    x: int
    y: int


class Long(Workflow[int]):
    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.calls = 0

    def handle(self) -> int:
        total = 0
        for number in range(self.steps):
            total += self.execute(double(number))
        return total
