"""What the tests of flows on the engine share: engines, and taskers that tests can talk to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from actorflow.engine.tasks.task import HOLD

if TYPE_CHECKING:
    from actorflow.flows.service.taskers import FlowTask

PATIENCE = 30.0
"""Seconds that a wait may take on a slow machine; nothing depends on how long it really takes."""


class Desk:
    """A tasker that keeps its tasks; tests wait for them to arrive."""

    def __init__(self) -> None:
        self.tasks: list[FlowTask] = []
        self._arrived = threading.Condition()

    def __call__(self, task: FlowTask) -> Any:
        with self._arrived:
            self.tasks.append(task)
            self._arrived.notify_all()
        return HOLD

    def wait_for(self, count: int) -> list[FlowTask]:
        """Wait until so many tasks have arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.tasks) >= count, PATIENCE)
            return list(self.tasks)
